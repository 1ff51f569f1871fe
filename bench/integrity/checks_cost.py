#!/usr/bin/env python3
"""What the always-on checks cost: the same prefill/decode deployment with them and without, asked in turn.

    cmake --preset release -B build/unchecked -DBATON_CHECKS=OFF && ninja -C build/unchecked baton
    bench/integrity/checks_cost.py --model ~/.cache/baton/models/SmolLM2-135M-Instruct.Q4_1.gguf

Both deployments stand all the time; only one is asked at a time, in the order ABBA, so that whatever else the machine
does falls on both alike. Prompts are never the same twice, so that no prefix is found again and all KV is handed over.
Prints each round's tokens per second and the ratio of both with its 95 % interval (bootstrap over rounds).
"""
import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = "the well was very deep or she fell slowly for had plenty of time as went down to look about her".split()


class Deployment:
    def __init__(self, harness, binary, options):
        self.processes = []
        extra = {"kv_connector_extra_config": {"baton_transport": options.transport}}
        flags = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "512M"]
        start = {"model": options.model, "into": self.processes}
        before, harness.BATON = harness.BATON, binary
        p = harness.ServingTest.prefill(harness.free_port(), *flags, extra=extra, **start)
        d = harness.ServingTest.decode(*flags, extra=extra, **start)
        proxy = harness.ServingTest.proxy([p], [d], into=self.processes)
        harness.BATON = before
        self.port, self.prefill, self.decode = proxy.port, p, d


def ask(port, prompt, tokens):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "temperature": 0}),
            {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise SystemExit(f"{response.status}: {answer}")
        return answer["usage"]["total_tokens"]
    finally:
        connection.close()


def measure(port, options, draw):
    """Tokens (of prompts and answers) per second over `options.requests` requests of `options.clients` clients."""
    prompts = [" ".join(draw.choices(WORDS, k=options.prompt_words)) for _ in range(options.requests)]
    lock, totals = threading.Lock(), []

    def client():
        while True:
            with lock:
                if not prompts:
                    return
                prompt = prompts.pop()
            total = ask(port, prompt, options.tokens)
            with lock:
                totals.append(total)
    began = time.monotonic()
    threads = [threading.Thread(target=client) for _ in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(totals) / (time.monotonic() - began)


def interval(ratios, draw):
    means = sorted(statistics.mean(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return means[50], means[1949]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checked", default=str(ROOT / "build/release/src/apps/baton"))
    parser.add_argument("--unchecked", default=str(ROOT / "build/unchecked/src/apps/baton"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--transport", default="auto", choices=["auto", "shm", "tcp"])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--requests", type=int, default=12, help="of a round")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--prompt-words", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.model = os.path.expanduser(options.model)
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    import harness

    draw = random.Random(options.seed)
    deployments, rates = {}, {"on": [], "off": []}
    try:
        for name, binary in (("on", options.checked), ("off", options.unchecked)):
            deployments[name] = Deployment(harness, binary, options)
            measure(deployments[name].port, options, draw)  # warm
        for i in range(options.rounds):
            for name in ("on", "off") if i % 2 == 0 else ("off", "on"):
                rates[name].append(measure(deployments[name].port, options, draw))
            print(f"round {i + 1}: on {rates['on'][-1]:8.1f}  off {rates['off'][-1]:8.1f} tokens/s", flush=True)
        for name, deployment in deployments.items():
            moved = harness.metric(deployment.decode.port, "vllm:mooncake_bytes_transferred_sum")
            failed = harness.metric(deployment.decode.port, "vllm:mooncake_num_failed_transfers")
            print(f"{name}: {moved / 1e6:.0f} MB handed over, {failed:.0f} hand-offs failed")
    finally:
        for deployment in deployments.values():
            harness.end_all(deployment.processes)
    ratios = [on / off for on, off in zip(rates["on"], rates["off"])]
    low, high = interval(ratios, draw)
    print(f"throughput with checks / without: {statistics.mean(ratios):.4f} (95 %: {low:.4f} to {high:.4f}, "
          f"{len(ratios)} rounds)")


if __name__ == "__main__":
    main()
