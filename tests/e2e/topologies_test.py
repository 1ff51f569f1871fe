"""Ranks, stages in several processes and replicas that share experts, as real processes: they answer as one rank does, and
when one is killed every other says so within seconds and ends with status 1."""
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import harness
from harness import BATON, TINY, Process, free_port, post, request

COMMON = ["--host", "127.0.0.1", "--max-model-len", "2048", "--max-num-seqs", "8", "--max-num-batched-tokens", "256",
          "--kv-cache-memory-bytes", "64000000", "--no-enable-prefix-caching"]
PROMPT = "The quick brown fox jumps over the lazy dog. " * 6
END_SECONDS = 20


def free_ports(count):
    """The first of `count` free ports in a row: each process of an engine takes the port of its first rank."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except (OSError, OverflowError):
            pass


def serve(name, *arguments, model=TINY, port=None, env=None):
    port = port or free_port()
    return Process(name, ["serve", model, "--port", str(port), *COMMON, *arguments], port, env=env)


def ask(port, seed, max_tokens=24, long=False, **more):
    status, body, _ = post(port, "/v1/completions", {
        "prompt": (PROMPT * 10 if long else PROMPT)[seed:], "max_tokens": max_tokens, "temperature": 1 if seed % 2 else 0, "seed": seed,
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

    def replicas(self, count, model, *arguments, only=None, at=None, env=None):
        """Those of `only`, or all; they meet at port `at`, or a free one."""
        at = at or free_port()
        meeting = ["--data-parallel-size", str(count), "--data-parallel-address", "127.0.0.1",
                   "--data-parallel-rpc-port", str(at), "--enable-expert-parallel", *arguments]
        started = [serve(f"dp{rank}", *meeting, "--data-parallel-rank", str(rank), model=model, env=env)
                   for rank in only or range(count)]
        for process in started:
            process.meeting = at
        return self.start(*started)

    def hand_over(self, prefill, decode):
        """What a P of three processes (the flags `prefill`) and a D hand each other, through the proxy."""
        kv = {"kv_connector": "MooncakeConnectorV1", "kv_port": str(free_ports(8)), "engine_id": "p"}
        flags = ["--kv-transfer-config", json.dumps({**kv, "kv_role": "kv_producer"}), *prefill]
        nodes = self.pipeline(3, *flags)
        kv = {**kv, "kv_role": "kv_consumer", "kv_port": str(free_port()), "engine_id": "d"}
        (d,) = self.start(serve("d", "--kv-transfer-config", json.dumps(kv), *decode))
        nodes[0].wait_ready()
        d.wait_ready()
        port = free_port()
        (proxy,) = self.start(Process("proxy", [
            "proxy", "--host", "127.0.0.1", "--port", str(port), "--prefiller-hosts", "127.0.0.1", "--prefiller-ports",
            str(nodes[0].port), "--decoder-hosts", "127.0.0.1", "--decoder-ports", str(d.port)], port))
        proxy.wait_ready("/healthcheck")
        got = [ask(port, seed, long=True) for seed in range(4)]
        self.assertEqual(harness.metric(d.port, "baton:last_token_mismatches_total"), 0)
        self.assertEqual(harness.metric(d.port, "baton:kv_transfer_failures_total"), 0)
        self.assertGreater(harness.metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 10000)
        harness.wait_until(lambda: harness.metric(nodes[0].port, "baton:kv_offers_held") == 0, what="P's blocks are free")
        for process in (proxy, d, *nodes[:1]):
            self.assertEqual(process.stop(), 0, process.tail())
        return got

    def test_a_prefill_engine_of_three_processes_hands_over(self):
        (one,) = self.start(serve("one"))
        one.wait_ready()
        expected = [ask(one.port, seed, long=True) for seed in range(4)]
        for prefill, decode in ((["-tp", "2"], ["-tp", "3"]), ([], []), (["-pcp", "2"], ["-tp", "2", "-dcp", "2"])):
            with self.subTest(prefill=prefill, decode=decode):
                self.assertEqual(self.hand_over(prefill, decode), expected)

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

    def test_an_orderly_stop_of_all_ends_all_in_order(self):
        """What a launcher does: SIGTERM to each, one after the other."""
        model = self.experts()
        for count, delay in ((2, 0), (3, 0.3)):
            with self.subTest(count=count, delay=delay):
                replicas = self.replicas(count, model)
                for replica in replicas:
                    replica.wait_ready()
                for replica in replicas:
                    replica.terminate()
                    time.sleep(delay)
                for replica in replicas:
                    self.assertEqual(replica.wait_end(END_SECONDS), 0, replica.tail())
        nodes = self.pipeline(3)
        nodes[0].wait_ready()
        for node in reversed(nodes):
            node.terminate()
        for node in nodes:
            self.assertEqual(node.wait_end(END_SECONDS), 0, node.tail())

    def test_an_orderly_stop_of_all_finishes_what_runs(self):
        """With a grace, a replica without requests goes on computing experts for those that have some."""
        replicas = self.replicas(2, self.experts(), "--shutdown-timeout", "30")
        for replica in replicas:
            replica.wait_ready()
        expected = ask(replicas[1].port, 1, max_tokens=600)
        got = []
        thread = threading.Thread(target=lambda: got.append(ask(replicas[1].port, 1, max_tokens=600)))
        thread.start()
        harness.wait_until(lambda: harness.metric(replicas[1].port, "vllm:num_requests_running") == 1, what="it runs")
        for replica in replicas:
            replica.terminate()
        thread.join()
        self.assertEqual(got, [expected])
        for replica in replicas:
            self.assertEqual(replica.wait_end(END_SECONDS), 0, replica.tail())

    def test_a_single_stop_takes_the_group_out_with_the_reason(self):
        replicas = self.replicas(2, self.experts())
        for replica in replicas:
            replica.wait_ready()
        self.assertEqual(replicas[0].stop(), 0, replicas[0].tail())
        self.assert_gone(replicas[1], "process 0 ", "has left")
        nodes = self.pipeline(2)
        nodes[0].wait_ready()
        self.assertEqual(nodes[1].stop(), 0, nodes[1].tail())
        self.assert_gone(nodes[0], "process 1 ", "it was asked to stop")

    def test_a_stranger_without_the_secret_is_refused(self):
        model = self.experts()
        first = self.replicas(2, model, env={"BATON_SECRET": "one"}, only=[0])
        for flags in ([], ["--additional-config", '{"baton_secret": "another"}']):
            (stranger,) = self.replicas(2, model, *flags, only=[1], at=first[0].meeting)
            self.assertEqual(stranger.wait_end(END_SECONDS), 1, stranger.tail())
            self.assertIn("secret", stranger.tail())
        second = self.replicas(2, model, "--additional-config", '{"baton_secret": "one"}', only=[1], at=first[0].meeting)
        for replica in (*first, *second):
            replica.wait_ready()
        for replica in (*first, *second):
            replica.terminate()
        for replica in (*first, *second):
            self.assertEqual(replica.wait_end(END_SECONDS), 0, replica.tail())

    def test_replicas_in_one_process_share_experts(self):
        model = self.experts()
        expected = self.answers(model=model)
        self.assertEqual(self.answers("--data-parallel-size", "2", "--enable-expert-parallel", model=model), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
