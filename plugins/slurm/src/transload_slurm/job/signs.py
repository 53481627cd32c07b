"""Watch the progress of a replica, and whether it has stalled, from the task beside it.

It is loaded only where a replica reports progress or may stall.
"""

from __future__ import annotations

import json
import math
import os
import time

from transload.runtime.liveness import (
    LONGEST_REPORT,
    UPDATE_S,
    Silence,
    newest_change,
    read_report,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_LONGEST_LINE = 900  # srun cuts longer lines into pieces
_SHORT_TEXT = 60
_DEAF_S = 5.0
"""Seconds for which what it writes after the signal of a stall is no sign of life."""


class ProgressFile:
    """The file in which a replica reports its progress.

    Args:
        path: its path.
        open_own: opens a file that the job may have replaced.
    """

    def __init__(self, path: str, open_own: Callable[[str, int], int]) -> None:
        self.path = path
        self._open_own = open_own
        self._stamp: object = None
        self._next = 0.0

    def begin(self) -> None:
        """Remove what the attempt before has reported."""
        self._stamp = None
        self._next = 0.0
        try:
            os.unlink(self.path)
        except OSError:
            pass

    def changed(self, now: float, at_once: bool = False) -> dict[str, Any] | None:
        """Return the latest report, or None if it was returned before or there is none.

        Args:
            now: `time.monotonic`.
            at_once: look although the last look was a moment ago.
        """
        if now < self._next and not at_once:
            return None
        self._next = now + UPDATE_S
        try:
            stat = os.lstat(self.path)
        except OSError:
            return None
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if stamp == self._stamp:
            return None
        try:
            fd = self._open_own(self.path, os.O_RDONLY)
            try:
                data = os.pread(fd, LONGEST_REPORT, max(0, stat.st_size - LONGEST_REPORT))
            finally:
                os.close(fd)
        except OSError:
            return None
        self._stamp = stamp
        report = read_report(data, stat.st_mtime)
        if len(json.dumps(report)) > _LONGEST_LINE:
            report["text"] = report["text"][:_SHORT_TEXT]
        if not report or len(json.dumps(report)) > _LONGEST_LINE:
            return None
        return report


class StallWatch:
    """Whether a replica gives no sign of life any more.

    Args:
        stall_after: seconds of silence after which it has stalled.
        folders: the folders of its results and checkpoints, in which any change is a sign.
    """

    def __init__(self, stall_after: float, folders: list[str]) -> None:
        self.silence = Silence(stall_after)
        self._folders = folders
        self._seen: object = None
        self._deaf_until = 0.0

    @property
    def due(self) -> float:
        """When to look next (`time.monotonic`)."""
        return self.silence.due

    def begin(self) -> None:
        """Begin to count, since an attempt has started."""
        self._deaf_until = 0.0
        self._seen = self._changes()
        self.silence.begin(time.monotonic())

    def stop(self) -> None:
        """Stop counting, since the attempt has ended."""
        self.silence.stop()

    def sign(self) -> bool:
        """Note a sign of life. Return True if the replica had stalled, and no longer does."""
        now = time.monotonic()
        if now < self._deaf_until:
            return False
        revived = self.silence.stalled
        self.silence.begin(now)
        return revived

    def look(self, pid: int) -> str:
        """Return ``stalled`` or ``alive`` if the replica has become so just now, else "".

        Args:
            pid: that of its main process.
        """
        now = time.monotonic()
        if now < self.silence.due:
            return ""
        stalled = self.silence.stalled
        if stalled or self.silence.is_close(now):
            seen = self._changes()
            changed = seen != self._seen
            self._seen = seen
            if changed:
                self.silence.begin(now)
                return "alive" if stalled else ""
        if self.silence.look(now, _is_suspended(pid)):
            self._deaf_until = now + _DEAF_S
            return "stalled"
        if stalled and not self.silence.stalled:  # it is suspended now
            return "alive"
        return ""

    def _changes(self) -> list[tuple[int, float]]:
        return [newest_change(folder) for folder in self._folders]


def _is_suspended(pid: int) -> bool:
    """Tell whether a process was stopped by a signal or a debugger."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        return False


def ask_for_stacks(pids: Iterable[int], number: int) -> None:
    """Send a signal to those processes that have a handler for it. It would end the others."""
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:
                _, found, rest = file.read().partition(b"\nSigCgt:")
            if found and int(rest.split(None, 1)[0], 16) >> (number - 1) & 1:
                os.kill(pid, number)
        except (OSError, ValueError, IndexError):
            continue  # it has just ended


def watch_of(task: dict[str, Any], env: dict[str, str]) -> StallWatch | None:
    """Return an object that watches a replica for stalls, or None if its role asks for none."""
    after = task["stall_after"]
    if after is None or not math.isfinite(after):
        return None
    names = ("TRANSLOAD_TRACKER_BASE", "TRANSLOAD_CHECKPOINT_DIR")
    places = [env.get(name, "") for name in names]
    return StallWatch(after, [place for place in places if place.startswith("/")])
