"""What a program reports step by step, while it runs: ``<key>.steps.jsonl`` beside the results of the key.

Each line is ``{"schema": 1, "step": 3, "results": {"loss": 0.5}}``; a line that is still being written is passed over,
and of two lines about one step the later one holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from transload.runtime.tracking._format import SCHEMA
from transload.runtime.tracking._names import OWN, decode_name, encode_name, natural
from transload.runtime.tracking._stores import LocalStore, Store

MAX_POINTS = 10_000
"""A file of so many lines loses every second one; of what comes then, half as much is kept."""

_ENDING = ".steps.jsonl"

Curves = dict[str, dict[float, float]]


class StepLog:
    """Writes the steps of one key, after those that an earlier attempt or process left."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._path, self._every, self._count = store, encode_name(key, _ENDING), 1, 0
        try:
            text = store.read(self._path)
        except FileNotFoundError:
            text = b""
        self._lines = [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]
        self._written = len(self._lines) if text.endswith(b"\n") else 0

    def add(self, step: float, results: Mapping[str, object]) -> None:
        """Note a step; `write` stores it."""
        self._count += 1
        if (self._count - 1) % self._every == 0:
            line = json.dumps({"schema": SCHEMA, "step": step, "results": results})
            self._lines.append(line.encode() + b"\n")

    def write(self) -> None:
        """Store what was noted: at the end of a local file, elsewhere in a file anew."""
        if len(self._lines) >= MAX_POINTS:
            self._lines, self._written = self._lines[::2], 0
            self._every *= 2
        if self._written and isinstance(self._store, LocalStore):
            try:
                self._store.append(self._path, b"".join(self._lines[self._written :]))
            except FileNotFoundError:
                self._store.write(self._path, b"".join(self._lines))
        elif len(self._lines) > self._written:
            self._store.write(self._path, b"".join(self._lines))
        self._written = len(self._lines)


def read_curves(store: Store, folder: str = "") -> dict[str, Curves]:
    """Return key → name → step → value, as far as was reported; what is no finite number is left out.

    Args:
        store: of the tracker base; see `transload.runtime.tracking.open_store`.
        folder: below it.
    """
    names = [name for name, is_folder, _ in store.entries(folder) if name.endswith(_ENDING) and not is_folder]
    found = {}
    for name, data in store.read_many(_under(folder, name) for name in names).items():
        key = decode_name(name.rpartition("/")[2], _ENDING)
        if key is not None:
            found[key] = _curves(data)
    return dict(sorted(found.items(), key=lambda item: natural(item[0])))


def read_steps(store: Store, folder: str, name: str, key: str | int | None = None) -> dict[float, float]:
    """Return step → value of one result, from a folder of a store or from the folders of apps below it.

    ``key`` says under which key it is reported; None: the first one, in their order, that has it.
    """
    own = [_under(folder, f"{OWN}/{app}") for app in store.folders(_under(folder, OWN))]
    for place in [folder, *sorted(own)]:
        for each, curves in read_curves(store, place).items():
            if (key is None or str(key) == each) and curves.get(name):
                return curves[name]
    return {}


def _under(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _curves(data: bytes) -> Curves:
    found: Curves = {}
    for line in data.decode("utf-8", "replace").splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        try:
            record = json.loads(line)
            step, results = float(record["step"]), dict(record["results"])
        except (ValueError, KeyError, TypeError):
            continue  # of somebody else's, or of a newer form
        for name, value in results.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                found.setdefault(name, {})[step] = float(value)
    return found
