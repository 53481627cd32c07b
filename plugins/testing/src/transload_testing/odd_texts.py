"""Keys and run ids that have broken trackers, and values that must be kept exactly."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["BAD_TEXTS", "METADATA_VALUES", "ODD_TEXTS", "RESULT_VALUES", "same"]

ODD_TEXTS: Final = {
    "plain": "trial-1",
    "handle": "local://session/app-x1y2",
    "slashes": "a/b//c/",
    "dot": ".",
    "dotdot": "..",
    "leaving": "../../outside",
    "absolute": "/etc/passwd",
    "hidden": ".hidden.tmp",
    "percent": "100%25%2F",
    "digest-like": "a" * 120 + "=" + "0" * 32,
    "glob": "*?[a-z]{x,y}",
    "spaces": "  two  words ",
    "newline": "line\nbreak\r\ttab",
    "control": "bell\x07 nul\x00 del\x7f",
    "quotes": 'it\'s "quoted" \\ `tick` $HOME ; --',
    "like": "50%_of",
    "unicode": "überraschung-雪-☃-🚀",
    "combining": "e\u0301 is not \u00e9",
    "rtl": "\u202eabc",
    "upper": "TRIAL-1",
    "json": '{"schema": 1}',
    "suffix": "x.json",
    "1 kB": "k" * 1024,
    "1 kB unicode": "雪" * 341 + "x",
}
"""Texts that must all work and come back unchanged. No two are the same."""

BAD_TEXTS: Final = {
    "empty": "",
    "surrogate": "bad\ud800",
    "bytes": b"bytes",
    "None": None,
    "float": 1.5,
    "bool": True,
}
"""Texts that must all be refused."""

RESULT_VALUES: Final[dict[str, int | float | str]] = {
    "int": 7,
    "zero": 0,
    "negative": -3,
    "2**70": 2**70,
    "-2**70": -(2**70),
    "float": 0.1 + 0.2,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "minus zero": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "empty": "",
    "text": 'snow ☃ \x00\n"quoted"',
    "1 kB": "x" * 1024,
    "1 kB unicode": "雪" * 341 + "x",
    "looks like NaN": "NaN",
    "l2norm/mean": 1.5,
    "self": 1,
    "key": 2,
    "results": 3,
    "schema": 9,
    "": 4,
}
"""Results, by name, which must be kept exactly, in type too."""

METADATA_VALUES: Final[dict[str, object]] = {
    **RESULT_VALUES,
    "true": True,
    "false": False,
    "none": None,
    "list": [1, "two", [3.0, None, {"deep": True}]],
    "dict": {"a": 1, "": {"b": []}, "self": "x"},
    "empty list": [],
    "empty dict": {},
    "run_id": "not the run's",
    "name": "n",
    "path": "p",
    "metadata": {"metadata": 1},
    "3 kB": "y" * 3000,
}
"""Metadata, by name, which must be kept exactly, in type too."""


def same(left: object, right: object) -> bool:
    """Tell whether two values are equal in type and value.

    NaN equals NaN, and 0.0 is not -0.0.
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and repr(left) == repr(right)
