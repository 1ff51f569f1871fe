#!/usr/bin/env python3
"""Prefill and decode apart, against both in one engine, on the same cores.

    bench/pd/pd_colocated.py MODEL --out docs/perf/pd_colocated.json [--shapes 512:16,256:64] [--seconds 8]

For each shape (prompt:output tokens) the same load, by the same seed, goes to
- one engine on both cores: 2 threads, chunked prefill, prefix cache (`taskset -c 0,1 baton serve ...`),
- a proxy, a prefill engine on core 0 and a decode engine on core 1, one thread each.
`baton bench serve` and the proxy share the two cores with what they drive, as on any small machine. Rates are parts of
what the one engine completes when everything is sent at once, so both arrangements see the same arrivals. The SLO is
set by the one engine without load: its median TTFT and TPOT for one request at a time, times --ttft-factor and
--tpot-factor. Results are merged into the file shape by shape. Standard library only; plot_pd_colocated.py draws them.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
import harness  # noqa: E402

LOADS = (0.3, 0.5, 0.7, 0.9)
KEPT = ("completed", "failed", "duration", "request_rate", "request_throughput", "request_goodput", "output_throughput",
        "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p50_tpot_ms", "p99_tpot_ms", "mean_ttft_ms", "mean_tpot_ms",
        "p99_itl_ms", "client_cpu_seconds")


def start(name, cores, arguments, port):
    """A baton process that may run on these cores only, ready."""
    process = harness.Process(name, ["-c", cores, harness.BATON, *arguments], port, program="taskset")
    return process.wait_ready()


def engine(name, cores, threads, model, role=None):
    port = harness.free_port()
    flags = ["serve", model, "--port", str(port), "--served-model-name", "model", "--threads", str(threads),
             "--max-num-seqs", "64", "--max-num-batched-tokens", "512", "--kv-cache-memory-bytes", "512M"]
    if role:
        flags += ["--kv-transfer-config", json.dumps({"kv_connector": "MooncakeConnectorV1", "kv_role": role,
                                                      "kv_port": str(harness.free_port()), "engine_id": name})]
    return start(name, cores, flags, port)


def colocated(model):
    return [engine("engine", "0,1", 2, model)]


def apart(model):
    prefill = engine("prefill", "0", 1, model, "kv_producer")
    decode = engine("decode", "1", 1, model, "kv_consumer")
    port = harness.free_port()
    proxy = start("proxy", "0,1", ["proxy", "--host", "127.0.0.1", "--port", str(port), "--prefiller-hosts", "127.0.0.1",
                                   "--prefiller-ports", str(prefill.port), "--decoder-hosts", "127.0.0.1",
                                   "--decoder-ports", str(decode.port)], port)
    return [prefill, decode, proxy]


def cpu_seconds(processes):
    """Of the processes, so far: user and system."""
    ticks = 0
    for process in processes:
        fields = pathlib.Path(f"/proc/{process.popen.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def load(port, model, prompt, output, count, *flags):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [harness.BATON, "bench", "serve", "--port", str(port), "--model", "model", "--tokenizer", model,
             "--skip-limits", "--random-input-len", str(prompt), "--random-output-len", str(output), "--num-prompts",
             str(count), "--metric-percentiles", "50,99", "--save-result", "--result-dir", folder, "--result-filename",
             "result.json", "--temperature", "0", *map(str, flags)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"baton bench serve ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return json.loads((pathlib.Path(folder) / "result.json").read_text())


def calibrate(model, prompt, output, options):
    """(requests a second of the one engine at most, its TTFT and TPOT in ms without load)"""
    processes = colocated(model)
    try:
        port = processes[-1].port
        alone = load(port, model, prompt, output, 4, "--max-concurrency", 1, "--seed", 1, "--num-warmups", 1)
        count = max(12, min(64, int(6 / max(1e-3, alone["duration"] / 4))))
        burst = load(port, model, prompt, output, count, "--seed", 2)
        return burst["request_throughput"], alone["median_ttft_ms"], alone["median_tpot_ms"]
    finally:
        harness.end_all(processes)


def measure(arrangement, model, prompt, output, rates, slo, options):
    processes = arrangement(model)
    results = []
    try:
        port = processes[-1].port
        load(port, model, prompt, output, 2, "--seed", 3)  # connections, pages, caches
        began = time.monotonic()
        for seed, (part, rate) in enumerate(rates, 10):  # new prompts at each rate: nothing is cached
            if time.monotonic() - began > options.most:
                break
            before = cpu_seconds(processes)
            count = max(8, round(rate * options.seconds))
            got = load(port, model, prompt, output, count, "--request-rate", rate, "--seed", seed, "--goodput",
                       f"ttft:{slo[0]:.1f}", f"tpot:{slo[1]:.1f}")
            point = {key: got[key] for key in KEPT if key in got}
            point.update(load=part, requests=count, server_cpu_seconds=round(cpu_seconds(processes) - before, 3),
                         good_part=round(got["request_goodput"] / got["request_throughput"], 4))
            results.append(point)
            print(f"  {arrangement.__name__:10} load {part:.1f} {rate:6.2f}/s: TTFT {got['median_ttft_ms']:8.1f} "
                  f"p99 {got['p99_ttft_ms']:8.1f}  TPOT {got['median_tpot_ms']:6.2f} p99 {got['p99_tpot_ms']:6.2f} ms  "
                  f"good {point['good_part'] * 100:5.1f} %", flush=True)
    finally:
        harness.end_all(processes)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", default="docs/perf/pd_colocated.json")
    parser.add_argument("--shapes", default="1024:8,512:32,256:64,128:128,32:256")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)))
    parser.add_argument("--seconds", type=float, default=8, help="of arrivals at each rate")
    parser.add_argument("--most", type=float, default=34, help="seconds of an arrangement, after which no load is begun")
    parser.add_argument("--ttft-factor", type=float, default=5)
    parser.add_argument("--tpot-factor", type=float, default=2.5)
    options = parser.parse_args()
    out = pathlib.Path(options.out)
    data = json.loads(out.read_text()) if out.exists() else {"shapes": {}}
    data["model"] = pathlib.Path(options.model).name
    data["factors"] = {"ttft": options.ttft_factor, "tpot": options.tpot_factor}
    for shape in options.shapes.split(","):
        prompt, output = map(int, shape.split(":"))
        capacity, ttft, tpot = calibrate(options.model, prompt, output, options)
        slo = (ttft * options.ttft_factor, tpot * options.tpot_factor)
        print(f"{shape}: the one engine completes {capacity:.2f} requests/s at once; alone TTFT {ttft:.1f}, TPOT "
              f"{tpot:.2f} ms; SLO TTFT {slo[0]:.0f}, TPOT {slo[1]:.1f} ms", flush=True)
        rates = [(part, round(part * capacity, 3)) for part in map(float, options.loads.split(","))]
        data["shapes"][shape] = {
            "date": time.strftime("%Y-%m-%d %H:%M:%S"), "capacity": capacity, "alone_ttft_ms": ttft,
            "alone_tpot_ms": tpot, "slo_ttft_ms": slo[0], "slo_tpot_ms": slo[1],
            "colocated": measure(colocated, options.model, prompt, output, rates, slo, options),
            "apart": measure(apart, options.model, prompt, output, rates, slo, options)}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
