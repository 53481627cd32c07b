#!/usr/bin/env python3
"""Draw docs/images/benchmarks-*.svg from docs/benchmarks.json; it needs matplotlib. `nox -s
benchmarks` runs it.

Each bar is what transload needs of what the other way needs, so that shorter is better in every
row: for a rate, where more is better, the ratio is turned round. Green: less than the other way;
yellow: more, within the target; red: more.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
BETTER, WITHIN, BEYOND, MARK = "#2a7f62", "#c29a2d", "#b3411e", "#444444"
DARK = {
    # paper, ink and lines
    "#ffffff": "#0d1117",
    "#000000": "#c9d1d9",
    "#444444": "#c9d1d9",
    "#24303c": "#d7dee6",
    "#b0b0b0": "#8b949e",
    "#cccccc": "#30363d",
    "#dfe5ea": "#30363d",
    # green, red, blue, violet, brown
    "#2a7f62": "#3fb98f",
    "#12876f": "#3fb9a0",
    "#b3411e": "#f0703f",
    "#2a6fb0": "#58a6ff",
    "#0967d2": "#58a6ff",
    "#8a5a9e": "#b98fd0",
    "#b44d12": "#f08a4b",
}
"""What a colour of a drawing is for a reader who prefers dark pages. The others stay."""
LEAST = 1e-3
"""A share below this is drawn so long: nothing at all has no place on a logarithmic axis."""


def collector() -> ModuleType:
    """Return benchmarks/run_all.py, which knows the scripts; their folder holds names of packages,
    so it is no path.
    """
    spec = importlib.util.spec_from_file_location(
        "run_all", HERE.parent / "benchmarks" / "run_all.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def rows(group: str) -> list[dict[str, Any]]:
    """Return a group's figures with ``label``, ``share`` (1: as much as the peer), ``limit``; the
    lower the better.
    """
    found = []
    store = json.loads((HERE / "benchmarks.json").read_text(encoding="utf-8"))
    for title, row in collector().figures(store, group):
        share, limit = row["transload"] / (row["peer"] or LEAST), row["target"]
        if row["better"] == "higher":
            share, limit = 1 / share, 1 / limit
        label = (
            f"{title}: {row['figure']} [{row['unit']}]"
            if group == "hosts"
            else f"{row['figure']} [{row['unit']}]"
        )
        found.append({**row, "label": label.replace("`", ""), "share": share, "limit": limit})
    return found


def draw(group: str, path: Path) -> None:
    """Write a group's picture."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "transload", "font.family": "sans-serif"}
    )
    from matplotlib import pyplot

    found = rows(group)
    figure, axes = pyplot.subplots(figsize=(9, 0.36 * len(found) + 1.2))
    for place, row in enumerate(found):
        length = max(row["share"], LEAST)
        color = BETTER if row["share"] <= 1 else WITHIN if row["met"] else BEYOND
        axes.barh(place, length, height=0.6, color=color)
        axes.plot([row["limit"]] * 2, [place - 0.4, place + 0.4], color=MARK, linewidth=2)
        axes.annotate(
            f"{row['share']:.2g}",
            (max(length, row["limit"]), place),
            (5, -3),
            textcoords="offset points",
        )
    axes.axvline(1, color=MARK, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(found)), [row["label"] for row in found])
    axes.invert_yaxis()
    axes.set_xscale("log")
    most = max((max(row["share"], row["limit"]) for row in found), default=1.0)
    axes.set_xlim(
        LEAST / 2 if any(row["share"] < LEAST for row in found) else None, max(8.0, 2.5 * most)
    )
    axes.set_xlabel(
        "what transload needs, the other way being 1 (logarithmic; shorter is better). Short line: "
        "target"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(
        path, bbox_inches="tight", facecolor="white", metadata={"Date": None, "Creator": None}
    )
    pyplot.close(figure)
    add_dark_colours(path)


def add_dark_colours(path: Path) -> None:
    """Let a drawing of matplotlib (SVG) follow the colours that its reader prefers."""
    drawing = path.read_text(encoding="utf-8")
    used = {light: dark for light, dark in DARK.items() if light in drawing}
    rules = [f"text {{ fill: {DARK['#000000']} }}"]
    for light, dark in used.items():
        for painted in ("fill", "stroke"):
            rules.append(f'[style*="{painted}: {light}"] {{ {painted}: {dark} !important }}')
    style = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    first, head, rest = drawing.partition(" <defs>\n")
    path.write_text(f"{first}{head}  {style}\n{rest}", encoding="utf-8")


if __name__ == "__main__":
    for each in collector().GROUPS:
        draw(each, HERE / "images" / f"benchmarks-{each}.svg")
