"""What the lint session counts in the sources."""

from __future__ import annotations

import runpy
from pathlib import Path

STYLE = Path(__file__).parents[2] / "style.py"


def test_each_habit_is_found_by_line() -> None:
    """Nested conditionals, packed assignments and `**x: Any` are found, at any depth."""
    source = (
        "a = 1 if x else (2 if y else 3)\n"
        "b = [f(0 if x else 1)] if y else []\n"
        "def f(**more: Any):\n"
        "    c, d = 1, 2\n"
        "    self.e, self.f = g, h\n"
    )
    found = sorted(runpy.run_path(str(STYLE))["find"](source), key=lambda each: each[1])
    assert found == [
        ("nested_conditionals", 1),
        ("nested_conditionals", 2),
        ("any_keywords", 3),
        ("packed_assignments", 4),
        ("packed_assignments", 5),
    ]


def test_what_is_read_once_is_not_counted() -> None:
    """One conditional, a swap, an unpacked call and typed keywords are left alone."""
    source = (
        "a = 1 if x else 2\n"
        "a, b = b, a\n"
        "c, d = f()\n"
        "def f(x: Any, **names: str):\n"
        "    return (1 if x else 2) + (3 if x else 4)\n"
    )
    assert list(runpy.run_path(str(STYLE))["find"](source)) == []
