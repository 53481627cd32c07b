"""Job ids."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import SpecError
from transload.runner.job_env import check_app_id, unique_app_id

pytestmark = pytest.mark.unit


@given(st.text(min_size=1, max_size=300))
def test_a_fresh_id_is_short_safe_and_unique(name: str) -> None:
    """Whatever the app is called, its id is at most 40 lower-case letters, digits and dashes, and
    unique.
    """
    first, second = unique_app_id(name), unique_app_id(name)
    assert re.fullmatch(r"[a-z][a-z0-9-]{0,39}", first)
    assert first != second
    assert check_app_id(first) == first


def test_a_fresh_id_is_readable() -> None:
    """The name of the app can be seen in it."""
    assert unique_app_id("My Trainer!").startswith("my-trainer-")


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "a/b", "../x", "-x", "a b", "x" * 201, "a\n", "ü", None, 3]
)
def test_an_unsafe_id_is_refused(bad: object) -> None:
    """An id that could leave a folder or confuse a shell is refused by value."""
    with pytest.raises(SpecError, match="app_id="):
        check_app_id(bad)  # type: ignore[arg-type]
