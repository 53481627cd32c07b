"""The state table, exit codes and times of an engine."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.specs import AppState
from transload_docker.states import STATES, exit_code, replica_state, seconds

WORDS = ("created", "running", "paused", "restarting", "removing", "exited", "dead")


def test_the_table_is_total() -> None:
    """Every state of the Engine API has an AppState."""
    assert set(STATES) == set(WORDS)


@pytest.mark.parametrize(
    ("status", "code", "error", "state"),
    [
        ("created", None, "", AppState.SUBMITTED),
        ("created", 127, "no such file", AppState.FAILED),
        ("running", None, "", AppState.RUNNING),
        ("paused", None, "", AppState.RUNNING),
        ("exited", 0, "", AppState.SUCCEEDED),
        ("exited", 0, "the log driver broke", AppState.FAILED),
        ("exited", 1, "", AppState.FAILED),
        ("dead", 0, "", AppState.FAILED),
        ("hibernating", None, "", AppState.UNKNOWN),
    ],
)
def test_replica_state(status: str, code: int | None, error: str, state: AppState) -> None:
    """A container's state, exit code and error make the replica's state.

    An unknown word is UNKNOWN.
    """
    assert replica_state(status, code, error) is state


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, 0), (7, 7), (128, 128), (137, -9), (143, -15), (255, 255), (None, None)],
)
def test_exit_code(code: int | None, expected: int | None) -> None:
    """128 + N is a death by signal N, as far as there are signals."""
    assert exit_code(code) == expected


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), st.integers(0, 999_999_999))
def test_seconds_reads_every_time(moment: datetime, nanos: int) -> None:
    """RFC 3339 with any number of digits of a second."""
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    digits = f"{nanos:09d}".rstrip("0")
    text = moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{digits}" if digits else "") + "Z"
    assert seconds(text) == pytest.approx(moment.timestamp() + nanos / 1e9, abs=1e-5)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "", None])
def test_no_time(text: str | None) -> None:
    """The engine's zero time is no time."""
    assert seconds(text) is None
