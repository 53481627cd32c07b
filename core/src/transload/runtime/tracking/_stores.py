"""Where files of results and runs lie: a folder of this machine, without fsspec, or any storage that fsspec knows.

Every ``write`` replaces the whole file at once: a reader sees the old content or the new, never a part. What a
killed writer leaves behind has a name that starts with a dot and ends in ``.tmp``; no reader looks at those.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

from transload.runtime.tracking._format import TrackingError
from transload.runtime.tracking._names import encode_name

Entry = tuple[str, bool, object]
"""Name, whether it is a folder, and a stamp that changes with the content (None: cannot be told)."""

NOWHERE = "nowhere:"
"""The base of what is outside of any job: a plain `Store`."""

ONE_FILE = "onefile:"
"""Before the path of a file that holds all results of a replica, a line for each key."""

_ONE_FILE_LIMIT = 4095  # bytes that come back at most
_LOCAL_PREFIXES = ("file://", "local://")
_AT_REST = 2.5


def aside_name() -> str:
    """Return a name for a file that is being written, unique across processes, hosts and forks."""
    return f".{os.urandom(9).hex()}.tmp"


class Store:
    """Files below one base, by relative paths of safe names joined by ``/``. This one holds none and keeps none."""

    base = NOWHERE
    """The base as messages show it."""

    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: there is no such file.
        """
        raise FileNotFoundError(self.where(path))

    def read_tail(self, path: str, size: int) -> bytes:
        """Return about the last ``size`` bytes of a file, or all of it where that costs no more.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return self.read(path)

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of those files that exist."""
        found = {}
        for path in paths:
            try:
                found[path] = self.read(path)
            except FileNotFoundError:
                continue
        return found

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield a file's content piece by piece; errors as in `read`."""
        yield self.read(path)

    def fetch(self, path: str, target: str, step: Callable[[int], object]) -> None:
        """Copy a file to a path of this machine; ``step`` is told of each piece, in bytes. Errors as in `read`."""
        with open(target, "wb") as file:
            for piece in self.pieces(path):
                file.write(piece)
                step(len(piece))

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, atomically; missing folders are made."""

    def entries(self, folder: str = "", *, stamps: bool = False) -> list[Entry]:
        """List a folder, in no order; a missing folder is empty."""
        return []

    def folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, in no order."""
        return [name for name, is_dir, _ in self.entries(folder) if is_dir]

    def listing_stamp(self, folder: str) -> object:
        """Return what changes when a name in a folder is added or removed, or None if that cannot be told."""
        return None

    def where(self, path: str) -> str:
        """Return the full path or URL of a file, for messages."""
        return f"{self.base.rstrip('/')}/{path}" if path else self.base


class LocalStore(Store):
    """A folder of this machine, or one that is mounted here; made at the first write."""

    def __init__(self, base: str) -> None:
        if "\0" in base:
            raise TrackingError(f"{base!r}: holds a NUL character, which no path can")
        self.base = os.path.abspath(os.path.expanduser(base))
        self._root = self.base.rstrip("/") + "/"

    def read(self, path: str) -> bytes:
        with open(self._root + path, "rb", buffering=0) as file:
            return file.read()

    def read_tail(self, path: str, size: int) -> bytes:
        fd = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size * 2, max(0, os.fstat(fd).st_size - size))
        finally:
            os.close(fd)

    def pieces(self, path: str) -> Iterator[bytes]:
        with open(self._root + path, "rb", buffering=0) as file:
            while piece := file.read(1 << 20):
                yield piece

    def write(self, path: str, data: bytes) -> None:
        target = self._root + path
        aside = target[: target.rindex("/") + 1] + aside_name()
        self._create(aside, data)
        try:
            os.rename(aside, target)
        except BaseException:
            _remove(aside)
            raise

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of an existing file.

        Raises:
            OSError: the file is gone, or the data could not be written whole (its part must be expected).
        """
        fd = os.open(self._root + path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            _write_all(fd, data)
        finally:
            os.close(fd)

    def write_in_new_folder(self, folder: str, name: str, data: bytes) -> None:
        """Write ``folder/name``; if the folder is new it appears together with its first file, never empty."""
        target = self._root + folder
        if os.path.isdir(target):
            return self.write(f"{folder}/{name}", data)
        aside = target[: target.rindex("/") + 1] + aside_name()
        self._create(f"{aside}/{name}", data)
        try:
            os.rename(aside, target)
        except OSError:  # somebody else was first: their folder takes our file
            os.rename(f"{aside}/{name}", f"{target}/{name}")
            os.rmdir(aside)
        return None

    def entries(self, folder: str = "", *, stamps: bool = False) -> list[Entry]:
        try:
            with os.scandir(self._root + folder) as listing:
                return [
                    (entry.name, entry.is_dir(), _stamp(entry) if stamps else None)
                    for entry in listing
                    if entry.name[0] != "."
                ]
        except FileNotFoundError:
            return []

    def listing_stamp(self, folder: str) -> object:
        try:
            stat = os.stat(self._root + folder)
        except FileNotFoundError:
            return None
        # times have a resolution: a folder that changed just now may change again and look the same
        if abs(time.time() - stat.st_mtime) < _AT_REST:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_nlink, stat.st_size

    def _create(self, path: str, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o666)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            fd = os.open(path, flags, 0o666)
        try:
            _write_all(fd, data)
        except BaseException:
            _remove(path)
            raise
        finally:
            os.close(fd)


class OneFileStore(Store):
    """The result files of a replica as lines of one file, which is written in place; other lines of it are kept."""

    def __init__(self, base: str) -> None:
        self.base, self._path = base, base.removeprefix(ONE_FILE)

    def read(self, path: str) -> bytes:
        for name, line in reversed(list(self._lines(self._text()))):
            if name == path:
                return line
        raise FileNotFoundError(self.where(path))

    def entries(self, folder: str = "", *, stamps: bool = False) -> list[Entry]:
        return [(name, False, None) for name in {name for name, _ in self._lines(self._text())} if name]

    def write(self, path: str, data: bytes) -> None:
        """Put a line in place of the one of the same key.

        Raises:
            TrackingError: the file would be too large; it stays as it was.
        """
        import fcntl

        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            text = b"".join(line + b"\n" for name, line in self._lines(os.pread(fd, 1 << 20, 0)) if name != path)
            text += data + b"\n"
            if len(text) > _ONE_FILE_LIMIT:
                raise TrackingError(
                    f"{self._path}: {len(text):,} bytes of results; at most {_ONE_FILE_LIMIT:,} come back from a job "
                    "without storage: give tracker_base, or the cluster a helper_image"
                )
            os.ftruncate(fd, 0)
            os.pwrite(fd, text, 0)
        finally:
            os.close(fd)

    def _text(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    @staticmethod
    def _lines(text: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield each line with the name of the result file that it is the body of, ``""`` for other lines."""
        import json

        for line in text.splitlines():
            try:
                key = json.loads(line)["key"]
            except (ValueError, KeyError, TypeError):
                key = None
            yield (encode_name(str(key), ".json") if key else ""), line


def files_below(store: Store, folder: str) -> list[str]:
    """Return the paths of all files below a folder, sorted; those whose names begin with a dot are left out."""
    found = []
    for name, is_folder, _ in store.entries(folder):
        path = f"{folder}/{name}"
        found += files_below(store, path) if is_folder else [path]
    return sorted(found)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # litter does no harm, and must not hide why the write failed


def _stamp(entry: os.DirEntry[str]) -> object:
    try:
        stat = entry.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def local_path(base: str) -> str | None:
    """Return the path of a base that is on the local file system, else None (a URL of another storage)."""
    if "::" in base and not base.startswith(("/", ".", "~")):
        return None  # a chain of fsspec storages
    for prefix in _LOCAL_PREFIXES:
        if base.startswith(prefix):
            return base[len(prefix) :]
    return None if "://" in base and not base.startswith(("/", ".", "~")) else base
