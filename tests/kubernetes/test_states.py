"""The tables of states are total, and tolerate words that nobody has heard of."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.specs import AppState
from transload_kubernetes import states

LETTERS = st.sampled_from(string.printable + "é٣日")
"""Enough for odd texts. The table of all letters would take a second to make."""


@given(st.text(LETTERS))
def test_any_phase_has_a_state(phase: str) -> None:
    """A phase that is not known is UNKNOWN, never an error."""
    assert states.pod_state({"status": {"phase": phase}}) is states.PHASES.get(
        phase, AppState.UNKNOWN
    )


@given(st.sets(st.integers(0, 300)))
def test_indexes_round_trip(numbers: set[int]) -> None:
    """Whatever a Job writes into its status is read back."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
    assert states.indexes(text) == numbers


@pytest.mark.parametrize(
    ("code", "shown"), [(0, 0), (3, 3), (137, -9), (143, -15), (255, 255), (None, None)]
)
def test_exit_codes(code: int | None, shown: int | None) -> None:
    """128 + N is death by signal N."""
    assert states.exit_code(code) == shown


def test_memory_is_named() -> None:
    """A pod killed at its limit says so."""
    end = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    pod = {"status": {"containerStatuses": [{"name": "main", "state": end}]}}
    assert "memory" in states.why_failed(pod)


@given(st.text(LETTERS))
def test_times_never_raise(text: str) -> None:
    """What is not a time is None."""
    states.seconds(text)


def test_times_of_events() -> None:
    """The latest of the fields that are there counts, else the time at which the event was made."""
    made = {"metadata": {"creationTimestamp": "1970-01-01T00:00:09Z"}}
    assert states.event_time(made) == 9
    assert (
        states.event_time({**made, "lastTimestamp": "1970-01-01T00:00:05Z", "eventTime": None}) == 5
    )
    series = {"lastObservedTime": "1970-01-01T00:00:07.5Z"}
    assert (
        states.event_time({**made, "eventTime": "1970-01-01T00:00:02.000001Z", "series": series})
        == 7.5
    )
    assert states.event_time({}) == 0


def test_a_program_that_never_started_has_no_start() -> None:
    """The zero of a cluster's times is none."""
    assert states.seconds("1970-01-01T00:00:00Z") is None
