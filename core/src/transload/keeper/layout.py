"""Define the files of the folder ``$TRANSLOAD_HOME/local``, each changed in one step.

::

    apps/<app_id>/record.json   what was submitted, never changed; locked (flock) as long as the
                                job's keeper lives
                  states.jsonl  what the job is doing: each change is a line, the last whole counts
                  cancel        somebody asked for the end
                  end           a link named like the final state, where the disk was full
                  logs/<role>/<k>/{stdout.log,stderr.log,index}
                  results/      default tracker base
    apps/.<token>               a job that is being made, until it is renamed to its id
    gone/<app_id>               kept by delete and prune for ids that the caller chose
    checkpoints/<name>/<role>/  of the jobs whose records have that name, kept as long as one has;
                                made and removed under checkpoints.lock
    keepers.log                 what keepers said that ended by an error of their own
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from _json import encode_basestring_ascii, make_encoder, make_scanner
from types import SimpleNamespace

TYPE_CHECKING = False  # typing itself would cost each keeper its speed
if TYPE_CHECKING:
    from typing import IO, Any

__all__ = [
    "FOLDERS",
    "SCHEMA",
    "TERMINAL",
    "Replaced",
    "app_folder",
    "ask_for_end",
    "dumps",
    "end_of_own",
    "is_end_asked",
    "loads",
    "locked",
    "make_folders",
    "noted_end",
    "open_own",
    "part_of_own",
    "read_json",
    "remove_tree",
    "state_file",
    "take_lock",
    "unlink",
    "who_asked",
    "write_all",
    "write_file",
    "write_new",
]


SCHEMA = 1
TERMINAL = ("SUCCEEDED", "FAILED", "CANCELLED")
_LONGEST_NAME = 600  # bytes of the name of who asked for an end
_MANY = 1 << 16  # bytes of the states of a job
_MOST = 1 << 29  # bytes of a file of ours, twice what a submit may hold
FOLDERS = ("apps", "gone")


# json's own parts in C, since the rest of json costs 5 ms
_plain: dict[str, Any] = {
    "strict": True,
    "object_hook": None,
    "object_pairs_hook": None,
    "memo": {},
}
_parse: Any = SimpleNamespace(parse_float=float, parse_int=int, parse_constant=float, **_plain)
_scan: Any = make_scanner(_parse)
_encode = make_encoder(None, repr, encode_basestring_ascii, None, ": ", ", ", False, False, True)


def dumps(value: object) -> bytes:
    """Return JSON values as text, as ``json.dumps`` does."""
    return "".join(_encode(value, 0)).encode()


def loads(text: bytes) -> Any:
    """Return the values in JSON text.

    Raises:
        ValueError: if it is none.
    """
    stripped = text.decode().strip()
    value = end = None
    try:
        value, end = _scan(stripped, 0)
    except StopIteration:
        pass
    except RecursionError as exc:
        raise ValueError("nested too deep") from exc
    if end != len(stripped):
        raise ValueError("not JSON")
    return value


def app_folder(home: str, app_id: str) -> str:
    """Return the folder of a job.

    Throughout this package ``home`` is ``$TRANSLOAD_HOME/local``.
    """
    return f"{home}/apps/{app_id}"


class Replaced(OSError):
    """Something else, such as a FIFO, a link or a folder, lies in the place of a file of ours."""


_IN_THE_WAY = (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST)


def open_own(path: str, flags: int) -> int:
    """Open a file that a job may have replaced. No link is followed, and a FIFO does not block.

    Raises:
        Replaced: if it is no regular file.
        OSError: if it cannot be opened.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            os.lstat(path)  # fails where it is not the file itself, but a folder above it
        if exc.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise Replaced(exc.errno, "it is not a regular file any more", path) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Replaced(errno.EINVAL, "it is not a regular file any more", path)
    return fd


def write_file(path: str, data: bytes) -> None:
    """Replace a file in one step. Readers see the old or the new content, never a part."""
    aside = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        write_new(aside, data)
        try:
            os.rename(aside, path)
        except OSError as exc:
            if exc.errno not in _IN_THE_WAY:
                raise
            # a folder, which is removed with the folder that it is in
            os.rename(path, f"{aside}.replaced")
            os.rename(aside, path)
    except OSError:
        unlink(aside)
        raise


def touch(path: str) -> None:
    """Make an empty file, for which a full disk has room, unless something is there already."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass


def write_new(path: str, data: bytes) -> None:
    """Write a new file, which no other process reads yet."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of these bytes, in as many pieces as it takes."""
    while data:
        data = data[os.write(fd, data) :]


def read_json(path: str) -> dict[str, Any] | None:
    """Return the JSON object in the last whole line of a file.

    Returns:
        The object, or None if the file is damaged (by a crash or a job) or is not there.
    """
    try:
        lines, _, piece = _whole(path).rpartition(b"\n")
        value = loads((lines or piece).rpartition(b"\n")[2])
    except (FileNotFoundError, NotADirectoryError, Replaced, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _whole(path: str) -> bytes:
    """Return what is in a file, by half of the system calls that Python's own reader takes.

    Raises:
        ValueError: if it is longer than anything of ours.
    """
    fd = open_own(path, os.O_RDONLY)
    try:
        if os.fstat(fd).st_size > _MOST:
            raise ValueError("too long")
        data = part = os.read(fd, _MANY)
        while len(part) == _MANY:
            part = os.read(fd, _MANY)
            data += part
        return data
    finally:
        os.close(fd)


def part_of(path: str, most: int) -> bytes:
    """Return the first bytes of a file, which may be another's, or none if it is unreadable."""
    try:
        return _part(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), most)
    except OSError:
        return b""


def part_of_own(path: str, most: int) -> bytes:
    """Return the first bytes of a file that a job has written, or none if it is unreadable."""
    try:
        return _part(open_own(path, os.O_RDONLY), most)
    except OSError:
        return b""


def end_of_own(path: str, most: int, since: int) -> bytes:
    """Return the last bytes of a file that a job has written, or none if it is unreadable.

    Only bytes from ``since`` on count. A file that is shorter was begun anew, so all of it counts.
    """
    try:
        fd = open_own(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        size = os.fstat(fd).st_size
        start = since if size >= since else 0
        return os.pread(fd, most, max(start, size - most))
    except OSError:
        return b""
    finally:
        os.close(fd)


def _part(fd: int, most: int) -> bytes:
    try:
        return os.pread(fd, most, 0)
    finally:
        os.close(fd)


def state_file(folder: str) -> str:
    """Return the path of the states of a job."""
    return f"{folder}/states.jsonl"


def add_state(folder: str, state: bytes) -> None:
    """Add a job's next state, as its keeper.

    Only a long file is replaced, since a journal makes that far slower.
    """
    try:
        fd = open_own(state_file(folder), os.O_RDWR | os.O_APPEND | os.O_CREAT)
    except Replaced:
        write_file(state_file(folder), state + b"\n")
        return
    try:
        size = os.fstat(fd).st_size
        if 0 < size < _MANY - len(state) and os.pread(fd, 1, size - 1) == b"\n":
            if os.write(fd, state + b"\n") > len(state):
                return
            os.ftruncate(fd, size)  # the disk is full
    finally:
        os.close(fd)
    write_file(state_file(folder), state + b"\n")


def note_end(folder: str, state: str) -> bool:
    """Note a job's final state on a full disk, as a short link, which needs its inode alone."""
    if noted_end(folder) is None:
        unlink(f"{folder}/end")  # what a job may have left there
    try:
        os.symlink(state, f"{folder}/end")
    except OSError:
        pass
    return noted_end(folder) is not None


def noted_end(folder: str) -> str | None:
    """Return the final state that `note_end` has noted, or None if there is none."""
    try:
        state = os.readlink(f"{folder}/end")
    except OSError:
        return None
    return state if state in TERMINAL else None


def end_replicas(state: dict[str, Any], end: str, at: float | None) -> None:
    """Give the replicas of a state that have no end yet this one, and this time."""
    for role in state.get("roles") or ():
        for replica in role.get("replicas", ()):
            if replica.get("state") not in TERMINAL:
                replica["state"] = end
            if replica.get("end_time") is None:
                replica["end_time"] = at


def unlink(path: str) -> None:
    """Remove a file. It is no error if it is gone already."""
    try:
        os.unlink(path)
    except OSError:
        pass


def ask_for_end(folder: str, who: str = "") -> None:
    """Note for all readers that a job is to end. Its keeper sees it even without a signal.

    The first who asks is noted, if ``who`` says who that is and the disk has room for it. The
    keeper may look at any moment, so the file comes with its content.
    """
    if who and not is_end_asked(folder):
        try:
            write_file(f"{folder}/cancel", who.encode("utf-8", "replace"))
        except OSError:
            pass  # an empty file needs no room
    os.close(open_own(f"{folder}/cancel", os.O_WRONLY | os.O_CREAT))


def who_asked(folder: str) -> str:
    """Return who asked for the end of a job, or ``""`` if that is not known."""
    text = part_of_own(f"{folder}/cancel", _LONGEST_NAME).decode("utf-8", "replace")
    return "".join(char for char in text if char.isprintable())


def is_end_asked(folder: str) -> bool:
    """Tell whether somebody asked for the end of a job."""
    return os.path.lexists(f"{folder}/cancel")


def is_removed(fd: int) -> bool:
    """Tell whether an open file or folder has been removed. An error does not count as that."""
    try:
        return os.fstat(fd).st_nlink == 0
    except OSError:
        return False


def take_lock(path: str, shared: bool = False, wait: bool = False) -> int | None:
    """Return a descriptor that holds a lock, or None if it is taken, or there is no such file.

    With ``wait`` it waits while the lock is taken.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        fcntl.flock(
            fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        )
    except OSError as exc:
        os.close(fd)
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise
    return fd


def is_kept(folder: str) -> bool:
    """Tell whether a job's keeper lives, by its lock.

    Processes that ask share their lock, so they do not see each other.
    """
    fd = take_lock(f"{folder}/record.json", shared=True)
    if fd is None:
        return os.path.isfile(f"{folder}/record.json")
    os.close(fd)
    return False


def locked(path: str, patience: float = float("inf")) -> IO[bytes]:
    """Hold a lock file for the length of a ``with`` block.

    Args:
        path: the lock file.
        patience: seconds to wait at most.

    Raises:
        TimeoutError: if somebody else holds it for longer.
    """
    file = os.fdopen(open_own(path, os.O_RDWR | os.O_CREAT), "rb")
    deadline, pause = time.monotonic() + patience, 0.001
    try:
        if patience == float("inf"):
            fcntl.flock(file, fcntl.LOCK_EX)
            return file
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(
                        errno.ETIMEDOUT, "another process keeps it locked", path
                    ) from None
            time.sleep(pause)  # flock has no timeout
            pause = min(pause * 2, 0.05)
    except BaseException:
        file.close()
        raise


def make_folders(path: str) -> None:
    """Make a folder and its parents. If that fails, the program that needs it fails."""
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        pass


def remove_tree(path: str) -> None:
    """Remove a folder and its content, without following links. A missing one is no error."""
    import shutil  # a keeper seldom needs it

    shutil.rmtree(path, ignore_errors=True)


def now() -> float:
    """Return seconds since the epoch, to the microsecond."""
    return round(time.time(), 6)
