#!/usr/bin/env python3
"""Collects the `vllm serve` command lines of deployment documents into tests/data/cli/seeds.json.

  tools/goldens/seed_command_lines.py DOCUMENT.txt...

Shell variables are filled with plausible values; arrays and here-documents are not followed.
"""
import json
import pathlib
import re
import shlex
import sys

OUT = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/data/cli/seeds.json"
POSITIONAL = {"1": "0,1", "2": "9000", "3": "8", "4": "0", "5": "127.0.0.1", "6": "12321", "7": "4"}
NAMED = {"PORT": "8000", "HOST": "0.0.0.0", "NODE_RANK": "0"}


def value_of(match):
    name = next(group for group in match.groups() if group)
    if name in POSITIONAL:
        return POSITIONAL[name]
    if name in NAMED:
        return NAMED[name]
    upper = name.upper()
    if "PORT" in upper:
        return "8000"
    if "MODEL" in upper or "PATH" in upper or "DIR" in upper:
        return "/models/" + name.lower()
    if "IP" in upper or "ADDR" in upper or "HOST" in upper:
        return "127.0.0.1"
    return "1"


def command_lines(text):
    joined = re.sub(r"\\\s*\n", " ", text)
    for line in joined.splitlines():
        at = line.find("vllm serve ")
        if at >= 0 and "--" in line:
            yield line[at + len("vllm serve "):]


def main():
    lines = []
    for path in map(pathlib.Path, sys.argv[1:]):
        for number, line in enumerate(command_lines(path.read_text())):
            line = re.sub(r'"\$\{(\w+)\[@\]\}"', "", line)
            line = re.sub(r"\$\{(\w+)(?::-[^}]*)?\}|\$(\w+)", value_of, line)
            try:
                tokens = shlex.split(line, comments=True)
            except ValueError as error:
                print(path.name, number, error, line[:100], file=sys.stderr)
                continue
            for stop in (">", "2>&1", "&", "|", ">>"):
                if stop in tokens:
                    tokens = tokens[:tokens.index(stop)]
            lines.append({"from": f"{path.name[:3]} #{number}", "args": tokens})
    OUT.write_text(json.dumps(lines, indent=1) + "\n")
    print(len(lines), "command lines")


if __name__ == "__main__":
    main()
