"""The results that a program reports step by step, in ``<key>.steps.jsonl``.

Each line is ``{"schema": 1, "step": 3, "results": {"loss": 0.5}}``. A line that is still being
written is passed over, and of two lines about one step the later one counts. A later attempt adds
``"attempt": 1``, and one that goes on after an interruption ``"interruptions": 1``. From the first
step of either on, the reports before it do not count.
"""

from __future__ import annotations

import json
import math

from transload.runtime import MAX_TEXT
from transload.runtime.tracking.names import OWN, decode_name, natural
from transload.runtime.tracking.stores import LARGEST_LOG, Store
from transload.runtime.untrusted import MOST_FILES

_ENDING = ".steps.jsonl"

Curves = dict[str, dict[float, float]]


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
