"""Store results and runs in a local folder without fsspec, or in any storage of fsspec.

Every ``write`` replaces the whole file in one step. So a reader sees the old content or the new,
never a part. A killed writer may leave a file whose name starts with a dot and ends in ``.tmp``. No
reader looks at those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from transload.runtime import OneFile, untrusted, write_file
from transload.runtime.tracking.format import TrackingError
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
        write_file(self._root + path, data)

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


class OneFileStore(Store):
    """The result files of a replica as lines of one file (`transload.runtime.OneFile`)."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._file = OneFile(base.removeprefix(ONE_FILE))

    def read(self, path: str, limit: int = LARGEST) -> bytes:
        """Return the content of a file, as `Store.read` does."""
        data = self._file.read(path)
        if not data:
            raise FileNotFoundError(self.where(path))
        return data

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder, as `Store.entries` does."""
        return [(name, False) for name in {name for name, _ in self._file.lines()} if name]

    def write(self, path: str, data: bytes) -> None:
        """Put a line in place of the one of the same key.

        Raises:
            TrackingError: the file would be too large. It stays as it was.
        """
        try:
            self._file.write(path, data)
        except ValueError as exc:
            raise TrackingError(str(exc)) from exc
