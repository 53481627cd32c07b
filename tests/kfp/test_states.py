"""The table of states is total, both ways."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transload.specs import AppState
from transload_kfp import STATES


def test_tables_are_total() -> None:
    """Every state of both worlds has a value in the other, and ended states stay ended."""
    from kfp_server_api import V2beta1RuntimeState

    words = V2beta1RuntimeState.allowable_values
    assert set(STATES) == set(AppState)
    assert set(STATES.values()) <= set(words)
    ended = {"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"}
    for word in words:
        state = STATES.to_app(word)
        assert (state in (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)) == (
            word in ended
        ), word
    assert STATES.to_app("CANCELED") is AppState.CANCELLED
    assert STATES.to_app("RUNTIME_STATE_UNSPECIFIED") is AppState.UNKNOWN


@given(st.sampled_from(list(AppState)))
def test_there_and_back(state: AppState) -> None:
    """What has ended, runs, waits or is unknown is the same after a way there and back."""
    waiting = (AppState.UNSUBMITTED, AppState.SUBMITTED, AppState.PENDING)
    assert STATES.to_app(STATES[state]) is (AppState.PENDING if state in waiting else state)
