"""Note in an index when each replica's streams grew, at most once per tick.

Replicas write to their files themselves. The kernel notifies the supervisor that a file in a folder
was written to (dnotify). That takes one descriptor per folder, and none of the few inotify
instances of a user. Without dnotify the supervisor looks now and then.

An index is a row of ``(time, size of stdout, size of stderr)``, in seconds since the epoch and
bytes.
"""

from __future__ import annotations

import fcntl
import os
import struct
from types import SimpleNamespace

from . import kernel, layout

__all__ = ["STREAMS"]


ENTRY = struct.Struct("<dQQ")
STREAMS = STDOUT, STDERR = ("stdout.log", "stderr.log")
_TICK_S = 0.02
# entries from which the tick grows with the index, so that a day of output costs 10 MB, not 100
_GROWN = 20_000
# seconds between looks where the kernel does not notify, which grow when nothing changes
_LOOK_S = (0.05, 0.5)
_BLOCK = 4096


Index = SimpleNamespace
"""The indexes in the log folders of a job.

`due` is when `look` is to be called (monotonic seconds), or None if that is when something changes.
Streams are kept below `most` bytes (0 means no limit).
"""


def index_of(folders: list[str], most: int) -> Index:
    """Return the indexes of these log folders, which need not exist yet."""
    logs = [
        SimpleNamespace(folder=folder, fd=-1, sizes=(0, 0), dropped=[0, 0], entries=0)
        for folder in folders
    ]
    tick = _TICK_S * max(1.0, len(folders) / 32)
    return Index(
        logs=logs, most=most, tick=tick, notified=kernel.LINUX, pause=_LOOK_S[0], due=None, last=0.0
    )


def start(index: Index, now: float) -> None:
    """Begin to listen. The folders must exist."""
    for log in index.logs:
        if not index.notified:
            break
        try:
            log.fd = os.open(log.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _arm(log)
        except OSError:
            index.notified = False
    if not index.notified:
        index.due = now + index.pause


def _arm(log: SimpleNamespace) -> None:
    # dnotify fires once, and is armed again at the next tick. So a replica that writes without
    # pause costs one signal per tick. A file that is made or renamed may report progress
    fcntl.fcntl(log.fd, fcntl.F_NOTIFY, fcntl.DN_MODIFY | fcntl.DN_CREATE | fcntl.DN_RENAME)


def changed(index: Index, now: float) -> None:
    """Note that the kernel saw a log grow, so that the next tick looks at it."""
    if index.notified and index.due is None:
        entries = max((log.entries for log in index.logs), default=0)
        index.due = max(now, index.last + index.tick * max(1.0, entries / _GROWN))


def look(index: Index, now: float, wall: float) -> bool:
    """Note what has grown, and tell whether anything has.

    Args:
        index: the index.
        now: the time on the monotonic clock.
        wall: the time in seconds since the epoch.
    """
    index.last, index.due, grown = now, None, False
    for log in index.logs:
        if index.notified and log.fd >= 0:
            _arm(log)  # before looking, so that no write in between is missed
        grown = _note(log, wall, index.most) or grown
    if not index.notified:
        index.pause = _LOOK_S[0] if grown else min(index.pause * 1.5, _LOOK_S[1])
        index.due = now + index.pause
    return grown


def _note(log: SimpleNamespace, wall: float, most: int) -> bool:
    sizes = tuple(size_of(f"{log.folder}/{name}") for name in STREAMS)
    if sizes == log.sizes:
        return False
    log.sizes = sizes
    log.entries += 1
    _append(f"{log.folder}/index", ENTRY.pack(wall, *sizes))
    for number, size in enumerate(sizes if most else ()):
        if size - log.dropped[number] > most + most // 8:
            _drop(f"{log.folder}/{STREAMS[number]}", log, number, size - most)
    return True


def end_lines(folder: str) -> None:
    """End an unfinished last line, so that the next attempt of the replica starts a new one."""
    for name in STREAMS:
        path = f"{folder}/{name}"
        try:
            fd = layout.open_own(path, os.O_RDWR | os.O_APPEND)
        except OSError:
            continue
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                os.write(fd, b"\n")
        except OSError:
            pass  # a full disk, perhaps by that very log, costs the end of a line, not the retry
        finally:
            os.close(fd)


def size_of(path: str) -> int:
    """Return the size of a file in bytes, or 0 if it is not there."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _append(path: str, data: bytes) -> None:
    try:
        fd = layout.open_own(path, os.O_WRONLY | os.O_CREAT)
    except OSError:
        return
    try:
        # over a piece that a full disk has left
        os.pwrite(fd, data, os.fstat(fd).st_size // ENTRY.size * ENTRY.size)
    except OSError:
        pass  # a full disk costs the order of lines, not the job
    finally:
        os.close(fd)


def _drop(path: str, log: SimpleNamespace, number: int, upto: int) -> None:
    """Free the oldest part of a stream.

    Offsets stay as they are, since a hole is left, which readers skip.
    """
    upto -= upto % _BLOCK
    try:
        fd = layout.open_own(path, os.O_RDWR)
    except OSError:
        return
    try:
        if kernel.punch_hole(fd, 0, upto):
            log.dropped[number] = upto
        else:  # without holes all of it goes, and readers see the file shrink
            os.ftruncate(fd, 0)
            log.dropped[number] = 0
    except OSError:
        pass
    finally:
        os.close(fd)
