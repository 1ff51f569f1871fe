"""A prefill and a decode engine that are cut differently, as real processes: the same tokens as one rank gives, with the
KV handed over and never recomputed."""
import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import free_port, metric, post, wait_until

LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 10
REQUESTS = [
    {"prompt": "Alice was beginning", "max_tokens": 12, "temperature": 0, "logprobs": 2},
    {"prompt": LONG, "max_tokens": 12, "temperature": 0, "logprobs": 2},
    {"prompt": LONG[100:], "max_tokens": 16, "temperature": 1, "seed": 11, "logprobs": 1},
    {"prompt": LONG, "max_tokens": 12, "temperature": 1, "seed": 4},  # its beginning is in both prefix caches
    {"prompt": LONG[50:] + LONG * 4, "max_tokens": 8, "temperature": 0, "logprobs": 2},  # on every context rank
]
# Flags of P and of D; the first of P's stages in processes of their own where that is said.
GRIDS = {
    "two tensor ranks to one": (["-tp", "2"], []),
    "ranks of two stages to one": (["-tp", "2", "-pp", "2"], []),
    "one to two tensor ranks": ([], ["-tp", "2"]),
    "two to three tensor ranks": (["-tp", "2"], ["-tp", "3"]),
    "stages to ranks with other blocks": (["-pp", "2", "--block-size", "128"], ["-tp", "2", "--block-size", "16"]),
    "one rank to context ranks": (["--block-size", "16"], ["-tp", "2", "-dcp", "2"]),
    "prefill context ranks to decode context ranks": (["-pcp", "2", "-tp", "2"], ["-tp", "2", "-dcp", "2"]),
    "two replicas to two": (["--data-parallel-size", "2", "-tp", "2"], ["--data-parallel-size", "2"]),
    "three processes to three ranks": (["-pp", "3", "--nnodes", "3", "-tp", "2"], ["-tp", "3"]),
    "three processes of context ranks": (["-pp", "3", "--nnodes", "3", "-pcp", "2"], ["-tp", "2", "-dcp", "2"]),
}
OVER_TCP = {"one to two tensor ranks", "one rank to context ranks"}  # of what pulls


def answers(port, body):
    status, answer, _ = post(port, "/v1/completions", body)
    assert status == 200, (status, answer)
    return [(c["text"], (c.get("logprobs") or {}).get("token_logprobs")) for c in answer["choices"]]


def texts(port, body):
    return [text for text, _ in answers(port, body)]


class UnequalGrids(harness.ServingTest):
    MODE, CONNECTOR = "pull", "MooncakeConnectorV1"

    def prefill_processes(self, flags, **kwargs):
        """The engine's processes; the first is the one that is asked."""
        nodes = int(flags[flags.index("--nnodes") + 1]) if "--nnodes" in flags else 1
        if nodes == 1:
            return [self.prefill(free_port(), *flags, into=self.processes, **kwargs)]
        meeting = [*flags, "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        kv_port = free_port()
        made = [self.prefill(kv_port, *meeting, "--node-rank", str(rank), *(["--headless"] if rank else []), wait=False,
                             into=self.processes, name=f"prefill{rank}", **kwargs) for rank in range(nodes)]
        made[0].wait_ready()
        self.processes.append(self.processes.pop(-nodes))  # it ends the others, so that it is ended first
        return made

    def check_equal(self, prefill_flags, decode_flags, transport="auto", prefill=None, decode=None, model=harness.TINY,
                    requests=REQUESTS, common=()):
        extra = {"kv_connector": self.CONNECTOR,
                 "kv_connector_extra_config": {"baton_transport": transport, "prefill": prefill or {},
                                               "decode": decode or {}}}
        # Chunks: several steps a prompt, which end within blocks.
        chunks = ["--max-num-batched-tokens", "200"]
        p = self.prefill_processes([*prefill_flags, *chunks], extra=extra, model=model)[0]
        d = self.decode(*decode_flags, into=self.processes, extra=extra, model=model)
        alone = self.engine("alone", *common, into=self.processes, model=model)
        proxy = self.proxy([p], [d], "--mode", self.MODE, into=self.processes)
        for body in requests:
            self.assertEqual(answers(proxy.port, body), answers(alone.port, body), body)
        self.assertEqual(metric(d.port, "baton:last_token_mismatches_total"), 0)
        self.assertEqual(metric(d.port, "baton:kv_transfer_failures_total"), 0)
        self.assertEqual(metric(d.port, "vllm:mooncake_num_failed_transfers"), 0)
        self.assertGreater(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 10000)
        wait_until(lambda: metric(p.port, "baton:kv_offers_held") == 0, what="P's blocks are free")

    def test_every_grid_answers_as_one_rank(self):
        for name, (prefill, decode) in GRIDS.items():
            with self.subTest(name):
                try:
                    self.check_equal(prefill, decode, transport="tcp" if name in OVER_TCP else "auto")
                finally:
                    harness.end_all(self.processes)

    def checkpoint(self, arch, *sizes):
        folder = tempfile.mkdtemp(prefix="baton-grids-")
        self.addCleanup(shutil.rmtree, folder)
        path = pathlib.Path(folder) / arch
        subprocess.run([harness.BATON, "make-checkpoint", "--arch", arch, "--out", str(path), *sizes], check=True,
                       capture_output=True, timeout=60)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            if not (path / name).exists():
                shutil.copy(pathlib.Path(harness.TINY) / name, path)
        return str(path)

    def test_latents_states_and_quantised_caches(self):
        """What every tensor rank has is sent once; a state when the prompt ends; a quantised cache as it is stored."""
        deepseek = self.checkpoint("deepseek_v32")
        kimi = self.checkpoint("kimi_k31", "--heads", "4", "--layers", "8")
        requests = REQUESTS[1:3] + REQUESTS[4:]
        for name, model, prefill, decode in (
                ("latents and index keys", deepseek, ["-tp", "4"], []),
                ("latents in int8 over context ranks", deepseek, ["-pcp", "2", "--kv-cache-dtype", "int8"],
                 ["-tp", "4", "-dcp", "4", "--kv-cache-dtype", "int8"]),
                ("states of two stages", kimi, ["-pp", "2", "-tp", "2"], ["-tp", "4"]),
                ("states of two processes over context ranks", kimi, ["-pp", "2", "--nnodes", "2", "-pcp", "2"],
                 ["-tp", "2", "-dcp", "2"])):
            with self.subTest(name):
                common = decode[decode.index("--kv-cache-dtype"):] if "--kv-cache-dtype" in decode else []
                try:
                    self.check_equal(prefill, decode, model=model, requests=requests, common=common)
                finally:
                    harness.end_all(self.processes)

    def test_what_is_said_of_the_grids_is_so(self):
        self.check_equal(["-tp", "2"], [], prefill={"tp_size": 2, "dp_size": 1}, decode={"tp_size": 1, "dp_size": 4})

    def test_what_the_configuration_says_of_itself_must_be_so(self):
        config = {"kv_connector": self.CONNECTOR, "kv_role": "kv_producer", "engine_id": "x",
                  "kv_connector_extra_config": {"prefill": {"tp_size": 8}}}
        engine = self.engine("wrong", "--kv-transfer-config", json.dumps(config), into=self.processes, wait=False)
        wait_until(lambda: engine.popen.poll() is not None, seconds=20, what="the engine gives up")
        self.assertNotEqual(engine.popen.returncode, 0)
        self.assertIn("tp_size: kv_connector_extra_config says 8 of the prefill engine, it has 1", engine.tail())

    def test_what_it_says_of_the_other_side_is_checked_when_they_meet(self):
        connector = {"kv_connector": self.CONNECTOR}
        extra = {**connector, "kv_connector_extra_config": {"prefill": {"tp_size": 4}}}
        p = self.prefill(free_port(), into=self.processes, extra=connector)
        d = self.decode(into=self.processes, extra=extra)
        alone = self.engine("alone", into=self.processes)
        proxy = self.proxy([p], [d], "--mode", self.MODE, into=self.processes)
        self.assertEqual(texts(proxy.port, REQUESTS[1]), texts(alone.port, REQUESTS[1]), "recomputed")
        # Pulling, D meets P and says so; pushing, P hears it from D.
        self.assertIn("tp_size: kv_connector_extra_config says 4 of the prefill engine, it has 1", p.tail() + d.tail())


if __name__ == "__main__":
    unittest.main()
