"""Describe the progress of a search in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

_WIDTH: Final = 24


def progress_line(
    name: str, summary: Mapping[str, Any], fractions: Mapping[int, float] | None = None
) -> str:
    """Return a line such as ``search [###...] 5/10, 4 running, best loss 0.25 (trial 3)``.

    Args:
        name: name of the search.
        summary: of the search.
        fractions: trial → the part of its job's work that is done, 0 to 1, as far as it is known.
    """
    rows = summary["trials"]
    total = summary["search"]["trials"]
    counts = Counter(trial_word(row) for row in rows)
    ended = len(rows) - counts["running"]
    full = min(_WIDTH, _WIDTH * ended // total)
    parts = [f"{name} [{'#' * full}{'.' * (_WIDTH - full)}] {ended}/{total}"]
    for word in ("running", "stopped early", "failed", "cancelled"):
        if counts[word]:
            parts.append(f"{counts[word]} {word}")
        if word == "running" and counts[word]:
            parts[-1] += _percent_words(rows, fractions or {})
    return ", ".join([*parts, *best_words(summary)])


def _percent_words(rows: Sequence[Mapping[str, Any]], fractions: Mapping[int, float]) -> str:
    """Return how far the running trials are, in brackets, or ``""`` if none reports it."""
    running = [row["index"] for row in rows if trial_word(row) == "running"]
    percents = [int(fractions[index] * 100 + 1e-9) for index in running if index in fractions]
    if not percents:
        return ""
    low = min(percents)
    high = max(percents)
    if low == high:
        return f" ({low} %)"
    return f" ({low} to {high} %)"


def trial_word(row: Mapping[str, Any]) -> str:
    """Return the state of a trial in a summary, in a word."""
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


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """Return parameters in few words, such as ``lr=0.01235, layers=2``."""
    return _pairs(parameters, digits=4)


def _pairs(values: Mapping[str, Any], *, digits: int) -> str:
    return ", ".join(f"{name}={short_text(value, digits)}" for name, value in values.items())


def short_text(value: Any, digits: int = 6) -> str:
    """Return a value as people read it, of a float so many digits, and ``""`` for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)


def end_text(row: Mapping[str, Any]) -> str:
    """Return how a trial ended, such as ``trial 3: loss=0.25``, and why if it has no values."""
    found = _pairs(row["values"] or {}, digits=6)
    if row["reason"]:
        found = f"{found} ({row['reason']})" if found else f"{trial_word(row)}: {row['reason']}"
    return f"trial {row['index']}: {found}"


def best_words(summary: Mapping[str, Any]) -> list[str]:
    """Return the best result of a summary, in words, or [] if there is none."""
    best = summary["best"]
    if best is not None:
        name = first_objective(summary)["name"]
        return [f"best {name} {best['value']:.6g} (trial {best['index']})"]
    front = summary.get("front")
    if front:
        return [f"{len(front)} best trials"]
    return []


def first_objective(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the objective of a summary's search, the first of several."""
    objective: Mapping[str, Any] | Sequence[Mapping[str, Any]] = summary["search"]["objective"]
    if isinstance(objective, Mapping):
        return objective
    return objective[0]
