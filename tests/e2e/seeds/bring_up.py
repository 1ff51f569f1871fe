"""Starts a filled-in deployment: one process group per node, the proxy last; waits for it; ends it whole.

Everything a node starts (launcher, bash, engines) is in its group, so that nothing outlives the run.
"""
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path.insert(0, str(HERE.parent))
import harness  # noqa: E402

STOP_SECONDS = 30
TROUBLE = re.compile(r"(^|\] |\| )E \d\d-\d\d |\berror:|can't start|Traceback|No such file|terminate called|Sanitizer")


class NotUp(Exception):
    """A deployment that did not come up, with the reason."""


def shim_folder():
    """The folder that the documents' programs are taken from, and `vllm` in it."""
    folder = ROOT / "shim"
    return folder if (folder / "launch_online_dp.py").exists() else None


def make_bin(folder, shim):
    """A folder for PATH: `vllm` is vllm_edit.py, `python` is this Python. Returns (folder, the real vllm)."""
    folder.mkdir(parents=True, exist_ok=True)
    wrapper = folder / "vllm"
    wrapper.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(HERE / 'vllm_edit.py'))} \"$@\"\n")
    wrapper.chmod(0o755)
    python = folder / "python"
    if not python.exists():
        python.symlink_to(sys.executable)
    real = folder / "real/vllm"
    if shim is not None and (shim / "vllm").exists():
        return folder, str(shim / "vllm")
    real.parent.mkdir(exist_ok=True)
    if not real.exists():
        real.symlink_to(harness.BATON)
    return folder, str(real)


class Group:
    """One node or the proxy: a process with a group of its own, its output in a file."""

    def __init__(self, name, words, folder, environment):
        self.name, self.log_path = name, pathlib.Path(folder) / f"{name}.log"
        self.log = open(self.log_path, "wb")
        self.popen = subprocess.Popen(words, cwd=folder, env=environment, stdout=self.log,
                                      stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)

    def ended(self):
        return self.popen.poll() is not None

    def logs(self):
        """What the node wrote, and what its launcher's children wrote into files beside it."""
        paths = [self.log_path, *sorted(self.log_path.parent.glob("logs/*"))]
        return "\n".join(path.read_text(errors="replace") for path in paths if path.is_file())

    def trouble(self, count=6):
        """The lines of its log that say why, else its last ones."""
        lines = [line for line in self.logs().splitlines() if line.strip()]
        telling = [line for line in lines if TROUBLE.search(line) and not line.startswith("seeds: ")]
        return "\n".join((telling or lines)[-count:])

    def signal(self, which):
        try:
            os.killpg(self.popen.pid, which)
        except ProcessLookupError:
            pass

    def alive(self):
        """Whether any process of the group is left."""
        self.popen.poll()
        try:
            os.killpg(self.popen.pid, 0)
            return True
        except ProcessLookupError:
            return False

    def memory_bytes(self):
        return sum(proportional_bytes(pid) for pid in members(self.popen.pid))


def members(root):
    """Ids of a process and all that descend from it: a launcher gives its children groups of their own."""
    children = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, at = [root], 0
    while at < len(found):
        found += children.get(found[at], [])
        at += 1
    return found


def proportional_bytes(pid):
    """Its memory, shared pages divided among those that map them."""
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


class Running:
    """A deployment that was started. `close` is always to be called."""

    def __init__(self, plan, folder, edits_of, shim, start_seconds, network=None):
        self.plan, self.folder, self.start_seconds = plan, pathlib.Path(folder), start_seconds
        self.network = network  # of namespaces, by address; None: everything on this host
        self.groups, self.started_s = [], 0.0
        self.bin, self.vllm = make_bin(self.folder / "bin", shim)
        self.shim = shim
        self.edits_of = edits_of

    def environment(self, edits):
        path = [str(self.bin), *([str(self.shim)] if self.shim else []), os.environ.get("PATH", "")]
        return {**os.environ, "PATH": ":".join(path), "PYTHONDONTWRITEBYTECODE": "1", "BATON": harness.BATON,
                "BATON_BINARY": harness.BATON, "BATON_SEEDS_EDITS": json.dumps(edits), "BATON_SEEDS_VLLM": self.vllm}

    def start(self):
        begin = time.monotonic()
        for node in self.plan.nodes:
            self.start_node(node)
        for node in self.plan.nodes:
            for endpoint in node.endpoints:
                self.wait_ready(endpoint, begin)
        if self.plan.proxy:
            self.start_proxy(begin)
        self.started_s = time.monotonic() - begin
        return self

    def start_node(self, node):
        folder = self.folder / node.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run_dp_template.sh").write_text(node.text)
        words = ["bash", "run_dp_template.sh"]
        if node.command:
            words = node.command
            self.place(folder / "launch_online_dp.py")
        self.start_group(node.host, node.name, words, folder, self.environment(self.edits_of(node)))

    def start_group(self, host, *arguments):
        place = self.network.at(host).inside() if self.network else contextlib.nullcontext()
        with place:
            self.groups.append(Group(*arguments))

    def start_proxy(self, begin):
        folder = self.folder / "proxy"
        folder.mkdir(parents=True, exist_ok=True)
        program = pathlib.Path(self.plan.proxy[1])
        self.place(program if program.is_absolute() else folder / program)
        self.start_group(self.plan.proxy_host, "proxy", self.plan.proxy, folder, self.environment({}))
        self.wait_ready(self.plan.entrance, begin, "/healthcheck")

    def place(self, path):
        """The shim's program of that name, where the documents' command looks for it."""
        if self.shim is None or not (self.shim / path.name).exists():
            raise NotUp(f"no {path.name}: the shim folder is not there")
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            shutil.copy(self.shim / path.name, path)

    def wait_ready(self, endpoint, begin, path="/health"):
        host, port = endpoint
        while time.monotonic() < begin + self.start_seconds:
            for group in self.groups:
                if group.ended():
                    raise NotUp(f"{group.name} ended with {group.popen.returncode}:\n{group.trouble()}")
            try:
                if harness.request(port, "GET", path, timeout=5, host=host)[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        told = "\n".join(f"{group.name}: {group.trouble(2)}" for group in self.groups[:4])
        raise NotUp(f"{host}:{port} does not answer within {self.start_seconds:.0f} s:\n{told}")

    def check_alive(self):
        for group in self.groups:
            if group.ended():
                raise NotUp(f"{group.name} ended with {group.popen.returncode} while it served:\n{group.trouble()}")

    def process_count(self):
        return sum(len(self.engine_processes(group)) for group in self.groups)

    @staticmethod
    def engine_processes(group):
        """Its processes that are Baton, not the shells and launchers around them."""
        return [pid for pid in members(group.popen.pid) if Running.is_baton(pid)]

    @staticmethod
    def is_baton(pid):
        try:
            return os.readlink(f"/proc/{pid}/exe") == os.path.realpath(harness.BATON)
        except OSError:
            return False

    def memory_bytes(self):
        return sum(group.memory_bytes() for group in self.groups)

    def close(self):
        """Ends every group; what did not end by itself in time, or None."""
        known = {pid for group in self.groups if not group.ended() for pid in members(group.popen.pid)}
        for group in reversed(self.groups):
            group.signal(signal.SIGTERM)
        deadline, late = time.monotonic() + STOP_SECONDS, []
        for group in self.groups:
            while group.alive() and time.monotonic() < deadline:
                time.sleep(0.05)
            if group.alive():
                late.append(group.name)
                group.signal(signal.SIGKILL)
            group.popen.wait()
            group.log.close()
        left = [pid for pid in known if self.is_baton(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if left:
            late.append(f"{len(left)} engines whose launcher had ended")
        return f"killed after {STOP_SECONDS} s: {', '.join(late)}" if late else None
