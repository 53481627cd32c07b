"""Read a replica's progress, and find out whether it has stalled.

The keepers of local, Docker and Slurm jobs read the progress file, and look at logs, results
and checkpoints. This file decides what follows from that.

It runs on cluster nodes, and in processes that must start within milliseconds. So it keeps to
Python 3.8, and imports ``json`` only with the first report of progress.
"""

from __future__ import annotations

import math
import os

TYPE_CHECKING = False  # importing typing would cost more than all of this file
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

__all__ = [
    "LONGEST_REPORT",
    "UPDATE_S",
    "ProgressMeter",
    "Silence",
    "furthest_behind",
    "newest_change",
    "read_report",
    "stalled_text",
]

UPDATE_S = 1.0
"""Least seconds between two reports of progress that leave a job."""

LONGEST_REPORT = 1 << 16
"""Bytes at the end of a progress file that are read."""

RATE_WINDOW_S = 300.0
"""Seconds of the latest progress from which the time that is left is estimated."""

MOST_POINTS = 120
"""The number of points at which a history loses every second one, and grows more slowly."""

_LONGEST_TEXT = 200
_MOST_FILES = 10_000
_LOOKS = 10  # so often is a replica looked at before it is said to have stalled
_LONGEST_LOOK_S = 10.0


def read_report(data: bytes, at: float) -> dict[str, Any]:
    """Return the progress that a program reports, in JSON form (`transload.specs.Progress`).

    The last whole line that is a JSON object counts. Wrong values are left out. These are a number
    that is not finite, a ``fraction`` below 0 or above 1, a ``total`` that is not above 0, and a
    negative ``step``. A ``step`` beyond ``total`` counts as ``total``.

    Args:
        data: the end of the progress file.
        at: when it was written, seconds since the epoch.

    Returns:
        {} if it says nothing.
    """
    line = _last_object(data)
    step = _number(line.get("step"), 0.0)
    total = _number(line.get("total"), 0.0) or None
    fraction = _number(line.get("fraction"), 0.0, 1.0)
    if fraction is None and step is not None and total is not None:
        fraction = round(min(1.0, step / total), 6)
    found = {
        "fraction": fraction,
        "step": step,
        "total": total,
        "eta_seconds": _number(line.get("eta_seconds"), 0.0),
        "text": _text(line.get("text")),
    }
    report: dict[str, Any] = {name: value for name, value in found.items() if value is not None}
    if report:
        report["at"] = at
    return report


def _last_object(data: bytes) -> Mapping[str, Any]:
    import json

    for line in reversed(data.splitlines()):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return {}


def _number(value: object, low: float, high: float = math.inf) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        fits = math.isfinite(value) and low <= value <= high
    except OverflowError:
        return None
    return value if fits else None


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    words = " ".join(value.split())
    shown = "".join(char for char in words if char.isprintable())
    return shown[:_LONGEST_TEXT] or None


class ProgressMeter:
    """Estimates how much time is left, from what a replica reports again and again.

    A value that falls begins anew, for example after an interruption or at a new phase. Until two
    reports have shown the new rate, the one before is used. ``latest`` has a ``history`` of what
    was reported, of at most `MOST_POINTS` points.

    Args:
        before: progress of the same job, in JSON form, whose history goes on, or {} if there is
            none.
    """

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        self.latest: dict[str, Any] = {}
        self._history, self._history_unit = _history_of(before or {})
        self._every = 0.0  # seconds between two points of the history
        self.largest_step: float | None = None
        self._values: dict[str, Any] = {}
        self._points: list[tuple[float, float]] = []
        self._rate: float | None = None
        self._unit = ""
        self.pause()

    def update(self, report: dict[str, Any]) -> bool:
        """Take the next report, and return False if it says nothing new."""
        values = {**report, "at": None}
        if not report or values == self._values:
            return False
        self._values = values
        step = report.get("step")
        if step is not None and (self.largest_step is None or step > self.largest_step):
            self.largest_step = step
        self._note(report)
        self.latest = dict(report)
        if "eta_seconds" not in report:
            self._estimate()
        self._remember(report)
        if len(self._history) > 1:
            self.latest["history"] = list(self._history)
        return True

    def pause(self) -> None:
        """Note that the replica does not run for a while, which says nothing about its rate.

        If it said last that all was done, it was mistaken, and begins again.
        """
        self._points = []
        if self._history and self._history_unit == "fraction" and self._history[-1][1] == 1:
            del self._history[-1]

    def _remember(self, report: Mapping[str, Any]) -> None:
        """Add a report to the history, unless the last point is too near."""
        unit = _unit_of(report)
        value = report.get(unit)
        if value is None:
            return
        if unit != self._history_unit:
            self._history = []
            self._history_unit = unit
            self._every = 0.0
        at = round(report["at"], 1)
        if self._history and abs(at - self._history[-1][0]) < self._every:
            return
        self._history.append([at, value])
        if len(self._history) > MOST_POINTS:
            del self._history[1::2]
            span = self._history[-1][0] - self._history[0][0]
            self._every = 2 * abs(span) / MOST_POINTS

    def _note(self, report: Mapping[str, Any]) -> None:
        unit = _unit_of(report)
        value = report.get(unit)
        if value is None:
            return
        if unit != self._unit:
            self._rate = None
        begins = unit != self._unit or (self._points and value < self._points[-1][1])
        if begins:
            self._points = []
            self._unit = unit
        at = report["at"]
        self._points.append((at, value))
        while len(self._points) > 2 and self._points[1][0] <= at - RATE_WINDOW_S:
            del self._points[0]
        first_at, first = self._points[0]
        if at > first_at and value > first:
            self._rate = (value - first) / (at - first_at)

    def _estimate(self) -> None:
        fraction = self.latest.get("fraction")
        if fraction is None or self._unit != "fraction" or not self._rate:
            return
        self.latest["eta_seconds"] = round((1.0 - fraction) / self._rate, 1)


def _unit_of(report: Mapping[str, Any]) -> str:
    return "fraction" if "fraction" in report else "step"


def _history_of(before: Mapping[str, Any]) -> tuple[list[list[float]], str]:
    """Return the points in a job's progress, and what they count, or none if it is damaged."""
    if not isinstance(before, dict):
        return [], ""
    unit = _unit_of(before)
    points = before.get("history", [[before.get("at"), before.get(unit)]])
    if not isinstance(points, list):
        return [], ""
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            return [], ""
        if any(_number(value, -math.inf) is None for value in point):
            return [], ""
    return points[-MOST_POINTS:], unit


def furthest_behind(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the progress of a job, which is that of the replica that is furthest behind.

    If no replica reports a ``fraction``, the latest report counts.
    """
    known = [each for each in reports if each]
    measured = [each for each in known if "fraction" in each]
    if measured:
        return dict(min(measured, key=lambda each: (each["fraction"], -each["at"])))
    if known:
        return dict(max(known, key=lambda each: float(each["at"])))
    return {}


class Silence:
    """How long a replica that could show a sign of life has not shown any.

    Times are seconds on one clock of the caller's. A time in which the replica was suspended, or
    nobody looked, is not counted.

    Args:
        stall_after: seconds of silence after which it has stalled.
    """

    def __init__(self, stall_after: float) -> None:
        self.stall_after = stall_after
        self.stalled = False
        self.due = math.inf
        self._pause = min(stall_after / _LOOKS, _LONGEST_LOOK_S)
        self._silent = 0.0
        self._looked = 0.0

    def begin(self, now: float) -> None:
        """Begin to count, with the start of an attempt or a sign of life."""
        self.stalled = False
        self._silent = 0.0
        self._looked = now
        self.due = now + self._pause

    def stop(self) -> None:
        """Stop counting, since the attempt has ended."""
        self.stalled = False
        self.due = math.inf

    def look(self, now: float, suspended: bool = False) -> bool:
        """Count the time since the last look, and return True if the replica has stalled just now.

        Args:
            now: the caller's clock.
            suspended: it is stopped or frozen, so the count begins anew.
        """
        if suspended:
            self.begin(now)
            return False
        # a longer time means that whoever looks was held up himself
        self._silent += min(now - self._looked, 2 * self._pause)
        self._looked = now
        self.due = now + self._pause
        if self.stalled or self._silent < self.stall_after:
            return False
        self.stalled = True
        return True

    def is_close(self, now: float) -> bool:
        """Tell whether the next look may find that it has stalled, so that a closer look is due."""
        silent = self._silent + min(now - self._looked, 2 * self._pause)
        return not self.stalled and silent >= self.stall_after


def stalled_text(name: str, seconds: float) -> str:
    """Return what a status says of a replica that has stalled."""
    if seconds >= 120:
        silence = f"{seconds / 60:g} min"
    else:
        silence = f"{seconds:g} s"
    return f"{name} has stalled: no progress, log line or result for {silence}"


def newest_change(folder: str) -> tuple[int, float]:
    """Return how many files are in a folder and those below, and when one changed last.

    Links are not followed. Of a folder with very many files, only the first are looked at.

    Returns:
        The number, and seconds since the epoch (0.0 for an empty folder).
    """
    count = 0
    newest = 0.0
    folders = [folder]
    while folders and count < _MOST_FILES:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                changed = entry.stat(follow_symlinks=False).st_mtime
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            count += 1
            newest = max(newest, changed)
            if is_folder:
                folders.append(entry.path)
    return count, newest
