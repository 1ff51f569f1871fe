#!/usr/bin/env python3
"""example_proxies.py PYTHON FOLDER: our prefill and decode engines behind the example proxies in FOLDER, run by PYTHON.

Every answer is compared with that of one engine alone. Prints a line per thing tried; exit status 1 if one of those that
must hold does not. What is a proxy's own way (how it words an error) is printed and not judged.
"""
import concurrent.futures
import http.client
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import harness  # noqa: E402
from harness import free_port, metric, post, request, stream, wait_until  # noqa: E402

P_FIRST, D_FIRST = "load_balance_proxy_server_example.py", "load_balance_proxy_layerwise_server_example.py"
LONG = "Either the well was very deep, or she fell very slowly, for she had plenty of time. " * 40
BASE = {"model": "tiny", "return_token_ids": True, "ignore_eos": True}
COMPLETIONS = {
    "greedy with logprobs": {"prompt": "Alice was beginning", "max_tokens": 12, "temperature": 0, "logprobs": 3},
    "a long prompt": {"prompt": LONG, "max_tokens": 12, "temperature": 0},
    "seeded sampling": {"prompt": LONG[100:], "max_tokens": 20, "temperature": 1, "seed": 11, "top_p": 0.9},
    "penalties": {"prompt": LONG[3:], "max_tokens": 8, "temperature": 0, "repetition_penalty": 1.3},
    "one token": {"prompt": LONG[31:], "max_tokens": 1, "temperature": 0},
    "token ids as prompt": {"prompt": [7 + i % 300 for i in range(50)], "max_tokens": 6, "temperature": 0},
    "n = 2": {"prompt": LONG[7:], "max_tokens": 8, "temperature": 1, "seed": 5, "n": 2},
    "two prompts": {"prompt": [LONG[:80], LONG[80:190]], "max_tokens": 8, "temperature": 0},
}
CHAT = {"messages": [{"role": "user", "content": "How deep was the well?"}], "max_tokens": 10, "temperature": 0}


def choices_of(answer):
    return [{key: choice.get(key) for key in ("token_ids", "text", "message", "logprobs", "finish_reason")}
            for choice in answer["choices"]]


def streamed(port, path, body):
    ids, text, end = [], "", None
    for event in stream(port, path, body, timeout=60):
        if event == "[DONE]":
            continue
        for choice in event["choices"]:
            ids += choice.get("token_ids") or []
            text += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
            end = choice.get("finish_reason") or end
    return ids, text, end


class Trial:
    """One proxy in front of two prefill and two decode engines, and an engine alone."""

    def __init__(self, python, folder, program, connector):
        self.python, self.folder, self.program, self.connector = python, folder, program, connector
        self.processes, self.failed = [], 0

    def say(self, what, ok, seen=""):
        self.failed += 0 if ok else 1
        print(f"  {'ok  ' if ok else 'WRONG'} {what}{': ' + str(seen) if seen else ''}", flush=True)

    def start(self):
        serving, extra = harness.ServingTest, {"kv_connector": self.connector}
        self.alone = serving.engine("alone", into=self.processes)
        self.prefills = [serving.prefill(free_port(), name=f"p{i}", extra=extra, into=self.processes) for i in range(2)]
        self.decodes = [serving.decode(name=f"d{i}", extra=extra, into=self.processes) for i in range(2)]
        self.port = free_port()
        arguments = [str(pathlib.Path(self.folder) / self.program), "--host", "127.0.0.1", "--port", str(self.port)]
        for side, engines in (("prefiller", self.prefills), ("decoder", self.decodes)):
            arguments += [f"--{side}-hosts", *["127.0.0.1"] * 2, f"--{side}-ports", *[str(e.port) for e in engines]]
        if self.program == P_FIRST:
            arguments += ["--waiting-retry-interval", "1"]
        proxy = harness.Process("example-proxy", arguments, self.port, program=self.python)
        self.processes.append(proxy)
        proxy.wait_ready("/healthcheck")

    def run(self):
        print(f"{self.program}, connector {self.connector}", flush=True)
        try:
            self.start()
            self.whole_answers()
            self.streams()
            self.at_once()
            self.hand_off()
            self.service_routes()
            self.a_bad_request()
            self.a_client_that_leaves()
        except AssertionError as error:
            self.say("everything starts and answers", False, f"{error}"[-600:])
        finally:
            try:
                self.end()
            except AssertionError as error:
                self.say("an orderly end", False, error)
        return self.failed

    def end(self):
        proxy = [process for process in self.processes if process.name == "example-proxy"]
        for process in proxy:  # its exit status is its own
            process.kill()
            process.popen.wait()
        harness.end_all(self.processes)

    def equal(self, what, path, body):
        right = post(self.alone.port, path, body)
        got = post(self.port, path, body)
        ok = got[0] == right[0] == 200 and choices_of(got[1]) == choices_of(right[1])
        self.say(what, ok, "" if ok else f"{got[0]} {json.dumps(got[1])[:300]}")

    def whole_answers(self):
        for what, body in COMPLETIONS.items():
            if self.program == P_FIRST or what not in ("n = 2",):
                self.equal(f"completion, {what}", "/v1/completions", {**BASE, **body})
        self.equal("chat", "/v1/chat/completions", {**BASE, **CHAT})

    def streams(self):
        for what, path, body in (("completion", "/v1/completions", COMPLETIONS["seeded sampling"]),
                                 ("chat", "/v1/chat/completions", CHAT)):
            sent = {**BASE, **body, "stream_options": {"include_usage": True}}
            right, got = streamed(self.alone.port, path, sent), streamed(self.port, path, sent)
            self.say(f"streamed {what}", got == right and right[2] is not None, "" if got == right else got)

    def at_once(self):
        bodies = [{**BASE, "prompt": LONG[i:600 + 31 * i], "max_tokens": 10, "temperature": 1, "seed": i}
                  for i in range(24)]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            got = list(pool.map(lambda body: post(self.port, "/v1/completions", body), bodies))
        right = [post(self.alone.port, "/v1/completions", body) for body in bodies]
        equal = sum(1 for g, r in zip(got, right) if g[0] == 200 and choices_of(g[1]) == choices_of(r[1]))
        self.say("24 seeded requests at once", equal == len(bodies), f"{equal} equal")

    def hand_off(self):
        moved = [metric(d.port, "vllm:mooncake_bytes_transferred_sum") for d in self.decodes]
        self.say("KV was handed over to both decode engines", all(m > 0 for m in moved),
                 ", ".join(f"{m / 1e6:.1f} MB" for m in moved))
        wrong = sum(metric(d.port, "baton:last_token_mismatches_total") for d in self.decodes)
        self.say("no first token differed from prefill's", wrong == 0)
        self.say("both prefill engines worked", all(metric(p.port, "vllm:prompt_tokens_total") > 0
                                                    for p in self.prefills))
        try:
            wait_until(lambda: sum(metric(p.port, "baton:kv_offers_held") for p in self.prefills) == 0)
            self.say("prefill holds nothing afterwards", True)
        except AssertionError as error:
            self.say("prefill holds nothing afterwards", False, error)

    def service_routes(self):
        print(f"       GET /healthcheck: {request(self.port, 'GET', '/healthcheck')[1]}")
        status, answer, _ = post(self.port, "/reset_prefix_cache", b"")
        self.say("POST /reset_prefix_cache", status == 200, status)
        if self.program != P_FIRST:
            return
        status, answer, _ = request(self.port, "GET", "/v1/models")
        if status == 404:
            print("       GET /v1/models: 404, this version of the proxy has none")
        else:
            self.say("GET /v1/models", status == 200 and answer["data"][0]["id"] == "tiny", status)
        third = harness.ServingTest.decode(name="d2", extra={"kv_connector": self.connector}, into=self.processes)
        where = {"type": "decode", "instances": f"127.0.0.1:{third.port}"}
        post(self.port, "/instances/add", where)
        try:
            wait_until(lambda: request(self.port, "GET", "/healthcheck")[1]["decode_instances"] == 3, 20,
                       "the added decode engine")
            bodies = [{**BASE, "prompt": LONG[i:900], "max_tokens": 8, "temperature": 0} for i in range(9)]
            with concurrent.futures.ThreadPoolExecutor(9) as pool:
                statuses = {got[0] for got in pool.map(lambda b: post(self.port, "/v1/completions", b), bodies)}
            used = metric(third.port, "vllm:mooncake_bytes_transferred_sum")
            self.say("an added decode engine is used", statuses == {200} and used > 0, f"{used / 1e6:.1f} MB")
        except AssertionError as error:
            self.say("an added decode engine is used", False, error)
        post(self.port, "/instances/remove", where)
        self.equal("an answer after it was removed", "/v1/completions", {**BASE, **COMPLETIONS["a long prompt"]})

    def a_bad_request(self):
        status, answer, _ = post(self.port, "/v1/completions", {**BASE, "prompt": "x", "max_tokens": -1})
        print(f"       max_tokens -1: engine alone "
              f"{post(self.alone.port, '/v1/completions', {**BASE, 'prompt': 'x', 'max_tokens': -1})[0]}, "
              f"through the proxy {status} {json.dumps(answer)[:120]}")
        self.equal("an answer after a bad request", "/v1/completions", {**BASE, **COMPLETIONS["one token"]})

    def a_client_that_leaves(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", "/v1/completions", json.dumps(
            {**BASE, "prompt": LONG, "max_tokens": 3000, "stream": True}), {"Content-Type": "application/json"})
        connection.getresponse().read(50)
        connection.sock and connection.sock.close()
        connection.close()
        try:
            wait_until(lambda: sum(metric(d.port, "vllm:num_requests_running") for d in self.decodes) == 0, 20,
                       "decode stops")
            self.say("decode stops when the client leaves", True)
        except AssertionError as error:
            self.say("decode stops when the client leaves", False, error)


def has_layerwise():
    """Whether an engine starts with the layerwise connector."""
    into = []
    try:
        harness.ServingTest.decode(name="probe", extra={"kv_connector": "MooncakeLayerwiseConnector"}, into=into)
        return True
    except AssertionError:
        return False
    finally:
        for process in into:
            process.close()


def main(python, folder):
    failed = Trial(python, folder, P_FIRST, "MooncakeConnectorV1").run()
    failed += Trial(python, folder, P_FIRST, "MooncakeConnectorV2").run()
    if has_layerwise():
        failed += Trial(python, folder, D_FIRST, "MooncakeLayerwiseConnector").run()
    else:
        print(f"{D_FIRST}: not tried, MooncakeLayerwiseConnector is not in this version")
    print("all as it should be" if failed == 0 else f"{failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
