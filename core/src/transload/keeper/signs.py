"""Watch the progress of replicas, and find out whether one of them has stalled.

Its keeper looks at the progress file, at most once a second, and less often while nothing is
reported. It looks ten times within the allowed silence whether a replica has stalled, if the role
asks for that.
"""

from __future__ import annotations

import os
import time

from transload.keeper.failures import LONGEST_ERROR
from transload.keeper.rules import Replica
from transload.runtime.liveness import (
    LONGEST_REPORT,
    UPDATE_S,
    ProgressMeter,
    Silence,
    furthest_behind,
    newest_change,
    read_report,
    stalled_text,
)

from . import kernel, layout, logindex, processes

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from types import SimpleNamespace
    from typing import Any

NEVER = float("inf")
_DUMP_S = 1.0  # so long has a program for writing its stacks


class _Source:
    """The places where a replica shows signs of life, and what was seen there (see `Signs.add`)."""

    def __init__(
        self,
        replica: Replica,
        name: str,
        log: SimpleNamespace,
        folders: list[str],
        stall_after: float | None,
        stall_signal: int | None,
    ) -> None:
        self.replica = replica
        self.name = name
        self.progress_file = f"{log.folder}/progress.json"
        self.stderr = f"{log.folder}/{logindex.STDERR}"
        self.folders = folders
        self.stall_signal = stall_signal
        self.meter: ProgressMeter | None = None  # made when the replica first reports progress
        self.silence: Silence | None = None
        if stall_after is not None:
            self.silence = Silence(stall_after)
        self.dump_due = NEVER  # when its stacks are expected to be there
        self.dump_at = 0  # where in its stderr they begin
        self._streams = [f"{log.folder}/{name}" for name in logindex.STREAMS]
        self._read: tuple[int, ...] = ()  # what the progress file looked like
        self._seen: object = None
        self._seen_in_folders: object = None

    def begin(self, now: float) -> None:
        """Expect signs of a new attempt."""
        layout.unlink(self.progress_file)
        self._read = ()
        if self.meter is not None:
            self.meter.pause()
        if self.silence is not None:
            self.has_shown_life(closely=True)
            self.silence.begin(now)

    def end(self) -> None:
        """Expect no signs any more."""
        self.dump_due = NEVER
        if self.silence is not None:
            self.silence.stop()

    @property
    def due(self) -> float:
        """Return when to look at it, though nothing happens."""
        if self.silence is None:
            return NEVER
        return min(self.silence.due, self.dump_due)

    def has_progress(self) -> bool:
        """Tell whether the progress file is another one than when this was asked last."""
        found = _look_of(self.progress_file)
        if found in ((), self._read):
            return False
        self._read = found
        return True

    def read_progress(self) -> bool:
        """Read the progress file, and return True if it says something new."""
        data = layout.end_of_own(self.progress_file, LONGEST_REPORT, 0)
        if not data:
            return False
        if self.meter is None:
            self.meter = ProgressMeter()
        return self.meter.update(read_report(data, layout.now()))

    @property
    def latest(self) -> dict[str, Any]:
        """Return the latest report, with the time that is left, or {} if there is none."""
        return {} if self.meter is None else self.meter.latest

    def has_shown_life(self, closely: bool) -> bool:
        """Tell whether something has changed since this was asked last.

        Args:
            closely: look at results and checkpoints, too.
        """
        seen = [_look_of(path) for path in (*self._streams, self.progress_file)]
        changed = seen != self._seen
        self._seen = seen
        if closely:
            in_folders = [newest_change(folder) for folder in self.folders]
            changed = changed or in_folders != self._seen_in_folders
            self._seen_in_folders = in_folders
        return changed

    def text(self) -> str:
        """Return what a status says of it if it has stalled, else ""."""
        if self.silence is None or not self.silence.stalled:
            return ""
        return stalled_text(self.name, self.silence.stall_after)


def _look_of(path: str) -> tuple[int, ...]:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


class Signs:
    """The signs of life of all replicas of a job. Times are monotonic seconds.

    Args:
        now: the time.
    """

    def __init__(self, now: float) -> None:
        self._sources: dict[Replica, _Source] = {}
        self._progress_pause = UPDATE_S
        self._progress_due = now
        self._stall_due = NEVER

    def add(
        self,
        replica: Replica,
        name: str,
        log: SimpleNamespace,
        *,
        folders: list[str],
        stall_after: float | None,
        stall_signal: int | None,
    ) -> None:
        """Look for the signs of a replica.

        Args:
            replica: which.
            name: its name in a status.
            log: its part of the index of logs.
            folders: those of its results and checkpoints.
            stall_after: seconds of silence after which it has stalled. None means never.
            stall_signal: number of the signal at which it writes its stacks. None means that none
                is sent.
        """
        self._sources[replica] = _Source(replica, name, log, folders, stall_after, stall_signal)

    @property
    def due(self) -> float:
        """Return when to look, though nothing happens."""
        return min(self._progress_due, self._stall_due)

    def progress_file(self, replica: Replica) -> str:
        """Return the path at which a replica reports its progress."""
        return self._sources[replica].progress_file

    def begin(self, replica: Replica) -> None:
        """Expect signs of a new attempt of a replica."""
        now = time.monotonic()
        source = self._sources[replica]
        source.begin(now)
        self._stall_due = min(self._stall_due, source.due)
        self._progress_pause = UPDATE_S
        self._progress_due = min(self._progress_due, now + UPDATE_S)

    def end(self, replica: Replica) -> None:
        """Expect no signs any more, since the attempt has ended."""
        self._sources[replica].end()

    def with_progress(self, now: float) -> list[Replica]:
        """Return the replicas whose progress is to be read now."""
        if now < self._progress_due:
            return []
        living = [replica for replica in self._sources if replica.attempt.alive]
        found = [replica for replica in living if self._sources[replica].has_progress()]
        if found:
            self._progress_pause = UPDATE_S
        self._progress_due = now + self._progress_pause
        self._progress_pause = min(2 * self._progress_pause, logindex.SILENT_S)
        return found

    def read_progress(self, replica: Replica) -> bool:
        """Read what a replica says of its progress, and return True if that is new."""
        return self._sources[replica].read_progress()

    def step(self, replica: Replica) -> float | None:
        """Return the step that a replica has reported last, or None if it has reported none."""
        return self._sources[replica].latest.get("step")

    def progress(self) -> dict[str, Any]:
        """Return the progress of the job, in JSON form, or {} if none was reported."""
        return furthest_behind(source.latest for source in self._sources.values())

    def stalled(self) -> list[str]:
        """Return what is to be said of the replicas that have stalled."""
        return [source.text() for source in self._sources.values() if source.text()]

    def look(self, now: float, living: dict[Replica, tuple[int, int]]) -> bool:
        """Find out whether replicas have stalled, or go on.

        Args:
            now: the time.
            living: pid and start time of each replica that runs.

        Returns:
            True if the status of the job changes.
        """
        if now < self._stall_due:
            return False
        news = False
        for replica, source in self._sources.items():
            if now >= source.dump_due:
                news = _take_stacks(source) or news
            if now >= source.due:
                pid, _ = living.get(replica, (0, 0))
                news = _look_at(source, now, pid) or news
        self._stall_due = min(source.due for source in self._sources.values())
        return news


def _look_at(source: _Source, now: float, pid: int) -> bool:
    """Find out whether one replica has stalled, or goes on, and return True if that is new."""
    silence = source.silence
    if silence is None:
        return False
    was_stalled = silence.stalled
    is_near = was_stalled or silence.is_close(now)
    if source.has_shown_life(closely=is_near) and source.dump_due == NEVER:
        silence.begin(now)
        if was_stalled:
            source.replica.attempt.error = ""
        return was_stalled
    runs = pid > 0 and not source.replica.attempt.stopping and not _is_suspended(pid)
    stalls = silence.look(now, suspended=not runs)
    if stalls and source.stall_signal is not None:
        _ask_for_stacks(source, source.stall_signal, pid, now)
    return silence.stalled != was_stalled


def _ask_for_stacks(source: _Source, number: int, pid: int, now: float) -> None:
    """Have the processes of a replica write their stacks, those that have a handler for that."""
    source.dump_at = logindex.size_of(source.stderr)
    living = processes.snapshot()
    for each in _tree(living, pid):
        if kernel.handles(each, number) and processes.send(each, living[each][1], number):
            source.dump_due = now + _DUMP_S


def _take_stacks(source: _Source) -> bool:
    """Put the stacks that were written into the error of the replica."""
    source.dump_due = NEVER
    written = layout.end_of_own(source.stderr, LONGEST_ERROR, source.dump_at)
    source.has_shown_life(closely=True)  # what was written on request is no sign of life
    stacks = written.decode("utf-8", "replace").strip()
    if not stacks or source.silence is None:
        return False
    message = {
        "message": source.text(),
        "extraInfo": {"py_callstack": stacks},
    }
    source.replica.attempt.error = layout.dumps({"message": message}).decode()
    return True


def _is_suspended(pid: int) -> bool:
    """Tell whether a process, or one that descends from it, is stopped or frozen."""
    tree = _tree(processes.snapshot(), pid)
    return any(kernel.is_stopped(each) for each in tree) or kernel.is_frozen(pid)


def _tree(living: processes.Snapshot, pid: int) -> list[int]:
    if pid not in living:
        return []
    return list(processes.trees(living, {pid: None}))
