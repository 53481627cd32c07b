"""Values and names that reach an orchestrator are JSON that it takes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.pipelines import json_safe, name_safe

pytestmark = pytest.mark.unit

TEXTS = st.text(st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner) | st.tuples(inner),
)


@given(VALUES)
def test_any_value_is_json_in_utf_8(value: Any) -> None:
    """Whatever a job wrote can be sent, and comes back as it was sent."""
    safe = json_safe(value)
    sent = json.dumps(safe, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert json.loads(sent) == safe
    assert json_safe(safe) == safe
    assert b"\\u0000" not in sent


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ([1.5, True, None, "é"], [1.5, True, None, "é"]),
        ((math.nan, math.inf, -math.inf), ["NaN", "Infinity", "-Infinity"]),
        ([2**63 - 1, 2**63, -(2**63) - 1], [2**63 - 1, str(2**63), str(-(2**63) - 1)]),
        ("a\udcff\ud800\0", r"a\xff\ud800\x00"),
        ({1: {"\udcfe": Path("x")}}, {"1": {r"\xfe": "x"}}),
    ],
)
def test_values(value: Any, safe: Any) -> None:
    """What JSON, UTF-8 or 64 bits have not becomes a text. All else stays."""
    assert json_safe(value) == safe


@given(TEXTS)
def test_any_name_is_one_printable_line(text: str) -> None:
    """A name has no character that a log, an address or a database stumbles over."""
    name = name_safe(text, "#?")
    assert name.isprintable()
    assert "#" not in name
    assert "?" not in name


def test_names() -> None:
    """What is readable stays, and all else can be recognised."""
    assert name_safe("runs/é 1.txt") == "runs/é 1.txt"
    assert name_safe("a\nb\t\udcff#", "#") == r"a\nb\t\xff\x23"
