"""The jobs that may have changed.

The files of their supervisors are looked at often. Slurm is asked seldom, once for all jobs.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from stat import S_ISDIR
from typing import Final

from transload.errors import SchedulerUnavailable
from transload.keeper import layout
from transload.schedulers.api import Change
from transload_slurm.jobs import in_background

_LOOK_S: Final = (0.02, 1.0)
_ASK_S: Final = (1.0, 10.0)
_GROWTH: Final = 1.5
_PER_FILE_S: Final = 0.002

OVER: Final = "over: "
"""The mark before Slurm's word for a job that has ended, or is about to."""


class SlurmWatch:
    """A watch for any number of jobs.

    Slurm is asked in the background, so that a slow answer does not delay changes of files.

    Args:
        place: job id → the files whose change means news (they need not exist).
        ask: asks Slurm for the job states of many jobs, in one query.
        logs: job id → the files of its logs, or None if they are not watched.
    """

    def __init__(
        self,
        place: Callable[[str], list[str]],
        ask: Callable[[Collection[str]], dict[str, str]],
        logs: Callable[[str], list[str]] | None = None,
    ) -> None:
        self._place = place
        self._ask = ask
        self._log_place = logs
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._new: set[str] = set()
        self._files: dict[str, tuple[list[str], object]] = {}
        self._logs: dict[str, tuple[list[str], object]] = {}
        self._states: dict[str, str] = {}
        self._look = _LOOK_S[0]
        self._pause = _ASK_S[0]
        self._next = 0.0
        self._answer: Future[dict[str, str]] | None = None

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        with self._lock:
            wanted = set(app_ids)
            for app_id in set(self._files) - wanted:
                del self._files[app_id]
                self._logs.pop(app_id, None)
                self._states.pop(app_id, None)
            for app_id in wanted - set(self._files):
                self._files[app_id] = (self._place(app_id), None)
                if self._log_place is not None:
                    self._logs[app_id] = (self._log_place(app_id), None)
                self._new.add(app_id)
                self._pause = _ASK_S[0]
            self._new &= wanted
        self._woken.set()

    def wait(self, timeout: float | None) -> set[Change]:
        """Return what may have changed, as `transload.schedulers.api.Watch` says."""
        deadline = math.inf
        if timeout is not None:
            deadline = time.monotonic() + timeout
        while True:
            changed = self._changes()
            if changed:
                return changed
            pause = min(self._look, deadline - time.monotonic())
            if pause <= 0:
                return set()
            if self._woken.wait(pause):
                self._woken.clear()
                return self._changes()

    def _changes(self) -> set[Change]:
        with self._lock:
            changed = {Change(app_id) for app_id in self._new}
            self._new = set()
            changed |= {Change(app_id) for app_id in _moved(self._files, _stamp)}
            changed |= {Change(app_id, "logs") for app_id in _moved(self._logs, _length)}
            # few files are looked at twenty times a second, many less often: the cost stays the
            # same
            count = sum(len(files) for files, _ in (*self._files.values(), *self._logs.values()))
            longest = min(_LOOK_S[1], 0.05 + _PER_FILE_S * count)
            self._look = min(self._look * _GROWTH, longest)
            if changed:
                self._look = _LOOK_S[0]
            if self._answer is None and self._files and time.monotonic() >= self._next:
                ids = set(self._files)
                self._answer = in_background(lambda: self._ask(ids))
            answer = self._answer
        if answer is not None and answer.done():
            changed |= {Change(app_id) for app_id in self._heard(answer)}
        return changed

    def _heard(self, answer: Future[dict[str, str]]) -> set[str]:
        with self._lock:
            self._answer = None
            try:
                states = answer.result()
            except SchedulerUnavailable:
                states = dict.fromkeys(self._files, "?")
            states = {app_id: word for app_id, word in states.items() if app_id in self._files}
            changed = {app_id for app_id, word in states.items() if self._is_news(app_id, word)}
            self._states.update(states)
            self._pause = min(self._pause * _GROWTH, _ASK_S[1])
            if changed:
                self._pause = _ASK_S[0]
            self._next = time.monotonic() + self._pause
        return changed

    def _is_news(self, app_id: str, word: str) -> bool:
        """Tell whether a word differs from the last one.

        A first word counts if the job may have ended before it.
        """
        return self._states.get(app_id, word) != word or (
            app_id not in self._states and word.startswith(OVER)
        )

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        self._woken.set()

    def close(self) -> None:
        """Wake a waiting thread, which then ends. Nothing else is held."""
        self._woken.set()


def _moved(places: dict[str, tuple[list[str], object]], stamp: Callable[[str], object]) -> set[str]:
    """Return the jobs of which a file is not as it was, and take note of how it is."""
    moved = set()
    for app_id, (files, before) in places.items():
        now = [stamp(path) for path in files]
        if now != before:
            places[app_id] = (files, now)
            if before is not None:
                moved.add(app_id)
    return moved


def _length(path: str) -> int | None:
    """Return how long a file is. It is opened, since a shared disk may show an old length."""
    try:
        fd = layout.open_own(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes when a file is replaced. A folder's stamp only shows that it is there."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    if S_ISDIR(stat.st_mode):
        return 0, stat.st_ino
    return stat.st_mtime_ns, stat.st_ino
