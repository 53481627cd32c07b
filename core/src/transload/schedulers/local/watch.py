"""Find out which jobs have changed. Their files are looked at, and the ends of keepers are seen."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Collection
from typing import Final

from transload.keeper import layout, processes
from transload.keeper.logindex import STREAMS
from transload.schedulers.api import Change
from transload.schedulers.folder import store

_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = {False: 0.25, True: 0.05}
"""Seconds between two looks at what does not change: at states, and at logs."""
_GROWTH: Final = 1.5
_SHARE: Final = 20.0  # a pause is at least so many times as long as the look before it
_PROBE_S: Final = 1.0  # between two questions whether a keeper lives that has no pidfd here
_MOST_FDS: Final = 64


class _Watched:
    """A watched job.

    Args:
        app_id: the job.
        files: those whose sizes and times show that it has changed.
    """

    def __init__(self, app_id: str, files: list[str]) -> None:
        self.app_id = app_id
        self.files = files
        self.seen: object = None
        self.fd = -1  # a pidfd of its keeper
        self.probe_at = 0.0  # when to ask next whether its keeper lives, without a pidfd


class AppWatch:
    """Reports which of any number of jobs may have changed.

    See `transload.schedulers.Watch`.

    Args:
        local: folder of the local scheduler.
        logs: report logs that grow, too.

    Raises:
        OSError: if there is no free descriptor.
    """

    def __init__(self, local: str, logs: bool = False) -> None:
        self._local = local
        self._logs = logs
        self._lock = threading.Lock()
        self._jobs: dict[str, _Watched] = {}
        self._fds = 0
        self._pause = _FIRST_PAUSE_S
        self._ends = threading.RLock()  # so that nobody writes to what is closed, and another's
        self._woken, self._wake = os.pipe()
        for fd in (self._woken, self._wake):
            os.set_blocking(fd, False)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. May be called from any thread."""
        with self._lock:
            for app_id in set(self._jobs) - set(app_ids):
                self._release(self._jobs.pop(app_id))
            fresh = set(app_ids) - set(self._jobs)
            for app_id in fresh:
                self._jobs[app_id] = _Watched(app_id, self._files(app_id))
        if fresh:
            self.wake()

    def wait(self, timeout: float | None) -> set[Change]:
        """Return what may have changed, after at most ``timeout`` seconds (None for no limit)."""
        deadline = float("inf")
        if timeout is not None:
            deadline = time.monotonic() + timeout
        while True:
            woken = self._drain()
            changed = self._look()
            left = deadline - time.monotonic()
            if changed or woken or left <= 0:
                return changed
            self._poll.poll(min(left, self._pause) * 1000 + 0.5)

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        with self._ends:
            if self._wake >= 0:
                with contextlib.suppress(BlockingIOError):  # it is full of wakes
                    os.write(self._wake, b"\n")

    def close(self) -> None:
        """Free the descriptors."""
        self.update(())
        with self._ends:
            ends = (self._woken, self._wake)
            self._woken = self._wake = -1
        for fd in ends:
            if fd >= 0:
                os.close(fd)

    def _drain(self) -> bool:
        """Tell whether somebody called `wake` since this was asked last."""
        try:
            return bool(os.read(self._woken, 1 << 16))
        except BlockingIOError:
            return False

    def _look(self) -> set[Change]:
        """Return what has changed since the last look, and set when to look again."""
        began = time.monotonic()
        kind: Final = "logs" if self._logs else "state"
        ready = {fd for fd, _ in self._poll.poll(0)}
        with self._lock:
            changed = {
                Change(job.app_id, kind)
                for job in self._jobs.values()
                if self._has_changed(job, ready, began)
            }
        took = time.monotonic() - began
        if changed:
            self._pause = _FIRST_PAUSE_S
        else:
            self._pause = min(self._pause * _GROWTH, _LONGEST_PAUSE_S[self._logs])
        self._pause = max(self._pause, _SHARE * took)
        return changed

    def _has_changed(self, job: _Watched, ready: set[int], now: float) -> bool:
        seen = [_look_of(path) for path in job.files]
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
            job.fd = processes.open_keeper(self._local, job.app_id)
        if job.fd < 0:
            return layout.is_kept(layout.app_folder(self._local, job.app_id))
        self._fds += 1
        self._poll.register(job.fd, select.POLLIN)
        return True

    def _release(self, job: _Watched) -> None:
        if job.fd >= 0:
            self._fds -= 1
            self._poll.unregister(job.fd)
            os.close(job.fd)
            job.fd = -1

    def _files(self, app_id: str) -> list[str]:
        files = [layout.state_file(layout.app_folder(self._local, app_id))]
        if not self._logs:
            return files
        record = store.read_record(self._local, app_id) or {}
        for role in (record.get("app") or {}).get("roles", ()):
            for k in range(role.get("num_replicas", 1)):
                files += [f"{record['logs']}/{role['name']}/{k}/{name}" for name in STREAMS]
        return files


def _look_of(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
