"""The tracker ``FsspecTracker``, which keeps runs in files on any storage of fsspec.

A local folder does not need fsspec. ``dev/tracker-format.md`` describes the files.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from transload.errors import ConfigError
from transload.runtime.tracking import Store, TrackingError, open_store
from transload.runtime.tracking.names import decode_name, encode_name, is_digest_name, local_path
from transload.tracker.api import TrackerBase
from transload.tracker.checks import check_run_id, check_text, check_values
from transload.tracker.lineage import Lineage, TrackerArtifact, TrackerSource, trace_lineage

if TYPE_CHECKING:
    import fsspec

__all__ = ["FsspecTracker", "create"]

_SCHEMA = 1
_RUNS = "runs"
_CHILDREN = "children"
_SUFFIX = ".json"


class FsspecTracker(TrackerBase):
    """Keeps runs in files below a root folder, which the first write creates.

    Each value of a run, each artifact and each source has a file of its own, which a write replaces
    in one step. So the last writer wins, and a killed one leaves the old value or the new one.

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

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact of a run, like ``TrackerBase.add_artifact``."""
        check_run_id(run_id)
        check_text(name, "name")
        checked = None
        if metadata is not None:
            checked = check_values(metadata, f"metadata of artifact {name!r}")
        body = {"name": name, "path": check_text(os.fspath(path), "path"), "metadata": checked}
        self._write(_file_of(run_id, "artifact", name), run_id, body)

    def artifacts(self, run_id: str) -> dict[str, TrackerArtifact]:
        """Return the artifacts of a run by name, which are none for an unknown run."""
        return {
            body["name"]: TrackerArtifact(body["name"], body["path"], body.get("metadata"))
            for body in self._bodies(run_id, "artifact", "name", "path")
        }

    def add_metadata(self, run_id: str, /, **kwargs: object) -> None:
        """Record metadata of a run, one write for each name. Names not given keep their values.

        Raises:
            TrackingError: if a value cannot be stored. The message names it, and none is stored.
        """
        check_run_id(run_id)
        values = {check_text(name, "name"): value for name, value in check_values(kwargs).items()}
        for name, value in values.items():
            self._write(_file_of(run_id, "metadata", name), run_id, {"name": name, "value": value})

    def metadata(self, run_id: str) -> dict[str, object]:
        """Return the metadata of a run by name, which are none for an unknown run."""
        return {
            body["name"]: body.get("value") for body in self._bodies(run_id, "metadata", "name")
        }

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run came from another one, like ``TrackerBase.add_source``."""
        check_run_id(run_id)
        check_run_id(source_id, "source_id")
        name = check_text(artifact_name, "artifact_name") if artifact_name else None
        # the link from the source to the run only says where to look. It is written first, so a
        # writer that is killed in between has added the source in neither direction
        self._write(f"{_children_folder(source_id)}/{encode_name(run_id, _SUFFIX)}", run_id, {})
        body = {"source_id": source_id, "artifact_name": name}
        self._write(_file_of(run_id, "source", json.dumps([source_id, name])), run_id, body)

    def sources(self, run_id: str, artifact_name: str | None = None) -> list[TrackerSource]:
        """Return the direct sources of a run, with ``artifact_name`` only those of that name."""
        found = [
            TrackerSource(body["source_id"], body.get("artifact_name"))
            for body in self._bodies(run_id, "source", "source_id")
        ]
        return [each for each in found if not artifact_name or each.artifact_name == artifact_name]

    def lineage(self, run_id: str) -> Lineage:
        """Return all runs from which a run came or that came from it, with their artifacts."""
        return trace_lineage(self, check_run_id(run_id))

    def run_ids(self, parent_run_id: str | None = None, **kwargs: str) -> list[str]:
        """Return the sorted ids of all runs. This takes one listing.

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
        found = [self._run_id_of_folder(name) for name in self._store.folders(_RUNS)]
        return sorted(run_id for run_id in found if run_id is not None)

    def _write(self, path: str, run_id: str, body: Mapping[str, object]) -> None:
        data = json.dumps({"schema": _SCHEMA, "run_id": run_id, **body})
        self._store.write(path, data.encode())

    def _bodies(self, run_id: str, kind: str, *texts: str) -> list[dict[str, Any]]:
        """Return the files of one kind of a run that have those texts, in the order of their names."""
        folder = _run_folder(check_run_id(run_id))
        bodies = self._read(folder, f"{kind}.")
        return [
            body
            for body in bodies
            if body["run_id"] == run_id and all(isinstance(body.get(text), str) for text in texts)
        ]

    def _read(self, folder: str, prefix: str = "") -> list[dict[str, Any]]:
        """Return what our files in a folder hold whose names begin so, in the order of their names."""
        paths = [
            f"{folder}/{name}"
            for name, is_folder in sorted(self._store.entries(folder))
            if not is_folder and name.startswith(prefix) and name.endswith(_SUFFIX)
        ]
        refused: dict[str, str] = {}
        files = self._store.read_many(paths, refused=refused)
        for path, reason in refused.items():
            logging.getLogger("transload.tracker").warning(
                "not read: %s: %s", self._store.where(path), reason
            )
        bodies = [_body(data, self._store.where(path)) for path, data in files.items()]
        return [body for body in bodies if body is not None]

    def _children(self, parent: str) -> list[str]:
        linked = {body["run_id"] for body in self._read(_children_folder(parent))}
        return [
            run_id
            for run_id in linked
            if any(each.source_run_id == parent for each in self.sources(run_id))
        ]

    def _run_id_of_folder(self, name: str) -> str | None:
        """Return the run of a folder. Where its name is a digest, its files have the run id."""
        if not is_digest_name(name):
            return decode_name(name)
        run_ids = [body["run_id"] for body in self._read(f"{_RUNS}/{name}")]
        return next((run_id for run_id in run_ids if encode_name(run_id) == name), None)

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


def _run_folder(run_id: str) -> str:
    return f"{_RUNS}/{encode_name(run_id)}"


def _children_folder(source_id: str) -> str:
    return f"{_CHILDREN}/{encode_name(source_id)}"


def _file_of(run_id: str, kind: str, text: str) -> str:
    return f"{_run_folder(run_id)}/{encode_name(f'{kind}.{text}', _SUFFIX)}"


def _body(data: bytes, where: str) -> dict[str, Any] | None:
    """Return what a file holds, or None if it is not one of ours.

    Raises:
        TrackingError: if it has a newer schema.
    """
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict or type(body.get("run_id")) is not str:
        return None
    schema = body.get("schema")
    if type(schema) is not int:
        return None
    if schema > _SCHEMA:
        raise TrackingError(
            f"{where}: schema {schema}; this version reads up to {_SCHEMA}: use a newer transload"
        )
    return body


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
