"""Figures of a comparison: kept in a JSON file, so that it may run in parts, and written as a page with ratios."""
import json
import pathlib
import platform
import re
import statistics
import subprocess
import time


def load(path):
    path = pathlib.Path(path)
    return json.loads(path.read_text()) if path.exists() else {}


def store(path, figures):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", text)
    cache = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return (name.group(1) if name else platform.machine()) + (
        f", L3 {cache.read_text().strip()}" if cache.exists() else "")


def revision(root):
    return subprocess.run(["git", "-C", root, "describe", "--always", "--dirty"], capture_output=True, text=True,
                          check=False).stdout.strip()


def today():
    return time.strftime("%Y-%m-%d")


def interleaved(ours, theirs, rounds, measure):
    """measure(side) of both in turn, `rounds` times: (list of ours, list of theirs)."""
    pairs = [(measure(ours), measure(theirs)) for _ in range(rounds)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def row(ours, theirs):
    """Medians, and the ratio of each round: its median, lowest and highest."""
    ratios = sorted(a / b for a, b in zip(ours, theirs))
    return {"ours": statistics.median(ours), "theirs": statistics.median(theirs), "ratio": statistics.median(ratios),
            "low": ratios[0], "high": ratios[-1], "rounds": len(ratios)}


def markdown(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(lines) + "\n"


def ratio_cells(figures, goal=None):
    cells = [f"{figures['ours']:.0f}", f"{figures['theirs']:.0f}",
             f"**{figures['ratio']:.2f}** ({figures['low']:.2f} to {figures['high']:.2f})"]
    if goal is not None:
        cells.append(f"{goal} {'✓' if figures['ratio'] >= goal else '✗'}")
    return cells
