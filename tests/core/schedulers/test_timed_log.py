"""A log whose messages have times is read on from any place, each message once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.schedulers.timed_log import Place, TimedLog, nanoseconds

pytestmark = pytest.mark.unit

TIMES = st.lists(st.integers(1, 5), max_size=30).map(sorted)


@given(TIMES, st.integers(0, 30))
def test_each_message_is_taken_once(times: list[int], read: int) -> None:
    """Whatever was read before, a reading that begins with the place's own second has the rest."""
    first = TimedLog(Place())
    assert all(first.take(moment) for moment in times[:read])
    sent_again = [moment for moment in times if moment >= first.place.time]
    second = TimedLog(first.place)
    assert [moment for moment in sent_again if second.take(moment)] == times[read:]


@given(TIMES, st.integers(0, 30))
def test_many_messages_are_passed_over_like_one_by_one(times: list[int], read: int) -> None:
    """The place behind them is the same."""
    one_by_one = Place()
    for moment in times:
        one_by_one.pass_by(moment)
    at_once = Place()
    at_once.pass_over(times[:read])
    at_once.pass_over(times[read:])
    assert at_once == one_by_one


def test_a_clock_that_is_set_back_loses_nothing() -> None:
    """Within a reading all that follows the place is taken, in the order in which it was sent."""
    log = TimedLog(Place(5, 1))
    assert [moment for moment in (4, 5, 9, 6, 6, 10) if log.take(moment)] == [9, 6, 6, 10]
    assert log.place == Place(10, 1)


def test_nothing_before_the_start_is_taken() -> None:
    """A start that lies behind the place passes over what is between them."""
    log = TimedLog(Place(5, 1), start=7)
    assert [moment for moment in (5, 5, 6, 7, 8) if log.take(moment)] == [7, 8]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T00:00:01.00000001Z", 10**9 + 10),
        ("1970-01-01T01:00:01.5+01:00", 1_500_000_000),
        ("1970-01-01T00:00:00.123456789123Z", 123_456_789),
    ],
)
def test_a_time_loses_no_digit(text: str, expected: int) -> None:
    """Times are exact, in any zone."""
    assert nanoseconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "rpc", "unable to retrieve container logs", "2026-11-28", "1970-01-01T00:00:01.xZ"]
)
def test_what_is_no_time(text: str) -> None:
    """A server's words in the place of a line are told apart from lines."""
    with pytest.raises(ValueError, match="."):
        nanoseconds(text)
