#!/usr/bin/env python3
"""Draw docs/images/benchmarks.svg from docs/benchmarks.json: `nox -s benchmarks` runs it; it needs matplotlib.

Each bar is what transload needs of what the peer needs, so that shorter is better in every row: for a rate, where more
is better, the ratio is turned round.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BETTER, WORSE, MARK = "#2a7f62", "#b3541e", "#444444"


def rows() -> list[dict[str, Any]]:
    """Return every figure with ``share`` (1: as much as the peer) and ``limit`` (the target), the lower the better."""
    found = []
    for script in json.loads((HERE / "benchmarks.json").read_text(encoding="utf-8")).values():
        for row in script.get("rows", []):
            share, limit = row["transload"] / row["peer"], row["target"]
            if row["better"] == "higher":
                share, limit = 1 / share, 1 / limit
            found.append({**row, "share": share, "limit": limit})
    return found


def draw(path: Path) -> None:
    """Write the picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "transload", "font.family": "sans-serif"})
    from matplotlib import pyplot

    found = rows()
    figure, axes = pyplot.subplots(figsize=(9, 0.36 * len(found) + 1.2))
    for place, row in enumerate(found):
        axes.barh(place, row["share"], height=0.6, color=BETTER if row["share"] <= 1 else WORSE)
        axes.plot([row["limit"]] * 2, [place - 0.4, place + 0.4], color=MARK, linewidth=2)
        axes.annotate(
            f"{row['share']:.2g}", (max(row["share"], row["limit"]), place), (5, -3), textcoords="offset points"
        )
    axes.axvline(1, color=MARK, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(found)), [f"{row['figure']} [{row['unit']}]" for row in found])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(right=8)
    axes.set_xlabel("what transload needs, the peer being 1 (logarithmic; shorter is better). Short line: target")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, bbox_inches="tight", facecolor="white", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(HERE / "images" / "benchmarks.svg")
