"""Hosts that are network namespaces: each with an address of its own on a common bridge, its link cut and restored at will.

The bridge lives in a namespace too, so nothing of this machine's own network is touched. All names begin with
baton-<pid>-; they are removed at the end, at exit, and, if a run was killed, by the next run. Needs root and `ip`.
"""
import atexit
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import subprocess

PREFIX = "baton-"
SUBNET = "10.231.0"
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=20)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def why_not():
    """None if namespaces can be made here, else the reason."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the program `ip` (package iproute2) is not there"
    name = f"{PREFIX}{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "add", "end0", "type", "veth", "peer", "name", "end1")
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return f"namespaces can't be made: {error}"
    finally:
        ip("netns", "del", name, check=False)
    return None


def sweep():
    """Removes namespaces of runs that are over."""
    for line in ip("netns", "list", check=False).splitlines():
        found = re.match(rf"{PREFIX}(\d+)-", line)
        if found and not pathlib.Path(f"/proc/{found[1]}").exists():
            ip("netns", "del", line.split()[0], check=False)


def enter(namespace):
    """This thread, by an open file of a namespace."""
    if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {namespace.name}")


class Host:
    """One namespace with the interface eth0 and an address."""

    def __init__(self, network, name, address):
        self.name, self.namespace = name, f"{network.prefix}{name}"
        self.address, self.bridge_end = address, f"to-{name}"
        self.network = network
        ip("netns", "add", self.namespace)
        ip("-n", network.switch, "link", "add", self.bridge_end, "type", "veth", "peer", "name", "eth0", "netns",
           self.namespace)
        ip("-n", network.switch, "link", "set", self.bridge_end, "master", "bridge", "up")
        ip("-n", self.namespace, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", self.namespace, "link", "set", device, "up")

    @contextlib.contextmanager
    def inside(self):
        """Sockets made and processes started by this thread belong to the host."""
        with open("/proc/thread-self/ns/net", "rb") as before, open(f"/var/run/netns/{self.namespace}", "rb") as own:
            enter(own)
            try:
                yield self
            finally:
                enter(before)

    def cut(self):
        """Pulls the cable: packets are lost, nobody is told."""
        ip("-n", self.network.switch, "link", "set", self.bridge_end, "down")

    def restore(self):
        ip("-n", self.network.switch, "link", "set", self.bridge_end, "up")

    def slow(self, rate):
        """Caps what it sends, so that there is time to cut in: "20mbit"; None: no cap."""
        subprocess.run(["tc", "-n", self.namespace, "qdisc", "del", "dev", "eth0", "root"], capture_output=True)
        if rate:
            subprocess.run(["tc", "-n", self.namespace, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate,
                            "burst", "64kb", "latency", "200ms"], check=True, capture_output=True, timeout=20)


class Network:
    """Hosts by name: those of `names` get addresses of a private network, those of `addresses` the one given. Threads and
    processes belong where the thread that starts them is."""

    def __init__(self, *names, **addresses):
        sweep()
        self.prefix = f"{PREFIX}{os.getpid()}-"
        self.switch = f"{self.prefix}switch"
        self.hosts = {}
        atexit.register(self.close)
        ip("netns", "add", self.switch)
        # A bridge that learns at once: no spanning tree, no waiting.
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        given = {name: f"{SUBNET}.{number}" for number, name in enumerate(names, 1)} | addresses
        for name, address in given.items():
            self.hosts[name] = Host(self, name, address)

    def __getitem__(self, name):
        return self.hosts[name]

    def at(self, address):
        return next(host for host in self.hosts.values() if host.address == address)

    def close(self):
        atexit.unregister(self.close)
        for host in self.hosts.values():
            ip("netns", "del", host.namespace, check=False)
        self.hosts = {}
        ip("netns", "del", self.switch, check=False)
