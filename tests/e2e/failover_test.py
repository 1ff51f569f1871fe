"""Engines that are killed, stopped and restarted behind the proxy: a client sees a pause, and the tokens it would have seen."""
import json
import signal
import tempfile
import threading
import time
import unittest

import cutting_relay
import harness
import parrot
import tool_calls_test
from harness import free_port, metric, post, request, stream, wait_until
from recompute_test import LAST_TOKEN_MISMATCHES, LONG, at_once, plain, streamed

USAGE = {"stream_options": {"include_usage": True}}
KEEPS_ON = {"ignore_eos": True, "return_token_ids": True, **USAGE}
OUT_SECONDS = 2  # until a dead instance is not chosen any more
HANG_SECONDS = 8  # until a request at a stopped one has gone on elsewhere, on a busy machine


class Watched(threading.Thread):
    """A stream in the background, event by event."""

    def __init__(self, port, body, path="/v1/completions"):
        super().__init__()
        self.port, self.body, self.path = port, body, path
        self.events, self.error = None, None
        self.start()

    def run(self):
        try:
            self.events = stream(self.port, self.path, self.body, timeout=60)
        except Exception as error:
            self.error = error

    def result(self):
        self.join(90)
        if self.error:
            raise self.error
        return self.events


class FailOver(harness.ServingTest):
    def deploy(self, prefills=1, decodes=2, *flags, model=harness.TINY, extra=None):
        self.p = [self.prefill(free_port(), *flags, into=self.processes, name=f"p{i}", model=model, extra=extra)
                  for i in range(prefills)]
        self.d = [self.decode(*flags, into=self.processes, name=f"d{i}", model=model, extra=extra)
                  for i in range(decodes)]
        return self.proxy(self.p, self.d, into=self.processes)

    def up(self, proxy, process):
        _, text, _ = request(proxy.port, "GET", "/metrics")
        mark = f'baton_proxy_instance_up{{instance="127.0.0.1:{process.port}"'
        return any(line.startswith(mark) and line.endswith(" 1") for line in text.splitlines())

    @staticmethod
    def busy(engines, tokens=50):
        found = []

        def look():
            found[:] = [e for e in engines if metric(e.port, "vllm:num_requests_running") > 0
                        and metric(e.port, "vllm:generation_tokens_total") > tokens]
            return found
        wait_until(look, 30, "tokens flow")
        return found[0]

    def test_every_kind_of_stream_survives_a_killed_decode_engine(self):
        proxy = self.deploy()
        alone = self.engine("alone", into=self.processes)
        self.d.append(self.decode(into=self.processes, name="d2"))
        long = {"max_tokens": 1200, **KEEPS_ON}
        bodies = [
            {"prompt": LONG, "temperature": 0, **long},
            {"prompt": LONG[10:], "temperature": 1, "seed": 7, "logprobs": 2, **long},
            {"prompt": LONG[20:], "temperature": 0, "repetition_penalty": 1.2, "frequency_penalty": 0.3, **long},
            {"prompt": LONG[30:], "temperature": 0.8, "seed": 9, "min_tokens": 1100, "top_p": 0.9, **long},
        ]
        unseeded = {"prompt": LONG[40:], "temperature": 1, **long}
        expected = [streamed(stream(alone.port, "/v1/completions", body)) for body in bodies]
        running = [Watched(proxy.port, body) for body in [*bodies, unseeded, unseeded]]
        wait_until(lambda: sum(metric(d.port, "vllm:num_requests_running") for d in self.d[:2]) == 6, 30, "all run")
        self.busy(self.d[:2], 300).kill()
        got = [streamed(each.result()) for each in running]
        self.assertEqual(got[:4], expected)
        self.assertEqual([len(each[1]) for each in got], [1200] * 6)
        self.assertGreater(metric(proxy.port, "baton_proxy_resumes_total"), 0)
        self.assertEqual(metric(proxy.port, "baton_proxy_cut_streams_total"), 0)
        # The engine that goes on draws the next token of a request as P, told the seed, has: unseeded ones too.
        left = next(d for d in self.d if d.popen.poll() is None)
        self.assertEqual(metric(left.port, LAST_TOKEN_MISMATCHES), 0)

    def test_the_only_decode_engine_comes_back(self):
        proxy = self.deploy(decodes=1)
        body = {"prompt": LONG, "temperature": 1, "seed": 5, "max_tokens": 2500, **KEEPS_ON}
        expected = streamed(stream(proxy.port, "/v1/completions", body))
        for sig in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(sig):
                running = Watched(proxy.port, body)
                dead = self.busy(self.d)
                dead.kill(sig)
                dead.popen.wait()
                self.d = [self.decode(into=self.processes, name="d-again", port=dead.port)]
                self.assertEqual(streamed(running.result()), expected)

    def test_when_no_decode_engine_comes_back_the_client_is_told(self):
        p = self.prefill(free_port(), into=self.processes)
        d = self.decode(into=self.processes)
        proxy = self.proxy([p], [d], "--resume-wait", "1", into=self.processes)
        body = {"prompt": LONG, "max_tokens": 3000, **KEEPS_ON}
        running = Watched(proxy.port, body)
        self.busy([d]).kill()
        events = running.result()
        self.assertEqual(events[-1], "[DONE]")
        self.assertIn("decode", events[-2]["error"]["message"])
        status, answer, headers = post(proxy.port, "/v1/completions", {"prompt": "a", "max_tokens": 4})
        self.assertEqual((status, headers.get("Retry-After")), (503, "1"), answer)

    def test_a_stopped_decode_engine_is_given_up_and_taken_back(self):
        proxy = self.deploy()
        alone = self.engine("alone", into=self.processes)
        body = {"prompt": LONG, "temperature": 1, "seed": 5, "max_tokens": 3000, **KEEPS_ON}
        expected = streamed(stream(alone.port, "/v1/completions", body))
        running = Watched(proxy.port, body)
        hung = self.busy(self.d)
        hung.popen.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            self.assertEqual(streamed(running.result()), expected)
            wait_until(lambda: not self.up(proxy, hung), HANG_SECONDS, "it is out")
            self.assertLess(time.monotonic() - began, HANG_SECONDS + 20)
            self.assertGreater(metric(proxy.port, "baton_proxy_hung_calls_total"), 0)
            ask = {"prompt": LONG, "temperature": 1, "seed": 5, "max_tokens": 9}
            self.assertEqual(plain(post(proxy.port, "/v1/completions", ask)[1])[0],
                             plain(post(alone.port, "/v1/completions", ask)[1])[0])
        finally:
            hung.popen.send_signal(signal.SIGCONT)
        wait_until(lambda: self.up(proxy, hung), 5, "it is back")
        wait_until(lambda: metric(hung.port, "vllm:num_requests_running") == 0, 10, "it has let the request go")

    def test_a_stopped_prefill_engine_is_given_up(self):
        """Before it answers, with another one and without."""
        proxy = self.deploy(prefills=2, decodes=1)
        body = {"prompt": LONG, "temperature": 1, "seed": 5, "max_tokens": 20}
        expected = plain(post(proxy.port, "/v1/completions", body)[1])[0]
        for left in (1, 0):
            for p in self.p[left:]:
                p.popen.send_signal(signal.SIGSTOP)
            try:
                began = time.monotonic()
                status, answer, _ = post(proxy.port, "/v1/completions", {**body, "cache_salt": str(left)})
                self.assertEqual((status, plain(answer)[0] if status == 200 else answer), (200, expected))
                self.assertLess(time.monotonic() - began, HANG_SECONDS)
            finally:
                for p in self.p:
                    p.popen.send_signal(signal.SIGCONT)
            wait_until(lambda: all(self.up(proxy, p) for p in self.p), 5, "both are back")

    def relay(self, engine):
        relay = cutting_relay.CuttingRelay(engine.port)
        self.addCleanup(relay.close)
        return relay

    def test_prefill_lost_between_its_answer_and_the_hand_off(self):
        """D computes the prompt itself, or, with kv_load_failure_policy fail, says so and the proxy asks another P."""
        body = {"prompt": LONG, "temperature": 1, "seed": 5, "max_tokens": 20}
        for policy, transport, sig in (("recompute", "shm", signal.SIGKILL), ("recompute", "tcp", signal.SIGKILL),
                                       ("recompute", "shm", signal.SIGSTOP), ("recompute", "tcp", signal.SIGSTOP),
                                       ("fail", "tcp", signal.SIGKILL), ("fail", "tcp", signal.SIGSTOP)):
            with self.subTest(policy=policy, transport=transport, sig=sig):
                extra = {"kv_load_failure_policy": policy, "kv_connector_extra_config": {"baton_transport": transport}}
                self.deploy(2, 1, extra=extra)
                lost = self.p[0]
                relay = self.relay(lost)
                proxy = self.proxy([relay, self.p[1]], self.d, into=self.processes)
                expected = plain(post(self.d[0].port, "/v1/completions", body)[1])[0]
                wait_until(lambda: self.up(proxy, relay) and self.up(proxy, self.p[1]), 5, "both are up")
                relay.before_answer = lambda: lost.kill(sig)
                began = time.monotonic()
                status, answer, _ = post(proxy.port, "/v1/completions", {**body, "cache_salt": "x"})
                took = time.monotonic() - began
                lost.popen.send_signal(signal.SIGCONT)
                self.assertIsNone(relay.before_answer, "P has answered")
                self.assertEqual((status, plain(answer)[0] if status == 200 else answer), (200, expected))
                # D gives a P that accepts connections and says nothing 15 seconds.
                self.assertLess(took, HANG_SECONDS if sig == signal.SIGKILL else HANG_SECONDS + 15)
                if policy == "fail":
                    self.assertGreater(metric(self.p[1].port, "vllm:prompt_tokens_total"), 0, "another P")
                harness.end_all(self.processes)

    def test_no_prefill_engine_left_and_then_a_decode_engine_lost(self):
        proxy = self.deploy()
        alone = self.engine("alone", into=self.processes)
        relay = self.relay(self.d[0])
        relayed = self.proxy(self.p, [relay, self.d[1]], into=self.processes)
        port = relayed.port
        self.p[0].kill()
        wait_until(lambda: not self.up(relayed, self.p[0]), OUT_SECONDS + 1, "P is out")
        body = {"prompt": LONG, "temperature": 1, "max_tokens": 60, **KEEPS_ON}
        relay.cut_next(6000)
        got = streamed(stream(port, "/v1/completions", body))
        self.assertEqual(metric(port, "baton_proxy_resumes_total"), 1)
        self.assertEqual(metric(port, "baton_proxy_colocated_total"), 1)
        seed = json.loads(relay.bodies[-1])["kv_transfer_params"]["baton_seed"]
        expected = streamed(stream(alone.port, "/v1/completions", {**body, "kv_transfer_params": {"baton_seed": seed}}))
        self.assertEqual(got, expected)
        self.assertNotEqual(got[1], streamed(stream(alone.port, "/v1/completions", body))[1], "a seed that counts")

    def test_reasoning_and_tool_calls_are_whole_wherever_the_stream_breaks(self):
        with tempfile.TemporaryDirectory() as folder:
            model = parrot.write(folder, ["I need", " the weather"] + tool_calls_test.HERMES[2:])
            self.deploy(1, 2, *tool_calls_test.HERMES_FLAGS, model=model)
            relay = self.relay(self.d[0])
            proxy = self.proxy(self.p, [relay, self.d[1]], into=self.processes)
            ask = {"messages": [{"role": "user", "content": "How is the weather in Beijing?"}],
                   "tools": tool_calls_test.TOOLS, "temperature": 1, "logprobs": True, **USAGE}

            def message():
                events = stream(proxy.port, "/v1/chat/completions", ask)
                made = tool_calls_test.assembled([e for e in events if e == "[DONE]" or e["choices"]])
                for call in made["calls"]:
                    call.pop("id")
                heads = {(e["id"], e["created"]) for e in events[:-1]}
                roles = sum("role" in c["delta"] for e in events[:-1] for c in e["choices"])
                tokens = [p["token"] for e in events[:-1] for c in e["choices"]
                          for p in (c["logprobs"] or {}).get("content") or ()]
                return made, roles, len(heads), tokens, events[-2]["usage"]["completion_tokens"], events[-1]
            expected = message()
            self.assertEqual(expected[0]["calls"], [{"name": "get_weather", "arguments": tool_calls_test.ARGUMENTS}])
            self.assertEqual(expected[1:3], (1, 1))
            for count in range(400, 20000, 211):
                wait_until(lambda: self.up(proxy, relay), 5, "the relay is up")
                asked, attempts = len(relay.bodies), metric(proxy.port, "baton_proxy_decode_attempts_total")
                relay.cut_next(count, reset=count % 2 == 0)
                self.assertEqual(message(), expected, f"cut after {count} bytes")
                self.assertEqual(relay.cuts, [])
                if metric(proxy.port, "baton_proxy_decode_attempts_total") == attempts + 1:
                    break  # the answer was shorter
                # One that is not cut closes its breaker.
                self.assertEqual(message(), expected)
                self.assertEqual(len(relay.bodies), asked + 2)
            self.assertGreater(metric(proxy.port, "baton_proxy_resumes_total"), 10)
            self.assertEqual(metric(proxy.port, "baton_proxy_cut_streams_total"), 0)

    def test_a_restarted_proxy_serves_at_once(self):
        proxy = self.deploy(decodes=1)
        body = {"prompt": LONG, "temperature": 0, "max_tokens": 3000, **KEEPS_ON}
        running = Watched(proxy.port, body)
        self.busy(self.d)
        proxy.kill()
        running.join(30)
        self.assertIsNotNone(running.error)
        again = harness.Process("proxy-again", ["proxy", "--host", "127.0.0.1", "--port", str(proxy.port),
                                                "--prefiller-hosts", "127.0.0.1", "--prefiller-ports", str(self.p[0].port),
                                                "--decoder-hosts", "127.0.0.1", "--decoder-ports", str(self.d[0].port)],
                                proxy.port)
        self.processes.append(again)
        again.wait_ready()
        self.assertEqual(post(again.port, "/v1/completions", {"prompt": LONG, "max_tokens": 3, "temperature": 0})[0], 200)
        wait_until(lambda: metric(self.d[0].port, "vllm:num_requests_running") == 0, 5, "D has let the lost one go")
        wait_until(lambda: metric(self.p[0].port, "baton:kv_offers_held") == 0, 5, "P holds nothing")

    def test_a_dead_instance_is_out_and_a_restarted_one_back(self):
        proxy = self.deploy(2, 2)
        for dead, start in ((self.p[0], lambda p: self.prefill(free_port(), into=self.processes, name="p0-again", port=p)),
                            (self.d[0], lambda p: self.decode(into=self.processes, name="d0-again", port=p))):
            wait_until(lambda: self.up(proxy, dead), 5, "it is up")
            dead.kill()
            wait_until(lambda: not self.up(proxy, dead), OUT_SECONDS, "it is out")
            dead.popen.wait()
            again = start(dead.port)
            wait_until(lambda: self.up(proxy, again), OUT_SECONDS, "it is back")

            def used():
                post(proxy.port, "/v1/completions", {"prompt": LONG, "max_tokens": 3, "temperature": 0})
                return metric(again.port, "vllm:prompt_tokens_total") > 0
            wait_until(used, 5, "it is used")

    def test_nobody_gets_a_wrong_answer_while_engines_die_and_return(self):
        proxy = self.deploy(2, 2)
        bodies = [{"prompt": LONG[i:], "temperature": 1, "seed": i, "max_tokens": 60} for i in range(8)]
        expected = [post(proxy.port, "/v1/completions", body)[1]["choices"][0]["text"] for body in bodies]
        over = threading.Event()
        wrong, refused, right = [], [], []

        def ask(worker):
            turn = worker
            while not over.is_set():
                turn += 1
                body, want = bodies[turn % 8], expected[turn % 8]
                try:
                    if turn % 2:
                        events = stream(proxy.port, "/v1/completions", body)
                        got = None if "error" in events[-2] else "".join(c["text"] for e in events[:-1] for c in e["choices"])
                    else:
                        status, answer, _ = post(proxy.port, "/v1/completions", body)
                        got = answer["choices"][0]["text"] if status == 200 else None
                except AssertionError:
                    got = None  # a status that says so
                (refused if got is None else right if got == want else wrong).append(got)
        workers = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for worker in workers:
            worker.start()
        for group, role in ((self.p, "p"), (self.d, "d"), (self.d, "d"), (self.p, "p")):
            time.sleep(0.7)
            dead = group.pop(0)
            dead.kill()
            dead.popen.wait()
            time.sleep(0.3)
            group.append(self.prefill(free_port(), into=self.processes, name=f"{role}-again", port=dead.port)
                         if role == "p" else self.decode(into=self.processes, name=f"{role}-again", port=dead.port))
        over.set()
        for worker in workers:
            worker.join(60)
        self.assertEqual(wrong, [])
        self.assertEqual(refused, [], "another of each was there all the time")
        self.assertGreater(len(right), 20)


if __name__ == "__main__":
    unittest.main()
