"""Convert records to MLflow tags and metrics, and back. Pure, and without MLflow.

A tag has a short name and a text of limited length. So each record is a tag with JSON as its value,
and a digest as its name. Readable tags and metrics are only written for people and never read.
"""

from __future__ import annotations

import json
import math
import posixpath
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from transload.specs import parse_app_handle
from transload.tracker import TrackingError

__all__ = [
    "ENDED",
    "JOB",
    "PARENT",
    "RUN_ID",
    "RUN_KEY",
    "SHARED",
    "LastEnd",
    "Sharing",
    "digest",
    "printable",
    "read",
    "record_tag",
    "shown_metric",
    "shown_results",
    "shown_tag",
]

PREFIX: Final = "transload."
RUN_ID: Final = "transload.run_id"
RUN_KEY: Final = "transload.run_key"
PARENT: Final = "transload.parent."
SHARED: Final = "transload.shared"
JOB: Final = "transload.job."
ENDED: Final = "transload.ended"

MAX_VALUE: Final = 8000
"""Largest number of characters in a tag's value (``MAX_TAG_VAL_LENGTH`` of MLflow 3)."""

_MAX_SHOWN: Final = 500
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_LAST_STEP: Final = 2**53  # a step has 64 bits, but numbers in a browser's JSON have fewer
_RESERVED: Final = ("mlflow.", PREFIX)
_SHOWN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\- ]{0,99}")
_RESULT_NAME: Final = re.compile(r"(?=[\w\-:])[\w.\- :/]{1,250}(?<![/. ])")


def digest(*texts: str) -> str:
    """Return a short name for a list of texts."""
    return sha256(json.dumps(texts).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Sharing:
    """A job among those that are one MLflow run, because they share their checkpoints.

    Args:
        key: what is equal for all of them.
        created: when the job was submitted, in seconds since the epoch, or 0 if that is unknown.
    """

    key: str
    created: float = 0.0

    @classmethod
    def of(cls, handle: str, name: str, created: float | None = None) -> Sharing:
        """Return the sharing of a job.

        Args:
            handle: its handle.
            name: the name under which its checkpoints are kept.
            created: when it was submitted, in seconds since the epoch.
        """
        place = parse_app_handle(handle)
        return cls(digest(place.scheduler_backend, place.session_name, name), created or 0.0)


@dataclass(frozen=True)
class LastEnd:
    """The job whose end is the last one that was written into a shared run.

    Args:
        job: the digest of its handle.
        created: when it was submitted, in seconds since the epoch.
    """

    job: str
    created: float

    @classmethod
    def read(cls, tags: Mapping[str, str]) -> LastEnd | None:
        """Return what the tags of a run say, or None if no end was written."""
        job, _, created = tags.get(ENDED, "").partition(" ")
        try:
            return cls(job, float(created))
        except ValueError:
            return None

    def text(self) -> str:
        """Return the value of the tag."""
        return f"{self.job} {self.created!r}"

    def is_before(self, run_id: str, sharing: Sharing) -> bool:
        """Tell whether the end of this job is to be written over that last one."""
        return self.job != digest(run_id) and self.created <= sharing.created


def record_tag(kind: str, name: str, record: Mapping[str, object]) -> tuple[str, str]:
    """Return the tag for a record.

    Args:
        kind: ``metadata``, ``artifact`` or ``source``.
        name: the name of the record. It replaces an older record with this name.
        record: its JSON content.

    Raises:
        TrackingError: if it is too long for a tag.
    """
    value = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # lone surrogates can only be kept as escapes
            value = json.dumps(record, separators=(",", ":"))
    if len(value) > MAX_VALUE:
        raise TrackingError(
            f"{kind} {name!r}: {len(value)} characters as JSON, but an MLflow tag may have at most {MAX_VALUE}"
        )
    return f"{PREFIX}{kind}.{digest(name)}", value


def read(tags: Mapping[str, str], kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind, oldest first, without incomplete tags."""
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
    """Return a tag for people, or None if MLflow does not allow the name or uses it itself."""
    if not _SHOWN_NAME.fullmatch(name) or name.startswith(_RESERVED) or name.endswith((".", " ")):
        return None
    return name, _text(value)


def _text(value: object) -> str:
    """Return a value as a printable text that is not too long for MLflow."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
    text = printable(text)
    if len(text) > _MAX_SHOWN:
        text = text[: _MAX_SHOWN - 1] + "…"
    return text


def printable(text: str) -> str:
    """Replace the characters of a text that cannot be printed."""
    return "".join(char if char.isprintable() else _REPLACEMENT for char in text)


@dataclass
class Shown:
    """The tags and metrics with which MLflow shows results.

    Args:
        points: the points of metrics, ``(name, value, step)``. The last point of a metric is last.
        tags: name → text.
        refused: names that MLflow does not allow.
        last: metric → its last point.
    """

    points: list[tuple[str, float, int]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    last: dict[str, tuple[str, float, int]] = field(default_factory=dict)

    def add_point(self, name: str, value: float, step: float) -> None:
        """Add a point of a metric."""
        whole_step = max(-_LAST_STEP, min(math.floor(step), _LAST_STEP))
        self.last[name] = (name, value, whole_step)
        self.points.append(self.last[name])

    def add_final(self, name: str, value: float) -> None:
        """Add a value that was reported without a step, unless the last point has it."""
        if name not in self.last:
            self.add_point(name, value, 0)
            return
        _, last_value, last_step = self.last[name]
        if value != last_value:
            self.add_point(name, value, last_step)


def shown_results(
    results: Mapping[str, Mapping[str, object]],
    steps: Mapping[str, Mapping[str, Mapping[float, float]]],
    first: str = "0",
) -> Shown:
    """Return the tags and metrics for the results of a job.

    A number becomes the last point of a metric. Any other value becomes a tag.

    Args:
        results: key → name → value.
        steps: key → name → step → value, for the points before the last one.
        first: results under this key, or under ``final``, keep their name. Other names start with
            the key.
    """
    shown = Shown()
    keys = dict.fromkeys([*results, *steps])
    # a final value is the last point, even if an earlier step has a higher number
    for key in sorted(keys, key=lambda key: key == "final"):
        values = results.get(key, {})
        curves = steps.get(key, {})
        for name in dict.fromkeys([*curves, *values]):
            full = name if key in ("final", first) else f"{key}.{name}"
            if not _is_result_name(full):
                shown.refused.append(full)
                continue
            for step, value in sorted(curves.get(name, {}).items()):
                shown.add_point(full, value, step)
            if name not in values:
                continue
            number = _number(values[name])
            if number is None:
                shown.tags[full] = _text(values[name])
            else:
                shown.add_final(full, number)
    return shown


def _is_result_name(name: str) -> bool:
    """Tell whether results may use a name, which neither MLflow nor transload uses itself."""
    if not _RESULT_NAME.fullmatch(name) or name.startswith(_RESERVED):
        return False
    return posixpath.normpath(name) == name


def shown_metric(name: str, value: object) -> float | None:
    """Return a metric's value for people, or None if no metric can have that name or value."""
    if shown_tag(name, 0) is None:
        return None
    return _number(value)


def _number(value: object) -> float | None:
    """Return a value as a finite number, or None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not abs(value) <= sys.float_info.max:
        return None
    return float(value)
