"""Reasoning and tool calls from real processes: one engine, and prefill, decode and proxy, on a model that always calls."""
import os
import pathlib
import tempfile
import unittest

import harness
import kimi_text_test
import parrot
from harness import post, stream

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city",
                                           "parameters": {"type": "object",
                                                          "properties": {"city": {"type": "string"}}}}}]
ARGUMENTS = '{"city": "北京", "days": 2}'
HERMES = ["I need", " the weather", "</think>", "Let me", " look.", "<tool_", 'call>{"name"', ': "get_', 'weather", ',
          '"arguments": {"ci', 'ty": "北', '京", "da', 'ys": 2}', "}</tool_ca", "ll>"]
KIMI = ["I need", " the weather ", "</think>", "Let me", " look.", "<|tool_calls_section_begin|>", "<|tool_call_begin|>",
        "functions.get_", "weather:0", "<|tool_call_argument_begin|>", '{"city": "北', '京", "da', 'ys": 2}',
        "<|tool_call_end|>", "<|tool_calls_section_end|>"]
KIMI_FLAGS = ["--reasoning-parser", "kimi_k2", "--tool-call-parser", "kimi_k2", "--enable-auto-tool-choice"]
HERMES_FLAGS = ["--reasoning-parser", "deepseek_r1", "--tool-call-parser", "hermes", "--enable-auto-tool-choice"]


def assembled(events):
    """The message of choice 0, put together as clients do."""
    message = {"reasoning": "", "content": "", "calls": []}
    for event in events:
        for choice in event["choices"] if event != "[DONE]" else ():
            message["finish_reason"] = choice["finish_reason"]
            delta = choice["delta"]
            message["reasoning"] += delta.get("reasoning") or ""
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["calls"]):
                    message["calls"].append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
                message["calls"][call["index"]]["arguments"] += call["function"].get("arguments", "")
    return message


class ToolCalls(harness.ServingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = {}
        for name, pieces, special in (("hermes", HERMES, ()),
                                      ("kimi", KIMI, [piece for piece in KIMI if piece.startswith("<|")])):
            path = f"{cls.folder.name}/{name}"
            os.mkdir(path)
            cls.models[name] = parrot.write(path, pieces, special)

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    @staticmethod
    def ask(**fields):
        return {"messages": [{"role": "user", "content": "How is the weather in Beijing?"}], "tools": TOOLS, **fields}

    def check(self, port, call_id):
        for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
            status, body, _ = post(port, "/v1/chat/completions", self.ask(**sampling))
            self.assertEqual(status, 200, body)
            message = body["choices"][0]["message"]
            self.assertEqual(message["reasoning"], "I need the weather")
            self.assertEqual(message["content"], "Let me look.")
            self.assertEqual(body["choices"][0]["finish_reason"], "tool_calls")
            self.assertEqual(len(message["tool_calls"]), 1)
            call = message["tool_calls"][0]
            self.assertTrue(call["id"].startswith(call_id), call)
            self.assertEqual(call["function"], {"name": "get_weather", "arguments": ARGUMENTS})
            streamed = assembled(stream(port, "/v1/chat/completions", self.ask(**sampling)))
            self.assertEqual((streamed["reasoning"], streamed["content"], streamed["finish_reason"]),
                             (message["reasoning"], message["content"], "tool_calls"))
            self.assertEqual((streamed["calls"][0]["name"], streamed["calls"][0]["arguments"]),
                             ("get_weather", ARGUMENTS))
        # The next turn: the call and its result in the history.
        history = [{"role": "user", "content": "How is the weather in Beijing?"},
                   {"role": "assistant", "content": "", "tool_calls": message["tool_calls"]},
                   {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
        status, body, _ = post(port, "/v1/chat/completions", {"messages": history, "tools": TOOLS, "temperature": 0})
        self.assertEqual((status, body["choices"][0]["finish_reason"]), (200, "tool_calls"))

    def test_hermes_as_text(self):
        server = self.engine("hermes", *HERMES_FLAGS, model=self.models["hermes"], into=self.processes)
        self.check(server.port, "chatcmpl-tool-")
        for most, reason in ((1, "length"), (4, "length"), (10, "length")):
            status, body, _ = post(server.port, "/v1/chat/completions",
                                   self.ask(max_tokens=most, temperature=0))
            self.assertEqual((status, body["choices"][0]["finish_reason"]), (200, reason))
            self.assertEqual(body["usage"]["completion_tokens"], most)

    def test_kimi_k2_with_marker_tokens(self):
        server = self.engine("kimi", *KIMI_FLAGS, model=self.models["kimi"], into=self.processes)
        self.check(server.port, "functions.get_weather:0")
        status, body, _ = post(server.port, "/v1/chat/completions", self.ask(tool_choice="none"))
        self.assertEqual(status, 200)
        self.assertNotIn("tool_calls", body["choices"][0]["message"])
        self.assertNotIn("<|", body["choices"][0]["message"]["content"])
        status, body, _ = post(server.port, "/v1/chat/completions", self.ask(tool_choice="required"))
        self.assertEqual((status, body["error"]["param"]), (400, "tool_choice"))
        # Completions stay as they are: special tokens go, or stay where asked.
        status, body, _ = post(server.port, "/v1/completions",
                               {"prompt": "x", "max_tokens": 20, "skip_special_tokens": False, "temperature": 0})
        self.assertEqual(body["choices"][0]["text"], "".join(KIMI))

    def test_kimi_k3_takes_a_history_of_calls(self):
        """Random weights: what the model says is no matter, but its thoughts are no content, and its own calls, whole or
        cut, come back to it in its format."""
        with tempfile.TemporaryDirectory() as folder:
            kimi_text_test.make_folder(pathlib.Path(folder))
            server = self.engine("k3", "--tokenizer-mode", "kimi_k3", "--reasoning-parser", "kimi_k3", "--tool-call-parser",
                                 "kimi_k3", "--enable-auto-tool-choice", model=folder, into=self.processes)
            for arguments, written in (('{"city": "X", "n": 2}', 'key="n" type="number"<|sep|>2<|close|>argument'),
                                       ('{"city": ', '<|open|>json type="object"<|sep|>{"city": <|close|>json')):
                call = {"id": "chatcmpl-tool-1", "type": "function",
                        "function": {"name": "get_weather", "arguments": arguments}}
                history = [{"role": "user", "content": "w"},
                           {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [call]},
                           {"role": "tool", "tool_call_id": "chatcmpl-tool-1", "content": "sunny"}]
                tokens = post(server.port, "/tokenize", {"messages": history, "tools": TOOLS})[1]["tokens"]
                prompt = post(server.port, "/detokenize", {"tokens": tokens})[1]["prompt"]
                self.assertIn(written, prompt)
                self.assertIn('role="tool" tool="get_weather" index="1"<|sep|>sunny', prompt)
                self.assertTrue(prompt.endswith("<|open|>think<|sep|>"), prompt[-80:])
                body = {"messages": history, "tools": TOOLS, "max_tokens": 12, "temperature": 0}
                status, answer, _ = post(server.port, "/v1/chat/completions", body)
                self.assertEqual(status, 200, answer)
                message = answer["choices"][0]["message"]
                self.assertIsNone(message["content"])
                self.assertTrue(message["reasoning"])
                off = post(server.port, "/v1/chat/completions", {**body, "chat_template_kwargs": {"thinking": False}})[1]
                self.assertIsNone(off["choices"][0]["message"]["reasoning"])
                self.assertTrue(off["choices"][0]["message"]["content"])

    def test_through_the_proxy(self):
        """The prefill engine needs no parser: its one token is nobody's answer."""
        model = self.models["kimi"]
        for flags in ([], KIMI_FLAGS):
            with self.subTest(prefill=flags):
                prefill = self.prefill(harness.free_port(), *flags, model=model, into=self.processes)
                decode = self.decode(*KIMI_FLAGS, model=model, into=self.processes)
                proxy = self.proxy([prefill], [decode], into=self.processes)
                self.check(proxy.port, "functions.get_weather:0")
                self.assertGreater(harness.metric(prefill.port, "vllm:prompt_tokens_total"), 0)
                self.assertEqual(harness.metric(decode.port, "vllm:request_success_total"), 5)
                harness.end_all(self.processes)

    def test_what_is_wrong_at_start_is_said(self):
        for flags, words in ((["--tool-call-parser", "nope"], "invalid tool call parser: nope"),
                             (["--reasoning-parser", "nope"], "invalid reasoning parser: nope"),
                             (["--enable-auto-tool-choice"], "--enable-auto-tool-choice requires --tool-call-parser"),
                             (["--reasoning-parser", "kimi_k3", "--tool-call-parser", "hermes"], "kimi_k3")):
            status, said = harness.run_to_end("serve", self.models["kimi"], *flags)
            self.assertEqual(status, 2, (flags, said))
            self.assertIn(words, said)


if __name__ == "__main__":
    unittest.main()
