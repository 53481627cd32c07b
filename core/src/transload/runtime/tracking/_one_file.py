"""Results in one small file, for a job without storage: its lines are the bodies of result files."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator

from transload.runtime.tracking._errors import TrackingError
from transload.runtime.tracking._names import encode_name
from transload.runtime.tracking._stores import ONE_FILE, Entry, Store

__all__ = ["LIMIT", "OneFileStore"]

LIMIT = 4095
"""Bytes that come back at most."""


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
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            text = b"".join(line + b"\n" for name, line in self._lines(os.pread(fd, 1 << 20, 0)) if name != path)
            text += data + b"\n"
            if len(text) > LIMIT:
                raise TrackingError(
                    f"{self._path}: {len(text):,} bytes of results; at most {LIMIT:,} come back from a job without "
                    "storage: give tracker_base, or the cluster a helper_image"
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
        for line in text.splitlines():
            try:
                key = json.loads(line)["key"]
            except (ValueError, KeyError, TypeError):
                key = None
            yield (encode_name(str(key), ".json") if key else ""), line
