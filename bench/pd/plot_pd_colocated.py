#!/usr/bin/env python3
"""bench/pd/plot_pd_colocated.py DATA.json OUT.png: pd_colocated.py's figures drawn. Needs matplotlib.

Left to right: TTFT, TPOT and goodput over the load, one colour a shape, dashed where prefill and decode are apart; then
where each wins: goodput apart over goodput together, by shape and load.
"""
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def words(log_ratio):
    if math.isnan(log_ratio):
        return ""
    return "over 10" if 2 ** log_ratio > 10 else "below 0.1" if 2 ** log_ratio < 0.1 else f"{2 ** log_ratio:.2f}"


def main():
    data = json.loads(pathlib.Path(sys.argv[1]).read_text())
    shapes = sorted(data["shapes"], key=lambda shape: -int(shape.split(":")[0]) / int(shape.split(":")[1]))
    figure, axes = plt.subplots(1, 4, figsize=(20, 4.8))
    colours = plt.cm.viridis([i / max(1, len(shapes) - 1) * 0.9 for i in range(len(shapes))])
    panels = (("p99_ttft_ms", "TTFT p99, ms"), ("p99_tpot_ms", "TPOT p99, ms"), ("good_part", "within the SLO"))
    for axis, (key, title) in zip(axes, panels):
        for shape, colour in zip(shapes, colours):
            for arrangement, style in (("colocated", "-o"), ("apart", "--s")):
                points = data["shapes"][shape][arrangement]
                axis.plot([p["load"] for p in points], [p[key] for p in points], style, color=colour, markersize=4,
                          label=f"{shape} {'together' if arrangement == 'colocated' else 'apart'}")
        axis.set(xlabel="load (part of the one engine's most)", title=title)
        if key != "good_part":
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    def goodput(shape, arrangement):
        return {point["load"]: point["request_goodput"] for point in data["shapes"][shape][arrangement]}
    loads = sorted({load for shape in shapes for load in goodput(shape, "colocated")})
    grid = []
    for shape in shapes:
        together, apart = goodput(shape, "colocated"), goodput(shape, "apart")
        grid.append([math.log2(max(apart[load], 0.01) / max(together[load], 0.01))
                     if load in together and load in apart else math.nan for load in loads])
    image = axes[3].imshow(grid, cmap="RdBu", vmin=-2, vmax=2, aspect="auto")
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            axes[3].text(column, row, words(value), ha="center", va="center")
    axes[3].set(xticks=range(len(loads)), xticklabels=loads, yticks=range(len(shapes)), yticklabels=shapes,
                xlabel="load", ylabel="prompt:output tokens", title="goodput apart / together (blue: apart wins)")
    figure.colorbar(image, ax=axes[3], label="log2")
    figure.suptitle(f"{data['model']}: one engine on 2 cores, against prefill and decode with 1 core each")
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=90)


if __name__ == "__main__":
    main()
