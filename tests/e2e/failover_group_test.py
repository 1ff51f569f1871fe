"""A decode engine of several processes that share experts, behind the proxy: one is killed, all of it is out, streams go on
at another engine, and the restarted group is used again."""
import json
import time
import unittest

import harness
import topologies_test
from failover_test import Watched
from harness import Process, free_port, metric, post, wait_until
from recompute_test import LONG, streamed

SHARED = topologies_test.Topologies
COUNT = 1500


class GroupFailOver(unittest.TestCase):
    setUp, end, start, experts, replicas = SHARED.setUp, SHARED.end, SHARED.start, SHARED.experts, SHARED.replicas

    @staticmethod
    def connector(role, name):
        return ["--kv-transfer-config", json.dumps({"kv_connector": "MooncakeConnectorV1", "kv_role": role,
                                                    "kv_port": "0", "engine_id": name})]

    def engine(self, name, role, model):
        (made,) = self.start(topologies_test.serve(name, *self.connector(role, name), model=model))
        return made

    def group(self, model, ports=(None, None)):
        meeting = ["--data-parallel-size", "2", "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port",
                   str(free_port()), "--enable-expert-parallel"]
        return self.start(*[topologies_test.serve(f"dp{rank}", *meeting, "--data-parallel-rank", str(rank),
                                                  *self.connector("kv_consumer", f"g{rank}-{time.monotonic_ns()}"),
                                                  model=model, port=ports[rank]) for rank in range(2)])

    def front(self, prefill, decodes):
        port = free_port()
        (proxy,) = self.start(Process("proxy", [
            "proxy", "--host", "127.0.0.1", "--port", str(port), "--prefiller-hosts", "127.0.0.1", "--prefiller-ports",
            str(prefill.port), "--decoder-hosts", *["127.0.0.1"] * len(decodes),
            "--decoder-ports", *[str(d.port) for d in decodes]], port))
        return proxy.wait_ready()

    def up(self, proxy):
        _, text, _ = harness.request(proxy.port, "GET", "/metrics")
        mark = 'baton_proxy_instance_up{instance="127.0.0.1:'
        return {int(line[len(mark):].split('"')[0]) for line in text.splitlines()
                if line.startswith(mark) and line.endswith(" 1")}

    def test_a_group_fails_and_recovers_as_one(self):
        model = self.experts()
        p, alone = self.engine("p", "kv_producer", model), self.engine("other", "kv_consumer", model)
        group = self.group(model)
        for process in (p, alone, *group):
            process.wait_ready()
        proxy = self.front(p, [*group, alone])
        wait_until(lambda: len(self.up(proxy)) == 4, 5, "all are up")
        bodies = [{"prompt": LONG[i:], "temperature": 1, "seed": i, "max_tokens": COUNT, "ignore_eos": True,
                   "return_token_ids": True, "stream_options": {"include_usage": True}} for i in range(3)]
        expected = [streamed(harness.stream(alone.port, "/v1/completions", body)) for body in bodies]
        running = [Watched(proxy.port, body) for body in bodies]
        wait_until(lambda: all(metric(d.port, "vllm:num_requests_running") == 1 for d in (*group, alone)), 30, "all run")
        time.sleep(0.1)
        group[0].kill()
        began = time.monotonic()
        wait_until(lambda: not self.up(proxy) & {d.port for d in group}, 5, "the whole group is out")
        out_after = time.monotonic() - began
        self.assertEqual([streamed(each.result()) for each in running], expected)
        self.assertLess(out_after, 3)
        self.assertEqual(metric(proxy.port, "baton_proxy_cut_streams_total"), 0)
        group[1].wait_end(topologies_test.END_SECONDS)
        again = self.group(model, [d.port for d in group])
        wait_until(lambda: {d.port for d in again} <= self.up(proxy), 30, "the group is back")
        for i in range(12):
            post(proxy.port, "/v1/completions", {"prompt": LONG[i:], "max_tokens": 2})
        running = [Watched(proxy.port, body) for body in bodies]
        self.assertEqual([streamed(each.result()) for each in running], expected)
        for process in again:
            self.assertGreater(metric(process.port, "vllm:generation_tokens_total"), 0)


if __name__ == "__main__":
    unittest.main()
