"""Records as MLflow tags and metrics, and back: pure, no MLflow.

A tag holds only text, up to a length, under a name of few characters. So each record is a tag named by a digest, with
JSON as its value; tags with readable names and metrics are written beside it for people, and never read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from transload.tracker import TrackingError

__all__ = ["PARENT", "RUN_ID", "RUN_KEY", "digest", "metric_points", "read", "record_tag", "shown_metric", "shown_tag"]

PREFIX: Final = "transload."
RUN_ID: Final = "transload.run_id"
RUN_KEY: Final = "transload.run_key"
PARENT: Final = "transload.parent."

MAX_VALUE: Final = 8000
"""Most characters of a tag's value (``MAX_TAG_VAL_LENGTH`` of MLflow 3)."""

_MAX_SHOWN: Final = 500
_LONGEST_STEP: Final = 19  # digits of a 64-bit number, which a step is
_SHOWN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\- ]{0,99}")


def digest(*texts: str) -> str:
    """Return a short name for texts of any kind and length."""
    return sha256(json.dumps(texts).encode()).hexdigest()[:32]


def record_tag(kind: str, name: str, record: Mapping[str, object]) -> tuple[str, str]:
    """Return the tag that keeps a record.

    Args:
        kind: ``metadata``, ``artifact`` or ``source``.
        name: what the record replaces an older one of.
        record: its JSON content.

    Raises:
        TrackingError: it is longer than a tag may be.
    """
    value = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # lone surrogates can be kept as escapes only
            value = json.dumps(record, separators=(",", ":"))
    if len(value) > MAX_VALUE:
        raise TrackingError(f"{kind} {name!r}: {len(value)} characters as JSON; a tag of MLflow holds {MAX_VALUE}")
    return f"{PREFIX}{kind}.{digest(name)}", value


def read(tags: Mapping[str, str], kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind, oldest first; a tag that is not whole does not count."""
    records = []
    for key, value in tags.items():
        if key.startswith(f"{PREFIX}{kind}."):
            try:
                record = json.loads(value)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("t"), int):
                records.append(record)
    return sorted(records, key=lambda record: int(record["t"]))


def shown_tag(name: str, value: object) -> tuple[str, str] | None:
    """Return a tag for people, or None if MLflow or MLflow's own tags do not allow the name."""
    if not _SHOWN_NAME.fullmatch(name) or name.startswith(("mlflow.", PREFIX)) or name.endswith((".", " ")):
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return name, printable if len(printable) <= _MAX_SHOWN else printable[: _MAX_SHOWN - 1] + "…"


def metric_points(results: Mapping[str, Mapping[str, object]]) -> list[tuple[str, float, int]]:
    """Return results as points of metrics: name, value, step.

    A key that is a number is the step. Any other one but ``final`` is part of the metric's name.
    """
    points = []
    for key, values in results.items():
        step = int(key) if key.isdecimal() and len(key) < _LONGEST_STEP else None
        for name, value in values.items():
            full = name if step is not None or key == "final" else f"{key}.{name}"
            number = shown_metric(full, value)
            if number is not None:
                points.append((full, number, step or 0))
    return points


def shown_metric(name: str, value: object) -> float | None:
    """Return the value of a metric for people, or None if it is not a number that a metric can have."""
    if isinstance(value, bool) or not isinstance(value, int | float) or shown_tag(name, 0) is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
