"""Which apps have changed, and whose logs have grown: their keepers tell, through a FIFO."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Collection
from typing import Final

from transload.schedulers.api import Change
from transload.schedulers.local.supervisor import kernel, layout

SAFETY_S: Final = 1.0
"""A keeper that was killed together with all who would have noticed writes nothing: waiters ask for it that often."""

_LOOK_S: Final = (0.005, 0.05)


class AppWatch:
    """Tells which of any number of apps may have changed: one FIFO for all (see `transload.schedulers.Watch`).

    Args:
        local: folder of the local scheduler; its ``events`` must exist.
        logs: hear of logs that grow, too.

    Raises:
        OSError: if no FIFO can be made.
    """

    def __init__(self, local: str, logs: bool = False) -> None:
        self._local = local
        self._ids: frozenset[str] = frozenset()
        self._fresh: set[str] = set()
        self._lock = threading.Lock()
        self._rest = b""
        name = f"{os.getpid()}.{os.urandom(6).hex()}{layout.WITH_LOGS if logs else ''}"
        self._path, aside = f"{local}/events/{name}", f"{local}/events/.{name}"
        os.mkfifo(aside, 0o600)
        try:
            # opened before it is shown: a FIFO that nobody reads is taken for a dead client's
            self._fd = os.open(aside, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            os.rename(aside, self._path)
        except OSError:
            os.unlink(aside)
            raise
        self._full = _capacity(self._fd) - 4096
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._both: select.epoll | None = None
        self._timer = -1
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
        """Return what may have changed; block up to ``timeout`` seconds (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            changed, woken = self._take()
            now = time.monotonic()
            if changed or woken or (deadline is not None and now >= deadline):
                return changed
            limit = self._next_probe if deadline is None else min(deadline, self._next_probe)
            self._poll.poll(max(0.0, limit - now) * 1000 + 0.5)

    def _take(self) -> tuple[set[Change], bool]:
        """Return what may have changed, and whether somebody called `wake`."""
        data = self._read()
        with self._lock:
            ids, fresh, self._fresh = self._ids, self._fresh, set()
            *lines, self._rest = (self._rest + data).split(b"\n")
        told = {os.fsdecode(line) for line in lines}
        if len(data) >= self._full:  # some lines may not have found room
            told = {*ids, *(layout.GROWN + app_id for app_id in ids)}
        changed = {Change(app_id) for app_id in fresh | (ids & told)}
        changed |= {Change(line[1:], "logs") for line in told if line[:1] == layout.GROWN and line[1:] in ids}
        if time.monotonic() >= self._next_probe:
            self._next_probe = time.monotonic() + SAFETY_S
            dead = (app_id for app_id in ids if not layout.keeper_lives(layout.app_folder(self._local, app_id)))
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

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when some app changed, or it is time to look for dead keepers."""
        if self._both is None and kernel.LINUX:
            self._timer = kernel.ticking(int(SAFETY_S))
            self._both = select.epoll()
            for fd in (self._fd, self._timer):
                self._both.register(fd, select.EPOLLIN)
        return self._fd if self._both is None else self._both.fileno()

    def drain(self) -> set[Change]:
        """Return apps that may have changed; never blocks."""
        if self._timer >= 0:
            with contextlib.suppress(BlockingIOError):
                os.read(self._timer, 8)
        return self._take()[0]

    def close(self) -> None:
        """Free the descriptor."""
        if self._both is not None:
            self._both.close()
            os.close(self._timer)
            self._both, self._timer = None, -1
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(fd)


def _capacity(fd: int) -> int:
    """Return how many bytes fit into a FIFO."""
    if not kernel.LINUX:
        return 8192
    import fcntl

    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


class LookingWatch:
    """The same without notifications: it looks at the state files, soon after a change often, then less so."""

    def __init__(self, local: str) -> None:
        self._local = local
        self._seen: dict[str, tuple[int, bool]] = {}
        self._ids: frozenset[str] = frozenset()
        self._woken = threading.Event()

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the set of watched ids. May be called from any thread."""
        self._ids = frozenset(app_ids)
        self._woken.set()

    def wait(self, timeout: float | None) -> set[Change]:
        """Return what may have changed; block up to ``timeout`` seconds (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _LOOK_S[0]
        while True:
            changed = self._look()
            if changed:
                return changed
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return set()
            if self._woken.wait(pause if left is None else min(pause, left)):
                self._woken.clear()
                return self._look()
            pause = min(pause * 1.3, _LOOK_S[1])

    def _look(self) -> set[Change]:
        before, self._seen = self._seen, {}
        for app_id in self._ids:
            folder = layout.app_folder(self._local, app_id)
            try:
                stamp = os.stat(f"{folder}/state.json").st_mtime_ns
            except OSError:
                stamp = 0
            self._seen[app_id] = (stamp, layout.keeper_lives(folder))
        return {Change(app_id) for app_id, seen in self._seen.items() if before.get(app_id) != seen}

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        self._woken.set()

    def close(self) -> None:
        """Nothing is held."""
