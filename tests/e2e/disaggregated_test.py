"""Prefill and decode in separate processes behind the proxy: the same tokens as one engine gives, whatever fails."""
import json
import signal
import threading
import time
import unittest

import harness
from harness import free_port, metric, post, request, stream, wait_until

LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 40
REQUESTS = [
    {"prompt": "Alice was beginning", "max_tokens": 12, "temperature": 0},
    {"prompt": LONG, "max_tokens": 12, "temperature": 0},
    {"prompt": LONG[100:], "max_tokens": 20, "temperature": 1, "seed": 11},
    {"prompt": "x", "max_tokens": 5, "temperature": 0.7, "seed": 3, "top_k": 20, "top_p": 0.9},
    {"prompt": LONG[7:], "max_tokens": 8, "temperature": 1, "seed": 5, "n": 2},
    {"prompt": [LONG[:80], LONG[80:190]], "max_tokens": 8, "temperature": 0},
    {"prompt": LONG[3:], "max_tokens": 8, "temperature": 0, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    {"prompt": LONG[31:], "max_tokens": 1, "temperature": 0},
]


def texts(port, body):
    status, answer, _ = post(port, "/v1/completions", body)
    assert status == 200, (status, answer)
    return [c["text"] for c in answer["choices"]]


class Disaggregated(harness.ServingTest):
    def check_equal(self, transport):
        extra = {"kv_connector_extra_config": {"baton_transport": transport}}
        p = self.prefill(free_port(), into=self.processes, extra=extra)
        d = self.decode(into=self.processes, extra=extra)
        alone = self.engine("alone", into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        for body in REQUESTS:
            self.assertEqual(texts(proxy.port, body), texts(alone.port, body), body)
        body = REQUESTS[2]
        whole = texts(alone.port, body)[0]
        events = stream(proxy.port, "/v1/completions", body)
        self.assertEqual("".join(c["text"] for e in events[:-1] for c in e["choices"]), whole)
        self.assertEqual(metric(d.port, "baton:last_token_mismatches_total"), 0)
        self.assertGreater(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 100000)
        wait_until(lambda: metric(p.port, "baton:kv_offers_held") == 0, what="P's blocks are free")

    def test_shared_memory(self):
        self.check_equal("shm")

    def test_tcp(self):
        self.check_equal("tcp")

    def test_the_kv_of_another_prompt_is_never_used(self):
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
        alone = self.engine("alone", into=self.processes)
        mine, other = [7 + i % 400 for i in range(100)], [9 + (i * 7) % 400 for i in range(100)]
        status, offered, _ = post(p.port, "/v1/completions", {
            "prompt": mine, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}})
        self.assertEqual(status, 200, offered)
        body = {"prompt": other, "max_tokens": 10, "temperature": 0}
        expected = texts(alone.port, body)
        self.assertEqual(texts(d.port, {**body, "kv_transfer_params": offered["kv_transfer_params"]}), expected)
        self.assertEqual(texts(d.port, body), expected)
        self.assertEqual(metric(d.port, "vllm:mooncake_bytes_transferred_sum"), 0)

    def test_unseeded_sampling_crosses_the_hand_off(self):
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        seen = {texts(proxy.port, {"prompt": LONG, "max_tokens": 10, "temperature": 1})[0] for _ in range(5)}
        self.assertGreater(len(seen), 1)
        self.assertEqual(metric(d.port, "baton:last_token_mismatches_total"), 0)

    def test_prefill_dies_and_another_takes_over(self):
        first = self.prefill(free_port(), into=self.processes, name="p0")
        second = self.prefill(free_port(), into=self.processes, name="p1")
        d = self.decode(into=self.processes)
        proxy = self.proxy([first, second], [d], into=self.processes)
        expected = texts(proxy.port, REQUESTS[1])
        first.kill()
        for _ in range(6):
            self.assertEqual(texts(proxy.port, REQUESTS[1]), expected)

    def test_decode_dies_and_another_takes_over(self):
        p = self.prefill(free_port(), into=self.processes)
        first = self.decode(into=self.processes, name="d0")
        second = self.decode(into=self.processes, name="d1")
        proxy = self.proxy([p], [first, second], into=self.processes)
        expected = texts(proxy.port, REQUESTS[1])
        first.kill()
        for _ in range(6):
            self.assertEqual(texts(proxy.port, REQUESTS[1]), expected)

    def test_decode_dies_in_mid_stream_is_said(self):
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        result = {}

        def run():
            result["events"] = stream(proxy.port, "/v1/completions",
                                      {"prompt": LONG, "max_tokens": 4000, "ignore_eos": True})
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: metric(d.port, "vllm:generation_tokens_total") > 20, what="tokens flow")
        d.kill()
        thread.join(20)
        self.assertEqual(result["events"][-1], "[DONE]")
        self.assertIn("error", result["events"][-2])

    def test_all_prefills_gone_decode_serves_alone(self):
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        expected = texts(proxy.port, REQUESTS[1])
        p.kill()
        time.sleep(0.1)
        self.assertEqual(texts(proxy.port, REQUESTS[1]), expected)

    def test_prefill_restarts_and_is_used_again(self):
        kv_port = free_port()
        p, d = self.prefill(kv_port, into=self.processes), self.decode(into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        expected = texts(proxy.port, REQUESTS[1])
        port = p.port
        p.kill()
        p.popen.wait()
        again = self.prefill(kv_port, into=self.processes, name="prefill-again", port=port)
        wait_until(lambda: texts(proxy.port, REQUESTS[1]) == expected
                   and metric(again.port, "vllm:prompt_tokens_total") > 0, 15, "the restarted prefill is used")
        self.assertEqual(metric(d.port, "baton:last_token_mismatches_total"), 0)

    def test_leaving_client_frees_both_sides(self):
        import http.client
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": LONG, "max_tokens": 4000, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read(50)
        connection.sock.close() if connection.sock else None
        response.close()
        connection.close()
        wait_until(lambda: metric(d.port, "vllm:num_requests_running") == 0, 5, "D has stopped")
        wait_until(lambda: metric(p.port, "baton:kv_offers_held") == 0, 5, "P holds nothing")

    def test_different_models_are_refused(self):
        p = self.prefill(free_port(), into=self.processes)
        d = self.decode("--kv-cache-dtype", "float16", into=self.processes)
        proxy = self.proxy([p], [d], into=self.processes)
        alone = self.engine("alone", "--kv-cache-dtype", "float16", into=self.processes)
        # Refused at first contact and recomputed: D's own answer, never a mixture.
        self.assertEqual(texts(proxy.port, REQUESTS[1]), texts(alone.port, REQUESTS[1]))
        self.assertEqual(metric(d.port, "baton:last_token_mismatches_total"), 0)
        self.assertIn("float16" if "float16" in d.tail() else "f16", d.tail())

    def test_drain_and_add_instances(self):
        p, d = self.prefill(free_port(), into=self.processes), self.decode(into=self.processes)
        extra = self.decode(into=self.processes, name="d1")
        proxy = self.proxy([p], [d], into=self.processes)
        status, body, _ = post(proxy.port, "/instances/add",
                               {"type": "decode", "instances": f"127.0.0.1:{extra.port}"})
        self.assertEqual(status, 200, body)
        wait_until(lambda: request(proxy.port, "GET", "/healthcheck")[1]["decode_instances"] == 2, 15, "added")
        self.assertEqual(post(proxy.port, "/instances/remove",
                              {"type": "decode", "instances": f"127.0.0.1:{d.port}"})[0], 200)
        wait_until(lambda: request(proxy.port, "GET", "/healthcheck")[1]["decode_instances"] == 1, 15, "removed")
        before = metric(extra.port, "vllm:generation_tokens_total")
        texts(proxy.port, REQUESTS[0])
        self.assertGreater(metric(extra.port, "vllm:generation_tokens_total"), before)


if __name__ == "__main__":
    unittest.main()
