#!/usr/bin/env python3
"""tools/check_names.py BUILD_FOLDER: clang-tidy's naming check (.clang-tidy) over the sources and headers of src/.

Tests, benches and fuzz targets are left out (their names are half made of macros). Files whose text, and whose included
headers of ours, have passed before are skipped: their hashes are kept in the user's cache folder.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSED = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "baton" / "names_passed"
LEFT_OUT = re.compile(r"(_test|_bench|_fuzz)\.cc$|/testing/")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def closure(path, seen):
    """Adds `path` and every header of ours that it includes to `seen`."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for name in INCLUDE.findall(path.read_text()):
        closure(ROOT / "src" / name, seen)
    return seen


def digest(path):
    state = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for part in sorted(closure(path, set())):
        state.update(part.read_bytes())
    return state.hexdigest()


def check(build, path):
    command = ["clang-tidy-19", "--quiet", "-p", str(build), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in run.stdout.splitlines() if line.strip()]
    return run.returncode, lines


def main():
    build = (ROOT / sys.argv[1]).resolve()
    commands = json.loads((build / "compile_commands.json").read_text())
    sources = sorted({pathlib.Path(c["file"]) for c in commands if str(c["file"]).startswith(str(ROOT / "src"))})
    sources = [source for source in sources if not LEFT_OUT.search(str(source))]
    passed = set(PASSED.read_text().split()) if PASSED.exists() else set()
    todo = [(source, digest(source)) for source in sources]
    todo = [(source, key) for source, key in todo if key not in passed]
    PASSED.parent.mkdir(parents=True, exist_ok=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool, PASSED.open("a") as record:
        for (_, key), (code, lines) in zip(todo, pool.map(lambda item: check(build, item[0]), todo)):
            if code == 0:
                record.write(key + "\n")
                record.flush()
                continue
            failed = True
            print("\n".join(lines), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
