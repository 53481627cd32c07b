"""The table of states is total."""

from __future__ import annotations

from transload.specs import AppState
from transload_kfp import STATES


def test_table_is_total() -> None:
    """Every state of a job has a state of a task."""
    from kfp_server_api import V2beta1RuntimeState

    assert set(STATES) == set(AppState)
    assert set(STATES.values()) <= set(V2beta1RuntimeState.allowable_values)
