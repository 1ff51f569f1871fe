"""The HTTP surface of one engine: shapes, streams, errors, disconnects, keys, limits."""
import json
import pathlib
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

import harness
from harness import metric, post, request, stream, wait_until

PROMPT = "Alice was beginning to get very tired"


class EngineApi(harness.ServingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.engine("engine", "--max-model-len", "2048", "--enable-prompt-tokens-details",
                                "--enable-request-id-headers", into=cls.class_processes)
        cls.port = cls.server.port

    def complete(self, **fields):
        status, body, _ = post(self.port, "/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0,
                                                              **fields})
        self.assertEqual(status, 200, body)
        return body

    def test_models_health_version_load(self):
        status, body, _ = request(self.port, "GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual(body["data"][0]["id"], "tiny")
        self.assertEqual(body["data"][0]["max_model_len"], 2048)
        for path in ("/health", "/ping"):
            self.assertEqual(request(self.port, "GET", path)[:2], (200, None))
        self.assertIn("version", request(self.port, "GET", "/version")[1])
        self.assertEqual(request(self.port, "GET", "/load")[1], {"server_load": 0})

    def test_completion_shape(self):
        body = self.complete(logprobs=2, return_token_ids=True)
        self.assertEqual(body["object"], "text_completion")
        self.assertTrue(body["id"].startswith("cmpl-"))
        choice = body["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertIsNone(choice["stop_reason"])
        self.assertEqual(len(choice["token_ids"]), 8)
        self.assertEqual(len(choice["logprobs"]["tokens"]), 8)
        self.assertEqual(choice["logprobs"]["text_offset"][0], 0)
        # Byte-level pieces of characters share a spelling (U+FFFD): at least one alternative each.
        self.assertTrue(all(choice["logprobs"]["top_logprobs"]))
        self.assertEqual(body["usage"]["completion_tokens"], 8)
        self.assertEqual(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"] + 8)
        self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"])

    def test_stream_equals_whole(self):
        whole = self.complete(n=2, temperature=1, seed=7, max_tokens=20)
        events = stream(self.port, "/v1/completions",
                        {"prompt": PROMPT, "max_tokens": 20, "temperature": 1, "seed": 7, "n": 2,
                         "stream_options": {"include_usage": True}})
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[-2]["choices"], [])
        self.assertEqual(events[-2]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
        for index in range(2):
            text = "".join(c["text"] for e in events[:-2] for c in e["choices"] if c["index"] == index)
            self.assertEqual(text, whole["choices"][index]["text"])
        self.assertNotEqual(whole["choices"][0]["text"], whole["choices"][1]["text"])

    def test_chat_stream_opens_with_role_and_ends_with_reason(self):
        events = stream(self.port, "/v1/chat/completions",
                        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0})
        self.assertEqual(events[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual(events[0]["object"], "chat.completion.chunk")
        self.assertIn(events[-2]["choices"][0]["finish_reason"], ("length", "stop"))
        self.assertEqual(events[-1], "[DONE]")

    def test_chat_whole_and_parts(self):
        parts = [{"type": "text", "text": "Hi"}]
        texts = set()
        for content in ("Hi", parts):
            status, body, _ = post(self.port, "/v1/chat/completions",
                                   {"messages": [{"role": "user", "content": content}], "max_tokens": 6,
                                    "temperature": 0, "logprobs": True, "top_logprobs": 2})
            self.assertEqual(status, 200, body)
            self.assertEqual(body["choices"][0]["message"]["role"], "assistant")
            self.assertEqual(len(body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]), 2)
            texts.add(body["choices"][0]["message"]["content"])
        self.assertEqual(len(texts), 1)

    def test_prompt_forms_give_the_same_answer(self):
        ids = post(self.port, "/tokenize", {"prompt": PROMPT})[1]["tokens"]
        texts = [self.complete(prompt=p)["choices"][0]["text"] for p in (PROMPT, [PROMPT], ids, [ids])]
        self.assertEqual(len(set(texts)), 1)
        both = self.complete(prompt=[PROMPT, "Down, down"])
        self.assertEqual([c["index"] for c in both["choices"]], [0, 1])
        self.assertEqual(both["choices"][0]["text"], texts[0])

    def test_echo_and_prompt_logprobs(self):
        body = self.complete(echo=True, logprobs=1, max_tokens=2)
        choice = body["choices"][0]
        self.assertTrue(choice["text"].startswith(PROMPT))
        self.assertIsNone(choice["logprobs"]["token_logprobs"][0])
        self.assertTrue(all(v <= 0 for v in choice["logprobs"]["token_logprobs"][1:]))
        only = self.complete(echo=True, logprobs=1, max_tokens=0)
        self.assertEqual(only["choices"][0]["text"], PROMPT)
        self.assertEqual(only["usage"]["completion_tokens"], 0)

    def test_stop_strings(self):
        text = self.complete(max_tokens=24)["choices"][0]["text"]
        stop = text[6:9]
        body = self.complete(max_tokens=24, stop=[stop])
        choice = body["choices"][0]
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual(choice["stop_reason"], stop)
        self.assertEqual(choice["text"], text[:text.index(stop)])
        included = self.complete(max_tokens=24, stop=[stop], include_stop_str_in_output=True)
        self.assertEqual(included["choices"][0]["text"], text[:text.index(stop) + 3])

    def test_stop_token_ids_and_allowed_ids(self):
        ids = self.complete(return_token_ids=True)["choices"][0]["token_ids"]
        body = self.complete(stop_token_ids=[ids[2]], return_token_ids=True)
        self.assertEqual(body["choices"][0]["stop_reason"], ids[2])
        self.assertEqual(body["choices"][0]["token_ids"], ids[:ids.index(ids[2]) + 1])
        body = self.complete(allowed_token_ids=[40, 41], return_token_ids=True)
        self.assertLessEqual(set(body["choices"][0]["token_ids"]), {40, 41})

    def test_prefix_cache_is_reported_and_can_be_reset(self):
        prompt = "the rabbit hole went straight on like a tunnel " * 8
        first = self.complete(prompt=prompt)
        again = self.complete(prompt=prompt)
        self.assertEqual(first["choices"][0]["text"], again["choices"][0]["text"])
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(request(self.port, "POST", "/reset_prefix_cache")[0], 200)
        self.assertEqual(self.complete(prompt=prompt)["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        salted = self.complete(prompt=prompt, cache_salt="mine")
        self.assertEqual(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_tokenize_round_trip(self):
        for text in (PROMPT, "naïve 日本語 🙂\n\n  x", "<|im_start|>user"):
            body = post(self.port, "/tokenize", {"prompt": text, "return_token_strs": True})[1]
            self.assertEqual(body["count"], len(body["tokens"]))
            self.assertEqual(len(body["token_strs"]), body["count"])
            back = post(self.port, "/detokenize", {"tokens": body["tokens"]})[1]["prompt"]
            self.assertEqual(back, text)
        chat = post(self.port, "/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})[1]
        self.assertIn("assistant", post(self.port, "/detokenize", {"tokens": chat["tokens"]})[1]["prompt"])

    def test_bad_requests(self):
        cases = json.loads((harness.ROOT / "tests/data/api/bad_requests.json").read_text())
        for case in cases:
            body = case["body"] if isinstance(case["body"], dict) else case["body"].encode("latin-1")
            status, answer, _ = request(self.port, case.get("method", "POST"), case["path"], body,
                                        headers={"Content-Type": case.get("type", "application/json")})
            self.assertEqual(status, case["status"], (case, answer))
            self.assertIn(case.get("message", ""), json.dumps(answer), case)
        self.complete()

    def test_many_members_take_no_time(self):
        # 300 000 members, 4 MB: looked up one among all, they took minutes.
        many = {f"member{i}": i for i in range(300_000)}
        started = time.monotonic()
        self.complete(**many)
        status, body, _ = post(self.port, "/v1/chat/completions",
                               {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": many})
        self.assertEqual(status, 400)
        self.assertIn("at most 1024", body["error"]["message"])
        self.assertLess(time.monotonic() - started, 30)

    def test_a_final_message_is_continued(self):
        def text_of(**fields):
            tokens = post(self.port, "/tokenize", {"messages": [{"role": "user", "content": "Hi"},
                                                                {"role": "assistant", "content": "Hi, I am "}],
                                                   "add_generation_prompt": False, **fields})[1]["tokens"]
            return post(self.port, "/detokenize", {"tokens": tokens})[1]["prompt"]

        whole, continued = text_of(), text_of(continue_final_message=True)
        self.assertTrue(continued.endswith("Hi, I am"), continued)
        self.assertTrue(whole.startswith(continued))
        self.assertLess(len(continued), len(whole))

    def test_over_long_prompt_says_the_limit(self):
        status, body, _ = post(self.port, "/v1/completions", {"prompt": [5] * 3000, "max_tokens": 1})
        self.assertEqual(status, 400)
        self.assertIn("maximum context length is 2048 tokens", body["error"]["message"])

    def test_text_that_can_not_fit_is_refused_before_it_is_tokenised(self):
        # As long as a body of the same size that no route takes; tokenising would take 20 times that.
        text = "word " * 4000000
        begin = time.monotonic()
        self.assertEqual(post(self.port, "/v1/nothing", {"prompt": text})[0], 404)
        without_a_look = time.monotonic() - begin
        begin = time.monotonic()
        status, body, _ = post(self.port, "/v1/completions", {"prompt": text, "max_tokens": 1})
        self.assertEqual(status, 400)
        self.assertIn("maximum context length is 2048 tokens", body["error"]["message"])
        self.assertLess(time.monotonic() - begin, 10 * without_a_look + 1)
        status, body, _ = post(self.port, "/v1/completions", {"prompt": ["x"] * 3000, "n": 2, "max_tokens": 1})
        self.assertEqual(status, 400, body)

    def test_a_stop_string_counts_as_a_stop(self):
        text = self.complete(max_tokens=24)["choices"][0]["text"]
        before = self.stopped()
        self.complete(max_tokens=1000, ignore_eos=True, stop=[text[6:9]])
        wait_until(lambda: self.stopped() == before + 1, what="counted as a stop")

    def stopped(self):
        lines = request(self.port, "GET", "/metrics")[1].splitlines()
        return sum(float(l.rsplit(" ", 1)[1]) for l in lines
                   if l.startswith("vllm:request_success_total{") and 'finished_reason="stop"' in l)

    def test_request_id_is_used_and_returned(self):
        status, body, headers = post(self.port, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1},
                                     headers={"X-Request-Id": "my-id"})
        self.assertEqual((status, body["id"], headers["X-Request-Id"]), (200, "cmpl-my-id", "my-id"))

    def test_a_client_that_goes_is_noticed(self):
        body = json.dumps({"prompt": PROMPT, "max_tokens": 1900, "ignore_eos": True, "stream": False}).encode()
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            wait_until(lambda: metric(self.port, "vllm:num_requests_running") == 1, what="request runs")
        begin = time.monotonic()
        wait_until(lambda: metric(self.port, "vllm:num_requests_running") == 0, 5, "request aborted")
        self.assertLess(time.monotonic() - begin, 2)

    def test_abort_requests(self):
        import threading
        result = {}

        def run():
            result["answer"] = post(self.port, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1900,
                                                                   "ignore_eos": True}, headers={"X-Request-Id": "gone"})
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: metric(self.port, "vllm:num_requests_running") == 1, what="request runs")
        self.assertEqual(post(self.port, "/abort_requests", {"request_ids": ["gone"]})[0], 200)
        thread.join(10)
        self.assertEqual(result["answer"][1]["choices"][0]["finish_reason"], "abort")

    def test_half_open_and_garbage_connections_hurt_nobody(self):
        held = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(50)]
        for s in held[:25]:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
        for s in held[25:]:
            s.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 garbage\r\n\r\n")
        self.complete()
        for s in held:
            s.close()

    def test_header_bomb(self):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            try:
                for i in range(4000):
                    s.sendall(b"X-%d: %s\r\n" % (i, b"a" * 100))
            except OSError:
                pass
            s.settimeout(5)
            try:
                answer = s.recv(100)
            except ConnectionResetError:
                answer = b"HTTP/1.1 431"
            self.assertIn(b"431", answer)
        self.complete()

    def test_metrics_have_vllms_names(self):
        self.complete()
        text = request(self.port, "GET", "/metrics")[1]
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                     "vllm:gpu_cache_usage_perc", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
                     "vllm:request_success_total", "vllm:time_to_first_token_seconds_bucket",
                     "vllm:inter_token_latency_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket",
                     "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
                     "vllm:iteration_tokens_total_bucket", "vllm:cache_config_info", "http_requests_total"):
            self.assertIn(f"\n{name}{{", text, name)
        self.assertIn('model_name="tiny"', text)


class Keys(harness.ServingTest):
    def test_api_key_guards_v1_only(self):
        server = self.engine("keyed", "--api-key", "secret", into=self.processes)
        body = {"prompt": PROMPT, "max_tokens": 1}
        self.assertEqual(request(server.port, "GET", "/health")[0], 200)
        self.assertEqual(post(server.port, "/v1/completions", body)[0], 401)
        self.assertEqual(post(server.port, "/v1/completions", body, headers={"Authorization": "Bearer wrong"})[0], 401)
        self.assertEqual(post(server.port, "/v1/completions", body, headers={"Authorization": "Bearer secret"})[0], 200)


class Tls(harness.ServingTest):
    def test_https(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = pathlib.Path(folder) / "cert.pem", pathlib.Path(folder) / "key.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
                            "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key),
                            "-out", str(cert)], check=True, capture_output=True)
            server = self.engine("tls", "--ssl-certfile", str(cert), "--ssl-keyfile", str(key), wait=False,
                                 into=self.processes)
            context = ssl.create_default_context(cafile=str(cert))
            import http.client

            def ready():
                try:
                    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=5)
                    connection.request("GET", "/v1/models")
                    with connection.getresponse() as response:
                        return response.status == 200
                except OSError:
                    return False
            wait_until(ready, harness.START_SECONDS, "https answers")


class Names(harness.ServingTest):
    def test_as_vllm_it_listens_everywhere_and_warns(self):
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder) / "vllm"
            link.symlink_to(pathlib.Path(harness.BATON).resolve())
            port = harness.free_port()
            process = harness.Process("vllm", ["serve", harness.TINY, "--port", str(port), "--max_model_len", "1k",
                                               "--enforce-eager", "--kv-cache-memory-bytes", "64M"], port,
                                      program=str(link))
            self.processes.append(process)
            process.wait_ready()
            self.assertIn("without --api-key", process.tail())
            self.assertIn("--enforce-eager", process.tail())
            self.assertEqual(request(port, "GET", "/v1/models")[1]["data"][0]["max_model_len"], 1000)

    def test_what_is_not_there_is_refused_at_start(self):
        for flags in (["--node-rank", "1"], ["--speculative-config", '{"method": "mtp"}'],
                      ["--no-such-flag"], ["--max-model-len", "many"]):
            status, said = harness.run_to_end("serve", harness.TINY, *flags)
            self.assertEqual(status, 2, (flags, said))
            self.assertIn(flags[0].lstrip("-"), said.replace("_", "-"))

    def test_a_quantization_that_the_folder_is_not_in_is_refused(self):
        status, said = harness.run_to_end("serve", harness.TINY, "--quantization", "ascend")
        self.assertEqual(status, 1, said)
        self.assertIn("quant_model_description.json is missing", said)

    def test_a_model_that_is_not_there_lists_where_it_looked(self):
        status, said = harness.run_to_end("serve", "Eco-Tech/Kimi-K2.6-W4A8")
        self.assertEqual(status, 2)
        self.assertIn("models--Eco-Tech--Kimi-K2.6-W4A8", said)


class BrokenFiles(harness.ServingTest):
    """A broken checkpoint ends the start with an error; it never crashes or hangs."""

    def start(self, path):
        status, said = harness.run_to_end("serve", str(path), "--port", str(harness.free_port()))
        self.assertIn(status, (1, 2), (path, status, said[-500:]))
        self.assertRegex(said, "baton serve: (error: )?.+")

    def test_every_kind_of_break(self):
        import shutil
        for name, edit in {
            "no_config": lambda f: (f / "config.json").unlink(),
            "config_not_json": lambda f: (f / "config.json").write_text("{"),
            "config_wrong_type": lambda f: (f / "config.json").write_text('{"model_type": 5}'),
            "other_architecture": lambda f: (f / "config.json").write_text('{"model_type": "mamba"}'),
            "weights_truncated": lambda f: (f / "model.safetensors").write_bytes(
                (f / "model.safetensors").read_bytes()[:100000]),
            "weights_header_absurd": lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 64),
            "weights_empty": lambda f: (f / "model.safetensors").write_bytes(b""),
            "tokenizer_truncated": lambda f: (f / "tokenizer.json").write_bytes(
                (f / "tokenizer.json").read_bytes()[:5000]),
            "tokenizer_missing": lambda f: (f / "tokenizer.json").unlink(),
        }.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder) / name
                shutil.copytree(harness.TINY, copy)
                edit(copy)
                self.start(copy)

    def test_a_file_that_is_no_gguf(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, data in (("short.gguf", b"GGUF"), ("text.gguf", b"hello" * 100),
                               ("absurd.gguf", b"GGUF\x03\x00\x00\x00" + b"\xff" * 100)):
                path = pathlib.Path(folder) / name
                path.write_bytes(data)
                self.start(path)


class Shutdown(harness.ServingTest):
    def test_sigterm_exits_zero(self):
        server = self.engine("stopped", into=self.processes)
        post(server.port, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1})
        self.assertEqual(server.stop(), 0)

    def test_a_taken_port_is_said(self):
        server = self.engine("first", into=self.processes)
        second = self.engine("second", port=server.port, wait=False, into=self.processes)
        self.assertNotEqual(second.popen.wait(30), 0)
        self.assertIn(str(server.port), second.tail())


if __name__ == "__main__":
    unittest.main()
