"""Reports of changes are lost by nobody, and streams of them are opened again."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest

from transload.schedulers import Changes, Feeder

pytestmark = pytest.mark.unit


def lives(name: str) -> bool:
    """Tell whether there is a thread of that name."""
    return any(thread.name == name for thread in threading.enumerate())


def test_changes_are_returned_once() -> None:
    """What several threads report is returned together, once."""
    changes = Changes()
    changes.add(["a", "b"])
    changes.add(["b", "c"])
    assert changes.wait(0) == {"a", "b", "c"}
    assert changes.wait(0) == set()


@pytest.mark.parametrize("reported", [set(), {"a"}])
def test_a_report_ends_a_wait(reported: set[str]) -> None:
    """A report ends the wait of another thread, without ids too."""
    changes = Changes()
    found: queue.Queue[set[str]] = queue.Queue()
    thread = threading.Thread(target=lambda: found.put(changes.wait(60)))
    thread.start()
    changes.add(reported)
    assert found.get(timeout=30) == reported
    thread.join(30)


def test_a_stream_that_breaks_is_opened_again(eventually: Any) -> None:
    """A stream that ends is read again, with growing pauses if it ends at once."""
    times: list[float] = []

    def read(feeder: Feeder) -> None:
        times.append(time.monotonic())
        if len(times) % 2:
            raise RuntimeError("broken")

    feeder = Feeder("test", read, 0.01, 60)
    try:
        eventually(lambda: len(times) >= 5, timeout=30)
    finally:
        feeder.stop()
    count = len(times)
    # a pause may last longer than asked for, never shorter
    assert times[1] - times[0] >= 0.009 and times[4] - times[3] >= 0.075
    assert len(times) == count and feeder.stopped


def test_what_has_worked_for_a_while_is_opened_again_at_once(eventually: Any) -> None:
    """After a stream that lasted, pauses begin anew."""
    calls: list[float] = []

    def read(feeder: Feeder) -> None:
        calls.append(time.monotonic())
        feeder.opened(lambda: None)
        while time.monotonic() < calls[-1] + 0.002:
            pass

    feeder = Feeder("test", read, 0.001, 0.002)
    try:  # with pauses that only grew, without a limit, this would take many years
        eventually(lambda: len(calls) >= 50, timeout=30)
    finally:
        feeder.stop()


def test_stopping_cuts_the_stream() -> None:
    """A thread that is blocked in its stream is freed by cutting it, and has ended when ``stop``
    returns.
    """
    reading, cut = threading.Event(), threading.Event()

    def read(feeder: Feeder) -> None:
        assert feeder.opened(cut.set)
        reading.set()
        cut.wait(60)

    feeder = Feeder("test-cut", read)
    assert reading.wait(30)
    feeder.stop()
    feeder.stop()
    assert cut.is_set() and not lives("test-cut")


def test_a_stream_opened_too_late_is_cut_at_once() -> None:
    """A stream that is opened after a stop is cut, and its reader knows that."""
    opening, go_on = threading.Event(), threading.Event()
    told: queue.Queue[bool] = queue.Queue()
    cut = threading.Event()

    def read(feeder: Feeder) -> None:
        opening.set()
        go_on.wait(60)
        told.put(feeder.opened(cut.set))

    feeder = Feeder("test", read)
    assert opening.wait(30)
    feeder.finish()
    go_on.set()
    assert told.get(timeout=30) is False and cut.is_set()
    feeder.stop()


def test_a_reader_that_gives_up_is_left_alone(eventually: Any) -> None:
    """After ``finish`` it is not called again, and its thread ends."""
    calls = []

    def read(feeder: Feeder) -> None:
        calls.append(1)
        feeder.finish()

    feeder = Feeder("test-finish", read, 0.001)
    eventually(lambda: not lives("test-finish"), timeout=30)
    assert calls == [1]
    feeder.stop()
