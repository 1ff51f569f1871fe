#!/usr/bin/env python3
"""tools/check_layers.py [ROOT]: every include under ROOT/src goes where docs/rooms.md lets it.

Prints FILE:LINE for each include that doesn't, and exits 1. Also refuses a room without a row, a row that lists a room of
its own rank or above, and an include of ours that isn't written "room/file.h".
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cc"}


def rows(text, columns):
    """The cells of every table row with that many columns, without head and rule."""
    for line in text.splitlines():
        if not line.startswith("|"):
            continue
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if len(cells) == columns and not set(cells[0]) <= set("-: "):
            yield cells


class Rules:
    def __init__(self, path):
        text = path.read_text()
        self.rank, self.allowed = {}, {}
        for rank, room, _, may in rows(text, 4):
            if rank == "rank":
                continue
            self.rank[room] = int(rank)
            self.allowed[room] = [part.strip().strip("`") for part in may.split(",") if part.strip()]
        self.doors = [(headers, only) for library, headers, only in rows(text, 3) if library != "library"]

    def mistakes(self):
        if not self.rank or not self.doors:
            yield "the tables of rooms and libraries were not found"
        for room, entries in self.allowed.items():
            for entry in entries:
                target = entry.split("/")[0]
                if entry == "anything":
                    continue
                if target not in self.rank:
                    yield f"{room} lists {target}, which has no row"
                elif self.rank[target] >= self.rank[room]:
                    yield f"{room} (rank {self.rank[room]}) lists {target} (rank {self.rank[target]}): only lower ranks"

    def may_include(self, room, header):
        target = header.split("/")[0]
        if target in (room, "base") or "anything" in self.allowed[room]:
            return True
        return any(entry in (target, header) or header.startswith(entry + "/") for entry in self.allowed[room])


def check_include(rules, rooms, place, quote, header):
    """The complaint about one include, or None. place: path of the including file below src/."""
    room = place.parts[0]
    for headers, only in rules.doors:
        if header.startswith(headers) and not (str(place) == only or str(place).startswith(only + "/")):
            return f"<{header}> is included only in {only} (docs/rooms.md)"
    target = header.split("/")[0]
    ours = target in rules.rank and (quote == '"' or target in rooms)
    if not ours:
        if quote == '"' and ("/" not in header or header.startswith(".")):
            return f'"{header}" must be written "room/file.h"'
        return None
    if quote == "<":
        return f"<{header}> is ours: write it in quotes"
    if rules.may_include(room, header):
        return None
    listed = ", ".join(["base"] + rules.allowed[room])
    return f'{room} may not include "{header}" (docs/rooms.md lets it include {listed})'


def check_file(rules, rooms, root, path):
    place = path.relative_to(root / "src")
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        complaint = check_include(rules, rooms, place, *match.groups())
        if complaint:
            yield f"{path.relative_to(root)}:{number}: {complaint}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent
    root = root.resolve()
    table = root / "docs/rooms.md"
    rules = Rules(table)
    complaints = [f"docs/rooms.md: {mistake}" for mistake in rules.mistakes()]
    rooms = sorted(path.name for path in (root / "src").iterdir() if path.is_dir())
    for room in rooms:
        if room not in rules.rank:
            complaints.append(f"src/{room}: docs/rooms.md has no row for it")
            continue
        for path in sorted((root / "src" / room).rglob("*")):
            if path.suffix in SUFFIXES:
                complaints.extend(check_file(rules, rooms, root, path))
    print("\n".join(complaints), end="\n" if complaints else "", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
