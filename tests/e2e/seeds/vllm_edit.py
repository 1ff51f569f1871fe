"""Stands as `vllm` before the real one on PATH: the documents' scripts call it as they are written, it changes what one
host demands, says so on stderr, and becomes the real program. What to change comes in BATON_SEEDS_EDITS, as JSON:

  model      the checkpoint that stands for the document's
  drop       {option: why}: options of features that aren't there
  set        {option: value}: options whose value is lowered, if they are given
  add        {option: value}: options that are put behind the others
  json       {option: {key: value}}: members of an option's JSON
  unset_env  names of environment variables
"""
import json
import os
import shlex
import sys


def split_options(words):
    """[[option, value...]]; the first entry has the words before any option."""
    groups = [[]]
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            groups.append([name, value] if equals else [name])
        else:
            groups[-1].append(word)
    return groups


def merged(value, changes):
    """The JSON object with members replaced, also those of objects within."""
    for name, change in changes.items():
        inner = isinstance(change, dict) and isinstance(value.get(name), dict)
        value = {**value, name: merged(value[name], change) if inner else change}
    return value


def edited(words, edits):
    """(words, notes)."""
    notes = []
    if not words or words[0] != "serve":
        return words, notes
    kept = []
    for group in split_options(words):
        name = group[0] if group and group[0].startswith("--") else ""
        if not name and edits.get("model"):
            group = [group[0], edits["model"], *group[2:]]
        if name in edits.get("drop", {}):
            notes.append(f"left out {shlex.join(group)}: {edits['drop'][name]}")
            continue
        if name in edits.get("set", {}) and group[1:] != [edits["set"][name]]:
            notes.append(f"{shlex.join(group)} is {edits['set'][name]}")
            group = [name, edits["set"][name]]
        if name in edits.get("json", {}):
            group = [name, json.dumps(merged(json.loads(group[1]), edits["json"][name]))]
        kept.extend(group)
    for name, value in edits.get("add", {}).items():
        kept.extend([name, value])
    return kept, notes


def main():
    edits = json.loads(os.environ.get("BATON_SEEDS_EDITS", "{}"))
    words, notes = edited(sys.argv[1:], edits)
    environment = {name: value for name, value in os.environ.items() if name not in edits.get("unset_env", [])}
    for note in notes:
        print(f"seeds: {note}", file=sys.stderr)
    print(f"seeds: vllm {shlex.join(words)}", file=sys.stderr, flush=True)
    os.execve(os.environ["BATON_SEEDS_VLLM"], ["vllm", *words], environment)


if __name__ == "__main__":
    main()
