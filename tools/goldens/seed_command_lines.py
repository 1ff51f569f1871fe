"""Writes tests/data/cli/seeds.json: the argv of every `vllm serve` command in a folder of deployment guides.

    python tools/goldens/seed_command_lines.py FOLDER

Bash itself splits each command; shell variables get the values below (the guides leave them to the reader).
"""
import json
import pathlib
import re
import subprocess
import sys

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/data/cli/seeds.json"
SCRIPT = r"""
vllm() { printf '%s\0' "$@"; }
exec() { "$@"; }
API_PORT=8100; ENGINE_ID=e0; dp_rank=0; PREFILL_DP_RPC_PORT=12321; LOOKUP_RPC_PORT=0; NODE_RANK=0; MASTER_ADDR=10.0.0.1; MASTER_PORT=29501; KV_PORT=30000; LOCAL_IP=10.0.0.1
headless_args=(HEADLESS); worker_args=(HEADLESS); DRAFT_MODEL_PATH=/models/draft
speculative_config='{"method":"dspark","model":"/models/draft","num_speculative_tokens":3,"draft_tensor_parallel_size":1,"draft_sample_method":"greedy","enforce_eager":false,"kv_cache_dtype":"auto"}'
SPECULATIVE_CONFIG="$speculative_config"; SPEC_CONFIG="$speculative_config"; spec_config="$speculative_config"
set -- 0 9000 2 0 10.0.0.1 12321 8
"""


def commands(text):
    lines = text.split("\n")
    for start, line in enumerate(lines):
        if not re.match(r"\s*(exec )?vllm serve ['\"/E]", line):
            continue
        for end in range(start, len(lines)):
            body = "\n".join(lines[start:end + 1])
            if body.rstrip().endswith("\\"):
                continue
            if subprocess.run(["bash", "-n"], input=body + "\n", text=True, capture_output=True).returncode == 0:
                following = lines[end + 1].strip() if end + 1 < len(lines) else ""
                if not following.startswith("'"):  # a value on a line of its own
                    break
        yield start + 1, body


def main():
    cases = []
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.txt")):
        for line, body in commands(path.read_text()):
            ranks = ["--headless"] if '_args[@]}' in body else []
            script = SCRIPT.replace("(HEADLESS)", f"({' '.join(ranks)})") + body + "\n"
            done = subprocess.run(["bash"], input=script, text=True, capture_output=True)
            argv = done.stdout.split("\0")[:-1]
            assert argv and argv[0] == "serve", (path, line, done.stderr, body)
            if done.stderr.strip():
                print(path.name, line, done.stderr.strip())
            unset = [n for n in re.findall(r"\$\{?([A-Za-z_]+)", body) if f"{n}=" not in SCRIPT]
            if unset:
                print(path.name, line, "without a value:", unset)
            cases.append({"name": f"{path.stem}:{line}", "argv": argv})
    OUT.write_text(json.dumps({"provenance": "bash's own splitting of the guides' commands; "
                                             "made by tools/goldens/seed_command_lines.py", "cases": cases}, indent=1) + "\n")
    print(len(cases), "commands")


if __name__ == "__main__":
    main()
