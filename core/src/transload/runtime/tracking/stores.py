"""Store results and runs in a local folder without fsspec, or in any storage of fsspec.

Every ``write`` replaces the whole file in one step. So a reader sees the old content or the new,
never a part. A killed writer may leave a file whose name starts with a dot and ends in ``.tmp``. No
reader looks at those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from transload.runtime import untrusted
from transload.runtime.tracking.format import TrackingError
from transload.runtime.tracking.names import encode_name
from transload.runtime.untrusted import RefusedFile

Entry = tuple[str, bool]
"""A name in a folder, and whether it is a folder."""

NOWHERE = "nowhere:"
"""The base of what is outside of any job, which is a plain `Store`."""

ONE_FILE = "onefile:"
"""Before the path of a file that holds all results of a replica, a line for each key."""

LARGEST = 16 << 20
"""Bytes of a file of results that are read at most."""

LARGEST_LOG = 64 << 20
"""Bytes of a file of lines (steps, records of a run) that are read at most."""

_MOST_BYTES = 512 << 20  # of all files that are read at once
_ONE_FILE_LIMIT = 4095  # bytes that come back at most


def aside_name() -> str:
    """Return a name for a file that is being written, unique across processes, hosts and forks."""
    return f".{os.urandom(9).hex()}.tmp"


class Store:
    """Holds files below one base, by relative paths of safe names joined by ``/``.

    This one holds none and keeps none. What lies there may be a job's work, so nothing is read that
    is no regular file, or larger than expected. That raises
    `transload.runtime.untrusted.RefusedFile`.
    """

    base = NOWHERE
    """The base as messages show it."""

    def read(self, path: str, limit: int = LARGEST) -> bytes:
        """Return a file's content.

        Args:
            path: its path.
            limit: bytes that it may have at most.

        Raises:
            FileNotFoundError: there is no such file.
            RefusedFile: it is larger, or no regular file.
        """
        raise FileNotFoundError(self.where(path))

    def read_many(
        self, paths: Iterable[str], limit: int = LARGEST, refused: dict[str, str] | None = None
    ) -> dict[str, bytes]:
        """Return the content of those files that exist.

        Args:
            paths: their paths.
            limit: bytes that each may have at most.
            refused: gets the reason for each file that is not read. If it is None, the first such
                file raises `RefusedFile`.
        """
        return self.collect(((path, partial(self.read, path, limit)) for path in paths), refused)

    def collect(
        self, reads: Iterable[tuple[str, Callable[[], bytes]]], refused: dict[str, str] | None
    ) -> dict[str, bytes]:
        """Return what reading several files gives, for `read_many`.

        Files that do not exist are left out.

        Args:
            reads: path and what reads that file, one after the other.
            refused: as in `read_many`.
        """
        found: dict[str, bytes] = {}
        left = _MOST_BYTES
        for path, read in reads:
            try:
                if left <= 0:
                    raise RefusedFile(
                        self.where(path),
                        f"the files before it have more than {_MOST_BYTES:,} bytes",
                    )
                data = read()
            except (FileNotFoundError, IsADirectoryError):
                continue
            except RefusedFile as exc:
                if refused is None:
                    raise
                refused[path] = exc.reason
                continue
            left -= len(data)
            found[path] = data
        return found

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file of any size, piece by piece, with the errors of `read`."""
        yield self.read(path)

    def fetch(self, path: str, target: str, step: Callable[[int], object]) -> None:
        """Copy a file, of any size, to a path of this machine.

        Args:
            path: the file.
            target: where to.
            step: gets the number of bytes of each piece.
        """
        with open(target, "wb") as file:
            for piece in self.pieces(path):
                file.write(piece)
                step(len(piece))

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, atomically. Missing folders are made."""

    def update(self, path: str, change: Callable[[bytes], bytes], limit: int = LARGEST) -> None:
        """Replace a file by what ``change`` makes of its content, which is empty if there is none.

        Of several processes that do so at once, the last one wins.

        Args:
            path: its path.
            change: content → new content.
            limit: bytes that it may have at most. Of a larger file nothing is taken over.
        """
        try:
            before = self.read(path, limit)
        except (FileNotFoundError, IsADirectoryError, RefusedFile):
            before = b""
        self.write(path, change(before))

    def extend(self, path: str, data: bytes) -> None:
        """Add whole lines to the end of a file, as `update` does. A missing file is made."""
        self.update(path, lambda before: whole_lines(before) + data, LARGEST_LOG)

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder, in no order. A missing folder is empty."""
        return []

    def folders(self, folder: str) -> list[str]:
        """List the names of the folders in a folder, in no order."""
        return [name for name, is_dir in self.entries(folder) if is_dir]

    def walk(self, folder: str) -> tuple[list[str], dict[str, str]]:
        """List the files below a folder, without those whose names begin with a dot.

        Returns:
            Their paths, sorted, and what was refused, as path → reason.
        """
        files: list[str] = []
        refused: dict[str, str] = {}
        waiting = [(folder, 0)]
        left = untrusted.MOST_FILES
        while waiting:
            inner, depth = waiting.pop()
            if depth > untrusted.MOST_FOLDERS:
                refused[inner] = f"more than {untrusted.MOST_FOLDERS} folders deep"
                continue
            for name, is_folder in self.entries(inner):
                left -= 1
                if left < 0:
                    refused[inner] = (
                        f"more than {untrusted.MOST_FILES:,} files; the rest is not looked at"
                    )
                    return sorted(files), refused
                path = f"{inner}/{name}"
                if name in ("", ".."):
                    refused[path] = "a name that no file can have"
                elif is_folder:
                    waiting.append((path, depth + 1))
                elif not name.startswith("."):
                    files.append(path)
        return sorted(files), refused

    def is_missing(self) -> bool:
        """Tell whether the base is certainly not there, which a storage without folders never says."""
        return False

    def where(self, path: str) -> str:
        """Return the full path or URL of a file, for messages."""
        if not path:
            return self.base
        return f"{self.base.rstrip('/')}/{path}"


class LocalStore(Store):
    """A folder of this machine, or one that is mounted here. The first write makes it."""

    def __init__(self, base: str) -> None:
        if "\0" in base:
            raise TrackingError(f"{base!r}: holds a NUL character, which no path can")
        self.base = os.path.abspath(os.path.expanduser(base))
        self._root = self.base.rstrip("/") + "/"

    def read(self, path: str, limit: int = LARGEST) -> bytes:
        """Return the content of a file, as `Store.read` does."""
        return untrusted.read_file(self._root, path, limit)

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield a file piece by piece, as `Store.pieces` does."""
        return untrusted.pieces(self._root, path)

    def walk(self, folder: str) -> tuple[list[str], dict[str, str]]:
        """List the files below a folder, as `Store.walk` does."""
        try:
            return untrusted.walk(self._root, folder)
        except OSError as exc:
            return [], {folder: untrusted.reason_of(exc)}

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, as `Store.write` does."""
        target = self._root + path
        aside = target[: target.rindex("/") + 1] + aside_name()
        self._create(aside, data)
        try:
            os.rename(aside, target)
        except BaseException:
            _remove(aside)
            raise

    def extend(self, path: str, data: bytes) -> None:
        """Add lines to the end of a file, as `Store.extend` does."""
        os.makedirs(os.path.dirname(self._root + path), exist_ok=True)
        try:
            fd = untrusted.open_file(self._root, path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        except RefusedFile:  # the job itself did that, so its results go on in a new file
            self.write(path, data)
            return
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":  # of a writer that was killed
                data = b"\n" + data
            _write_all(fd, data)
        finally:
            os.close(fd)

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder, as `Store.entries` does."""
        try:
            with os.scandir(self._root + folder) as listing:
                return [
                    (entry.name, entry.is_dir(follow_symlinks=False))
                    for entry in listing
                    if entry.name[0] != "."
                ]
        except FileNotFoundError:
            return []

    def is_missing(self) -> bool:
        """Tell whether the folder is not there."""
        return not os.path.isdir(self._root)

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
    """The result files of a replica as lines of one file, which is written in place.

    Other lines of it are kept.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self._path = base.removeprefix(ONE_FILE)

    def read(self, path: str, limit: int = LARGEST) -> bytes:
        """Return the content of a file, as `Store.read` does."""
        for name, line in reversed(list(self._lines(self._text()))):
            if name == path:
                return line
        raise FileNotFoundError(self.where(path))

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder, as `Store.entries` does."""
        return [(name, False) for name in {name for name, _ in self._lines(self._text())} if name]

    def write(self, path: str, data: bytes) -> None:
        """Put a line in place of the one of the same key.

        Raises:
            TrackingError: the file would be too large. It stays as it was.
        """
        self.update(path, lambda _: data)

    def update(self, path: str, change: Callable[[bytes], bytes], limit: int = LARGEST) -> None:
        """Replace the line of a key by what ``change`` makes of it, with the errors of `write`."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            lines = list(self._lines(os.pread(fd, 1 << 20, 0)))
            mine = [line for name, line in lines if name == path]
            text = b"".join(line + b"\n" for name, line in lines if name != path)
            text += change(mine[-1] if mine else b"") + b"\n"
            if len(text) > _ONE_FILE_LIMIT:
                raise TrackingError(
                    f"{self._path}: {len(text):,} bytes of results; at most {_ONE_FILE_LIMIT:,} "
                    "come back from a job "
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
        """Yield each line with the name of the result file that it is the body of.

        The name is ``""`` for other lines.
        """
        import json

        for line in text.splitlines():
            try:
                key = json.loads(line)["key"]
            except (ValueError, KeyError, TypeError):
                key = None
            if key:
                yield encode_name(str(key), ".json"), line
            else:
                yield "", line


def whole_lines(text: bytes) -> bytes:
    """Return a text with an end of line at its end, unless it is empty."""
    if not text or text.endswith(b"\n"):
        return text
    return text + b"\n"


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # litter does no harm, and must not hide why the write failed


def _write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])
