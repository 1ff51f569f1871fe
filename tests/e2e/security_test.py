"""What is reachable, and where a request can make an engine reach: listening addresses, peers that requests name, who may
change a proxy's instances, paths."""
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
import unittest

import harness
from harness import free_port, metric, post, request

PROMPT = "Either the well was very deep, or she fell very slowly. " * 10


def listening(pid):
    """The addresses, as /proc writes them, on which a process listens for TCP."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for family in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].rsplit(":", 1)[0])
    return found


class Trap:
    """A listener that counts who comes, and says nothing."""

    def __init__(self):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen()
        self.port, self.visits = self.socket.getsockname()[1], 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                self.socket.accept()[0].close()
                self.visits += 1
            except OSError:
                return

    def close(self):
        self.socket.close()


def own_address():
    """An address of this host that is not a loopback one, or None."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    return next((address for address in said if ":" not in address), None)


class Listening(harness.ServingTest):
    def test_nothing_listens_beyond_loopback_unless_asked(self):
        p = self.prefill(free_port(), into=self.processes)
        d = self.decode(into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        bare = harness.Process("bare", ["serve", harness.TINY, "--port", str(free_port()),
                                        "--kv-cache-memory-bytes", "64M"], free_port())
        self.processes.append(bare)
        for process in (p, d, proxy):
            found = listening(process.popen.pid)
            self.assertTrue(found)
            for address in found:
                self.assertIn(address, ("0100007F", "00000000000000000000000001000000"), process.name)
        harness.wait_until(lambda: listening(bare.popen.pid), 60, "the engine without --host listens")
        self.assertEqual(listening(bare.popen.pid), ["0100007F"])


class Peers(harness.ServingTest):
    """A client that reaches a decode engine must not make it knock at any door of its network."""

    def pull_from(self, d, host, port):
        began = time.monotonic()
        status, answer, _ = post(d.port, "/v1/completions", {
            "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "kv_transfer_params": {
                "do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "p", "remote_host": host,
                "remote_port": port, "remote_request_id": "r", "baton_offer_id": "1", "remote_block_ids": [1]}})
        self.assertEqual(status, 200, answer)
        return time.monotonic() - began

    def test_only_listed_peers_are_connected_to(self):
        trap = Trap()
        try:
            extra = {"kv_connector_extra_config": {"baton_peers": ["10.0.0.0/8"]}}
            d = self.decode(into=self.processes, extra=extra)
            self.pull_from(d, "127.0.0.1", trap.port)
            self.pull_from(d, "localhost", trap.port)
            self.assertEqual(trap.visits, 0)
            self.assertEqual(metric(d.port, "vllm:mooncake_num_failed_transfers"), 2)
            free = self.decode(into=self.processes, name="free")
            self.pull_from(free, "127.0.0.1", trap.port)
            self.assertGreater(trap.visits, 0, "the trap works")
        finally:
            trap.close()

    def test_the_address_of_cloud_metadata_is_never_asked(self):
        d = self.decode(into=self.processes)
        for host in ("169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0", "[fe80::1]"):
            self.assertLess(self.pull_from(d, host, 80), 5, "refused at once, not after a time-out")

    def test_a_metaserver_must_be_a_listed_peer_too(self):
        trap = Trap()
        try:
            d = self.decode(into=self.processes, extra={
                "kv_connector": "MooncakeLayerwiseConnector",
                "kv_connector_extra_config": {"baton_peers": ["10.0.0.0/8"]}})
            for url in (f"http://127.0.0.1:{trap.port}/x", f"https://localhost:{trap.port}/x", "file:///etc/passwd",
                        "http://169.254.169.254/latest/meta-data", f"http://10.0.0.1@127.0.0.1:{trap.port}/x"):
                status, answer, _ = post(d.port, "/v1/completions", {
                    "prompt": PROMPT, "max_tokens": 4, "kv_transfer_params": {
                        "do_remote_prefill": True, "do_remote_decode": False, "metaserver": url}})
                self.assertIn(status, (200, 400), answer)
            self.assertEqual(trap.visits, 0)
        finally:
            trap.close()


class Instances(harness.ServingTest):
    def test_without_a_key_instances_change_from_this_host_alone(self):
        address = own_address()
        if address is None:
            self.skipTest("this host has a loopback address alone")
        engine = self.engine("engine", into=self.processes)
        port = free_port()
        proxy = harness.Process("proxy", ["proxy", "--host", "0.0.0.0", "--port", str(port), "--prefiller-hosts",
                                          "127.0.0.1", "--prefiller-ports", str(engine.port), "--decoder-hosts",
                                          "127.0.0.1", "--decoder-ports", str(engine.port)], port)
        self.processes.append(proxy)
        proxy.wait_ready()
        change = {"type": "decode", "instances": ["192.0.2.77:80"]}
        for forwarded in ({}, {"X-Forwarded-For": "127.0.0.1"}):
            status, answer, _ = request(port, "POST", "/instances/add", change, host=address, headers=forwarded)
            self.assertEqual(status, 403, answer)
        self.assertEqual(request(port, "POST", "/instances/add", change)[0], 200)
        self.assertEqual(request(port, "POST", "/instances/remove", change)[0], 200)


class Paths(harness.ServingTest):
    def test_no_path_of_a_request_is_one_of_the_file_system(self):
        engine = self.engine("engine", into=self.processes)
        for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/../../../etc/passwd", "//etc/passwd",
                     "/v1/models/tiny"):
            with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as s:
                s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
                answer = b""
                while piece := s.recv(65536):
                    answer += piece
            self.assertRegex(answer.split(b"\r\n")[0], rb"HTTP/1.1 (400|404) ")
            self.assertNotIn(b"root:", answer)
        for model in ("../tiny_llama", harness.TINY, "/etc/passwd"):
            status, answer, _ = post(engine.port, "/v1/completions", {"model": model, "prompt": "a"})
            self.assertEqual(status, 404, answer)
        status, answer, _ = post(engine.port, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "a"}], "chat_template": "{% include '/etc/passwd' %}"})
        self.assertEqual(status, 400, answer)
        self.assertNotIn("root:", json.dumps(answer))


if __name__ == "__main__":
    unittest.main()
