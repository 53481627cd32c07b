"""Read and write the record files of ``FsspecTracker``, one for each writer of a run.

The files are JSON lines. The first line has the schema and the run. Each further line has a time
``t`` and a record. The times order the records of all writers of a run. A writer uses its clock, or
one more than the largest time in the run, if that is later. So a write that starts after another
one has ended comes after it, even if clocks differ.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any

from transload.runtime.tracking import Store, TrackingError
from transload.runtime.tracking.names import encode_name
from transload.runtime.tracking.stores import LARGEST_LOG, LocalStore
from transload.runtime.untrusted import RefusedFile

Record = dict[str, Any]

RUNS = "runs"
SUFFIX = ".jsonl"

_SCHEMA = 1
_COMPACT_AFTER = 1000
_TAIL = 4096
_TIME = b'{"t":'


def run_folder(run_id: str) -> str:
    """Return the folder of a run, relative to the tracker's root."""
    return f"{RUNS}/{encode_name(run_id)}"


def header(run_id: str) -> bytes:
    """Return the first line of a file."""
    return encode({"t": 0, "schema": _SCHEMA, "run_id": run_id})


def encode(record: Record) -> bytes:
    """Return a record as a line that starts with its time."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _parse(data: bytes) -> list[Record]:
    """Return the complete lines of a file. A killed writer may leave an incomplete last line."""
    lines = data[: max(0, data.rfind(b"\n"))].split(b"\n")
    try:
        records = json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        records = [_line(line) for line in lines]
    return [record for record in records if type(record) is dict and type(record.get("t")) is int]


def _line(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _read(data: bytes, where: str) -> tuple[str | None, list[Record]]:
    records = _parse(data)
    if not records:
        return None, []
    schema = records[0].get("schema")
    run_id = records[0].get("run_id")
    if type(schema) is not int or type(run_id) is not str:
        return None, []
    if schema > _SCHEMA:
        raise TrackingError(
            f"{where}: schema {schema}; this version reads up to {_SCHEMA}: use a newer transload"
        )
    return run_id, records[1:]


def run_id_of(data: bytes, where: str) -> str | None:
    """Return the run of a file, or None if it is not a record file."""
    return _read(data[: data.find(b"\n") + 1], where)[0]


def merge(run_id: str, files: Iterable[tuple[str, bytes]]) -> list[Record]:
    """Return the records of all files of a run, in order.

    Args:
        run_id: the run. Files of other runs are ignored.
        files: path, for messages, and content of each file.

    Raises:
        TrackingError: if a file has a newer schema.
    """
    logs = []
    for where, data in sorted(files):
        owner, records = _read(data, where)
        if owner == run_id and records:
            logs.append(records)
    if len(logs) == 1:
        return logs[0]
    # the sort is stable, so for equal times every reader sees the same writer last
    return sorted((record for log in logs for record in log), key=lambda record: record["t"])


def latest_time(tail: bytes) -> int | None:
    """Return the time of the last complete line in the end of a file, or None if unknown."""
    start = tail.rfind(b"\n" + _TIME, 0, max(0, tail.rfind(b"\n"))) + 1
    if start == 0:
        return None
    digits = tail[start + len(_TIME) :].split(b",", 1)[0]
    if not digits.isdigit():
        return None
    return int(digits)


def compact(data: bytes) -> tuple[bytes, int]:
    """Return a file without replaced records, and the number of records that are left."""
    records = _parse(data)
    seen: set[tuple[str, object]] = set()
    kept: list[Record] = []
    for record in reversed(records[1:]):
        left = _unreplaced(record, seen)
        if left is not None:
            kept.append(left)
    return b"".join(encode(record) for record in [records[0], *reversed(kept)]), len(kept)


def _unreplaced(record: Record, seen: set[tuple[str, object]]) -> Record | None:
    """Return the part of a record that later records do not replace, and add it to ``seen``."""
    if type(values := record.get("metadata")) is dict:
        left = {name: value for name, value in values.items() if ("metadata", name) not in seen}
        seen.update(("metadata", name) for name in values)
        if not left:
            return None
        return {"t": record["t"], "metadata": left}
    for kind, fields in (("artifact", ("name",)), ("source", ("run_id", "artifact_name"))):
        if type(item := record.get(kind)) is dict:
            mark = (kind, tuple(item.get(name) for name in fields))
            if mark in seen:
                return None
            seen.add(mark)
            return record
    return record


class Writer:
    """One writer's file in a run."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._folder = run_folder(run_id)
        self._name = os.urandom(12).hex() + SUFFIX
        self._path = f"{self._folder}/{self._name}"
        self._header = header(run_id)
        self._data = b""  # the whole file, if the store cannot append
        self._lines = 0
        self._compact_at = _COMPACT_AFTER
        self._seen: dict[str, tuple[object, int]] = {}

    def latest_of_others(self) -> int:
        """Return the largest time in other writers' files. Only changed files are read again."""
        latest = 0
        for name, is_dir, stamp in self._store.entries(self._folder, stamps=True):
            if is_dir or name == self._name or not name.endswith(SUFFIX):
                continue
            known = self._seen.get(name)
            if known is None or stamp is None or known[0] != stamp:
                known = (stamp, self._time_of(f"{self._folder}/{name}"))
                self._seen[name] = known
            latest = max(latest, known[1])
        return latest

    def _time_of(self, path: str) -> int:
        try:
            found = latest_time(self._store.read_tail(path, _TAIL))
            return (
                found
                if found is not None
                else latest_time(self._store.read(path, LARGEST_LOG)) or 0
            )
        except (FileNotFoundError, RefusedFile):
            return 0

    def write(self, line: bytes) -> None:
        """Add a line, and remove replaced records once there are many."""
        if isinstance(self._store, LocalStore):
            self._append(self._store, line)
        else:
            data = (self._data or self._header) + line
            self._store.write(self._path, data)
            self._data = data
        self._lines += 1
        if self._lines >= self._compact_at:
            self._compact()

    def _append(self, store: LocalStore, line: bytes) -> None:
        if self._lines:
            try:
                store.append(self._path, line)
            except FileNotFoundError:  # the run was removed meanwhile, so the file starts again
                self._lines = 0
        if not self._lines:
            store.write_in_new_folder(self._folder, self._name, self._header + line)

    def _compact(self) -> None:
        """Rewrite the file without replaced records, if that makes it less than half as long."""
        with contextlib.suppress(OSError):  # the record is stored, even on a full disk
            data, lines = compact(self._data or self._store.read(self._path, LARGEST_LOG))
            if lines * 2 <= self._lines:
                if self._data:
                    self._data = data  # stored with the next write
                else:
                    self._store.write(self._path, data)
                self._lines = lines
        self._compact_at = max(_COMPACT_AFTER, self._lines * 2)
