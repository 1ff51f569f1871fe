#!/usr/bin/env python3
"""./check --perf [BASE]: what got slower than at BASE, by micro-benchmarks of both, built alike and run in turn.

BASE is a commit; without one it is HEAD where the working tree has changes, else HEAD's parent. Its tree is unpacked and
built in build/perf/. Then:
- times: every benchmark runs at BASE, here, here, at BASE, and so on for --rounds pairs; the best of each side counts, so
  that other work on the machine, which comes and goes, hits both. What seems slower by more than --limit per cent is run
  again for --confirm pairs, and is reported only if it stays so by more than BASE differs from itself.
- instructions: of the kernels and an engine, exact where the machine is noisy. From the processor's counter where there
  is one; else from valgrind's cachegrind, which knows no AVX-512: there the AVX2 kernels are counted.
Ends with 1 and names what got slower. A benchmark that one side lacks is named and not judged. --only TEXT takes those
whose program or name has it.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PERF = ROOT / "build/perf"
TINY = ROOT / "tests/data/tiny_llama"
BATON = "src/apps/baton"

# Programs that print google-benchmark's JSON: target, path, filter.
GOOGLE = [("engine_sampling_bench", "src/engine/engine_sampling_bench", "."),
          ("kda_bench", "src/kernels/kda_bench", "."),
          ("hash_copy_bench", "src/transport/hash_copy_bench", "."),
          ("exchange_bench", "src/parallel/exchange_bench", "."),
          ("net_http_bench", "src/net/net_http_bench", ".")]
# `baton bench ...` that write JSON: a name, arguments.
REPORTS = [("kernels matmul", ["kernels", "--filter", "matmul", "--outputs", "1024", "--features", "1024",
                               "--working-set-mb", "8"]),
           ("kernels attention", ["kernels", "--filter", "attention"]),
           ("kernels latent", ["kernels", "--filter", "decode"]),
           ("handoff", ["handoff", "--megabytes", "16", "--rounds", "3", "--no-machine", "--no-grids", "--skip-limits"]),
           ("engine", ["latency", "--model", str(TINY), "--skip-limits", "--threads", "1", "--kv-cache-memory-bytes",
                       "64M", "--batch-size", "8", "--input-len", "64", "--output-len", "32", "--num-iters-warmup", "2",
                       "--num-iters", "10"])]
# Work of a fixed size by one thread, for counting; what a run without work takes is taken off.
NO_WORK = ["kernels", "--filter", "none", "--skip-limits"]
SMALL = ["--outputs", "512", "--features", "1024", "--working-set-mb", "0", "--skip-limits", "--isa", "avx2"]
COUNTED = [("matmul q4_0", ["kernels", "--filter", "matmul q4_0 rows 512", *SMALL]),
           ("matmul bf16", ["kernels", "--filter", "matmul bf16 rows 512", *SMALL]),
           ("matmul int4_channel", ["kernels", "--filter", "matmul int4_channel rows 512", *SMALL]),
           ("attention", ["kernels", "--filter", "attention decode bf16 heads 9", *SMALL]),
           ("norms", ["kernels", "--filter", "rms_norm", *SMALL]),
           ("engine", ["latency", "--model", str(TINY), "--skip-limits", "--threads", "1", "--kv-cache-memory-bytes",
                       "16M", "--batch-size", "2", "--input-len", "32", "--output-len", "8", "--num-iters-warmup", "0",
                       "--num-iters", "2"])]


def say(words):
    print(words, flush=True)


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout.strip()


def base_commit(given):
    if given:
        return git("rev-parse", "--verify", given + "^{commit}")
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "HEAD" if changed else "HEAD^")


def unpack(commit):
    """BASE's tree, with the build folder of the last time kept."""
    source = PERF / "source"
    stamp = PERF / "commit"
    if stamp.exists() and stamp.read_text() == commit and source.exists():
        return source
    fresh = PERF / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(fresh)], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        raise SystemExit(f"git archive {commit} failed")
    if (source / "build").exists():
        (source / "build").rename(fresh / "build")
    shutil.rmtree(source, ignore_errors=True)
    fresh.rename(source)
    stamp.write_text(commit)
    return source


def build(tree, targets):
    known = subprocess.run(["ninja", "-C", str(tree / "build/release"), "-t", "targets", "all"], capture_output=True,
                           text=True).stdout
    if not known:  # not configured yet
        subprocess.run(["cmake", "--preset", "release"], cwd=tree, check=True, stdout=subprocess.DEVNULL)
        return build(tree, targets)
    here = [target for target in targets if re.search(rf"^{target}: phony", known, re.M)]
    subprocess.run([str(tree / "tools/build.sh"), "release", *here], cwd=tree, check=True)
    return tree / "build/release"


class Program:
    """One benchmark program: run(build folder) -> {benchmark: seconds}, or None where that side can't."""

    def __init__(self, name, command, read):
        self.name, self.command, self.read = name, command, read

    def run(self, build_folder):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out.json"
            command = self.command(build_folder, out)
            if not pathlib.Path(command[0]).exists():
                return None
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0 or not out.exists():
                return None
            return self.read(json.loads(out.read_text()))


def google(target, path, wanted):
    def read(result):
        units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}
        return {one["name"]: one["real_time"] * units[one["time_unit"]] for one in result["benchmarks"]
                if one.get("run_type") == "iteration" and not one.get("error_occurred")}
    return Program(target, lambda folder, out: [str(folder / path), f"--benchmark_filter={wanted}", f"--benchmark_out={out}",
                                                "--benchmark_out_format=json", "--benchmark_min_time=0.02"], read)


def report(name, arguments):
    def read(result):
        if "avg_latency" in result:
            return {name: min(result["latencies"])}
        return {" ".join(filter(None, (line.get("group"), line.get("name") or line.get("what")))): line["seconds"]
                for line in result["lines"] if line.get("seconds")}
    return Program("bench " + name, lambda folder, out: [str(folder / BATON), "bench", *arguments, "--output-json", str(out)],
                   read)


class Times:
    """The times of one program's benchmarks on both sides."""

    def __init__(self, program, base, here):
        self.program, self.sides, self.seen = program, (base, here), ({}, {})

    def round(self, first):
        for side in (first, 1 - first):
            for name, seconds in (self.program.run(self.sides[side]) or {}).items():
                self.seen[side].setdefault(name, []).append(seconds)

    def ratios(self):
        """{name: (here over base, base over itself)}; the second is how far two halves of base's runs are apart."""
        found = {}
        for name in self.seen[0].keys() & self.seen[1].keys():
            old, new = self.seen[0][name], self.seen[1][name]
            halves = min(old[::2]), min(old[1::2] or old)
            found[name] = (min(new) / min(old), max(halves) / min(halves))
        return found


def compare_times(base, here, programs, options):
    slower = []
    for program in programs:
        times = Times(program, base, here)
        for i in range(options.rounds):
            times.round(i % 2)
        if not times.seen[0] or not times.seen[1]:
            say(f"  {program.name}: only {'here' if times.seen[1] else 'at the base' if times.seen[0] else 'nowhere'}, not judged")
            continue
        for name in times.seen[0].keys() ^ times.seen[1].keys():
            say(f"  {program.name}: {name} is on one side only, not judged")
        limit = 1 + options.limit / 100
        def suspects():
            return {name: both for name, both in times.ratios().items() if both[0] > limit and both[0] > both[1]}
        if suspects():
            for i in range(options.confirm):
                times.round(i % 2)
        ratios = times.ratios()
        middle = sorted(both[0] for both in ratios.values())[len(ratios) // 2]
        say(f"  {program.name}: {len(ratios)} benchmarks, here over base {middle:.3f} in the middle")
        for name, (ratio, noise) in sorted(suspects().items()):
            slower.append(f"{program.name}: {name}: {100 * (ratio - 1):+.1f} % time (the base differs from itself by "
                          f"{100 * (noise - 1):.1f} %)")
    return slower


def has_counter():
    done = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True)
    return done.returncode == 0 and re.search(r"^\d+,", done.stderr, re.M) is not None


def count(build_folder, arguments, counter):
    """Instructions of one run, or None."""
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/baton"
        subprocess.run(["strip", "-g", "-o", program, str(build_folder / BATON)])  # valgrind can't read its DWARF
        command = [program, "bench", *arguments]
        if counter:
            done = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", *command], capture_output=True, text=True)
            found = re.search(r"^(\d+),", done.stderr, re.M)
        else:
            done = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/out",
                                   *command], capture_output=True, text=True)
            found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
        return int(found.group(1).replace(",", "")) if done.returncode == 0 and found else None


def compare_counts(base, here, counted, options):
    counter = has_counter()
    if not counter and not shutil.which("valgrind"):
        say("Instructions: no processor counter and no valgrind here, not counted")
        return []
    say(f"Instructions, by {'the processor' if counter else 'cachegrind, AVX2 kernels'}:")
    slower = []
    starts = [count(side, NO_WORK, counter) or 0 for side in (base, here)]
    for name, arguments in counted:
        old, new = (count(side, arguments, counter) for side in (base, here))
        old, new = (whole and max(1, whole - start) for whole, start in zip((old, new), starts))
        if old is None or new is None:
            say(f"  {name}: only {'here' if new else 'at the base' if old else 'nowhere'}, not judged")
            continue
        say(f"  {name}: {old / 1e6:.1f} M -> {new / 1e6:.1f} M, {100 * (new / old - 1):+.2f} %")
        if new > old * (1 + options.limit / 100):
            slower.append(f"{name}: {100 * (new / old - 1):+.1f} % instructions")
    return slower


def main():
    parser = argparse.ArgumentParser(prog="./check --perf", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of runs of every benchmark")
    parser.add_argument("--confirm", type=int, default=4, help="more pairs for what seems slower")
    parser.add_argument("--limit", type=float, default=5, help="per cent")
    parser.add_argument("--only", default="", help="a part of a program's name")
    parser.add_argument("--no-count", action="store_true", help="times alone")
    parser.add_argument("--no-times", action="store_true", help="instructions alone")
    options = parser.parse_args()
    commit = base_commit(options.base)
    say(f"Base: {git('log', '-1', '--format=%h %s', commit)}")
    chosen = [one for one in GOOGLE if options.only in one[0]]
    programs = [google(*one) for one in chosen] + [report(*one) for one in REPORTS if options.only in "bench " + one[0]]
    counted = [] if options.no_count else [one for one in COUNTED if options.only in "count " + one[0]]
    targets = [target for target, _, _ in chosen] + (["baton"] if counted or len(programs) > len(chosen) else [])
    base, here = build(unpack(commit), targets), build(ROOT, targets)
    slower = []
    if not options.no_times:
        say(f"Times, the best of {options.rounds} runs of each side in turn:")
        slower += compare_times(base, here, programs, options)
    if counted:
        slower += compare_counts(base, here, counted, options)
    if not slower:
        say(f"Nothing is slower by more than {options.limit:g} %.")
        return 0
    say(f"Slower by more than {options.limit:g} %:")
    for line in slower:
        say(f"  {line}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
