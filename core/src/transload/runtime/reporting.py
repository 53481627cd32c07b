"""Report results in one line, without ever ending the program that calls it."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transload.runtime.tracking import FsspecResultTracker, Store
from transload.runtime.tracking.api import replaced_by
from transload.runtime.tracking.format import (
    Results,
    Writer,
    check_key,
    check_results,
    check_value,
    dump,
    load,
)
from transload.runtime.tracking.names import encode_name
from transload.runtime.tracking.stores import LocalStore, OneFileStore

if TYPE_CHECKING:
    from transload.runtime.tracking.steps import StepLog

_PAUSE = 10.0
"""Seconds between two writes of a key to a storage where a file is written anew for each."""


def report(*, step: float | None = None, key: str | int | None = None, **results: object) -> None:
    """Report results of this process's job. Names that are not given keep their earlier values.

    It never raises. A value that is not allowed is left out with a warning in the log, and so is
    one that cannot be written. Outside of a job nothing happens.

    Args:
        step: how far the program is. The results are then a point of their curves, too.
        key: the key of the results. The default is the replica's, which is its number, with several
            roles ``role/number``.
        results: name → int, float or str. Numbers of numpy and torch are taken, and bools as 0 or
            1.
    """
    try:
        reports = _of_this_process()
        if reports is not None:
            reports.add(_allowed(results), None if step is None else _number(step), key)
    except Exception as exc:
        _warn(f"results were not reported: {exc}")


class Reports:
    """What a process has reported, by key, and where it goes.

    Raises:
        TrackingError: if the job's tracker base cannot be opened.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._tracker = FsspecResultTracker.from_env()
        self._store = self._tracker._store
        self.nowhere = type(self._store) is Store
        self._at_once = isinstance(self._store, LocalStore | OneFileStore)
        self._has_steps = not isinstance(self._store, OneFileStore)  # which is too small for them
        self._writer = Writer.from_env()
        self._own = "0"
        self._fields: dict[str, Any] = {}
        if self._writer is not None:
            self._own = self._writer.key
            self._fields = self._writer.fields
        self._values: dict[str, Results] = {}
        self._fresh: dict[str, Results] = {}  # what was not written yet
        self._steps: dict[str, StepLog] = {}
        self._written: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def add(
        self, results: Results, step: float | None = None, key: str | int | None = None
    ) -> None:
        """Add results that `check_results` returned to those of a key.

        They are written at once, or when it is time to.

        Raises:
            TrackingError: the key is not allowed.
            OSError: they cannot be written.
        """
        name = self._own if key is None else check_key(key)
        with self._lock:
            self._values.setdefault(name, {}).update(results)
            self._fresh.setdefault(name, {}).update(results)
            if step is not None and self._has_steps:
                self._log(name).add(step, results)
            self._waiting.add(name)
            if self._at_once or time.monotonic() - self._written.get(name, -math.inf) >= _PAUSE:
                self._write(name)

    def flush(self) -> None:
        """Write what waits, and warn of what cannot be written."""
        with self._lock:
            for name in sorted(self._waiting):
                try:
                    self._write(name)
                except Exception as exc:
                    _warn(f"results of key {name!r} were not reported: {exc}")

    def _log(self, name: str) -> StepLog:
        if name not in self._steps:
            from transload.runtime.tracking.steps import StepLog

            self._steps[name] = StepLog(self._store, name)
        return self._steps[name]

    def _write(self, name: str) -> None:
        if not self._at_once:
            # noted before the write, so that one that fails is not tried again at each call
            self._written[name] = time.monotonic()
        if self._fresh.get(name) is not None:
            path = encode_name(name, ".json")
            self._store.update(
                path, lambda before: self._merged(name, before, self._store.where(path))
            )
            del self._fresh[name]
        if name in self._steps:
            self._steps[name].write()
        self._waiting.discard(name)

    def _merged(self, name: str, before: bytes, where: str) -> bytes:
        """Return a file with what this process reports and its replica reported before."""
        try:
            body = load(before, where) if before else None
        except ValueError:  # of a newer version
            body = None
        fields = self._fields
        values = self._values[name]
        if body is not None and {"run": body.run, "writer": body.writer} == fields:
            values = {**values, **body.results, **self._fresh[name]}
        if self._writer is not None and name != self._own and not self._writer.alone:
            fields = {**fields, **replaced_by(self._writer, body)}
        return dump(name, values, fields)


_made: Reports | None = None
_warned: set[str] = set()
_noted = False


def _of_this_process() -> Reports | None:
    global _made, _noted
    if _made is None or _made.pid != os.getpid():
        made = Reports()
        if made.nowhere:
            if not _noted:
                _noted = True
                _say("debug", "this process is no job of transload: what it reports goes nowhere")
            return None
        _made = made
        atexit.register(made.flush)
    return _made


def _allowed(results: Mapping[str, object]) -> Results:
    try:
        return check_results(results)
    except ValueError:
        allowed: Results = {}
    for name, value in results.items():
        try:
            allowed |= check_results({name: value})
        except ValueError as exc:
            _warn(f"left out: {exc}")
    return allowed


def _number(step: object) -> float | None:
    try:
        number = check_value("step", step)
    except ValueError as exc:  # a TrackingError
        number = str(exc)
    if isinstance(number, str) or not math.isfinite(number):
        _warn(f"step={step!r} is no finite number: the results are reported without it")
        return None
    return number


def _warn(message: str) -> None:
    if message not in _warned and len(_warned) < 1000:
        _warned.add(message)
        _say("warning", message)


def _say(level: str, message: str) -> None:
    import logging  # costs as much as all the rest

    getattr(logging.getLogger("transload.runtime"), level)("%s", message)
