"""The results of jobs on a cluster behind ssh, read from its disk through the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from transload.runtime.tracking import LARGEST, Entry, Store
from transload.runtime.untrusted import RefusedFile
from transload_slurm.connection import Connection, Link
from transload_slurm.wire import Message

_PIECE: Final = 4 << 20
_TOGETHER: Final = 16  # so many files are asked for at once
_TIMEOUT_S: Final = 120.0


class RemoteStore(Store):
    """A folder of the cluster.

    Args:
        connection: the way there.
        base: its path.
    """

    def __init__(self, connection: Connection, base: str) -> None:
        self.base = base
        self._connection = connection

    def read(self, path: str, limit: int = LARGEST) -> bytes:
        """Return a file's content, with the errors of `transload.runtime.tracking.Store.read`."""
        parts = []
        size = 0
        for piece in self.pieces(path):
            size += len(piece)
            self._check(path, size, limit)
            parts.append(piece)
        return b"".join(parts)

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield the content of a file of any size, piece by piece, with the errors of `read`."""
        offset = 0
        while True:
            answer = self._connection.call(
                "read", self.base, path, offset, _PIECE, timeout=_TIMEOUT_S
            )
            piece = self._content(path, answer)
            offset += len(piece)
            yield piece
            if len(piece) < _PIECE:
                return

    def read_many(
        self, paths: Iterable[str], limit: int = LARGEST, refused: dict[str, str] | None = None
    ) -> dict[str, bytes]:
        """Return the content of those files that exist, asked for several at once."""
        return self.collect(self._asked_together(list(paths), limit), refused)

    def _asked_together(
        self, paths: list[str], limit: int
    ) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield each path and what reads the answer for it.

        The next files are asked for when these were read.
        """
        link = self._connection.link()
        for start in range(0, len(paths), _TOGETHER):
            now = paths[start : start + _TOGETHER]
            asked = {path: link.ask("read", self.base, path, 0, _PIECE) for path in now}
            for path, answer in asked.items():
                yield path, partial(self._answered, link, path, answer, limit)

    def _answered(
        self, link: Link, path: str, answer: Future[tuple[Message, bytes]], limit: int
    ) -> bytes:
        """Return a file from the answer for its first piece."""
        data = self._content(path, link.answer(answer, _TIMEOUT_S))
        if len(data) == _PIECE:
            return self.read(path, limit)
        self._check(path, len(data), limit)
        return data

    def _content(self, path: str, answer: Any) -> bytes:
        """Return the piece of a file that came, or raise why it did not."""
        if answer is None:
            raise FileNotFoundError(path)
        if isinstance(answer, bytes):
            return answer
        if "folder" in answer:
            raise IsADirectoryError(path)
        raise RefusedFile(self.where(path), answer["refused"])

    def _check(self, path: str, size: int, limit: int) -> None:
        if size > limit:
            raise RefusedFile(
                self.where(path), f"more than {limit:,} bytes, which is as much as is read"
            )

    def is_missing(self) -> bool:
        """Tell whether the folder is not there."""
        return bool(self._connection.call("is_missing", self.base))

    def walk(self, folder: str) -> tuple[list[str], dict[str, str]]:
        """List the files below a folder."""
        files, refused = self._connection.call("walk", self.base, folder)
        return files, refused

    def entries(self, folder: str = "") -> list[Entry]:
        """List a folder. A missing folder is empty."""
        found: list[Entry] = self._connection.call("entries", self.base, folder)
        return found
