"""When did a log grow: the keeper notes the sizes of each replica's streams, at most once per tick.

Replicas write to their files themselves. The kernel tells the keeper that files in a folder were written to (dnotify:
one descriptor per folder, none of the few inotify instances that a user has); where it cannot, the keeper looks now and
then.

An index is a row of ``(time, size of stdout, size of stderr)``: seconds since the epoch, bytes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from types import SimpleNamespace

from . import kernel

ENTRY = struct.Struct("<dQQ")
STREAMS = ("stdout.log", "stderr.log")
_TICK_S = 0.02
_GROWN = 20_000  # entries from which the tick grows with the index: a chatty day costs 10 MB, not 100
_LOOK_S = (0.05, 0.5)  # between looks where the kernel does not tell: soon after a change, then less and less
_BLOCK = 4096


class LogIndex:
    """Writes the indexes in an app's log folders, and keeps streams below ``max_bytes`` (0: no limit)."""

    def __init__(self, folders: list[str], max_bytes: int) -> None:
        self._logs = [
            SimpleNamespace(folder=folder, fd=-1, sizes=(0, 0), dropped=[0, 0], entries=0) for folder in folders
        ]
        self._max = max_bytes
        self._tick = _TICK_S * max(1.0, len(folders) / 32)
        self._notified = kernel.LINUX
        self._pause = _LOOK_S[0]
        self._due: float | None = None
        self._last = 0.0

    def start(self, now: float) -> None:
        """Begin to listen; the folders must exist."""
        for log in self._logs:
            if not self._notified:
                break
            try:
                log.fd = os.open(log.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._arm(log)
            except OSError:
                self._notified = False
        if not self._notified:
            self._due = now + self._pause

    def descriptors(self) -> list[int]:
        """Return what it holds open; -1 stands for nothing."""
        return [log.fd for log in self._logs]

    def _arm(self, log: SimpleNamespace) -> None:
        # one shot, armed again at the next tick: a replica that writes without pause costs one signal per tick
        fcntl.fcntl(log.fd, fcntl.F_NOTIFY, fcntl.DN_MODIFY)

    def changed(self, now: float) -> None:
        """The kernel said that some log grew: look at the next tick."""
        if self._notified and self._due is None:
            entries = max((log.entries for log in self._logs), default=0)
            self._due = max(now, self._last + self._tick * max(1.0, entries / _GROWN))

    @property
    def due(self) -> float | None:
        """When `look` wants to be called (monotonic seconds), None: when something changes."""
        return self._due

    def look(self, now: float, wall: float) -> bool:
        """Note what has grown; tell whether anything has. ``now`` is monotonic, ``wall`` seconds since the epoch."""
        self._last = now
        self._due = None
        grown = False
        for log in self._logs:
            if self._notified and log.fd >= 0:
                self._arm(log)  # first arm, then look: what is written in between is seen twice, never not
            grown = self._note(log, wall) or grown
        if not self._notified:
            self._pause = _LOOK_S[0] if grown else min(self._pause * 1.5, _LOOK_S[1])
            self._due = now + self._pause
        return grown

    def _note(self, log: SimpleNamespace, wall: float) -> bool:
        sizes = tuple(_size(f"{log.folder}/{name}") for name in STREAMS)
        if sizes == log.sizes:
            return False
        log.sizes = sizes
        log.entries += 1
        _append(f"{log.folder}/index", ENTRY.pack(wall, *sizes))
        if self._max:
            for number, size in enumerate(sizes):
                if size - log.dropped[number] > self._max + self._max // 8:
                    _drop(f"{log.folder}/{STREAMS[number]}", log, number, size - self._max)
        return True


def end_lines(folder: str) -> None:
    """End an unfinished last line: the next attempt of the replica starts a line of its own."""
    for name in STREAMS:
        path = f"{folder}/{name}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            continue
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            os.write(fd, b"\n")
        os.close(fd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _append(path: str, data: bytes) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        os.write(fd, data)
    except OSError:
        pass  # a full disk costs the order of lines, not the app
    finally:
        os.close(fd)


def _drop(path: str, log: SimpleNamespace, number: int, upto: int) -> None:
    """Free the oldest part of a stream. Offsets stay as they are: a hole is left, which readers jump over."""
    upto -= upto % _BLOCK
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if kernel.punch_hole(fd, 0, upto):
            log.dropped[number] = upto
        else:  # no holes here: everything so far goes, readers see the file shrink
            os.ftruncate(fd, 0)
            log.dropped[number] = 0
    except OSError:
        pass
    finally:
        os.close(fd)
