"""Being told: of apps that change (by their keepers, through a FIFO), of logs that grow (by inotify, or by looking)."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Collection
from typing import Final

from transload.schedulers.local.supervisor import kernel, layout

_GROWTH: Final = 0x002 | 0x100  # IN_MODIFY, IN_CREATE

SAFETY_S: Final = 1.0
"""A keeper that was killed together with all who would have noticed writes nothing: waiters ask for it that often."""

_LOOK_S: Final = (0.005, 0.05)


class Inotify:
    """An inotify instance. Those that are given back are used again: making the kernel free one takes 10 to 20 ms.

    Raises:
        OSError: if the system has none, or none left for this user.
    """

    def __init__(self) -> None:
        if not kernel.LINUX:
            raise OSError("no inotify here")
        import ctypes

        self._add = kernel.libc().inotify_add_watch
        self._remove = kernel.libc().inotify_rm_watch
        self._watches: list[int] = []
        self._owner = os.getpid()
        self.fd: int = kernel.libc().inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    @staticmethod
    def borrow() -> Inotify:
        """Return an instance that nobody uses."""
        while _spare:
            with contextlib.suppress(IndexError):
                found = _spare.pop()
                if found._owner == os.getpid():  # after a fork it is the parent's
                    return found
        return Inotify()

    def give_back(self) -> None:
        """Stop watching; keep the instance for the next one who needs one, or close it."""
        while self._watches:
            self._remove(self.fd, self._watches.pop())
        self.read()
        if len(_spare) < _SPARE:
            _spare.append(self)
        else:
            os.close(self.fd)

    def add(self, path: str) -> bool:
        """Watch a folder for files that grow; False if it is not there (or there are too many watches)."""
        found: int = self._add(self.fd, os.fsencode(path), _GROWTH)
        if found >= 0:
            self._watches.append(found)
        return found >= 0

    def read(self) -> None:
        """Forget what has happened so far. Never blocks."""
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self.fd, 1 << 16)) > 1 << 15:
                pass


_SPARE: Final = 4
_spare: list[Inotify] = []


class AppWatch:
    """Tells which of any number of apps may have changed: one FIFO for all (see `transload.schedulers.Watch`).

    Args:
        local: folder of the local scheduler; its ``events`` must exist.

    Raises:
        OSError: if no FIFO can be made.
    """

    def __init__(self, local: str) -> None:
        self._local = local
        self._ids: frozenset[str] = frozenset()
        self._fresh: set[str] = set()
        self._lock = threading.Lock()
        self._rest = b""
        name = f"{os.getpid()}.{os.urandom(6).hex()}"
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

    def wait(self, timeout: float | None) -> set[str]:
        """Return ids that may have changed; block up to ``timeout`` seconds (None: no limit)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            changed, woken = self._take()
            now = time.monotonic()
            if changed or woken or (deadline is not None and now >= deadline):
                return changed
            limit = self._next_probe if deadline is None else min(deadline, self._next_probe)
            self._poll.poll(max(0.0, limit - now) * 1000 + 0.5)

    def _take(self) -> tuple[set[str], bool]:
        """Return the ids that may have changed, and whether somebody called `wake`."""
        data = self._read()
        with self._lock:
            ids, fresh, self._fresh = self._ids, self._fresh, set()
            *lines, self._rest = (self._rest + data).split(b"\n")
        if len(data) >= self._full:
            changed = set(ids)  # some lines may not have found room
        else:
            changed = fresh | (ids & {os.fsdecode(line) for line in lines})
        if time.monotonic() >= self._next_probe:
            self._next_probe = time.monotonic() + SAFETY_S
            changed |= {app_id for app_id in ids if not layout.keeper_lives(layout.app_folder(self._local, app_id))}
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

    def drain(self) -> set[str]:
        """Return ids that may have changed; never blocks."""
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

    def wait(self, timeout: float | None) -> set[str]:
        """Return ids that may have changed; block up to ``timeout`` seconds (None: no limit)."""
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

    def _look(self) -> set[str]:
        before, self._seen = self._seen, {}
        for app_id in self._ids:
            folder = layout.app_folder(self._local, app_id)
            try:
                stamp = os.stat(f"{folder}/state.json").st_mtime_ns
            except OSError:
                stamp = 0
            self._seen[app_id] = (stamp, layout.keeper_lives(folder))
        return {app_id for app_id, seen in self._seen.items() if before.get(app_id) != seen}

    def wake(self) -> None:
        """Make a `wait` in another thread return at once."""
        self._woken.set()

    def close(self) -> None:
        """Nothing is held."""


class LogWatch:
    """Waits until a file in some folders grows, or an app changes.

    Args:
        local: folder of the local scheduler.
        app_id: the app.
        folders: the folders of the logs.
    """

    def __init__(self, local: str, app_id: str, *folders: str) -> None:
        self._pause = _LOOK_S[0]
        self._inotify: Inotify | None = None
        self._apps: AppWatch | None = None
        self._poll = select.poll()
        with contextlib.suppress(OSError):
            self._apps = AppWatch(local)
            self._apps.update([app_id])
            self._poll.register(self._apps.fileno(), select.POLLIN)
            self._inotify = Inotify.borrow()
            self._poll.register(self._inotify.fd, select.POLLIN)
            if not all(map(self._inotify.add, folders)):
                self._give_back()

    def _give_back(self) -> None:
        if self._inotify is not None:
            self._poll.unregister(self._inotify.fd)
            self._inotify.give_back()
            self._inotify = None

    def wait(self, timeout: float) -> None:
        """Return when something may have changed, after ``timeout`` seconds at most."""
        if self._inotify is None:  # look again and again, soon after a change often, then less so
            timeout = min(self._pause, timeout)
            self._pause = min(self._pause * 1.2, _LOOK_S[1])
        if self._poll.poll(max(0.0, timeout) * 1000):
            if self._inotify is not None:
                self._inotify.read()
            if self._apps is not None:
                self._apps.drain()

    def grew(self) -> None:
        """Say that there was something to read: without notifications, look again soon."""
        self._pause = _LOOK_S[0]

    def close(self) -> None:
        """Free what is held."""
        self._give_back()
        if self._apps is not None:
            self._apps.close()
