#!/usr/bin/env python3
"""Baton's proxy beside its peers: python3 bench/compare/proxy.py [--rounds 3] [--only ours,...] [--json FILE]

The peers are the P-first example proxy of vLLM-Ascend (PyPI source package), and PyPI's vllm-router and sglang-router.
They are installed under ~/.cache/baton/proxy-peers (BATON_PEERS names another place), outside the repository; one that
can't be installed or started is said so. All stand before the same fake engines (`proxy_load engines`), and the same
client asks them in turn. The proxy has the last core to itself, engines and client share the first.
"""
import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", ROOT / "build/release"))
PEERS = pathlib.Path(os.environ.get("BATON_PEERS", pathlib.Path.home() / ".cache/baton/proxy-peers"))
CORES = sorted(os.sched_getaffinity(0))
CHUNKS = 64
# name: (what, arguments of `proxy_load load`)
SCENARIOS = {
    "whole c=1": ["--connections", "1"],
    "whole c=32": ["--connections", "32"],
    "stream c=1": ["--connections", "1", "--stream"],
    "stream c=16": ["--connections", "16", "--stream"],
    "stream c=32": ["--connections", "32", "--stream"],
    "1 MB c=1": ["--connections", "1", "--prompt-bytes", str(1 << 20)],
    "1 MB c=8": ["--connections", "8", "--prompt-bytes", str(1 << 20)],
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_core(core):
    return lambda: os.sched_setaffinity(0, {core})


def install():
    """The peers' environment; returns (python, folder of the examples or None)."""
    python = PEERS / "venv/bin/python"
    if not python.exists():
        PEERS.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", PEERS / "venv"], check=True)
        for packages in (["fastapi", "httpx", "uvicorn", "uvloop", "httptools"],
                         ["setproctitle", "aiohttp", "requests", "orjson"],
                         ["--no-deps", "vllm-router"], ["--no-deps", "sglang-router"]):
            if subprocess.run([python, "-m", "pip", "install", "--quiet", *packages]).returncode:
                print(f"could not install {packages[-1]}", file=sys.stderr)
    examples = PEERS / "examples"
    if not examples.exists():
        # The package's own build needs an NPU's toolkit, so pip stops there; by then the sources are unpacked.
        unpacked = PEERS / "unpacked"
        unpacked.mkdir(exist_ok=True)
        subprocess.run([python, "-m", "pip", "download", "--no-clean", "--no-deps", "--no-build-isolation",
                        "--no-binary", ":all:", "--dest", PEERS, "vllm-ascend"], capture_output=True,
                       env={**os.environ, "TMPDIR": str(unpacked)})
        for found in unpacked.glob("**/examples/disaggregated_prefill_v1"):
            found.rename(examples)
            break
    return str(python), examples if examples.exists() else None


def peers(prefill, decode):
    """name -> (arguments, port)."""
    python, examples = install()
    p, d = f"http://127.0.0.1:{prefill}", f"http://127.0.0.1:{decode}"
    ports = {name: free_port() for name in ("ours", "example", "vllm-router", "sglang-router")}
    common = ["--host", "127.0.0.1", "--port"]
    sides = ["--prefiller-hosts", "127.0.0.1", "--prefiller-ports", str(prefill),
             "--decoder-hosts", "127.0.0.1", "--decoder-ports", str(decode)]
    commands = {
        "ours": [os.environ.get("BATON_BINARY", str(BUILD / "src/apps/baton")), "proxy", *common, str(ports["ours"]), *sides],
        "vllm-router": [python, "-m", "vllm_router.launch_router", *common, str(ports["vllm-router"]),
                        "--vllm-pd-disaggregation", "--prefill", p, "--decode", d, "--policy", "round_robin",
                        "--log-level", "warning", "--prometheus-port", str(free_port())],
        "sglang-router": [python, "-m", "sglang_router.launch_router", *common, str(ports["sglang-router"]),
                          "--pd-disaggregation", "--prefill", p, str(free_port()), "--decode", d,
                          "--policy", "round_robin", "--log-level", "warn", "--prometheus-port", str(free_port())],
    }
    if examples:
        commands["example"] = [python, str(examples / "load_balance_proxy_server_example.py"), *common,
                               str(ports["example"]), *sides, "--log-level", "ERROR"]
    return {name: (command, ports[name]) for name, command in commands.items()}


def stand_in_for_vllm(folder):
    """The examples ask the package vllm for a logger."""
    package = folder / "stand-in/vllm"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "logger.py").write_text("import logging\n\n\ndef init_logger(name):\n    return logging.getLogger(name)\n")
    return str(package.parent)


def serves(port):
    body = json.dumps({"model": "m", "prompt": "a", "max_tokens": 4, "temperature": 0}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1) as answer:
        return b"whole answer" in answer.read()


class Bench:
    def __init__(self, only, logs):
        self.processes, self.targets, self.refused = [], {}, {}
        self.logs = pathlib.Path(logs)
        prefill, decode = free_port(), free_port()
        engines = [str(BUILD / "bench/proxy/proxy_load"), "engines", "--prefill", str(prefill), "--decode", str(decode),
                   "--chunks", str(CHUNKS)]
        self.start("engines", engines, CORES[0])
        self.targets["direct"] = (decode, 0)
        environment = {"PYTHONPATH": stand_in_for_vllm(PEERS), "PYTHONDONTWRITEBYTECODE": "1"}
        for name, (command, port) in peers(prefill, decode).items():
            if only and name not in only:
                continue
            process = self.start(name, command, CORES[-1], environment)
            self.wait(name, process, port)

    def start(self, name, command, core, environment=None):
        log = open(self.logs / f"{name}.log", "w")
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=on_core(core), start_new_session=True,
                                   env={**os.environ, **(environment or {})})
        self.processes.append(process)
        return process

    def wait(self, name, process, port):
        why = ""
        end = time.monotonic() + 12
        while time.monotonic() < end:
            if process.poll() is not None:
                why = f"ended with {process.returncode}"
                break
            try:
                if serves(port):
                    self.targets[name] = (port, process.pid)
                    return
                why = "answers something else"
            except OSError as error:
                why = str(error)
            time.sleep(0.1)
        self.refused[name] = why

    def measure(self, name, arguments, seconds):
        port, pid = self.targets[name]
        command = [str(BUILD / "bench/proxy/proxy_load"), "load", "--port", str(port), "--pid", str(pid), "--chunks",
                   str(CHUNKS), "--seconds", str(seconds), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=on_core(CORES[0]), timeout=120)
        return json.loads(done.stdout)

    def close(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def table(results, scenario):
    direct = results["direct"][scenario]
    stream, lines = "stream" in scenario, []
    lines.append(f"| {scenario} | requests/s | chunks/s | p50 us | p99 us | added p50 us | added first byte us | "
                 "CPU us per request | requests/s per core |")
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, of in results.items():
        if scenario not in of:
            continue
        r = of[scenario]
        per_core = 1e6 / r["cpu_us_per_request"] if r["cpu_us_per_request"] else 0
        lines.append(
            f"| {name}{' (' + str(int(r['failed'])) + ' failed)' if r['failed'] else ''} | {r['requests_per_s']:.0f} | "
            f"{r['chunks_per_s'] if stream else 0:.0f} | {r['p50_us']:.0f} | {r['p99_us']:.0f} | "
            f"{r['p50_us'] - direct['p50_us']:.0f} | {r['first_p50_us'] - direct['first_p50_us']:.0f} | "
            f"{r['cpu_us_per_request']:.1f} | {per_core:.0f} |")
    return "\n".join(lines)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--scenarios", default="")
    parser.add_argument("--json", default="")
    parser.add_argument("--logs", default="/tmp")
    args = parser.parse_args()
    chosen = {k: v for k, v in SCENARIOS.items() if not args.scenarios or k in args.scenarios.split(",")}
    bench = Bench(set(filter(None, args.only.split(","))), args.logs)
    samples = {}
    try:
        for _ in range(args.rounds):
            for scenario, arguments in chosen.items():
                for name in bench.targets:
                    one = bench.measure(name, arguments, args.seconds)
                    samples.setdefault(name, {}).setdefault(scenario, []).append(one)
    finally:
        bench.close()
    results = {name: {scenario: {key: statistics.median(one[key] for one in runs) for key in runs[0]}
                      for scenario, runs in of.items()} for name, of in samples.items()}
    for name, why in bench.refused.items():
        print(f"{name}: not measured ({why})")
    for scenario in chosen:
        print(table(results, scenario), "\n")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"medians": results, "refused": bench.refused}, indent=1) + "\n")


if __name__ == "__main__":
    main()
