"""The results that a program reports step by step, in ``<key>.steps.jsonl``.

Each line is ``{"schema": 1, "step": 3, "results": {"loss": 0.5}}``. A line that is still being
written is passed over, and of two lines about one step the later one counts. A later attempt adds
``"attempt": 1``, and one that goes on after an interruption ``"interruptions": 1``. From the first
step of either on, the reports before it do not count.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping

from transload.runtime.tracking.format import MAX_TEXT, SCHEMA
from transload.runtime.tracking.names import OWN, decode_name, encode_name, natural
from transload.runtime.tracking.stores import LARGEST_LOG, Store, whole_lines
from transload.runtime.untrusted import MOST_FILES

MAX_POINTS = 10_000
"""The number of lines at which a file loses every second one. Later, half as much is kept."""

_ENDING = ".steps.jsonl"
_COUNTS = {"attempt": "TRANSLOAD_RETRY", "interruptions": "TRANSLOAD_INTERRUPTIONS"}
"""The counts in a line of a later attempt, and the environment variable of each."""

Curves = dict[str, dict[float, float]]


class StepLog:
    """Writes the steps of one key, after those that an earlier attempt or another process left."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._path = encode_name(key, _ENDING)
        self._every = 1  # of so many steps one is written
        self._count = 0  # of steps
        try:
            text = store.read(self._path, LARGEST_LOG)
        except FileNotFoundError:
            text = b""
        self._attempt = {}
        for name, variable in _COUNTS.items():
            count = os.environ.get(variable, "")
            if count.isdigit() and int(count):
                self._attempt[name] = int(count)
        self._written = text.count(b"\n")  # lines of the file, as far as this process knows
        self._waiting: list[bytes] = []

    def add(self, step: float, results: Mapping[str, object]) -> None:
        """Note a step, which `write` stores."""
        self._count += 1
        if (self._count - 1) % self._every == 0:
            line = json.dumps({"schema": SCHEMA, "step": step, "results": results, **self._attempt})
            self._waiting.append(line.encode() + b"\n")

    def write(self) -> None:
        """Store what was noted, behind what other processes wrote meanwhile."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        if self._written + len(self._waiting) < MAX_POINTS:
            self._store.extend(self._path, data)
            self._written += len(self._waiting)
        else:
            self._store.update(self._path, lambda before: self._thinned(before, data), LARGEST_LOG)
        self._waiting.clear()

    def _thinned(self, before: bytes, data: bytes) -> bytes:
        """Return every second line, if there are still too many."""
        lines = (whole_lines(before) + data).splitlines(keepends=True)
        if len(lines) >= MAX_POINTS:
            lines = lines[::2]
            self._every *= 2
        self._written = len(lines)
        return b"".join(lines)


def read_curves(
    store: Store, folder: str = "", *, refused: dict[str, str] | None = None
) -> dict[str, Curves]:
    """Return key → name → step → value, as far as was reported.

    What is no finite number is left out.

    Args:
        store: of the tracker base (see `transload.runtime.tracking.open_store`).
        folder: below it.
        refused: gets the reason for each file that is not read. If it is None, the first such file
            raises `RefusedFile`.
    """
    names = [
        name
        for name, is_folder in store.entries(folder)
        if name.endswith(_ENDING) and not is_folder
    ]
    paths = [_under(folder, name) for name in names[:MOST_FILES]]
    found = {}
    for name, data in store.read_many(paths, LARGEST_LOG, refused).items():
        key = decode_name(name.rpartition("/")[2], _ENDING)
        if key is not None:
            found[key] = _curves(data)
    return dict(sorted(found.items(), key=lambda item: natural(item[0])))


def read_steps(
    store: Store,
    folder: str,
    name: str,
    key: str | int | None = None,
    *,
    refused: dict[str, str] | None = None,
) -> dict[float, float]:
    """Return step → value of one result, from a folder of a store or the jobs' folders below.

    ``key`` is the key under which it is reported. With None, the first key counts, in their order,
    that has it. ``refused`` is as for `read_curves`.
    """
    own = [_under(folder, f"{OWN}/{app}") for app in store.folders(_under(folder, OWN))]
    for place in [folder, *sorted(own)]:
        for each, curves in read_curves(store, place, refused=refused).items():
            if (key is None or str(key) == each) and curves.get(name):
                return curves[name]
    return {}


def _under(folder: str, name: str) -> str:
    if not folder:
        return name
    return f"{folder}/{name}"


def _curves(data: bytes) -> Curves:
    found: Curves = {}
    latest = (0, 0)
    for line in data[: data.rfind(b"\n") + 1].split(b"\n"):
        try:
            record = json.loads(line)
            step = float(record["step"])
            results = dict(record["results"])
            attempt = (int(record.get("attempt", 0)), int(record.get("interruptions", 0)))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # of somebody else's, or of a newer form
        if not math.isfinite(step):
            continue
        if attempt > latest:
            latest = attempt
            found = _before(found, step)
        for name, value in results.items():
            number = finite_number(value)
            if number is not None and len(name) <= MAX_TEXT:
                found.setdefault(name, {})[step] = number
    return found


def finite_number(value: object) -> float | None:
    """Return a number as a float, or None if it is none or too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not math.isfinite(number):
        return None
    return number


def _before(curves: Curves, step: float) -> Curves:
    """Return the points of curves before a step, without curves that have none."""
    found: Curves = {}
    for name, points in curves.items():
        kept = {number: value for number, value in points.items() if number < step}
        if kept:
            found[name] = kept
    return found
