"""Find out which jobs have changed. Their files are looked at, and the ends of keepers are seen."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from transload.keeper import layout, processes

__all__ = ["AppWatch"]

_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.25
"""Seconds between two looks at states that do not change."""
_GROWTH: Final = 1.5
_SHARE: Final = 20.0  # a pause is at least so many times as long as the look before it
_PROBE_S: Final = 1.0  # between two questions whether a keeper lives that has no pidfd here
_MOST_FDS: Final = 64


class _Watched:
    """A watched job.

    Args:
        app_id: the job.
        file: the file of its state, whose size and time show that it has changed.
    """

    def __init__(self, app_id: str, file: str) -> None:
        self.app_id = app_id
        self.file = file
        self.seen = _look_of(file)
        self.fd = -1  # a pidfd of its keeper
        self.probe_at = 0.0  # when to ask next whether its keeper lives, without a pidfd


class AppWatch:
    """Reports which of any number of jobs may have changed, from a thread of its own.

    See `transload.schedulers.Watch`.

    Args:
        home: folder of the scheduler.
        changed: takes the ids of jobs that may have changed.

    Raises:
        OSError: if there is no free descriptor.
    """

    def __init__(self, home: str, changed: Callable[[Collection[str]], object]) -> None:
        self._home = home
        self._changed = changed
        self._lock = threading.Lock()
        self._jobs: dict[str, _Watched] = {}
        self._fds = 0
        self._pause = _FIRST_PAUSE_S
        self._closed = False
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._thread = threading.Thread(target=self._run, daemon=True, name="transload-local")
        self._thread.start()

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. May be called from any thread."""
        with self._lock:
            for app_id in set(self._jobs) - set(app_ids):
                self._release(self._jobs.pop(app_id))
            for app_id in set(app_ids) - set(self._jobs):
                file = layout.state_file(layout.app_folder(self._home, app_id))
                self._jobs[app_id] = _Watched(app_id, file)
                self._pause = _FIRST_PAUSE_S
            self._wake_up()

    def close(self) -> None:
        """End the thread, and free the descriptors."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._wake_up()
        self._thread.join()
        self.update(())
        os.close(self._woken)
        os.close(self._wake)

    def _wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is full of wakes
            os.write(self._wake, b"\n")

    def _run(self) -> None:
        while not self._closed:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 1 << 16)
            changed = self._look()
            if changed:
                self._changed(changed)
            self._poll.poll(self._pause * 1000 + 0.5)

    def _look(self) -> set[str]:
        """Return what has changed since the last look, and set when to look again."""
        began = time.monotonic()
        ready = {fd for fd, _ in self._poll.poll(0)}
        with self._lock:
            changed = {
                job.app_id for job in self._jobs.values() if self._has_changed(job, ready, began)
            }
            took = time.monotonic() - began
            if changed:
                self._pause = _FIRST_PAUSE_S
            else:
                self._pause = min(self._pause * _GROWTH, _LONGEST_PAUSE_S)
            self._pause = max(self._pause, _SHARE * took)
        return changed

    def _has_changed(self, job: _Watched, ready: set[int], now: float) -> bool:
        seen = _look_of(job.file)
        changed = seen != job.seen
        job.seen = seen
        if job.fd in ready:  # its keeper has ended
            self._release(job)
            job.probe_at = now
        if job.fd < 0 and now >= job.probe_at:
            job.probe_at = now + _PROBE_S
            changed = not self._is_kept(job) or changed
        return changed

    def _is_kept(self, job: _Watched) -> bool:
        """Tell whether the keeper of a job lives, and wait for its end if there is a descriptor."""
        if self._fds < _MOST_FDS:
            job.fd = processes.open_keeper(self._home, job.app_id)
        if job.fd < 0:
            return layout.is_kept(layout.app_folder(self._home, job.app_id))
        self._fds += 1
        self._poll.register(job.fd, select.POLLIN)
        return True

    def _release(self, job: _Watched) -> None:
        if job.fd >= 0:
            self._fds -= 1
            self._poll.unregister(job.fd)
            os.close(job.fd)
            job.fd = -1


def _look_of(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
