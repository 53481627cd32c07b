"""Watch how far replicas are, and whether one of them has stalled.

A replica's keeper looks at its progress file, at most once a second, and less often while nothing
is reported. Where it has none, the latest progress bar in its output counts, as tqdm draws them. A
replica has stalled if nothing of it is new for so long: no progress, no output, no result, no
checkpoint.

This file runs on cluster nodes, and in processes that must start within milliseconds. So it keeps
to Python 3.8, and imports ``json`` only with the first report of progress.
"""

from __future__ import annotations

import math
import os
import time

TYPE_CHECKING = False  # importing typing would cost more than all of this file
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

__all__ = [
    "DEAF_S",
    "LONGEST_REPORT",
    "UPDATE_S",
    "ProgressMeter",
    "Silence",
    "Watch",
    "furthest_behind",
    "newest_change",
    "read_bar",
    "read_report",
    "stalled_text",
    "with_handler",
]

UPDATE_S = 1.0
"""Least seconds between two reports of progress that leave a job."""

LONGEST_REPORT = 1 << 16
"""Bytes at the end of a progress file that are read."""

RATE_WINDOW_S = 300.0
"""Seconds of the latest progress from which the time that is left is estimated."""

MOST_POINTS = 200
"""The number of points at which a history loses every second one, and grows more slowly."""

_LONGEST_TEXT = 200
_MOST_FILES = 10_000
_LOOKS = 10  # so often is a replica looked at before it is said to have stalled
_LONGEST_LOOK_S = 10.0
DEAF_S = 5.0
"""Seconds for which what a program writes after the signal of a stall is no sign of life."""
_LONGEST_BAR = 1024
_BAR = b"%|"
"""What stands in a bar of tqdm between the percentage and the picture."""


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


def read_bar(data: bytes, at: float) -> dict[str, Any]:
    """Return the progress that the last bar of tqdm in an output shows, as `read_report` does.

    Args:
        data: the end of the output, such as ``Epoch 1:  45%|####   | 9/20 [00:10<00:12]``.
        at: when it was written, seconds since the epoch.

    Returns:
        {} if there is none.
    """
    before, found, after = data.rpartition(_BAR)
    if not found:
        return {}
    title = before.replace(b"\r", b"\n").rpartition(b"\n")[2].decode("utf-8", "replace")
    percent = title.split()[-1:]
    _, _, counts = after.partition(b"| ")
    done, found, _ = counts.partition(b" [")
    if not found or not percent or not percent[0].isdecimal():
        return {}
    report: dict[str, Any] = {"fraction": min(100, int(percent[0])) / 100}
    step, _, total = done.decode("utf-8", "replace").partition("/")
    if step.isdecimal() and total.isdecimal() and int(total):
        report = {"step": int(step), "total": int(total)}
        report["fraction"] = round(min(1.0, int(step) / int(total)), 6)
    text = _text(title[: -len(percent[0])].strip(" :"))
    if text:
        report["text"] = text
    return {**report, "at": at}


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
    """How long a replica has not shown any sign of life.

    Times are seconds on one clock of the caller's. A time in which nobody looked is not counted.

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

    def look(self, now: float) -> bool:
        """Count the time since the last look, and return True if the replica has stalled just now.

        Args:
            now: the caller's clock.
        """
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


class Watch:
    """Looks for the signs of life of a replica that runs on this machine. Times are monotonic.

    Args:
        logs: the folder of its output and of its progress file.
        read_end: returns the last bytes of a file that the job may have replaced, b"" for none. It
            takes the path, how many, and from where on they count.
        folders: those of its results and checkpoints.
        stall_after: seconds of silence after which it has stalled. None means never.
        ask: returns something that has changed if the replica has shown life. It is asked seldom.
    """

    def __init__(
        self,
        logs: str,
        read_end: Callable[[str, int, int], bytes],
        folders: Iterable[str] = (),
        stall_after: float | None = None,
        ask: Callable[[], object] | None = None,
    ) -> None:
        self.progress_file = f"{logs}/progress.json"
        self.silence: Silence | None = None
        if stall_after is not None:
            self.silence = Silence(stall_after)
        self._read_end = read_end
        self._ask = ask
        self._streams = (f"{logs}/stdout.log", f"{logs}/stderr.log")
        self._folders = [folder for folder in folders if folder.startswith("/")]
        self._began_at = [0, 0]  # where in its streams the latest attempt begins
        self._reported: tuple[int, ...] = ()  # what its progress file looked like
        self._drawn: list[tuple[int, ...]] = []  # what its streams looked like
        self._seen: object = None
        self._seen_in_folders: object = None
        self._deaf_until = 0.0

    def begin(self, now: float) -> None:
        """Expect signs of a new attempt."""
        try:
            os.unlink(self.progress_file)
        except OSError:
            pass
        self._reported = ()
        self._drawn = [_look_of(path) for path in self._streams]
        self._began_at = [look[1] if look else 0 for look in self._drawn]
        self.resume(now)

    def resume(self, now: float) -> None:
        """Expect signs of an attempt that goes on."""
        self._deaf_until = 0.0
        if self.silence is not None:
            self._is_new(closely=True)
            self.silence.begin(now)

    def end(self) -> None:
        """Expect no signs any more, since the attempt has ended."""
        if self.silence is not None:
            self.silence.stop()

    @property
    def due(self) -> float:
        """When to look whether it has stalled."""
        return math.inf if self.silence is None else self.silence.due

    @property
    def stalled(self) -> bool:
        """Tell whether it has stalled."""
        return self.silence is not None and self.silence.stalled

    def report(self) -> dict[str, Any]:
        """Return the progress that it has reported since this was asked last, or {} for none."""
        look = _look_of(self.progress_file)
        if not look:
            return self._bar()
        if look == self._reported:
            return {}
        self._reported = look
        return read_report(self._read_end(self.progress_file, LONGEST_REPORT, 0), time.time())

    def _bar(self) -> dict[str, Any]:
        """Return what a progress bar in its output shows that is new, or {} for none."""
        looks = [_look_of(path) for path in self._streams]
        before = self._drawn
        self._drawn = looks
        found: dict[str, Any] = {}
        for path, look, last, begin in zip(self._streams, looks, before, self._began_at):
            if look and look != last:
                found = found or read_bar(self._read_end(path, _LONGEST_BAR, begin), time.time())
        return found

    def look(self, now: float) -> bool:
        """See whether it has stalled or goes on, and return True if that is new."""
        silence = self.silence
        if silence is None or now < silence.due:
            return False
        was_stalled = silence.stalled
        is_new = self._is_new(closely=was_stalled or silence.is_close(now))
        if is_new and now >= self._deaf_until:
            silence.begin(now)
        else:
            silence.look(now)
        return silence.stalled != was_stalled

    def ignore_answer(self, now: float) -> None:
        """Take what it writes within a moment for its answer to a signal, and no sign of life."""
        self._deaf_until = now + DEAF_S

    def _is_new(self, closely: bool) -> bool:
        """Tell whether something has changed since this was asked last.

        Args:
            closely: look at results and checkpoints, too, and ask.
        """
        seen = [_look_of(path) for path in (*self._streams, self.progress_file)]
        is_new = seen != self._seen
        self._seen = seen
        if closely:
            in_folders: list[object] = [newest_change(folder) for folder in self._folders]
            if self._ask is not None:
                in_folders.append(self._ask())
            is_new = is_new or in_folders != self._seen_in_folders
            self._seen_in_folders = in_folders
        return is_new


def _look_of(path: str) -> tuple[int, ...]:
    """Return what changes when a file does, its size second, or () if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def with_handler(pids: Iterable[int], number: int) -> list[int]:
    """Return those processes that handle a signal themselves. It would end the others."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                caught = file.read().partition(b"\nSigCgt:")[2].partition(b"\n")[0]
        except OSError:
            continue  # it has just ended
        if int(caught or b"0", 16) >> (number - 1) & 1:
            found.append(pid)
    return found


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
