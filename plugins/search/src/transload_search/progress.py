"""One line that tells how a search goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

_WIDTH: Final = 24


def progress_line(name: str, summary: Mapping[str, Any]) -> str:
    """Return a line such as ``search [###...] 5/10, 4 running, best loss 0.25 (trial 3)``."""
    rows = summary["trials"]
    total = summary["search"]["trials"]
    counts = Counter(trial_word(row) for row in rows)
    ended = len(rows) - counts["running"]
    full = min(_WIDTH, _WIDTH * ended // total)
    parts = [f"{name} [{'#' * full}{'.' * (_WIDTH - full)}] {ended}/{total}"]
    for word in ("running", "stopped early", "failed", "cancelled"):
        if counts[word]:
            parts.append(f"{counts[word]} {word}")
    return ", ".join([*parts, *best_words(summary)])


def trial_word(row: Mapping[str, Any]) -> str:
    """Return what a trial of a summary is doing, in a word."""
    state = row["state"]
    if state is None:
        return "running"
    if state == "STOPPED":
        return "stopped early"
    if state == "CANCELLED":
        return "cancelled"
    if row["values"] is None:
        return "failed"
    return "done"


def best_words(summary: Mapping[str, Any]) -> list[str]:
    """Return what a summary has found, in words; an empty list if it has found nothing."""
    best = summary["best"]
    if best is not None:
        name = first_objective(summary)["name"]
        return [f"best {name} {best['value']:.6g} (trial {best['index']})"]
    front = summary.get("front")
    if front:
        return [f"{len(front)} trials that none beats"]
    return []


def first_objective(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the objective of a summary's search, the first of several."""
    objective: Mapping[str, Any] | Sequence[Mapping[str, Any]] = summary["search"]["objective"]
    if isinstance(objective, Mapping):
        return objective
    return objective[0]
