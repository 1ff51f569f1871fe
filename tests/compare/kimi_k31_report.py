#!/usr/bin/env python3
"""Serves a random checkpoint of about 1 GB in Kimi K3.1's shape, co-located and through prefill, decode and proxy, in
W4A8_MXFP and MXFP4, and prints one table: load time, time to the first token, tokens a second, bytes of KV and of
recurrent state, the hand-off, and the share of the machine's read bandwidth that decode reaches.

  tests/compare/kimi_k31_report.py [--folder DIR] [--threads N] [--only SCHEME] [--no-vary] [--no-table]

Needs ./check to have built the release (or BATON_BINARY); 5 GB of disk in DIR (kept, and used again by the next run;
else a temporary folder), 4 GB of memory. Ends with 1 when a token through prefill and decode differs from the
co-located one's. Standard library only.
"""
import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
os.environ.setdefault("BATON_START_SECONDS", "180")
import decode_bytes  # noqa: E402
import harness  # noqa: E402
import stream_timing as timing  # noqa: E402

SHAPE = {"layers": 12, "full-attention-period": 4, "dense-layers": 1, "hidden": 1024, "intermediate": 4096,
         "vocab": 16384, "max-positions": 16384, "heads": 12, "q-lora-rank": 384, "kv-lora-rank": 512,
         "qk-nope-head-dim": 128, "qk-rope-head-dim": 64, "v-head-dim": 128, "linear-heads": 12, "linear-head-dim": 128,
         "experts": 160, "experts-per-token": 8, "shared-experts": 2, "moe-intermediate": 512, "routed-hidden": 512,
         "attn-res-block": 4, "index-heads": 8, "index-head-dim": 128, "index-topk": 512}
CACHES = {"auto": [], "fp8": ["--kv-cache-dtype", "fp8", "--attention-config", '{"indexer_kv_dtype": "fp8"}']}
PROMPTS = {"short": 513, "long": 1025, "batch": 257}
SINGLE_TOKENS, BATCH, BATCH_TOKENS = 96, 8, 48
KV_MEMORY = 256 << 20


def prompt(kind, number):
    source = random.Random(f"{kind} {number}")
    return [source.randrange(300, SHAPE["vocab"]) for _ in range(PROMPTS[kind])]


def baton(*arguments):
    ended = subprocess.run([harness.BATON, *arguments], capture_output=True, text=True, errors="replace")
    if ended.returncode != 0:
        raise SystemExit(f"baton {' '.join(arguments)}: status {ended.returncode}\n{ended.stderr}")


def checkpoint(root, scheme):
    plain, quantised = root / "bf16", root / scheme
    if not (plain / "config.json").exists():
        sizes = [word for flag, size in SHAPE.items() for word in (f"--{flag}", str(size))]
        baton("make-checkpoint", "--arch", "kimi_k31", *sizes, "--out", str(plain))
    if not (quantised / "config.json").exists():  # written last
        baton("quantize", str(plain), str(quantised), "--scheme", scheme)
    return quantised


def variant(folder, name, change):
    """The same weights under another configuration: `change` edits its text settings."""
    changed = folder.with_name(f"{folder.name}.{name}")
    changed.mkdir(exist_ok=True)
    for path in folder.iterdir():
        link = changed / path.name
        if path.name != "config.json" and not link.exists():
            link.symlink_to(path)
    config = json.loads((folder / "config.json").read_text())
    change(config["text_config"])
    (changed / "config.json").write_text(json.dumps(config))
    return changed


def read_bandwidth(threads):
    """GB/s that this machine reads from memory, by the probe of the matmul benchmark."""
    said = subprocess.run([harness.BATON, "bench", "kernels", "--threads", str(threads), "--filter", "none"],
                          capture_output=True, text=True).stdout
    return float(re.search(r"read ([\d.]+) GB/s", said).group(1))


class Servers:
    """Processes of one configuration, ended together."""

    def __init__(self, folder, flags, threads):
        self.flags = ["--threads", str(threads), "--max-num-seqs", str(BATCH), "--kv-cache-memory-bytes",
                      str(KV_MEMORY), *flags]
        self.folder, self.started = folder, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        harness.end_all(self.started)

    def engine(self, name, role=None):
        port, extra = harness.free_port(), []
        if role:
            extra = ["--kv-transfer-config", json.dumps({"kv_connector": "MooncakeConnectorV1", "kv_role": role,
                                                         "kv_port": harness.free_port(), "engine_id": name})]
        process = harness.Process(name, ["serve", str(self.folder), "--port", str(port), "--served-model-name", "k31",
                                         *self.flags, *extra], port)
        self.started.append(process)
        return process

    def proxy(self, prefill, decode):
        return harness.ServingTest.proxy([prefill], [decode], into=self.started)

    def pids(self):
        return [process.popen.pid for process in self.started]


def said(process, pattern):
    return re.search(pattern, pathlib.Path(process.log.name).read_text()).groups()


def measure(servers, port, singles):
    """Greedy answers to the `singles` long prompts one by one, then to a batch. What they were, and how fast."""
    timing.one(port, "k31", prompt("short", 99), 8)  # the first request touches scratch memory
    share = timing.OthersShare(servers.pids())
    alone = [timing.one(port, "k31", prompt("long", i), SINGLE_TOKENS) for i in range(singles)]
    joint = timing.together(port, "k31", [prompt("batch", i) for i in range(BATCH)], BATCH_TOKENS)
    steps = [step for answer in alone for step in answer.steps()[1:]]  # the first may hold the hand-off
    rate, joint_steps = timing.joint_rate(joint)
    return {"tokens": [answer.tokens for answer in alone + joint], "others": share.end(),
            "ttft": min(answer.times[0] for answer in alone), "steps": steps,
            "rate": len(steps) / sum(steps), "batch_rate": rate, "batch_steps": joint_steps}


def hand_off(prefill, decode, port):
    """Bytes of hand-offs of two lengths tell bytes per token and those of the state; and their time."""
    def totals():
        return [harness.metric(decode.port, f"vllm:mooncake_{name}_sum") for name in ("bytes_transferred",
                                                                                     "xfer_time_seconds")]
    found = {}
    for kind in ("short", "long"):
        before = totals()
        timing.one(port, "k31", prompt(kind, 77), 2)
        found[kind] = [b - a for a, b in zip(before, totals())]
    tokens = (PROMPTS["long"] - PROMPTS["short"])
    per_token = (found["long"][0] - found["short"][0]) / tokens
    failed = sum(harness.metric(decode.port, name) for name in (
        "vllm:mooncake_num_failed_transfers", "baton:kv_transfer_failures_total", "baton:last_token_mismatches_total"))
    return {"kv_token": per_token, "state": found["long"][0] - per_token * PROMPTS["long"],
            "bytes": found["long"][0], "seconds": found["long"][1], "failed": failed}


def run_row(folder, cache, threads, singles=2):
    config = json.loads((folder / "config.json").read_text())
    row = {"others": []}
    with Servers(folder, CACHES[cache], threads) as servers:
        row["alone"] = measure(servers, servers.engine("co-located").wait_ready().port, singles)
    with Servers(folder, CACHES[cache], threads) as servers:
        prefill = servers.engine("prefill", "kv_producer").wait_ready()
        decode = servers.engine("decode", "kv_consumer").wait_ready()
        proxy = servers.proxy(prefill, decode)
        row["apart"] = measure(servers, proxy.port, singles)
        row["hand_off"] = hand_off(prefill, decode, proxy.port)
        row["load"] = said(decode, r"weights loaded: (\d+) MB in ([\d.]+) s")
        row["slot"] = int(said(decode, r"Recurrent state: \d+ slots of (\d+) bytes")[0])
    row["read"] = read_bandwidth(threads)
    sizes = decode_bytes.tensor_bytes(folder)
    row["file"] = sum(sizes.values())
    row["one"], row["eight"] = (decode_bytes.decode_bytes(sizes, config, batch) for batch in (1, BATCH))
    row["same"] = sum(a == b for a, b in zip(row["alone"]["tokens"], row["apart"]["tokens"]))
    for what, found, wanted in (("a state slot", row["slot"], decode_bytes.state_bytes(config)),
                                ("a hand-off's state", row["hand_off"]["state"], decode_bytes.state_bytes(config)),
                                ("KV per token", row["hand_off"]["kv_token"],
                                 decode_bytes.cache_bytes(config, cache != "auto"))):
        if found != wanted:
            row["hand_off"]["failed"] += 1
            print(f"{what} has {found} bytes, by the configuration {wanted}")
    return row


def percent(part, whole):
    return f"{100 * part / whole:.0f} %"


def reached(row, weights, step):
    rate = sum(weights) / step / 1e9
    return f"{rate:.1f} GB/s, {percent(rate, row['read'])} of {row['read']:.1f}"


def lines(row):
    """(what, value) of one configuration."""
    alone, apart, off = row["alone"], row["apart"], row["hand_off"]
    answers = len(apart["tokens"])
    yield "weights in the file", f"{row['file'] / 1e6:.0f} MB"
    yield "load", f"{row['load'][0]} MB in {row['load'][1]} s"
    yield "answers equal to co-located", f"{row['same']} of {answers}"
    yield "failed or differing hand-offs", f"{off['failed']:.0f}"
    yield "KV per token", f"{off['kv_token']:.0f} B"
    yield "recurrent state per sequence", f"{row['slot'] / 1e6:.2f} MB"
    yield f"hand-off of {PROMPTS['long']} tokens", (f"{off['bytes'] / 1e6:.2f} MB ({off['state'] / 1e6:.2f} state) "
                                                       f"in {1e3 * off['seconds']:.1f} ms")
    yield f"TTFT, {PROMPTS['long']} tokens", f"{apart['ttft']:.2f} s (co-located {alone['ttft']:.2f})"
    yield "decode, 1 sequence", f"{apart['rate']:.1f} token/s (co-located {alone['rate']:.1f})"
    yield f"decode, {BATCH} sequences", f"{apart['batch_rate']:.1f} token/s (co-located {alone['batch_rate']:.1f})"
    yield "weights a step reads, 1", f"{sum(row['one']) / 1e6:.0f} MB ({row['one'][1] / 1e6:.0f} experts)"
    yield f"weights a step reads, {BATCH}", f"{sum(row['eight']) / 1e6:.0f} MB ({row['eight'][1] / 1e6:.0f} experts)"
    for name, steps, weights in (("1", apart["steps"], row["one"]), (str(BATCH), apart["batch_steps"], row["eight"])):
        median, tenth = timing.quantile(steps, 0.5), timing.quantile(steps, 0.1)
        yield f"step, {name}: median", f"{1e3 * median:.1f} ms: {reached(row, weights, median)}"
        yield f"step, {name}: fastest tenth", f"{1e3 * tenth:.1f} ms: {reached(row, weights, tenth)}"
    yield "other processes' CPU", f"{percent(apart['others'], 1)} (co-located {percent(alone['others'], 1)})"


def print_table(rows):
    columns = [dict(lines(row)) for row in rows.values()]
    print("| | " + " | ".join(f"{scheme}, KV {cache}" for scheme, cache in rows) + " |")
    print("|---|" + "---|" * len(rows))
    for what in columns[0]:
        print(f"| {what} | " + " | ".join(column[what] for column in columns) + " |")


def keep_layers(count):
    def change(text):
        text["num_nextn_predict_layers"] = text["num_hidden_layers"] - count  # draft layers are not read
        text["num_hidden_layers"] = count
        for name in ("full_attn_layers", "kda_layers"):
            text["linear_attn_config"][name] = [at for at in text["linear_attn_config"][name] if at <= count]
    return change


def median_step(folder, batch):
    """Milliseconds of CPU time of a co-located step on one thread."""
    with Servers(folder, [], 1) as servers:
        engine = servers.engine("varied").wait_ready()
        pid, prompts = engine.popen.pid, [prompt("batch", i) for i in range(max(batch, 2))]
        if batch == 1:
            answers = [timing.one(engine.port, "k31", each, SINGLE_TOKENS, pid) for each in prompts]
        else:
            answers = timing.together(engine.port, "k31", prompts, BATCH_TOKENS, pid)
        steps = [step for answer in answers for step in timing.differences(answer.cpu)]
        return 1e3 * timing.quantile(steps, 0.5)


def vary(folder):
    """A step under other configurations of the same weights: what it costs to read more. One thread and its CPU time,
    which other processes on the machine distort little."""
    changes = {f"{count} layers": keep_layers(count) for count in (4, 8)}
    changes |= {f"top {k}": lambda text, k=k: text.update(num_experts_per_token=k) for k in (8, 32, 64)}
    sizes, at, read = decode_bytes.tensor_bytes(folder), {}, read_bandwidth(1)
    print(f"\n{folder.name}, co-located, 1 thread, after 257 tokens: weights a step reads, its CPU time (median)")
    for name, change in [*changes.items(), (f"top 8, {BATCH} sequences", changes["top 8"])]:
        batch = BATCH if "sequences" in name else 1
        changed = variant(folder, name.split(",")[0].replace(" ", "-"), change)
        config = json.loads((changed / "config.json").read_text())
        megabytes = sum(decode_bytes.decode_bytes(sizes, config, batch)) / 1e6
        milliseconds = median_step(changed, batch)
        at[name] = megabytes, milliseconds
        print(f"  {name:20} {megabytes:4.0f} MB {milliseconds:6.2f} ms {megabytes / milliseconds:5.1f} GB/s, "
              f"{percent(megabytes / milliseconds, read)} of {read:.1f}", flush=True)
    for what, low, high in (("layers", "4 layers", "8 layers"), ("experts", "top 8", "top 64")):
        (mb0, ms0), (mb1, ms1) = at[low], at[high]
        print(f"  what more {what} add, {low} to {high}: {mb1 - mb0:.0f} MB in {ms1 - ms0:.2f} ms, "
              f"{(mb1 - mb0) / (ms1 - ms0):.1f} GB/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("w4a8-mxfp", "mxfp4"))
    parser.add_argument("--no-vary", action="store_true")
    parser.add_argument("--no-table", action="store_true")
    options = parser.parse_args()
    schemes = [options.only] if options.only else ["w4a8-mxfp", "mxfp4"]
    rows = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(options.folder or temporary).resolve()
        root.mkdir(parents=True, exist_ok=True)
        for scheme in schemes:
            folder = checkpoint(root, scheme)
            for cache in [] if options.no_table else CACHES:
                rows[scheme, cache] = run_row(folder, cache, options.threads)
                print(f"{scheme}, KV {cache}: done", file=sys.stderr)
        if rows:
            print_table(rows)
        for scheme in [] if options.no_vary else schemes:
            vary(root / scheme)
    sys.exit(0 if all(row["same"] == len(row["alone"]["tokens"]) and row["hand_off"]["failed"] == 0
                      for row in rows.values()) else 1)


if __name__ == "__main__":
    main()
