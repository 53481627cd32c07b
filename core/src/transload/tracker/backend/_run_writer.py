"""Writing the records of a run: one file for each writer, which nobody else touches."""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict

from transload.runtime.tracking._names import encode_name
from transload.runtime.tracking._stores import LocalStore, Store
from transload.tracker.backend._records_log import Record, compact, encode, header, latest_time

__all__ = ["LOG_SUFFIX", "RUNS", "RunWriters", "run_folder"]

RUNS = "runs"
LOG_SUFFIX = ".jsonl"

_COMPACT_AFTER = 1000
_MAX_WRITERS = 512
_TAIL = 4096


def run_folder(run_id: str) -> str:
    """Return the folder of a run, relative to the tracker's root."""
    return f"{RUNS}/{encode_name(run_id)}"


class RunWriters:
    """The writers of one tracker object, by run. Not thread-safe; the tracker has the lock."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: OrderedDict[str, _RunWriter] = OrderedDict()
        self._time = 0

    def write(self, run_id: str, record: Record) -> None:
        """Add a record to a run, after everything that can be seen there now."""
        writer = self._writers.get(run_id)
        if writer is None:
            writer = _RunWriter(self._store, run_id)
            # a writer that was dropped is no loss: the run gets one more file
            while len(self._writers) >= _MAX_WRITERS:
                self._writers.popitem(last=False)
            self._writers[run_id] = writer
        self._writers.move_to_end(run_id)
        self._time = max(time.time_ns(), self._time + 1, writer.latest_of_others() + 1)
        try:
            writer.write(encode({"t": self._time, **record}))
        except BaseException:
            # perhaps a part was written: nothing may be added behind that
            del self._writers[run_id]
            raise


class _RunWriter:
    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._folder = run_folder(run_id)
        self._name = os.urandom(12).hex() + LOG_SUFFIX
        self._path = f"{self._folder}/{self._name}"
        self._header = header(run_id)
        self._data = b""  # all of the file, where the store cannot append
        self._lines = 0
        self._compact_at = _COMPACT_AFTER
        self._seen: dict[str, tuple[object, int]] = {}

    def latest_of_others(self) -> int:
        """Return the largest time in the files of other writers; a file is read again only if it changed."""
        latest = 0
        for name, is_dir, stamp in self._store.entries(self._folder, stamps=True):
            if is_dir or name == self._name or not name.endswith(LOG_SUFFIX):
                continue
            known = self._seen.get(name)
            if known is None or stamp is None or known[0] != stamp:
                known = self._seen[name] = (stamp, self._time_of(f"{self._folder}/{name}"))
            latest = max(latest, known[1])
        return latest

    def _time_of(self, path: str) -> int:
        try:
            found = latest_time(self._store.read_tail(path, _TAIL))
            return found if found is not None else latest_time(self._store.read(path)) or 0
        except FileNotFoundError:
            return 0

    def write(self, line: bytes) -> None:
        """Add a line, and drop replaced records once there are many."""
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
            except FileNotFoundError:  # the run was removed meanwhile: it begins anew
                self._lines = 0
        if not self._lines:
            store.write_in_new_folder(self._folder, self._name, self._header + line)

    def _compact(self) -> None:
        """Rewrite the own file without what was replaced, if that makes it less than half as long."""
        with contextlib.suppress(OSError):  # what was written is written, be the disk full or not
            data, lines = compact(self._data or self._store.read(self._path))
            if lines * 2 <= self._lines:
                if self._data:
                    self._data = data  # stored with the next write
                else:
                    self._store.write(self._path, data)
                self._lines = lines
        self._compact_at = max(_COMPACT_AFTER, self._lines * 2)
