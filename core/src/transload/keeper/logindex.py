"""Note in an index when each replica's streams grew, at most once per tick.

Replicas write to their files themselves. Their keeper looks at the sizes, often while they grow, and
ever more seldom while they do not.

An index is a row of ``(time, size of stdout, size of stderr)``, in seconds since the epoch and
bytes.
"""

from __future__ import annotations

import os
import struct
import time
from types import SimpleNamespace

from . import kernel, layout

__all__ = ["SILENT_S", "STREAMS"]


ENTRY = struct.Struct("<dQQ")
STREAMS = STDOUT, STDERR = ("stdout.log", "stderr.log")
TICK_S = 0.02
# entries from which the tick grows with the index, so that a day of output costs 10 MB, not 100
_GROWN = 20_000
# how much longer each look waits than the one before, while nothing grows
_PAUSE_GROWTH = 2.0
_COARSE_S = 0.01  # so much earlier than a write its time in the file system may be
SILENT_S = 5.0
"""The longest pause, in seconds, between two looks at a job that writes nothing."""
_BLOCK = 4096


Index = SimpleNamespace
"""The indexes in the log folders of a job.

`due` is when `look` is to be called (monotonic seconds).
Streams are kept below `most` bytes (0 means no limit).
"""


def index_of(folders: list[str], most: int, tick: float) -> Index:
    """Return the indexes of these log folders, which need not exist yet."""
    logs = [
        SimpleNamespace(folder=folder, sizes=(0, 0), dropped=[0, 0], entries=0, noted=0.0)
        for folder in folders
    ]
    tick *= max(1.0, len(folders) / 32)
    return Index(logs=logs, most=most, tick=tick, pause=tick, due=0.0)


def look(index: Index, now: float) -> None:
    """Note what has grown.

    While something grows, the next look is a tick later. While nothing does, each pause is longer.

    Args:
        index: the index.
        now: the time on the monotonic clock.
    """
    grown = [log for log in index.logs if _note(log, index.most)]
    index.pause = min(index.pause * _PAUSE_GROWTH, SILENT_S)
    if grown:
        index.pause = index.tick * max(1.0, max(log.entries for log in grown) / _GROWN)
    index.due = now + index.pause


def _note(log: SimpleNamespace, most: int) -> bool:
    """Note the sizes of a replica's streams and when they were reached, if they have changed."""
    found = [_stat(f"{log.folder}/{name}") for name in STREAMS]
    sizes = tuple(size for size, _ in found)
    if sizes == log.sizes:
        return False
    log.sizes = sizes
    log.entries += 1
    # a job can set the time of a file, but not to one that is to come, or was noted before
    written = max(moment for _, moment in found) + _COARSE_S
    log.noted = max(log.noted, min(time.time(), written))
    _append(f"{log.folder}/index", ENTRY.pack(log.noted, *sizes))
    for number, size in enumerate(sizes if most else ()):
        if size - log.dropped[number] > most + most // 8:
            _drop(f"{log.folder}/{STREAMS[number]}", log, number, size - most)
    return True


def _stat(path: str) -> tuple[int, float]:
    """Return the size of a file, and when it was last written to, or zeros if it is not there."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime


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
    size, _ = _stat(path)
    return size


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
