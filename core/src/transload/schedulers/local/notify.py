"""Find out through a FIFO which jobs have changed, and whose logs have grown.

Their supervisors write to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import threading
import time
from collections.abc import Collection
from typing import Final

from transload.schedulers.api import Change
from transload.schedulers.local.supervisor import kernel, layout

SAFETY_S: Final = 1.0
"""Seconds between two looks of a client that waits for changes.

A supervisor that was killed together with all who would have noticed writes nothing.
"""


class AppWatch:
    """Reports which of any number of jobs may have changed, through one FIFO for all.

    See `transload.schedulers.Watch`.

    Args:
        local: folder of the local scheduler, whose ``events`` must exist.
        logs: report logs that grow, too.

    Raises:
        OSError: if no FIFO can be made.
    """

    def __init__(self, local: str, logs: bool = False) -> None:
        self._local = local
        self._ids: frozenset[str] = frozenset()
        self._fresh: set[str] = set()
        self._lock = threading.Lock()
        self._rest = b""
        name = f"{os.getpid()}.{os.urandom(6).hex()}"
        if logs:
            name += layout.WITH_LOGS
        self._path = f"{local}/events/{name}"
        aside = f"{local}/events/.{name}"
        os.mkfifo(aside, 0o600)
        try:
            # opened before it is shown, since a FIFO that nobody reads is taken for a dead client's
            self._fd = os.open(aside, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            os.rename(aside, self._path)
        except OSError:
            os.unlink(aside)
            raise
        # how much fits into a FIFO, less one line, since an old kernel gives one page to the next
        # FIFO of a user who has very many
        self._full = max(
            1, (fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) if kernel.LINUX else 8192) - 4096
        )
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._next_probe = time.monotonic() + SAFETY_S

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. May be called from any thread."""
        with self._lock:
            ids = frozenset(app_ids)
            self._fresh = (self._fresh & ids) | (ids - self._ids)
            self._ids = ids
            fresh = bool(self._fresh)
        if fresh:
            self.wake()

    def wait(self, timeout: float | None) -> set[Change]:
        """Return what may have changed, after at most ``timeout`` seconds (None for no limit)."""
        deadline = float("inf")
        if timeout is not None:
            deadline = time.monotonic() + timeout
        while True:
            changed, woken = self._take()
            now = time.monotonic()
            if changed or woken or now >= deadline:
                return changed
            limit = min(deadline, self._next_probe)
            self._poll.poll(max(0.0, limit - now) * 1000 + 0.5)

    def _take(self) -> tuple[set[Change], bool]:
        """Return what may have changed, and whether somebody called `wake`."""
        data = self._read()
        with self._lock:
            ids = self._ids
            fresh = self._fresh
            self._fresh = set()
            *lines, self._rest = (self._rest + data).split(b"\n")
        reported = {os.fsdecode(line) for line in lines}
        if len(data) >= self._full:  # some lines may not have found room
            reported = {*ids, *(layout.GROWN + app_id for app_id in ids)}
        changed = {Change(app_id) for app_id in fresh | (ids & reported)}
        changed |= {
            Change(line[1:], "logs")
            for line in reported
            if line[:1] == layout.GROWN and line[1:] in ids
        }
        if time.monotonic() >= self._next_probe:
            self._next_probe = time.monotonic() + SAFETY_S
            dead = (
                app_id
                for app_id in ids
                if not layout.supervisor_lives(layout.app_folder(self._local, app_id))
            )
            changed |= {Change(app_id) for app_id in dead}
        return changed, b"" in lines

    def _read(self) -> bytes:
        parts = []
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self._fd, 1 << 16):
                parts.append(part)
        return b"".join(parts)

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        with contextlib.suppress(OSError):
            os.write(self._fd, b"\n")

    def close(self) -> None:
        """Free the descriptor."""
        fd = self._fd
        self._fd = -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(fd)
