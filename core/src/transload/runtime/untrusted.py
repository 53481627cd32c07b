"""Read files that a job may have written, without trusting them.

A job may put anything where its results, outputs, logs or error files are expected. It may be a
FIFO that blocks its reader, a device without end, or a file of many gigabytes. It may be a link
that leads to other people's files, or through a chain of links. So such a file is always opened
here:

- only regular files are opened, and never in a way that waits,
- a link is followed as long as it stays in the folder, and at most `MOST_LINKS` of them,
- no more is read than the caller has room for,
- a walk has an end, and never follows a link to a folder.

A refused file raises `RefusedFile`, whose text can be shown to the user.

This file runs on cluster nodes, and in processes that must start within milliseconds. So it keeps
to Python 3.8, and imports only what is loaded already.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False  # importing typing would cost more than all of this file
if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "MOST_FILES",
    "MOST_FOLDERS",
    "MOST_LINKS",
    "RefusedFile",
    "open_file",
    "pieces",
    "read_end",
    "read_file",
    "read_start",
    "reason_of",
    "walk",
]

MOST_LINKS = 40
"""The largest number of links on the way to one file, as in the kernel."""

MOST_FOLDERS = 64
"""The largest number of folders between a file and the folder that is searched."""

MOST_FILES = 100_000
"""The largest number of files and folders that one walk looks at."""

_PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
_OUTSIDE = "a link that leads out of its folder"


class RefusedFile(OSError):
    """A file is not read, or not written to. Nothing was waited for.

    Args:
        path: its path.
        reason: what is wrong with it, for example ``a FIFO; only regular files are read``.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(errno.EPERM, reason, path)
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return RefusedFile, (self.path, self.reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def open_file(folder: str, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """Open a regular file below a folder, without ever waiting.

    Args:
        folder: the folder that must not be left. It is trusted itself, and may be reached by links.
        path: path of the file, relative to the folder.
        flags: as for ``os.open``. With flags that write, the file itself must not be a link, even
            inside the folder.
        mode: permissions of a file that is made.

    Returns:
        A descriptor, which is closed in programs that this process starts.

    Raises:
        FileNotFoundError: there is no such file.
        IsADirectoryError: it is a folder.
        RefusedFile: it is neither, or a link leads out of the folder.
        OSError: it cannot be opened.
    """
    shown = f"{folder.rstrip('/')}/{path}"
    if "/" not in path and path not in ("", ".", ".."):
        try:
            return _open_last(shown, None, flags, mode, shown)
        except _IsLink:
            pass
    opened, name = _enter(folder, path, shown, follow=not flags & _WRITES)
    try:
        if not name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
        return _open_last(name, opened[-1], flags, mode, shown)
    except _IsLink:  # it became one meanwhile
        raise RefusedFile(shown, "a link; only regular files are used here") from None
    finally:
        _close(opened)


def read_file(folder: str, path: str, limit: int) -> bytes:
    """Return the whole content of a regular file below a folder.

    Args:
        folder: see `open_file`.
        path: see `open_file`.
        limit: bytes that it may have at most.

    Raises:
        RefusedFile: it is larger, or as in `open_file`.
    """
    fd = open_file(folder, path)
    try:
        shown = f"{folder.rstrip('/')}/{path}"
        _check_size(shown, os.fstat(fd).st_size, limit)
        data = _read(fd, limit + 1)  # it may have grown
        _check_size(shown, len(data), limit)
        return data
    finally:
        os.close(fd)


def read_start(folder: str, path: str, size: int) -> bytes:
    """Return the first bytes of a regular file below a folder, at most ``size``.

    The errors are those of `open_file`.
    """
    fd = open_file(folder, path)
    try:
        return _read(fd, size)
    finally:
        os.close(fd)


def read_end(folder: str, path: str, size: int) -> bytes:
    """Return the last bytes of a regular file below a folder, at most ``size``.

    The errors are those of `open_file`.
    """
    fd = open_file(folder, path)
    try:
        os.lseek(fd, max(0, os.fstat(fd).st_size - size), os.SEEK_SET)
        return _read(fd, size)
    finally:
        os.close(fd)


def pieces(folder: str, path: str) -> Iterator[bytes]:
    """Yield the content of a regular file below a folder, up to its present length.

    The errors are those of `open_file`.
    """
    fd = open_file(folder, path)
    try:
        left = os.fstat(fd).st_size
        while left > 0:
            piece = os.read(fd, min(left, _PIECE))
            if not piece:
                return
            left -= len(piece)
            yield piece
    finally:
        os.close(fd)


def walk(folder: str, start: str = "", most: int = MOST_FILES) -> tuple[list[str], dict[str, str]]:
    """List the regular files below a folder. Names that begin with a dot are left out.

    Args:
        folder: the folder that must not be left (see `open_file`).
        start: where in it to begin, a relative path, or "" for the folder itself. It may be
            missing.
        most: so many names are looked at.

    Returns:
        Relative paths of the files, sorted, and what was refused, as path → reason. A link to a
        file inside the folder is a file. Links to folders are refused, for a walk along them may
        have no end.

    Raises:
        NotADirectoryError: ``start`` is no folder.
        RefusedFile: ``start`` leads out of the folder.
        OSError: ``start`` cannot be listed.
    """
    files: list[str] = []
    refused: dict[str, str] = {}
    waiting = [start.strip("/")]
    left = most
    while waiting:
        inner = waiting.pop()
        try:
            entries = _entries(folder, inner, left + 1)
        except FileNotFoundError:  # it was removed meanwhile, or was never there
            continue
        except OSError as exc:
            if inner == start.strip("/"):
                raise
            refused[inner] = reason_of(exc)
            continue
        for name, kind in entries[:left]:
            path = f"{inner}/{name}" if inner else name
            if kind == stat.S_IFDIR:
                waiting.append(path)
                continue
            reason = _reason_against(folder, path, kind)
            if reason:
                refused[path] = reason
            else:
                files.append(path)
        if len(entries) > left:
            refused[inner or "."] = f"more than {most:,} files; the rest is not looked at"
            break
        left -= len(entries)
    return sorted(files), refused


# -------------------------------------------------------------------------------------------------------------
# opening


class _IsLink(Exception):
    """The last part of a path is a link."""


def _open_last(name: str, parent: int | None, flags: int, mode: int, shown: str) -> int:
    """Open what must be a regular file.

    Args:
        name: its name in the folder ``parent``, or a whole path.
        parent: descriptor of the folder, or None.
        flags: as for ``os.open``.
        mode: permissions of a file that is made.
        shown: its path in messages.
    """
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown) from None
    except OSError as exc:
        raise _with_path(exc, shown) from None
    else:
        _check_kind(found.st_mode, shown)  # before, since to open a device may already do something
    try:
        fd = os.open(name, flags | _NO_LINK, mode, dir_fd=parent)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise _IsLink from None
        if exc.errno == errno.ENXIO:
            raise RefusedFile(
                shown, "a FIFO or a socket; only regular files are used here"
            ) from None
        raise _with_path(exc, shown) from None
    try:
        _check_kind(os.fstat(fd).st_mode, shown)  # after, as another one may have taken its place
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_kind(mode: int, shown: str) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        raise _IsLink
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), shown)
    kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
    raise RefusedFile(shown, f"{kind}; only regular files are used here")


def _check_size(shown: str, size: int, limit: int) -> None:
    if size > limit:
        raise RefusedFile(shown, f"{size:,} bytes; at most {limit:,} are read")


def _with_path(exc: OSError, shown: str) -> OSError:
    """Return the error with the whole path in it."""
    return exc if isinstance(exc, RefusedFile) else OSError(exc.errno, exc.strerror, shown)


def _read(fd: int, most: int) -> bytes:
    parts = []
    while most > 0:
        part = os.read(fd, min(most, _PIECE))
        if not part:
            break
        parts.append(part)
        most -= len(part)
    return b"".join(parts)


def _enter(folder: str, path: str, shown: str, *, follow: bool = True) -> tuple[list[int], str]:
    """Open the folders on the way to a file, one in the other.

    So none can be exchanged for a link meanwhile.

    Returns:
        Their descriptors, the given folder's first, and the file's name in the last of them, which
        is "" if the path is that folder itself.
    """
    opened = [os.open(folder, _FOLDER)]
    try:
        return opened, _enter_below(opened, folder, path, shown, follow=follow)
    except BaseException:
        _close(opened)
        raise


def _enter_below(opened: list[int], folder: str, path: str, shown: str, *, follow: bool) -> str:
    left = _parts(path)
    if path.startswith("/"):
        raise RefusedFile(shown, "an absolute path; it must be below the folder")
    links = 0
    while left:
        name = left.pop()
        if name == "..":
            if len(opened) == 1:
                raise RefusedFile(shown, _OUTSIDE)
            os.close(opened.pop())
            continue
        target = _link_target(name, opened[-1], shown) if follow or left else None
        if target is not None:
            links += 1
            if links > MOST_LINKS:
                raise RefusedFile(shown, f"more than {MOST_LINKS} links behind each other")
            if target.startswith("/"):
                target = _inside(folder, target, shown)
                _close(opened[1:])
                del opened[1:]
            left += _parts(target)
            continue
        if not left:
            return name
        if len(opened) > MOST_FOLDERS:
            raise RefusedFile(shown, f"more than {MOST_FOLDERS} folders deep")
        try:
            opened.append(os.open(name, _FOLDER | _NO_LINK, dir_fd=opened[-1]))
        except OSError as exc:
            raise _with_path(exc, shown) from None
    return ""


def _parts(path: str) -> list[str]:
    """Return the parts of a path, the last one first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _link_target(name: str, parent: int, shown: str) -> str | None:
    """Return where a link leads, or None if it is none, or there is nothing."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as exc:
        if exc.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise _with_path(exc, shown) from None


def _inside(folder: str, target: str, shown: str) -> str:
    """Return an absolute target relative to the folder that must not be left."""
    for top in (os.path.abspath(folder), os.path.realpath(folder)):
        if f"{target}/".startswith(f"{top.rstrip('/')}/"):
            return target[len(top) :].lstrip("/")
    raise RefusedFile(shown, _OUTSIDE)


def _close(opened: list[int]) -> None:
    for fd in opened:
        os.close(fd)


# -------------------------------------------------------------------------------------------------------------
# walking


def _entries(folder: str, inner: str, most: int) -> list[tuple[str, int]]:
    """Return at most ``most`` names in a folder below another one, with their kinds.

    A kind is ``stat.S_IFMT`` of the file's mode.
    """
    shown = f"{folder.rstrip('/')}/{inner}"
    opened, name = _enter(folder, inner, shown)
    try:
        if name:
            opened.append(os.open(name, _FOLDER | _NO_LINK, dir_fd=opened[-1]))
        found = []
        with os.scandir(opened[-1]) as listing:
            for entry in listing:
                if entry.name.startswith("."):
                    continue
                found.append((entry.name, _kind(entry)))
                if len(found) >= most:
                    break
        return found
    except OSError as exc:
        raise _with_path(exc, shown) from None
    finally:
        _close(opened)


def _kind(entry: os.DirEntry[str]) -> int:
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return 0


def _reason_against(folder: str, path: str, kind: int) -> str:
    """Return why a name that is no folder is no file either, or "" if it is one."""
    if kind == stat.S_IFREG:
        return ""
    if kind != stat.S_IFLNK:
        return f"{_KINDS.get(kind, 'no regular file')}; only regular files are used here"
    try:
        os.close(open_file(folder, path))
    except FileNotFoundError:
        return "a link to nothing"
    except IsADirectoryError:
        return "a link to a folder, which is not followed"
    except OSError as exc:
        return reason_of(exc)
    return ""


def reason_of(exc: OSError) -> str:
    """Return why a file was refused, or could not be read, without its path."""
    return exc.reason if isinstance(exc, RefusedFile) else exc.strerror or str(exc)
