"""One line that tells how a search goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

_WIDTH: Final = 24


def progress_line(name: str, summary: Mapping[str, Any]) -> str:
    """Return the line: ``search [#####.....] 5/10, 4 running, 1 failed, best loss 0.25 (trial
    3)``.
    """
    search, rows = summary["search"], summary["trials"]
    counts = Counter(trial_word(row) for row in rows)
    total, ended = search["trials"], len(rows) - counts["running"]
    full = min(_WIDTH, _WIDTH * ended // total)
    parts = [f"{name} [{'#' * full}{'.' * (_WIDTH - full)}] {ended}/{total}"]
    parts += [
        f"{counts[word]} {word}"
        for word in ("running", "stopped early", "failed", "cancelled")
        if counts[word]
    ]
    return ", ".join([*parts, *best_words(summary)])


def trial_word(row: Mapping[str, Any]) -> str:
    """Return what a trial of a summary is doing, in a word."""
    if row["state"] is None:
        return "running"
    if row["state"] == "STOPPED":
        return "stopped early"
    if row["state"] == "CANCELLED":
        return "cancelled"
    return "done" if row["values"] is not None else "failed"


def best_words(summary: Mapping[str, Any]) -> list[str]:
    """Return what a summary has found, in words; nothing yet: nothing."""
    if summary["best"] is not None:
        best, goal = summary["best"], summary["search"]["objective"]
        name = goal["name"] if isinstance(goal, Mapping) else goal[0]["name"]
        return [f"best {name} {best['value']:.6g} (trial {best['index']})"]
    return [f"{len(summary['front'])} trials that none beats"] if summary.get("front") else []
