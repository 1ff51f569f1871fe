"""The layerwise hand-off: D first, P pushes each layer while it computes the next; the tokens are those of one engine."""
import unittest

import harness
import recompute_test
import unequal_grids_test
from disaggregated_test import LONG, REQUESTS, texts
from harness import metric, post, request, stream, wait_until

LAYERWISE = {"kv_connector": "MooncakeLayerwiseConnector"}


class Layerwise(harness.ServingTest):
    def deploy(self, *flags, prefills=1, decodes=1):
        p = [self.prefill(harness.free_port(), *flags, into=self.processes, name=f"p{i}", extra=LAYERWISE)
             for i in range(prefills)]
        d = [self.decode(*flags, into=self.processes, name=f"d{i}", extra=LAYERWISE) for i in range(decodes)]
        return p, d, self.proxy(p, d, "--mode", "layerwise", into=self.processes)

    def test_the_tokens_are_those_of_one_engine(self):
        # Chunks of 64 tokens: several steps a prompt, blocks that a chunk leaves half full.
        p, d, proxy = self.deploy("--max-num-batched-tokens", "64", "--max-num-seqs", "8")
        alone = self.engine("alone", into=self.processes)
        for body in REQUESTS:
            self.assertEqual(texts(proxy.port, body), texts(alone.port, body), body)
        whole = texts(alone.port, REQUESTS[2])[0]
        events = stream(proxy.port, "/v1/completions", REQUESTS[2])
        self.assertEqual("".join(c["text"] for e in events[:-1] for c in e["choices"]), whole)
        self.assertGreater(metric(d[0].port, "vllm:mooncake_bytes_transferred_sum"), 100000)
        self.assertEqual(metric(d[0].port, "baton:last_token_mismatches_total"), 0)
        self.assertEqual(metric(d[0].port, "vllm:mooncake_num_failed_transfers"), 0)
        wait_until(lambda: metric(p[0].port, "baton:kv_offers_held") == 0, what="P's blocks are free")
        self.assertGreater(metric(p[0].port, "baton_handoff_push_hidden_seconds_total"), 0)

    def test_many_at_once(self):
        p, d, proxy = self.deploy("--max-num-batched-tokens", "128", "--max-num-seqs", "16", decodes=2)
        alone = self.engine("alone", into=self.processes)
        bodies = [{"prompt": LONG[i * 11:], "max_tokens": 12, "temperature": 1, "seed": i} for i in range(20)]
        expected = [texts(alone.port, body) for body in bodies]
        made = recompute_test.at_once([lambda body=body: texts(proxy.port, body) for body in bodies])
        self.assertEqual(made, expected)
        self.assertEqual(sum(metric(x.port, "vllm:mooncake_num_failed_transfers") for x in d), 0)
        self.assertEqual(sum(metric(x.port, "baton:last_token_mismatches_total") for x in d), 0)

    def test_an_unseeded_request_has_one_seed_on_both_sides(self):
        p, d, proxy = self.deploy()
        seen = {texts(proxy.port, {"prompt": LONG[i:], "max_tokens": 10, "temperature": 1})[0] for i in range(5)}
        self.assertGreater(len(seen), 1)
        self.assertEqual(metric(d[0].port, "baton:last_token_mismatches_total"), 0)

    def test_no_prefill_left_and_d_computes_itself(self):
        p, d, proxy = self.deploy()
        expected = texts(proxy.port, REQUESTS[1])
        p[0].kill()
        self.assertEqual(texts(proxy.port, {**REQUESTS[1], "cache_salt": "x"}), expected)

    def test_routes_are_the_example_proxys(self):
        p, d, proxy = self.deploy()
        self.assertNotIn("request_num", request(proxy.port, "GET", "/healthcheck")[1])
        for key in ("", "?key=", "?key=abc-1"):
            status, _, _ = post(proxy.port, "/v1/metaserver" + key, {"request_id": "cmpl-x-0"})
            self.assertEqual(status, 404)
        status, said = harness.run_to_end("proxy", "--mode", "layerwise", "--host", "0.0.0.0",
                                          "--port", str(harness.free_port()))
        self.assertNotEqual(status, 0)
        self.assertIn("not a wildcard", said)


class LayerwiseRecompute(recompute_test.Recompute):
    MODE, CONNECTOR = "layerwise", "MooncakeLayerwiseConnector"


class LayerwiseGrids(unequal_grids_test.UnequalGrids):
    MODE, CONNECTOR = "layerwise", "MooncakeLayerwiseConnector"


if __name__ == "__main__":
    unittest.main()
