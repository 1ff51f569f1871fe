"""Ranks, stages in several processes and replicas that share experts, as real processes: they answer as one rank does, and
when one is killed every other says so within seconds and ends with status 1."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import harness
from harness import BATON, TINY, Process, free_port, post, request

COMMON = ["--host", "127.0.0.1", "--max-model-len", "1024", "--max-num-seqs", "8", "--max-num-batched-tokens", "256",
          "--kv-cache-memory-bytes", "64000000", "--no-enable-prefix-caching"]
PROMPT = "The quick brown fox jumps over the lazy dog. " * 6
END_SECONDS = 20


def serve(name, *arguments, model=TINY, port=None):
    port = port or free_port()
    return Process(name, ["serve", model, "--port", str(port), *COMMON, *arguments], port)


def ask(port, seed, max_tokens=24, **more):
    status, body, _ = post(port, "/v1/completions", {
        "prompt": PROMPT[seed:], "max_tokens": max_tokens, "temperature": 1 if seed % 2 else 0, "seed": seed,
        "logprobs": 2, "ignore_eos": True, **more})
    if status != 200:
        raise AssertionError(f"{status}: {body}")
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


class Topologies(unittest.TestCase):
    def setUp(self):
        self.processes = []
        self.folder = tempfile.mkdtemp(prefix="baton-topologies-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.end)

    def end(self):
        for process in self.processes:
            process.killed = True  # a test of losses: what matters is asserted there
        harness.end_all(self.processes)

    def start(self, *processes):
        self.processes += processes
        return processes

    def answers(self, *arguments, model=TINY, seeds=range(4)):
        (server,) = self.start(serve("one", *arguments, model=model))
        server.wait_ready()
        got = [ask(server.port, seed) for seed in seeds]
        self.assertEqual(server.stop(), 0, server.tail())
        return got

    def experts(self):
        """A small model with experts."""
        path = str(pathlib.Path(self.folder) / "experts")
        subprocess.run([BATON, "make-checkpoint", "--arch", "deepseek_v3", "--out", path, "--layers", "3", "--hidden",
                        "64", "--heads", "4", "--experts", "8"], check=True, capture_output=True, timeout=60)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (pathlib.Path(path) / name).exists():
                shutil.copy(pathlib.Path(TINY) / name, path)
        return path

    def pipeline(self, nodes, *arguments):
        meeting = ["--pipeline-parallel-size", str(nodes), "--nnodes", str(nodes), "--master-addr", "127.0.0.1",
                   "--master-port", str(free_port())]
        started = [serve(f"node{rank}", *meeting, "--node-rank", str(rank), *(["--headless"] if rank else []),
                         *arguments) for rank in range(nodes)]
        return self.start(*started)

    def replicas(self, count, model):
        meeting = ["--data-parallel-size", str(count), "--data-parallel-address", "127.0.0.1",
                   "--data-parallel-rpc-port", str(free_port()), "--enable-expert-parallel"]
        return self.start(*[serve(f"dp{rank}", *meeting, "--data-parallel-rank", str(rank), model=model)
                            for rank in range(count)])

    def assert_gone(self, process, *words):
        began = time.monotonic()
        self.assertEqual(process.wait_end(END_SECONDS), 1, process.tail())
        self.assertLess(time.monotonic() - began, END_SECONDS)
        for word in words:
            self.assertIn(word, process.tail())

    def test_grids_of_one_process_answer_as_one_rank(self):
        expected = self.answers()
        for grid in (["-tp", "2"], ["-pp", "3"], ["-tp", "2", "-pp", "2"], ["--data-parallel-size", "2"]):
            with self.subTest(grid):
                self.assertEqual(self.answers(*grid), expected)

    def test_stages_of_several_processes(self):
        expected = self.answers()
        leader, *others = self.pipeline(3)
        leader.wait_ready()
        self.assertEqual([ask(leader.port, seed) for seed in range(4)], expected)
        with self.assertRaises(OSError):
            request(others[0].port, "GET", "/health", timeout=1)
        self.assertEqual(leader.stop(), 0, leader.tail())
        for other in others:
            self.assertEqual(other.wait_end(END_SECONDS), 0, other.tail())

    def test_a_killed_stage_ends_all_others(self):
        for lost in range(3):
            with self.subTest(lost):
                nodes = self.pipeline(3)
                nodes[0].wait_ready()
                nodes[lost].kill()
                if lost:
                    self.wait_unhealthy(nodes[0])
                for rank, node in enumerate(nodes):
                    if rank != lost:
                        self.assert_gone(node, f"process {lost} ")

    def wait_unhealthy(self, process):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            status, reason, _ = request(process.port, "GET", "/health", timeout=5)
            if status == 503:
                self.assertIn("process", reason)
                return
            time.sleep(0.05)
        self.fail(f"{process.name} stays healthy:\n{process.tail()}")

    def test_replicas_that_share_experts(self):
        model = self.experts()
        expected = self.answers(model=model)
        replicas = self.replicas(2, model)
        for replica in replicas:
            replica.wait_ready()
        for replica in replicas:
            self.assertEqual([ask(replica.port, seed) for seed in range(4)], expected)
        # One goes; the other says why and ends.
        replicas[0].kill()
        self.wait_unhealthy(replicas[1])
        self.assert_gone(replicas[1], "process 0 ")

    def test_replicas_in_one_process_share_experts(self):
        model = self.experts()
        expected = self.answers(model=model)
        self.assertEqual(self.answers("--data-parallel-size", "2", "--enable-expert-parallel", model=model), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
