"""Define ``ResultTracker`` and the one that keeps results in files.

TorchX has them under this module path, too.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial

from transload.errors import TransloadTimeout
from transload.runtime import Writer, from_json, to_json
from transload.runtime.tracking import format as _format
from transload.runtime.tracking.format import ResultsGone, TrackingError
from transload.runtime.tracking.names import (
    decode_name,
    encode_name,
    is_digest_name,
    local_path,
    natural,
)
from transload.runtime.tracking.stores import NOWHERE, ONE_FILE, LocalStore, OneFileStore, Store
from transload.runtime.untrusted import MOST_FILES, RefusedFile

__all__ = [
    "ENV_TRANSLOAD_TRACKER_BASE",
    "FsspecResultTracker",
    "KeyType",
    "ResultTracker",
    "ResultType",
    "ResultsGone",
    "TrackingError",
]

KeyType = int | str
ResultType = int | float | str

ENV_TRANSLOAD_TRACKER_BASE = "TRANSLOAD_TRACKER_BASE"
"""Environment variable of a job that says where it reports its results, as a path or a URL."""

_SUFFIX = ".json"


class ResultTracker(ABC):
    """Small results of jobs, by key. There is a subclass for each kind of store.

    A key is an int or a str, and an int is the same key as its decimal text. A value is an int, a
    float or a str of at most 1024 bytes in UTF-8. A bool is stored as 0 or 1, a scalar of numpy or
    torch as its ``item()``. By convention a statistic of a result is named with a slash::

        tracker.put("trial-7", accuracy=0.93)
        tracker["trial-7"] = {"l2norm/mean": 1.2, "l2norm/sem": 3.4}
        tracker["trial-7"]["l2norm/mean"]

    A subclass must write ``put`` and ``get``, and should write ``keys``, of which ``in`` and
    ``wait`` are made.
    """

    def __getitem__(self, key: KeyType) -> dict[str, ResultType]:
        """Return ``get(key)``, which is ``{}`` for a key that is not there."""
        return self.get(key)

    def __setitem__(self, key: KeyType, results: Mapping[str, ResultType]) -> None:
        """Replace all results of ``key``."""
        self.put(key, **_format.check_results(results))

    def __contains__(self, key: object) -> bool:
        """Tell whether results of ``key`` were stored, be they empty."""
        return _format.check_key(key) in self.keys()

    @abstractmethod
    def put(self, key: KeyType, /, **results: ResultType) -> None:
        """Store the results of ``key`` in place of those that were there.

        Raises:
            TrackingError: the key, a name or a value is not allowed. The message names it.
        """

    @abstractmethod
    def get(self, key: KeyType) -> dict[str, ResultType]:
        """Return the results of ``key``, or ``{}`` if there are none yet."""

    def keys(self) -> list[str]:
        """Return all keys, sorted (``epoch-2`` before ``epoch-10``).

        Raises:
            NotImplementedError: this kind of tracker cannot list.
        """
        raise NotImplementedError(f"{type(self).__name__} does not list its keys")

    def to_dict(self) -> dict[str, dict[str, ResultType]]:
        """Return the results of every key, in the order of ``keys()``."""
        return {key: self.get(key) for key in self.keys()}

    def wait(self, key: KeyType, timeout: float | None = None) -> dict[str, ResultType]:
        """Wait until results of ``key`` are there, and return them.

        Args:
            key: the key.
            timeout: seconds to wait at most. None waits without end.

        Raises:
            TransloadTimeout: they did not come in time (a ``TimeoutError``). The message says where
                was looked.
        """
        text = _format.check_key(key)
        start = time.monotonic()
        pause = self._shortest_pause
        while text not in self:
            waited = time.monotonic() - start
            if timeout is not None and waited >= timeout:
                raise TransloadTimeout(
                    f"no results of key {text!r} within {timeout:g} s in {self.where()}"
                )
            # ask often at first, then at a twentieth of the time already waited
            if timeout is None:
                time.sleep(pause)
            else:
                time.sleep(max(0.0, min(pause, timeout - waited)))
            pause = min(max(pause, waited / 20), self._longest_pause)
        return self.get(text)

    _shortest_pause = 0.05
    _longest_pause = 2.0

    def where(self) -> str:
        """Return where the results lie, for messages."""
        return type(self).__name__


class FsspecResultTracker(ResultTracker):
    """Results in one JSON file for each key, on any storage that fsspec knows.

    A write replaces the file in one step. So a reader sees the old results or the new ones, never a
    part, also when the writer is killed. Other programs may write and read the files
    (``docs/reference/results-format.md``). Files of other kinds in the base are left alone.

    Args:
        tracker_base: a path, or a URL such as ``s3://bucket/folder`` or ``memory://results``. Made
            at the first write.
        storage_options: passed to fsspec for a base that is not a path.

    Raises:
        TrackingError: the base is empty or its protocol is not known.
    """

    def __init__(
        self,
        tracker_base: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        self._tracker_base = os.fspath(tracker_base)
        self._store: Store = open_store(tracker_base, self._options)
        self._known: set[str] = set()
        if isinstance(self._store, LocalStore):
            self._shortest_pause = 0.001
            self._longest_pause = 0.05

    @classmethod
    def from_env(cls) -> FsspecResultTracker:
        """Return the tracker of the job that this process belongs to.

        That is ``TRANSLOAD_TRACKER_BASE``, or the one file (``TRANSLOAD_RESULT_FILE``) of a job
        without storage. Outside of a job it holds nothing, and what is put goes nowhere. So the
        same program runs by hand.
        """
        base = os.environ.get(ENV_TRANSLOAD_TRACKER_BASE)
        if base:
            return cls(base)
        file = os.environ.get("TRANSLOAD_RESULT_FILE")
        if file:
            return cls(ONE_FILE + file)
        return cls(NOWHERE)

    def put(self, key: KeyType, /, **results: ResultType) -> None:
        """Store the results of ``key`` in place of those that were there.

        See ``ResultTracker.put``.
        """
        text = _format.check_key(key)
        checked = _format.check_results(results)
        name = encode_name(text, _SUFFIX)
        writer = Writer.from_env()
        more: dict[str, object] = {}
        if writer is not None:
            more.update(writer.fields)
            if text != writer.key:
                more.update(writer.replaces(self._before(name)))
        self._store.write(name, to_json(text, checked, more))

    def _before(self, name: str) -> dict[str, object]:
        """Return what the file of a key holds, as far as it can be read."""
        try:
            return from_json(self._store.read(name))
        except (FileNotFoundError, IsADirectoryError, RefusedFile):
            return {}

    def get(self, key: KeyType) -> dict[str, ResultType]:
        """Return the results of ``key``, or ``{}`` if there are none yet.

        Raises:
            TrackingError: the file is of a newer schema, another program wrote a value that is not
                allowed, or it is no regular file, or too large.
        """
        body = self._load(_format.check_key(key))
        if body is None:
            return {}
        return body.results

    def __contains__(self, key: object) -> bool:
        """Tell whether results of ``key`` were stored, be they empty."""
        return self._load(_format.check_key(key)) is not None

    def keys(self) -> list[str]:
        """Return all keys, sorted (``epoch-2`` before ``epoch-10``).

        This costs one listing. Each file is also opened once in the life of the tracker, to see
        that it is a result.
        """
        keys = []
        unread = []
        for name in _result_files(self._store):
            if name in self._known and not is_digest_name(name):
                keys.append(decode_name(name, _SUFFIX) or "")
            else:
                unread.append(name)
        for name, data in self._store.read_many(unread, refused={}).items():
            loaded = _of_file(self._store, name, data)
            if loaded is not None:
                self._known.add(name)
                keys.append(loaded[0])
        return sorted(keys, key=natural)

    def to_dict(self) -> dict[str, dict[str, ResultType]]:
        """Return the results of every key, sorted by key, by one listing and one read for each."""
        return {key: body.results for key, body in read_bodies(self._store).items()}

    def where(self) -> str:
        """Return the base, as an absolute path or a URL."""
        return self._store.base

    def _load(self, key: str) -> _format.Body | None:
        name = encode_name(key, _SUFFIX)
        try:
            data = self._store.read(name)
        except (FileNotFoundError, IsADirectoryError):  # a folder of that name is somebody else's
            return None
        except RefusedFile as exc:
            raise TrackingError(str(exc)) from exc
        loaded = _of_file(self._store, name, data)
        if loaded is None:
            return None
        _, body = loaded
        return body

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), storage_options=self._options), (self._tracker_base,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._tracker_base!r})"


def _result_files(store: Store) -> list[str]:
    """Return the names of the files in a store that may be results."""
    return [name for name, is_folder in store.entries() if name.endswith(_SUFFIX) and not is_folder]


def open_store(
    base: str | os.PathLike[str], storage_options: Mapping[str, object] | None = None
) -> Store:
    """Return the store of a base.

    A plain path or ``file://`` URL needs no fsspec. Any other URL does.

    Raises:
        TrackingError: the base is empty, its protocol is unknown, or the package for it is missing.
    """
    text = os.fspath(base)
    if not text:
        raise TrackingError(f"tracker_base={base!r}: a path or a URL is needed")
    if text == NOWHERE:
        return Store()
    if text.startswith(ONE_FILE):
        return OneFileStore(text)
    path = local_path(text)
    if path is not None:
        return LocalStore(path)
    from transload.runtime.tracking.fsspec_store import FsspecStore

    return FsspecStore.from_url(text, storage_options)


def read_bodies(store: Store, refused: dict[str, str] | None = None) -> dict[str, _format.Body]:
    """Return key → what its file holds, sorted by key, by one listing and one read for each.

    Args:
        store: where the files lie.
        refused: gets the reason for each file that is not read. If it is None, the first such file
            raises.

    Raises:
        TrackingError: a file is of a newer schema, holds a value that is not allowed, is no regular
            file or too large.
    """
    names = sorted(_result_files(store))
    if not names:  # nothing is asked of a storage for nothing
        return {}
    if len(names) > MOST_FILES:
        too_many = f"{len(names):,} files of results; at most {MOST_FILES:,} are read"
        if refused is None:
            raise TrackingError(f"{store.base}: {too_many}")
        refused["."] = too_many
    try:
        files = store.read_many(names[:MOST_FILES], refused=refused)
    except RefusedFile as exc:
        raise TrackingError(str(exc)) from exc
    bodies = {}
    for name, data in files.items():
        try:
            loaded = _of_file(store, name, data)
        except TrackingError as exc:
            if refused is None:
                raise
            refused[name] = str(exc).removeprefix(f"{store.where(name)}: ")
            continue
        if loaded is not None:
            key, body = loaded
            bodies[key] = body
    return dict(sorted(bodies.items(), key=lambda item: natural(item[0])))


def _of_file(store: Store, name: str, data: bytes) -> tuple[str, _format.Body] | None:
    """Return key and content of a file, or None if it is not the file of a key."""
    body = _format.load(data, store.where(name))
    if body is None:
        return None
    key = body.key or decode_name(name, _SUFFIX)
    if not key or encode_name(key, _SUFFIX) != name:
        return None
    return key, body
