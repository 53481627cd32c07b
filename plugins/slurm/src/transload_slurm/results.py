"""What apps reported on a cluster behind ssh: files of its disk, read through the connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from transload.runtime.tracking._stores import Entry, Store
from transload_slurm.connection import Connection

_PIECE: Final = 4 << 20
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

    def read(self, path: str) -> bytes:
        """Return a file's content.

        Raises:
            FileNotFoundError: there is no such file.
        """
        return b"".join(self.pieces(path))

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield a file's content piece by piece; errors as in `read`."""
        offset, piece = 0, bytes(_PIECE)
        while len(piece) == _PIECE:
            answer = self._connection.call("read", _TIMEOUT_S, path=self.where(path), offset=offset, size=_PIECE)
            if answer is None:
                raise FileNotFoundError(path)
            piece = answer[1] if isinstance(answer, tuple) else b""  # of an empty file, a number
            offset += len(piece)
            yield piece

    def read_many(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the content of those files that exist, asked for all at once."""
        link = self._connection.link()
        asked = {path: link.ask("read", path=self.where(path), offset=0, size=_PIECE) for path in paths}
        found = {}
        for path, answer in asked.items():
            there, data = link.answer(answer, _TIMEOUT_S)
            if there is not None:
                found[path] = data if len(data) < _PIECE else self.read(path)
        return found

    def entries(self, folder: str = "", *, stamps: bool = False) -> list[Entry]:
        """List a folder; a missing one is empty."""
        found = self._connection.call("entries", folder=self.where(folder))
        return [(name, is_folder, stamp) for name, is_folder, _, stamp in found if not name.startswith(".")]
