"""The tracker ``FsspecTracker``, which keeps runs in files on any storage of fsspec.

A local folder does not need fsspec. ``docs/guides/tracking.md`` describes the files.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from transload.errors import ConfigError
from transload.runtime.tracking import Store, TrackingError, open_store
from transload.runtime.tracking.names import (
    decode_name,
    decode_names,
    encode_name,
    is_digest_name,
    local_path,
)
from transload.runtime.tracking.stores import LARGEST_LOG
from transload.tracker.api import TrackerBase
from transload.tracker.backend.records import (
    RUNS,
    SUFFIX,
    Record,
    Writer,
    encode,
    merge,
    run_folder,
    run_id_of,
)
from transload.tracker.checks import check_run_id, check_text, check_values
from transload.tracker.lineage import Lineage, TrackerArtifact, TrackerSource, trace_lineage

if TYPE_CHECKING:
    import fsspec

__all__ = ["FsspecTracker", "create"]

_CHILDREN = "children"
_LINK_SUFFIX = ".json"
_MAX_WRITERS = 512


class FsspecTracker(TrackerBase):
    """Keeps runs in files below a root folder, which the first write creates.

    Each writer (a tracker object in a process) has its own file in each run, so that writers do not
    conflict and no write is lost. A killed writer leaves at most an incomplete last line, which
    readers ignore. The last write counts. This is exact for the writes of one process, and for a
    write that began after another one had ended, even if clocks differ. Writes at the same time
    have the same order for every reader.

    Args:
        fs: an fsspec file system, or None if ``root_dir`` is a URL or a local path.
        root_dir: path on ``fs``. Without ``fs`` it is a local path, or a URL such as
            ``s3://bucket/runs``.
        storage_options: options for fsspec, used with a URL.

    Raises:
        TrackingError: if the root is empty or its protocol is unknown.
    """

    def __init__(
        self,
        fs: fsspec.AbstractFileSystem | None,
        root_dir: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        self._arguments = (fs, os.fspath(root_dir)), dict(storage_options or {})
        self._store = _open(fs, os.fspath(root_dir), storage_options)
        self._known_ids: dict[str, str] = {}
        self._listed: tuple[object, list[str]] = (None, [])
        self._begin()
        _trackers.add(self)

    def _begin(self) -> None:
        """Start as a new writer.

        This is also done in a forked child, which must not share its parent's files.
        """
        self._lock = threading.Lock()
        self._writers: dict[str, Writer] = {}
        self._time = 0
        self._linked: set[tuple[str, str]] = set()

    def _write(self, run_id: str, record: Record) -> None:
        """Add a record to a run, after all records that are visible there now."""
        with self._lock:
            writer = self._writers.pop(run_id, None) or Writer(self._store, run_id)
            self._time = max(time.time_ns(), self._time + 1, writer.latest_of_others() + 1)
            writer.write(encode({"t": self._time, **record}))
            # a writer that failed is not kept, because nothing may follow an incomplete line. The
            # run then gets one more file. This also happens if the writer is dropped here because
            # it was not used for the longest time
            self._writers[run_id] = writer
            if len(self._writers) > _MAX_WRITERS:
                del self._writers[next(iter(self._writers))]

    def _records(self, run_id: str) -> list[Record]:
        folder = run_folder(check_run_id(run_id))
        entries = self._store.entries(folder)
        paths = [
            f"{folder}/{name}"
            for name, is_dir, _ in entries
            if not is_dir and name.endswith(SUFFIX)
        ]
        refused: dict[str, str] = {}
        files = self._store.read_many(paths, LARGEST_LOG, refused)
        for path, reason in refused.items():
            logging.getLogger("transload.tracker").warning(
                "not read: %s: %s", self._store.where(path), reason
            )
        return merge(run_id, ((self._store.where(path), data) for path, data in files.items()))

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact of a run, like ``TrackerBase.add_artifact``."""
        artifact = {
            "name": check_text(name, "name"),
            "path": check_text(os.fspath(path), "path"),
            "metadata": None
            if metadata is None
            else check_values(metadata, f"metadata of artifact {name!r}"),
        }
        self._write(check_run_id(run_id), {"artifact": artifact})

    def artifacts(self, run_id: str) -> dict[str, TrackerArtifact]:
        """Return the artifacts of a run by name, which are none for an unknown run."""
        found = {}
        for record in self._records(run_id):
            item = record.get("artifact")
            if type(item) is dict:
                found[item["name"]] = TrackerArtifact(
                    item["name"], item["path"], item.get("metadata")
                )
        return found

    def add_metadata(self, run_id: str, /, **kwargs: object) -> None:
        """Record metadata of a run in one write. Names not given now keep their values.

        Raises:
            TrackingError: if a value cannot be stored. The message names it.
        """
        self._write(check_run_id(run_id), {"metadata": check_values(kwargs)})

    def metadata(self, run_id: str) -> dict[str, object]:
        """Return the metadata of a run by name, which are none for an unknown run."""
        found: dict[str, object] = {}
        for record in self._records(run_id):
            values = record.get("metadata")
            if type(values) is dict:
                found.update(values)
        return found

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run came from another one, like ``TrackerBase.add_source``."""
        check_run_id(run_id)
        check_run_id(source_id, "source_id")
        name = None if not artifact_name else check_text(artifact_name, "artifact_name")
        # The link from the source to the run is written first. It is only a hint for readers, so
        # after a kill between the two writes it does not contradict the run itself.
        if (source_id, run_id) not in self._linked:
            body = json.dumps({"schema": 1, "run_id": run_id, "source_id": source_id}).encode()
            self._store.write(
                f"{_children_folder(source_id)}/{encode_name(run_id, _LINK_SUFFIX)}", body
            )
            self._linked.add((source_id, run_id))
        self._write(run_id, {"source": {"run_id": source_id, "artifact_name": name}})

    def sources(self, run_id: str, artifact_name: str | None = None) -> list[TrackerSource]:
        """Return the direct sources of a run, with ``artifact_name`` only those of that name."""
        found: dict[tuple[str, str | None], None] = {}
        for record in self._records(run_id):
            item = record.get("source")
            if type(item) is dict and (
                not artifact_name or item.get("artifact_name") == artifact_name
            ):
                found[item["run_id"], item.get("artifact_name")] = None
        return [TrackerSource(source, name) for source, name in found]

    def lineage(self, run_id: str) -> Lineage:
        """Return all runs from which a run came or that came from it, with their artifacts."""
        return trace_lineage(self, check_run_id(run_id))

    def run_ids(self, parent_run_id: str | None = None, **kwargs: str) -> list[str]:
        """Return the sorted ids of all runs.

        This takes one listing, or none if no run was added since the last one.

        Args:
            parent_run_id: only runs that have this one as a direct source. This takes one listing,
                and a read for each of them.
            kwargs: other filters, which are not supported.

        Raises:
            TrackingError: if a filter is unknown.
        """
        if kwargs:
            raise TrackingError(
                f"run_ids: unknown filter {', '.join(kwargs)}; known: parent_run_id"
            )
        if parent_run_id:
            return sorted(self._children(check_run_id(parent_run_id, "parent_run_id")))
        stamp = self._store.listing_stamp(RUNS)
        if stamp is None or self._listed[0] != stamp:
            self._listed = stamp, self._list_runs()
        return list(self._listed[1])

    def _list_runs(self) -> list[str]:
        folders = self._store.folders(RUNS)
        found = decode_names(folders)
        long_ones = (self._run_id_of_folder(name) for name in folders if is_digest_name(name))
        found += [run_id for run_id in long_ones if run_id is not None]
        return sorted(found)

    def _children(self, parent: str) -> list[str]:
        folder = _children_folder(parent)
        names = [
            name
            for name, is_dir, _ in self._store.entries(folder)
            if not is_dir and name.endswith(_LINK_SUFFIX)
        ]
        children = {decode_name(name, _LINK_SUFFIX) for name in names if not is_digest_name(name)}
        long_names = [f"{folder}/{name}" for name in names if is_digest_name(name)]
        children |= {
            _linked_run(data) for data in self._store.read_many(long_names, refused={}).values()
        }
        return [
            child
            for child in children
            if child and any(s.source_run_id == parent for s in self.sources(child))
        ]

    def _run_id_of_folder(self, name: str) -> str | None:
        """Return the run of a folder whose name is a digest. Its files have the run id."""
        if name not in self._known_ids:
            for file, _, _ in self._store.entries(f"{RUNS}/{name}"):
                path = f"{RUNS}/{name}/{file}"
                found = run_id_of(
                    self._store.read_many([path], LARGEST_LOG, {}).get(path, b""),
                    self._store.where(path),
                )
                if found is not None and encode_name(found) == name:
                    self._known_ids[name] = found
                    break
        return self._known_ids.get(name)

    def __reduce__(self) -> tuple[object, ...]:
        positional, options = self._arguments
        return partial(FsspecTracker, storage_options=options), positional

    def __repr__(self) -> str:
        return f"<FsspecTracker: root_path={self._store.base}>"


def _open(fs: Any, root_dir: str, storage_options: Mapping[str, object] | None) -> Store:
    if fs is None:
        return open_store(root_dir, storage_options)
    from transload.runtime.tracking.fsspec_store import store_of

    return store_of(fs, root_dir)


def _children_folder(source_id: str) -> str:
    return f"{_CHILDREN}/{encode_name(source_id)}"


def _linked_run(data: bytes) -> str | None:
    try:
        run_id = json.loads(data)["run_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return run_id if isinstance(run_id, str) else None


_trackers: weakref.WeakSet[FsspecTracker] = weakref.WeakSet()


os.register_at_fork(after_in_child=lambda: list(map(FsspecTracker._begin, list(_trackers))))


def create(config: str | None) -> FsspecTracker:
    """Create the tracker ``fsspec`` from its configuration text.

    Args:
        config: one of

            - a folder: a path, or a URL such as ``s3://bucket/runs``
            - a JSON object with ``root_path``, perhaps ``protocol``, and options for that storage
            - path of a file with lines ``name = value``, the same names. A dot in a name makes a
              nested option

    Raises:
        ConfigError: if nothing is configured, or ``root_path`` is missing.
        TrackingError: if the protocol is unknown.
    """
    settings = _settings(config)
    root = settings.pop("root_path", None)
    if not isinstance(root, str) or not root:
        raise ConfigError(f"root_path={root!r}: must be the folder for runs, a path or a URL")
    protocol = settings.pop("protocol", None)
    if protocol is None or protocol in ("file", "local"):
        path = local_path(root)
        if path is not None and not os.path.isabs(os.path.expanduser(path)):
            raise ConfigError(
                f"root_path={root!r}: relative; the job runs in another folder, so give an "
                "absolute path"
            )
        if path is None:
            return FsspecTracker(None, root, storage_options=settings)
        unknown = sorted(settings.keys() - {"auto_mkdir"})  # folders are always created
        if unknown:
            raise ConfigError(
                f"unknown setting {', '.join(unknown)}; a local folder has root_path and protocol"
            )
        return FsspecTracker(None, root)
    import fsspec

    try:
        fs = fsspec.filesystem(protocol, **settings)
    except (ValueError, ImportError, TypeError) as exc:
        raise ConfigError(f"protocol={protocol!r}: {exc}") from exc
    return FsspecTracker(fs, root)


def _settings(config: str | None) -> dict[str, Any]:
    if not config or not config.strip():
        raise ConfigError(
            "nothing is configured; name a folder (a path or a URL), a JSON object, or a file of "
            "settings"
        )
    if config.lstrip().startswith("{"):
        try:
            settings: dict[str, Any] = json.loads(config)
        except ValueError as exc:
            raise ConfigError(f"the configuration is not a JSON object: {exc}") from exc
        return settings
    path = local_path(config)
    if path is not None and os.path.isfile(path):
        return _read_file(path)
    return {"root_path": config}


def _read_file(path: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, equals, value = (part.strip() for part in line.partition("="))
            *outer, last = name.split(".")
            if not equals or not last or "" in outer:
                raise ConfigError(
                    f"{path}:{number}: {line.strip()!r}: must be of the form name = value"
                )
            target = settings
            for part in outer:
                target = target.setdefault(part, {})
                if not isinstance(target, dict):
                    raise ConfigError(f"{path}:{number}: {name!r}: {part!r} has a value already")
            target[last] = value
    return settings
