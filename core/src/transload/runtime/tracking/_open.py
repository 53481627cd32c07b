"""From a tracker base to the store that it names."""

from __future__ import annotations

import os

from transload.runtime.tracking._errors import TrackingError
from transload.runtime.tracking._stores import NOWHERE, ONE_FILE, Entry, LocalStore, Store, local_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class _NowhereStore(Store):
    """Holds nothing, and keeps nothing."""

    base = NOWHERE

    def read(self, path: str) -> bytes:
        raise FileNotFoundError(path)

    def write(self, path: str, data: bytes) -> None:
        return None

    def entries(self, folder: str = "", *, stamps: bool = False) -> list[Entry]:
        return []


def open_store(base: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None) -> Store:
    """Return the store of a base: a plain path or ``file://`` URL without fsspec, any other URL with it.

    Raises:
        TrackingError: the base is empty, its protocol is unknown, or the package for it is missing.
    """
    text = os.fspath(base)
    if not text:
        raise TrackingError(f"tracker_base={base!r}: a path or a URL is needed")
    if text == NOWHERE:
        return _NowhereStore()
    if text.startswith(ONE_FILE):
        from transload.runtime.tracking._one_file import OneFileStore

        return OneFileStore(text)
    path = local_path(text)
    if path is not None:
        return LocalStore(path)
    from transload.runtime.tracking._fsspec_store import FsspecStore

    return FsspecStore.from_url(text, storage_options)
