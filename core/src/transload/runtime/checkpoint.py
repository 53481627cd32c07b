"""Checkpoints of a job, and its notices, with the standard library alone.

    from transload.runtime import checkpoint

    folder = checkpoint.latest()          # None at the first start
    ...
    checkpoint.save(write)                # write(folder) puts files into an empty folder
    if checkpoint.interrupted():          # the job had its notice
        checkpoint.exit_interrupted()     # and asks to be started again

They are kept in the job's folder for checkpoints (``TRANSLOAD_CHECKPOINT_DIR``), which all its
attempts share. Outside of a job, or where no role asked for that folder, nothing is kept.
"""

from __future__ import annotations

import atexit
import errno
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

__all__ = [
    "EXIT_INTERRUPTED",
    "CheckpointError",
    "exit_interrupted",
    "interrupted",
    "latest",
    "save",
]

EXIT_INTERRUPTED: Final = 75
"""The exit code by which a program says, after a notice, that it wants to go on later."""

_ENV_FOLDER: Final = "TRANSLOAD_CHECKPOINT_DIR"
_ENV_SIGNAL: Final = "TRANSLOAD_NOTICE_SIGNAL"
_KEPT: Final = 2
_NAME: Final = r"checkpoint-(\d+)"
_ASIDE: Final = ".checkpoint-"


class CheckpointError(OSError):
    """A checkpoint could not be written. Those before it are as they were."""


def latest(*, each_replica: bool = False) -> Path | None:
    """Return the folder of the newest checkpoint that is complete, or None if there is none.

    Args:
        each_replica: each replica has separate checkpoints, as in `save`.
    """
    folder = _folder(each_replica)
    if folder is None:
        return None
    numbers = _numbers(folder)
    if not numbers:
        return None
    return folder / _name(numbers[-1])


def save(write: Callable[[Path], object], *, each_replica: bool = False) -> Path | None:
    """Make a checkpoint, which is there as a whole or not at all. The last two are kept.

    Only one process writes it, which is replica 0, and rank 0 of the processes that torchrun
    starts. In the others, and outside of a job, nothing happens, and ``write`` is not called.

    Args:
        write: is given an empty folder, and puts files there.
        each_replica: every replica keeps separate checkpoints, below ``replica-K``. Of the
            processes that torchrun starts in it the first one writes.

    Returns:
        The folder of the checkpoint, or None where this process writes none.

    Raises:
        CheckpointError: if the folder cannot be written, or the disk is full. An exception of
            ``write`` passes. The checkpoints before stay.
    """
    folder = _folder(each_replica)
    if folder is None or not _writes(each_replica):
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_unfinished(folder)
        number = max(_numbers(folder), default=0) + 1
        aside = folder / f"{_ASIDE}{number}-{os.getpid()}"
        aside.mkdir()
    except OSError as exc:
        raise _failed(folder, exc) from exc
    try:
        write(aside)
        return _take(aside, folder / _name(number))
    except OSError as exc:
        shutil.rmtree(aside, ignore_errors=True)
        raise _failed(folder, exc) from exc
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def interrupted() -> bool:
    """Tell whether this process has had its notice, so that it is time to save, and to end.

    Call it once before the work begins. From then on it takes the signal of the notice, which would
    else end the program. Only the main thread can take signals. In another one, and in processes
    that are forked later, this is False.
    """
    _notices.listen()
    return _notices.came


def exit_interrupted() -> NoReturn:
    """End the program with exit code 75, so that it is started again and goes on.

    That is so after a notice only. Without one, the exit is a failure like any other.
    """
    sys.exit(EXIT_INTERRUPTED)


class _Notices:
    """Takes the signal of the notice."""

    def __init__(self) -> None:
        self.came = False
        self._listens = False
        self._before: Any = None
        self._number = 0
        self._pid = 0

    def listen(self) -> None:
        """Handle the signal from now on. Only the main thread can install the handler, once."""
        if self._listens or threading.current_thread() is not threading.main_thread():
            return
        name = os.environ.get(_ENV_SIGNAL) or "TERM"
        self._number = getattr(signal, f"SIG{name}", signal.SIGTERM)
        self._before = signal.signal(self._number, self._take)
        self._listens = True
        self._pid = os.getpid()
        os.register_at_fork(after_in_child=self._leave)
        atexit.register(self._end)

    def _take(self, number: int, frame: object) -> None:
        if os.getpid() != self._pid:  # it came in the moment of a fork
            self._leave()
            os.kill(os.getpid(), number)
            return
        self.came = True
        if callable(self._before):
            self._before(number, frame)

    def _end(self) -> None:
        """Ignore the signal while Python ends, since it would kill a program whose work is done."""
        if os.getpid() == self._pid and signal.getsignal(self._number) == self._take:
            signal.signal(self._number, signal.SIG_IGN)

    def _leave(self) -> None:
        """Restore the signal's earlier handler in a forked child, such as a data loader's worker.

        So the signal ends the child.
        """
        self._listens = self.came = False
        signal.signal(self._number, self._before or signal.SIG_DFL)


_notices = _Notices()


def _folder(each_replica: bool) -> Path | None:
    base = os.environ.get(_ENV_FOLDER)
    if not base:
        return None
    if not each_replica:
        return Path(base)
    return Path(base, f"replica-{os.environ.get('TRANSLOAD_REPLICA_ID', '0')}")


def _writes(each_replica: bool) -> bool:
    """Tell whether this process is the one that writes."""
    if each_replica:
        return os.environ.get("LOCAL_RANK", "0") == "0"
    rank = os.environ.get("RANK") or os.environ.get("TRANSLOAD_REPLICA_ID", "0")
    return rank == "0"


def _name(number: int) -> str:
    return f"checkpoint-{number:06d}"


def _numbers(folder: Path) -> list[int]:
    """Return the numbers of all complete checkpoints, the newest last."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [re.fullmatch(_NAME, name) for name in names]
    return sorted(int(match[1]) for match in found if match is not None)


def _remove_unfinished(folder: Path) -> None:
    """Remove what attempts left behind that were killed while they wrote."""
    for name in os.listdir(folder):
        if name.startswith(_ASIDE):
            shutil.rmtree(folder / name, ignore_errors=True)


def _take(aside: Path, final: Path) -> Path:
    """Give a checkpoint its name once all of it is on the disk, and remove the oldest ones."""
    for place, _, files in os.walk(aside):
        for name in files:
            _to_disk(os.path.join(place, name))
        _to_disk(place)
    os.rename(aside, final)
    _to_disk(str(final.parent))
    for number in _numbers(final.parent)[:-_KEPT]:
        shutil.rmtree(final.parent / _name(number), ignore_errors=True)
    return final


def _to_disk(path: str) -> None:
    """Have a file or the names in a folder written to the disk, as far as its file system can."""
    if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as exc:
        if exc.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF, errno.EACCES):
            raise
    finally:
        os.close(opened)


def _failed(folder: Path, exc: OSError) -> CheckpointError:
    reason = exc.strerror or str(exc)
    message = f"no checkpoint was written to {folder}: {reason}; those before it are kept"
    return CheckpointError(exc.errno or errno.EIO, message)
