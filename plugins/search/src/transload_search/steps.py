"""Reading what trials report step by step, while they run: ``<key>.steps.jsonl`` in the tracker base.

Each line is ``{"schema": 1, "step": 3, "results": {"loss": 0.5}}``; a line that is still being written is passed over,
and of two lines about one step the later one holds.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from transload.runtime.tracking import Store

SCHEMA: Final = 1
ENDING: Final = ".steps.jsonl"
_OWN: Final = ".apps"
"""Folder below a given base with a folder for each app."""


def read_steps(store: Store, folder: str, name: str, key: str | int | None = None) -> dict[float, float]:
    """Return step → value of a result, as far as it was reported; values that are no finite number are left out.

    Args:
        store: of the tracker base; see `transload.runtime.tracking.open_store`.
        folder: below it.
        name: of the result.
        key: that it is reported under; None: the first key, in their order, that has it.
    """
    own = [f"{folder}/{_OWN}/{app}" if folder else f"{_OWN}/{app}" for app in store.folders(_under(folder, _OWN))]
    for place in [folder, *sorted(own)]:
        for file in sorted(each for each, is_folder, _ in store.entries(place) if not is_folder):
            if file.endswith(ENDING) and (key is None or file == quote(str(key), safe="") + ENDING):
                found = _curve(store, _under(place, file), name)
                if found:
                    return found
    return {}


def _under(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _curve(store: Store, path: str, name: str) -> dict[float, float]:
    found: dict[float, float] = {}
    try:
        text = store.read(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return found
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        try:
            record = json.loads(line)
            step, value = float(record["step"]), record["results"].get(name)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # of somebody else's, or of a newer form
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[step] = float(value)
    return found
