"""Baton beside llama.cpp on the same GGUF files; llama_cpp.sh installs what this needs and runs it. Each round measures
one side, then the other. Figures gather in a JSON file, so that a run may be cut into parts by --model, --threads and
--load; every run writes the page anew from all of them."""
import argparse
import pathlib
import re

import http_load
import models
import sides
import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
# load: (requests at once, tokens of each prompt, tokens generated of each, which rate counts)
LOADS = {"decode, 1 sequence": (1, 16, 96, "decode"), "prefill, 512 tokens": (1, 512, 1, "prefill"),
         "prefill, 4096 tokens": (1, 4096, 1, "prefill"), "decode, 8 sequences": (8, 16, 48, "decode"),
         "decode, 32 sequences": (32, 16, 32, "decode"), "served, 8 at once": (8, 16, 64, "served"),
         "served, 32 at once": (32, 16, 48, "served")}
# Of the large shape, what ends within a minute.
LARGE = ("decode, 1 sequence", "prefill, 512 tokens", "decode, 8 sequences", "decode, 32 sequences")
GOALS = {"decode, 1 sequence": 2, "prefill, 512 tokens": 2, "prefill, 4096 tokens": 2, "decode, 8 sequences": 3,
         "decode, 32 sequences": 3, "served, 8 at once": 3, "served, 32 at once": 3}
MODELS = {f"SmolLM2-135M {form.upper()}": ("135m", form) for form in models.SMOLLM2_FORMATS} | {
    f"1.2B shape {form.upper()}": ("1b", form) for form in ("q4_0", "q8_0")}
INTRODUCTION = """# Beside llama.cpp

`bench/compare/llama_cpp.sh` made this page: it builds llama.cpp from the source package of PyPI `llama-cpp-python` for the
machine's processor, and measures both engines in turn on the same file: flash attention on, as many threads on both sides
(llama.cpp's in a thread pool that stays), KV in 16 bits, greedy. In process both get token ids; Baton's figures contain its
scheduler and callbacks. *Served* is over HTTP beside llama.cpp's own `llama-server`: streamed completions of token ids from
one client on the same machine. Tokens a second; the ratio is the median of the rounds' ratios, with the lowest and the
highest. The machine is shared: ratios count, absolute figures move.
"""


def make_sides(arguments, served, path, threads):
    if not served:
        return (sides.LineSide([arguments.build / "bench/engine/load_server", path, str(threads)]),
                sides.LineSide([arguments.llama / "llama_side", path, str(threads)]))
    ports = http_load.free_port(), http_load.free_port()
    baton = [arguments.build / "src/apps/baton", "serve", path, "--port", ports[0], "--threads", threads,
             "--served-model-name", "m", "--max-model-len", 2048, "--kv-cache-memory-bytes", 1 << 30]
    llama = [arguments.llama / "llama-server", "-m", path, "--port", ports[1], "-t", threads, "-tb", threads, "-fa", "on",
             "-np", 32, "-c", 32 * 256, "--alias", "m"]
    return (http_load.ServerSide(baton, ports[0], "m", 49152, arguments.folder / "baton.log"),
            http_load.ServerSide(llama, ports[1], "m", 49152, arguments.folder / "llama-server.log"))


def run(arguments, figures, name, path, threads, served):
    loads = {load: plan for load, plan in LOADS.items()
             if re.search(arguments.load, load) and (plan[3] == "served") == served and
             (MODELS[name][0] == "135m" or load in LARGE)}
    if not loads:
        return
    ours, theirs = make_sides(arguments, served, path, threads)
    for side in (ours, theirs):
        side.measure(2, 64, 4)
    for load, (requests, prompt, output, rate) in loads.items():
        pairs = tables.interleaved(ours, theirs, arguments.rounds,
                                   lambda side: side.measure(requests, prompt, output)[rate])
        figures.setdefault(name, {}).setdefault(str(threads), {})[load] = tables.row(*pairs)
        print(name, threads, load, tables.ratio_cells(tables.row(*pairs)), flush=True)
    ours.close()
    theirs.close()


def page(arguments, figures):
    text = INTRODUCTION + f"\nThe machine: {tables.processor()}. llama.cpp of {arguments.version}. {tables.today()}.\n"
    for name in MODELS:
        if name not in figures:
            continue
        rows = []
        for load in LOADS:
            for threads, of_load in sorted(figures[name].items()):
                if load in of_load:
                    goal = 1.5 if name.startswith("1.2B") and load == "decode, 1 sequence" else GOALS[load]
                    rows.append([load, threads] + tables.ratio_cells(of_load[load], goal))
        text += f"\n## {name}\n\n" + tables.markdown(["load", "threads", "Baton", "llama.cpp", "ratio", "goal"], rows)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--llama", type=pathlib.Path, required=True, help="folder of llama.cpp's programs")
    parser.add_argument("--version", required=True, help="of the source package they come from")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for models, figures and logs")
    parser.add_argument("--smollm2", required=True, help="the published file")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--model", default="", help="only models whose name contains this")
    parser.add_argument("--load", default="", help="only loads whose name this regular expression finds")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-server", action="store_true", help="in process only")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/perf/llama_cpp.md")
    arguments = parser.parse_args()
    store = arguments.folder / "llama_cpp.json"
    figures = tables.load(store)
    for name, (size, form) in MODELS.items():
        if arguments.model not in name:
            continue
        path = (models.smollm2(arguments.folder, arguments.smollm2, arguments.llama / "llama_side", form)
                if size == "135m" else models.llama_1b(arguments.folder, form))
        for threads in arguments.threads:
            for served in (False,) if arguments.no_server else (False, True):
                run(arguments, figures, name, str(path), threads, served)
                tables.store(store, figures)
    arguments.page.parent.mkdir(parents=True, exist_ok=True)
    arguments.page.write_text(page(arguments, figures))


if __name__ == "__main__":
    main()
