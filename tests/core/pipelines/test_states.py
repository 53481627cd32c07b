"""State maps are total, or they are not built."""

from __future__ import annotations

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import ConfigError
from transload.pipelines import StateMap
from transload.specs import AppState

pytestmark = pytest.mark.unit


class Light(enum.Enum):
    """A host's states."""

    RED = 1
    GREEN = 2


FULL = {state: Light.GREEN if state is AppState.SUCCEEDED else Light.RED for state in AppState}


@given(st.sampled_from(list(AppState)))
def test_a_missing_state_is_refused_by_name(missing: AppState) -> None:
    """A table without one of the states cannot be built."""
    with pytest.raises(ConfigError, match=missing.name):
        StateMap("Lights", {state: value for state, value in FULL.items() if state is not missing})


def test_reads_as_a_mapping() -> None:
    """A map is a mapping over all of AppState, in its order."""
    table = StateMap("Lights", FULL)
    assert list(table) == list(AppState)
    assert len(table) == len(AppState)
    assert dict(table) == FULL
    assert table.names()["SUCCEEDED"] == "GREEN"


def test_foreign_values_and_keys_are_refused() -> None:
    """A value that the host does not have, or a key that is no AppState, is refused."""
    with pytest.raises(ConfigError, match="RUNNING → 7"):
        StateMap("Lights", {**FULL, AppState.RUNNING: 7}, host_values=list(Light))
    with pytest.raises(ConfigError, match="'DONE' is not an AppState"):
        StateMap("Lights", {**FULL, "DONE": Light.RED})  # type: ignore[dict-item]


def test_documentation_table() -> None:
    """The documentation's table has a row for each state, and the notes."""
    text = StateMap("Lights", FULL, notes={AppState.UNKNOWN: "after patience"}).markdown()
    assert all(f"| {state.name} | " in text for state in AppState)
    assert "| UNKNOWN | RED (after patience) |  |" in text
    assert "| SUCCEEDED | GREEN | ✓ |" in text
