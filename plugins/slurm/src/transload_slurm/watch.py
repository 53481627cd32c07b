"""The jobs that may have changed.

The files of their keepers are looked at often. Slurm is asked seldom, once for all jobs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from stat import S_ISDIR
from typing import Final

from transload.errors import SchedulerUnavailable
from transload_slurm.jobs import in_background

_LOOK_S: Final = (0.02, 1.0)
_ASK_S: Final = (1.0, 10.0)
_GROWTH: Final = 1.5
_PER_FILE_S: Final = 0.002

OVER: Final = "over: "
"""The mark before Slurm's word for a job that has ended, or is about to."""


class SlurmWatch:
    """Reports which of any number of jobs may have changed, from a thread of its own.

    Slurm is asked in the background, so that a slow answer does not delay changes of files.

    Args:
        place: job id → the files whose change means news (they need not exist).
        ask: asks Slurm for the job states of many jobs, in one query.
        changed: takes the ids of jobs that may have changed.
    """

    def __init__(
        self,
        place: Callable[[str], list[str]],
        ask: Callable[[Collection[str]], dict[str, str]],
        changed: Callable[[Collection[str]], object],
    ) -> None:
        self._place = place
        self._ask = ask
        self._changed = changed
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._closed = False
        self._files: dict[str, tuple[list[str], object]] = {}
        self._states: dict[str, str] = {}
        self._look = _LOOK_S[0]
        self._pause = _ASK_S[0]
        self._next = 0.0
        self._answer: Future[dict[str, str]] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="transload-slurm")
        self._thread.start()

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids."""
        with self._lock:
            wanted = set(app_ids)
            for app_id in set(self._files) - wanted:
                del self._files[app_id]
                self._states.pop(app_id, None)
            for app_id in wanted - set(self._files):
                files = self._place(app_id)
                self._files[app_id] = (files, [_stamp(path) for path in files])
                self._pause = _ASK_S[0]
                self._look = _LOOK_S[0]
        self._woken.set()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._woken.clear()
            changed = self._changes()
            if changed:
                self._changed(changed)
            self._woken.wait(self._look)

    def _changes(self) -> set[str]:
        with self._lock:
            changed = self._moved()
            # few files are looked at twenty times a second, many less often: the cost stays the
            # same
            count = sum(len(files) for files, _ in self._files.values())
            longest = min(_LOOK_S[1], 0.05 + _PER_FILE_S * count)
            self._look = min(self._look * _GROWTH, longest)
            if changed:
                self._look = _LOOK_S[0]
            if self._answer is None and self._files and time.monotonic() >= self._next:
                ids = set(self._files)
                self._answer = in_background(lambda: self._ask(ids))
            answer = self._answer
        if answer is not None and answer.done():
            changed |= self._heard(answer)
        return changed

    def _moved(self) -> set[str]:
        """Return the jobs of which a file is not as it was, and take note of how it is."""
        moved = set()
        for app_id, (files, before) in self._files.items():
            now = [_stamp(path) for path in files]
            if now != before:
                self._files[app_id] = (files, now)
                moved.add(app_id)
        return moved

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


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes when a file is replaced. A folder's stamp only shows that it is there."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    if S_ISDIR(stat.st_mode):
        return 0, stat.st_ino
    return stat.st_mtime_ns, stat.st_ino
