"""A decode engine out of KV blocks sends requests back through the proxy to prefill: nobody sees it in an answer."""
import json
import os
import pathlib
import tempfile
import threading
import unittest

import harness
import parrot
import tool_calls_test
from harness import metric, post, run_to_end, stream, wait_until

LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 6
RECOMPUTE = ("--additional-config", json.dumps({"scheduler_config": {"recompute_scheduler_enable": True}}))
LAST_TOKEN_MISMATCHES = "baton:last_token_mismatches_total"


def at_once(calls):
    """The results of all `calls`, made by a thread each."""
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def completion(port, body):
    status, answer, _ = post(port, "/v1/completions", body)
    assert status == 200, (status, answer)
    return answer


def plain(answer):
    """What of a whole answer does not change from call to call."""
    usage = {k: v for k, v in answer["usage"].items() if k != "prompt_tokens_details"}
    return [{k: v for k, v in choice.items()} for choice in answer["choices"]], usage


def streamed(events):
    """A stream put together: text, ids, finish reason, usage, and the number of its heads."""
    text, ids, offsets, finish, usage, heads = "", [], [], None, None, set()
    for event in events[:-1]:
        heads.add((event["id"], event["created"], event["model"]))
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text += choice["text"]
            ids += choice.get("token_ids") or []
            offsets += (choice.get("logprobs") or {}).get("text_offset", [])
            finish = choice["finish_reason"] or finish
            assert choice.get("stop_reason") != "recomputed"
    assert events[-1] == "[DONE]"
    return text, ids, offsets, finish, {k: v for k, v in usage.items() if k != "prompt_tokens_details"}, len(heads)


class Recompute(harness.ServingTest):
    MODE, CONNECTOR = "pull", "MooncakeConnectorV1"

    def deploy(self, *flags, model=harness.TINY, length="512", blocks="200K", decodes=1):
        extra = {"kv_connector": self.CONNECTOR}
        flags += ("--max-model-len", length)
        p = self.prefill(harness.free_port(), *flags, into=self.processes, model=model, extra=extra)
        small = ("--kv-cache-memory-bytes", blocks)
        d = [self.decode(*flags, *RECOMPUTE, *small, into=self.processes, model=model, name=f"d{i}", extra=extra)
             for i in range(decodes)]
        alone = self.engine("alone", *flags, into=self.processes, model=model)
        return p, d, alone, self.proxy([p], d, "--mode", self.MODE, into=self.processes)

    def recomputed(self, proxy, decodes):
        count = sum(metric(d.port, "baton:recomputed_requests_total") for d in decodes)
        self.assertGreater(count, 0)
        self.assertEqual(metric(proxy.port, "baton_proxy_recomputed_total"), count)
        self.assertEqual(metric(proxy.port, "baton_proxy_cut_streams_total"), 0)
        self.assertEqual(sum(metric(d.port, LAST_TOKEN_MISMATCHES) for d in decodes), 0)
        return count

    def check(self, decodes):
        p, d, alone, proxy = self.deploy("--enable-prompt-tokens-details", decodes=decodes)
        common = {"max_tokens": 120, "ignore_eos": True, "return_token_ids": True}
        bodies = [
            {"prompt": LONG, "temperature": 0, **common},
            {"prompt": LONG[10:], "temperature": 1, "seed": 7, "logprobs": 2, **common},
            {"prompt": LONG[20:], "temperature": 0, "repetition_penalty": 1.2, "frequency_penalty": 0.3, **common},
            {"prompt": LONG[30:], "temperature": 0.8, "seed": 9, "min_tokens": 90, "top_p": 0.9,
             "max_tokens": 140, "return_token_ids": True},
            {"prompt": LONG[40:], "temperature": 1, "seed": 3, "stop": ["zqx", "qqqq"], **common},
            {"prompt": LONG[50:], "temperature": 1, "seed": 3, "n": 2, **common, "max_tokens": 40},
            {"prompt": [LONG[60:], LONG[70:]], "temperature": 0, **common, "max_tokens": 30},
        ]
        expected = [plain(completion(alone.port, body)) for body in bodies]
        made = at_once([lambda body=body: completion(proxy.port, body) for body in bodies])
        for body, want, got in zip(bodies, expected, made):
            self.assertEqual(plain(got), want, body)
        ones = [{**body, "stream_options": {"include_usage": True}} for body in bodies[:5]]
        expected = [streamed(stream(alone.port, "/v1/completions", body)) for body in ones]
        made = at_once([lambda body=body: streamed(stream(proxy.port, "/v1/completions", body)) for body in ones])
        for body, want, got in zip(ones, expected, made):
            self.assertEqual(got, want, body)
            self.assertEqual(got[-1], 1, "one id, one time, one model")
        self.recomputed(proxy, d)
        wait_until(lambda: metric(p.port, "baton:kv_offers_held") == 0, what="P's blocks are free")

    def test_every_way_of_sampling_goes_on_as_if_nothing_had_been(self):
        self.check(decodes=1)

    def test_two_decode_engines(self):
        self.check(decodes=2)

    def test_an_unseeded_request_keeps_the_seed_that_was_drawn(self):
        p, d, alone, proxy = self.deploy()
        body = {"prompt": LONG, "temperature": 1, "max_tokens": 120, "ignore_eos": True, "return_token_ids": True}
        made = at_once([lambda i=i: completion(proxy.port, {**body, "prompt": LONG[i:]}) for i in range(5)])
        self.recomputed(proxy, d)
        # P and D agree on every resumed request's next token (no mismatch), which other seeds would not give.
        self.assertEqual({len(answer["choices"][0]["token_ids"]) for answer in made}, {120})

    def test_reasoning_and_tool_calls_go_on_amid_a_word(self):
        with tempfile.TemporaryDirectory() as folder:
            pieces = ["I need", " the weather"] + [f" of day {i}," for i in range(30)] + tool_calls_test.HERMES[2:]
            model = parrot.write(folder, pieces)
            p, d, alone, proxy = self.deploy(*tool_calls_test.HERMES_FLAGS, model=model, length="256", blocks="36K")
            ask = {"messages": [{"role": "user", "content": "How is the weather in Beijing?"}],
                   "tools": tool_calls_test.TOOLS, "logprobs": True, "top_logprobs": 1}
            bodies = [{**ask, "temperature": 0}, {**ask, "temperature": 1, "seed": 3}] * 3

            def whole(port, body):
                status, answer, _ = post(port, "/v1/chat/completions", body)
                self.assertEqual(status, 200, answer)
                choice = answer["choices"][0]
                calls = choice["message"].pop("tool_calls")
                return choice, [call["function"] for call in calls], answer["usage"]

            def pieces_of(port, body):
                events = stream(port, "/v1/chat/completions", body)
                roles = sum("role" in c["delta"] for e in events[:-1] for c in e["choices"])
                message = tool_calls_test.assembled(events)
                for call in message["calls"]:
                    call.pop("id")
                return message, roles, len({e["id"] for e in events[:-1]})
            for ask_one in (whole, pieces_of):
                expected = [ask_one(alone.port, body) for body in bodies[:2]] * 3
                made = at_once([lambda body=body: ask_one(proxy.port, body) for body in bodies])
                for want, got in zip(expected, made):
                    self.assertEqual(got, want)
            self.recomputed(proxy, d)


class FailOver(harness.ServingTest):
    def test_a_stream_whose_decode_engine_dies_goes_on_at_another(self):
        p = self.prefill(harness.free_port(), into=self.processes)
        d = [self.decode(into=self.processes, name=f"d{i}") for i in range(2)]
        alone = self.engine("alone", into=self.processes)
        proxy = self.proxy([p], d, into=self.processes)
        body = {"prompt": LONG, "temperature": 1, "seed": 5, "max_tokens": 3000, "ignore_eos": True,
                "return_token_ids": True, "stream_options": {"include_usage": True}}
        expected = streamed(stream(alone.port, "/v1/completions", body))
        result = at_once([lambda: streamed(stream(proxy.port, "/v1/completions", body)),
                          lambda: self.kill_the_busy_one(d)])[0]
        self.assertEqual(result, expected)
        self.assertEqual(metric(proxy.port, "baton_proxy_resumes_total"), 1)
        self.assertEqual(metric(proxy.port, "baton_proxy_recomputed_total"), 0)

    @staticmethod
    def kill_the_busy_one(decodes):
        busy = []

        def found():
            busy[:] = [d for d in decodes if metric(d.port, "vllm:generation_tokens_total") > 50]
            return busy
        wait_until(found, 30, "tokens flow")
        busy[0].kill()


class Switches(harness.ServingTest):
    def refused(self, role, extra, words, env=None):
        arguments = ["serve", harness.TINY, "--port", str(harness.free_port()), "--additional-config", json.dumps(extra)]
        if role:
            arguments += ["--kv-transfer-config",
                          json.dumps({"kv_connector": "MooncakeConnectorV1", "kv_role": role, "engine_id": "x"})]
        os.environ.update(env or {})
        try:
            status, said = run_to_end(*arguments)
        finally:
            for name in env or {}:
                del os.environ[name]
        self.assertNotEqual(status, 0)
        self.assertIn(words, said)

    def test_where_it_means_nothing(self):
        on = {"recompute_scheduler_enable": True}
        self.refused(None, on, "kv_consumer")
        self.refused("kv_both", on, "kv_consumer")
        self.refused("kv_consumer", {**on, "enable_balance_scheduling": True}, "known to hang")
        self.refused("kv_consumer", {"scheduler_config": on}, "known to hang", {"VLLM_ASCEND_BALANCE_SCHEDULING": "1"})

    def test_a_prefill_engine_says_that_it_ignores_it(self):
        p = self.prefill(harness.free_port(), *RECOMPUTE, into=self.processes)
        self.assertIn("ignored by a kv_producer", pathlib.Path(p.log.name).read_text())


if __name__ == "__main__":
    unittest.main()
