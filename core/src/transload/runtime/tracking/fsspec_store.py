"""Keep results on an fsspec file system. It is imported only for bases that are not local."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import fsspec
from fsspec.callbacks import Callback
from fsspec.core import url_to_fs

from transload.runtime import RENAMES_OVER, write_to
from transload.runtime.tracking.format import TrackingError
from transload.runtime.tracking.stores import LARGEST, Entry, LocalStore, Store
from transload.runtime.untrusted import MOST_FILES, RefusedFile

_AT_ONCE: Final = 256 << 20
"""Bytes that are asked for together at most."""


class FsspecStore(Store):
    """Files below a path of an fsspec file system.

    Object stores get one PUT for each write, SFTP a file written aside and moved. On any other
    storage a write is as atomic as the storage's own.
    """

    def __init__(self, fs: fsspec.AbstractFileSystem, path: str) -> None:
        self._fs = fs
        self._pid = os.getpid()
        self._mine = threading.local()
        self._mine.fs = fs
        self._mine.pid = self._pid
        self._may_wait = not _protocols(fs).isdisjoint(RENAMES_OVER)
        self._root = path.rstrip("/") + "/"
        # kind and size, as the latest listing has them
        self._listed: dict[str, tuple[str, int]] = {}
        self.base = str(fs.unstrip_protocol(path))

    @classmethod
    def from_url(cls, url: str, storage_options: Mapping[str, object] | None) -> FsspecStore:
        """Open the file system that a URL names."""
        try:
            fs, path = url_to_fs(url, **(storage_options or {}))
        except (ValueError, ImportError, TypeError) as exc:
            raise TrackingError(f"{url}: {exc}") from exc
        return cls(fs, path)

    @property
    def fs(self) -> fsspec.AbstractFileSystem:
        """Return the file system, opened anew where a connection must not be shared.

        That is in a forked child. Unless the file system is an asynchronous one, it is in every
        thread, too, as fsspec itself distinguishes its instances.
        """
        mine = self._mine
        pid = os.getpid()
        if getattr(mine, "pid", None) != pid:
            mine.fs = self._fs
            if not self._fs.async_impl or self._pid != pid:
                mine.fs = type(self._fs)(*self._fs.storage_args, **self._fs.storage_options)
            mine.pid = pid
        fs: fsspec.AbstractFileSystem = mine.fs
        return fs

    def read(self, path: str, limit: int = LARGEST) -> bytes:
        """Return the content of a file, as `Store.read` does."""
        full = self._root + path
        known = self._listed.get(full)
        if known is None and self._may_wait:  # a server would wait for a FIFO's writer
            known = _kind_and_size(self.fs.info(full))
        if known is not None:
            self._refuse(path, *known, limit)
        try:
            data = self.fs.cat_file(full, start=0, end=limit + 1)
        except (FileNotFoundError, IsADirectoryError):
            raise
        except Exception:  # some storages refuse a range of what is empty
            if self.fs.info(full).get("size") != 0:
                raise
            return b""
        self._refuse(path, "file", len(data), limit)
        return bytes(data)

    def _refuse(self, path: str, kind: str, size: int, limit: int) -> None:
        if kind not in ("file", "directory"):
            raise RefusedFile(self.where(path), f"a {kind}; only regular files are used here")
        if size > limit:
            raise RefusedFile(self.where(path), f"{size:,} bytes; at most {limit:,} are read")

    def read_many(
        self, paths: Iterable[str], limit: int = LARGEST, refused: dict[str, str] | None = None
    ) -> dict[str, bytes]:
        """Read many files at once, as `Store.read_many` does."""
        wanted = {self._root + path: path for path in paths}
        sizes = [self._listed.get(full, ("file", limit + 1)) for full in wanted]
        together = all(kind == "file" and size <= limit for kind, size in sizes)
        together = together and sum(size for _, size in sizes) <= _AT_ONCE
        if not together or not self._fs.async_impl or len(wanted) < 2 or glob.has_magic(self._root):
            return super().read_many(wanted.values(), limit, refused)
        found = {}
        for full, data in self.fs.cat(list(wanted), on_error="return").items():
            if isinstance(data, Exception):
                if not isinstance(data, FileNotFoundError):
                    raise data
            else:
                found[wanted[full]] = bytes(data)
        return found

    def fetch(self, path: str, target: str, step: Callable[[int], object]) -> None:
        """Copy a file to this machine, as `Store.fetch` does."""
        callback = Callback()
        callback.relative_update = step
        self.fs.get_file(self._root + path, target, callback=callback)

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file, as `Store.write` does."""
        write_to(self.fs, self._root + path, data)

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder, as `Store.entries` does."""
        path = (self._root + folder).rstrip("/") or "/"
        self.fs.invalidate_cache(path)  # a listing kept from before would hide what others wrote
        try:
            listing: list[dict[str, Any]] = self.fs.ls(path, detail=True)
        except FileNotFoundError:
            return []
        found: list[Entry] = []
        if len(self._listed) > MOST_FILES:
            self._listed.clear()
        for entry in listing:
            full = str(entry["name"]).rstrip("/")
            name = full.rpartition("/")[2]
            if name and not name.startswith(".") and full.strip("/") != path.strip("/"):
                self._listed[full] = _kind_and_size(entry)
                found.append((name, entry["type"] == "directory"))
        return found


def _kind_and_size(entry: Mapping[str, Any]) -> tuple[str, int]:
    return str(entry.get("type") or "file"), int(entry.get("size") or 0)


def _protocols(fs: fsspec.AbstractFileSystem) -> set[str]:
    if isinstance(fs.protocol, str):
        return {fs.protocol}
    return set(fs.protocol)


def store_of(fs: fsspec.AbstractFileSystem, path: str) -> Store:
    """Return the store of a path on a file system object. A local one needs no fsspec."""
    stripped = str(fs._strip_protocol(path))
    while "dir" in _protocols(fs):  # a folder of another file system, shown as a file system
        stripped = str(fs._join(stripped))
        fs = fs.fs
    if _protocols(fs) & {"file", "local"}:
        return LocalStore(stripped)
    return FsspecStore(fs, stripped)
