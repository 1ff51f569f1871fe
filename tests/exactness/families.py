"""The exactness contract for every model family, weight format and cache dtype, on tiny random checkpoints:

    families.py BATON EXACTNESS [REQUESTS]

makes each checkpoint with `baton make-checkpoint`, quantises it where the row says so with `baton quantize`, and runs
EXACTNESS on it. Prints one line a row; exits 1 unless every column of every row is equal.
"""

import os
import subprocess
import sys
import tempfile
import time

# family, scheme of `baton quantize`, cache dtype, indexer's cache dtype
ROWS = [
    ("llama", "", "fp8", "auto"),
    ("llama", "w8a8-dynamic", "int8", "auto"),
    ("deepseek_v3", "", "auto", "auto"),
    ("deepseek_v3", "", "fp8", "auto"),
    ("deepseek_v3", "fp8-block", "int8", "auto"),
    ("deepseek_v32", "", "auto", "auto"),
    ("deepseek_v32", "fp8-block", "fp8", "fp8"),
    ("kimi_k25", "int4-group32", "auto", "auto"),
    ("kimi_linear", "", "auto", "auto"),
    ("kimi_linear", "w8a8-dynamic", "int8", "auto"),
    ("kimi_k3", "", "auto", "auto"),
    ("kimi_k3", "mxfp4", "auto", "auto"),
    ("kimi_k31", "", "auto", "auto"),
    ("kimi_k31", "w8a8", "int8", "int8"),
    ("kimi_k31", "w4a8-dynamic", "int8", "int8"),
    ("kimi_k31", "w4a8-mxfp", "fp8", "fp8"),
    ("kimi_k31", "w8a8-mxfp8", "fp8", "auto"),
]


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def checkpoint(baton, folder, family, scheme):
    plain = os.path.join(folder, family)
    if not os.path.exists(plain):
        made = run(baton, "make-checkpoint", "--arch", family, "--out", plain)
        if made.returncode != 0:
            raise SystemExit(f"make-checkpoint {family}: {made.stderr}")
    if not scheme:
        return plain
    quantised = f"{plain}.{scheme}"
    made = run(baton, "quantize", plain, quantised, "--scheme", scheme)
    if made.returncode != 0:
        raise SystemExit(f"quantize {family} {scheme}: {made.stderr}")
    return quantised


def main():
    baton, exactness = sys.argv[1:3]
    requests = sys.argv[3] if len(sys.argv) > 3 else "40"
    failed = 0
    print(f"{'family':14} {'weights':14} {'cache':6} {'index keys':10} {'hash':16}  columns, seconds")
    with tempfile.TemporaryDirectory() as folder:
        for family, scheme, cache, index in ROWS:
            begin = time.monotonic()
            path = checkpoint(baton, folder, family, scheme)
            done = run(exactness, path, requests, cache, index)
            columns = [line for line in done.stdout.splitlines() if line.rstrip().endswith("equal") or " of " in line]
            reference = next((line.split()[3] for line in columns if line.startswith("alone")), "")
            equal = sum("DIFFERENT" not in line for line in columns)
            verdict = "equal" if done.returncode == 0 else "NOT EQUAL"
            print(f"{family:14} {scheme or 'bf16':14} {cache:6} {index:10} {reference:16}  {equal} of {len(columns)} {verdict}, "
                  f"{time.monotonic() - begin:.0f}", flush=True)
            if done.returncode != 0:
                failed += 1
                print(done.stdout + done.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
