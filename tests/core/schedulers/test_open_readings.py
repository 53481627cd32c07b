"""Requests for logs that stay open from one page to the next."""

from __future__ import annotations

from transload.schedulers import OpenReadings


class Reading:
    """A reading that knows whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        """Close it."""
        self.is_closed = True


def test_a_reading_is_taken_once() -> None:
    """Who takes a reading has it alone, and it is not closed."""
    kept: OpenReadings[str, Reading] = OpenReadings()
    reading = Reading()
    kept.keep("place", reading)
    assert kept.take("place") is reading
    assert kept.take("place") is None
    kept.close()
    assert not reading.is_closed


def test_of_too_many_the_oldest_is_closed() -> None:
    """Beyond the limit the reading that was kept longest ago is closed."""
    kept: OpenReadings[int, Reading] = OpenReadings(most=2)
    readings = [Reading() for _ in range(3)]
    for place, reading in enumerate(readings):
        kept.keep(place, reading)
    assert [each.is_closed for each in readings] == [True, False, False]
    assert len(kept) == 2


def test_an_idle_reading_is_closed_when_another_is_kept() -> None:
    """A reading that nobody goes on with does not stay open."""
    kept: OpenReadings[str, Reading] = OpenReadings(idle_seconds=0.0)
    idle = Reading()
    latest = Reading()
    kept.keep("idle", idle)
    kept.keep("latest", latest)
    assert idle.is_closed
    assert kept.take("latest") is latest


def test_a_second_reading_of_a_place_closes_the_first() -> None:
    """Two callers may read the same place, and one reading of it is kept."""
    kept: OpenReadings[str, Reading] = OpenReadings()
    first = Reading()
    second = Reading()
    kept.keep("place", first)
    kept.keep("place", second)
    assert (first.is_closed, second.is_closed) == (True, False)


def test_close_closes_all() -> None:
    """What is kept when a scheduler is closed is closed with it."""
    kept: OpenReadings[int, Reading] = OpenReadings()
    readings = [Reading() for _ in range(3)]
    for place, reading in enumerate(readings):
        kept.keep(place, reading)
    kept.close()
    assert all(each.is_closed for each in readings)
    assert len(kept) == 0
