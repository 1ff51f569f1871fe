#!/usr/bin/env python3
"""tools/check_headers.py [FILE...]: every header under src/ compiles alone, with the flags of the build.

A header that passed is not compiled again until it, or a header of ours that it includes, changes: build/headers_passed
keeps the hashes. One kind of header may lean on what stands before it: the body of an op that sources of several
instruction sets (*_avx2.cc, *_avx512.cc) and nothing else include after they have defined its lane type. Flags come from a build's
compile_commands.json (that of the preset in BATON_PRESET first) if there is one, else they are the plain ones below.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / "build/headers_passed"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
PLAIN_FLAGS = ["-std=c++23", "-Isrc", "-Wall", "-Wextra", "-Wshadow", "-Wnon-virtual-dtor",
               "-Wno-missing-field-initializers", "-Werror"]
KEPT_FLAGS = ("-I", "-isystem", "-D", "-std", "-W", "-m")
# Flags of instruction sets belong to single sources, never to headers.
DROPPED_FLAGS = ("-march", "-mavx", "-mgfni")


def build_flags():
    """Include paths, definitions and warnings of all translation units together, each once, in their order."""
    for preset in (os.environ.get("BATON_PRESET", "release"), "release", "dev", "asan", "tsan", "fuzz"):
        path = ROOT / "build" / preset / "compile_commands.json"
        if not path.exists():
            continue
        flags = {}
        for command in json.loads(path.read_text()):
            words = iter(shlex.split(command["command"]))
            for word in words:
                if word == "-isystem":
                    flags["-isystem " + next(words)] = None
                elif word.startswith(KEPT_FLAGS) and not word.startswith(DROPPED_FLAGS):
                    flags[word] = None
        return [part for flag in flags for part in flag.split(" ", 1)]
    return PLAIN_FLAGS


def closure(path, seen):
    """Adds `path` and every header of ours below it to `seen`."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for name in INCLUDE.findall(path.read_text(errors="replace")):
        closure(ROOT / "src" / name, seen)
    return seen


def includers():
    """For each header of ours, the files that include it."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in (".h", ".cc"):
            for name in INCLUDE.findall(path.read_text(errors="replace")):
                found.setdefault(ROOT / "src" / name, []).append(path)
    return found


def is_body(users):
    """Included by sources alone, some of them of an instruction set."""
    return (all(path.suffix == ".cc" for path in users)
            and any(path.stem.endswith(("_avx2", "_avx512")) for path in users))


def digest(path, body, salt):
    state = hashlib.sha256(salt + (b"body" if body else b""))
    state.update(str(path.relative_to(ROOT)).encode())
    for part in sorted(closure(path, set())):
        state.update(part.read_bytes())
    return state.hexdigest()


def compile_alone(path, flags):
    """The compiler's words if the header doesn't compile alone, else an empty string."""
    name = path.relative_to(ROOT / "src")
    source = f'#include "{name}"\n#include "{name}"\n'  # twice: #pragma once is part of being a header
    command = ["clang++-19", "-fsyntax-only", "-xc++", "-ferror-limit=5", *flags, "-"]
    run = subprocess.run(command, input=source, capture_output=True, text=True, cwd=ROOT, check=False)
    return "" if run.returncode == 0 else f"{path.relative_to(ROOT)}: does not compile alone\n{run.stderr}"


def main():
    flags = build_flags()
    salt = "\n".join(flags).encode()
    headers = [pathlib.Path(name).resolve() for name in sys.argv[1:]] or sorted((ROOT / "src").rglob("*.h"))
    passed = set(CACHE.read_text().split()) if CACHE.exists() else set()
    users = includers()
    bodies = {path for path in headers if is_body(users.get(path, []))}
    keys = {path: digest(path, path in bodies, salt) for path in headers}
    todo = [path for path in headers if keys[path] not in passed]
    failed = False
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for path, words in zip(todo, pool.map(lambda item: compile_alone(item, flags), todo)):
            if words and path not in bodies:
                failed = True
                print(words, file=sys.stderr)
            else:
                passed.add(keys[path])
    if len(sys.argv) == 1:
        passed &= set(keys.values())  # of the headers as they are now
    CACHE.parent.mkdir(exist_ok=True)
    CACHE.write_text("\n".join(sorted(passed)) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
