"""A prefill and a decode engine that are cut differently, as real processes: the same tokens as one rank gives, with the
KV handed over and never recomputed."""
import json
import unittest

import harness
from harness import free_port, metric, post, wait_until

LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 10
REQUESTS = [
    {"prompt": "Alice was beginning", "max_tokens": 12, "temperature": 0},
    {"prompt": LONG, "max_tokens": 12, "temperature": 0},
    {"prompt": LONG[100:], "max_tokens": 16, "temperature": 1, "seed": 11},
    {"prompt": LONG, "max_tokens": 12, "temperature": 1, "seed": 4},  # its beginning is in both prefix caches
]


def texts(port, body):
    status, answer, _ = post(port, "/v1/completions", body)
    assert status == 200, (status, answer)
    return [c["text"] for c in answer["choices"]]


class UnequalGrids(harness.ServingTest):
    def check_equal(self, prefill_flags, decode_flags, transport="auto", prefill=None, decode=None):
        extra = {"kv_connector_extra_config": {"baton_transport": transport, "prefill": prefill or {},
                                               "decode": decode or {}}}
        p = self.prefill(free_port(), *prefill_flags, into=self.processes, extra=extra)
        d = self.decode(*decode_flags, into=self.processes, extra=extra)
        alone = self.engine("alone", into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        for body in REQUESTS:
            self.assertEqual(texts(proxy.port, body), texts(alone.port, body), body)
        self.assertEqual(metric(d.port, "baton:last_token_mismatches_total"), 0)
        self.assertEqual(metric(d.port, "baton:kv_transfer_failures_total"), 0)
        self.assertGreater(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 10000)
        wait_until(lambda: metric(p.port, "baton:kv_offers_held") == 0, what="P's blocks are free")

    def test_two_tensor_ranks_to_one(self):
        self.check_equal(["-tp", "2"], [], prefill={"tp_size": 2, "dp_size": 1}, decode={"tp_size": 1, "dp_size": 4})

    def test_one_to_two_tensor_ranks_over_tcp(self):
        self.check_equal([], ["-tp", "2"], transport="tcp")

    def test_stages_to_ranks_with_other_blocks(self):
        self.check_equal(["-pp", "2", "--block-size", "128"], ["-tp", "2", "--block-size", "16"])

    def test_one_rank_to_context_ranks(self):
        self.check_equal(["--block-size", "16"], ["-tp", "2", "-dcp", "2"], transport="tcp")

    def test_what_the_configuration_says_of_itself_must_be_so(self):
        config = {"kv_connector": "MooncakeConnectorV1", "kv_role": "kv_producer", "engine_id": "x",
                  "kv_connector_extra_config": {"prefill": {"tp_size": 8}}}
        engine = self.engine("wrong", "--kv-transfer-config", json.dumps(config), into=self.processes, wait=False)
        wait_until(lambda: engine.popen.poll() is not None, seconds=20, what="the engine gives up")
        self.assertNotEqual(engine.popen.returncode, 0)
        self.assertIn("tp_size: kv_connector_extra_config says 8 of the prefill engine, it has 1", engine.tail())

    def test_what_it_says_of_the_other_side_is_checked_when_they_meet(self):
        extra = {"kv_connector_extra_config": {"prefill": {"tp_size": 4}}}
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes, extra=extra)
        alone = self.engine("alone", into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        self.assertEqual(texts(proxy.port, REQUESTS[1]), texts(alone.port, REQUESTS[1]), "recomputed")
        self.assertIn("tp_size: kv_connector_extra_config says 4 of the prefill engine, it has 1", d.tail())


if __name__ == "__main__":
    unittest.main()
