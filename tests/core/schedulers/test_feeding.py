"""Watches that threads feed lose nothing, wake only their own, and reopen streams."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest

from transload.schedulers import Change, FedWatch, Feeder, Watch

pytestmark = pytest.mark.unit


def ids(changes: set[Change]) -> set[str]:
    """Return the apps of changes of state."""
    return {change.app_id for change in changes if change.kind == "state"}


def lives(name: str) -> bool:
    """Tell whether there is a thread of that name."""
    return any(thread.name == name for thread in threading.enumerate())


def test_it_is_a_watch() -> None:
    """What hosts ask for is there."""
    watch = FedWatch()
    assert isinstance(watch, Watch)
    watch.close()


def test_new_ids_count_as_changed_and_old_ones_are_forgotten() -> None:
    """An id is reported once when it is added. What is no longer watched is not reported."""
    watch = FedWatch()
    watch.update(["a", "b"])
    assert ids(watch.wait(0)) == {"a", "b"}
    watch.update(["b", "c"])
    watch.feed("a")
    watch.feed("b")
    assert ids(watch.wait(0)) == {"b", "c"}
    assert ids(watch.wait(0)) == set()
    watch.close()


def test_events_name_apps_by_a_key() -> None:
    """The engine's word for a job leads to its id, and an unknown word is ignored."""
    watch = FedWatch(lambda app_id: app_id.partition(":")[2])
    watch.update(["team:x", "team:y"])
    watch.wait(0)
    watch.feed("y")
    watch.feed("z")
    assert ids(watch.wait(0)) == {"team:y"}
    watch.feed_all(lambda key: key == "x")
    assert ids(watch.wait(0)) == {"team:x"}
    watch.feed_all()
    assert ids(watch.wait(0)) == {"team:x", "team:y"}
    watch.close()


def test_everything_reports_strangers_too() -> None:
    """With ``everything`` apps that nobody watches are reported, and kept through an update."""
    watch = FedWatch(everything=True)
    watch.feed_ids(["stranger"])
    watch.update(["a"])
    assert ids(watch.wait(0)) == {"stranger", "a"}
    watch.close()
    other = FedWatch()
    other.feed_ids(["stranger"])
    assert ids(other.wait(0)) == set()
    other.close()


@pytest.mark.parametrize("how", ["feed", "wake", "close"])
def test_a_waiting_thread_is_let_go(how: str, eventually: Any) -> None:
    """A change, a wake and a close end a wait that has no limit."""
    watch = FedWatch()
    watch.update(["a"])
    watch.wait(0)
    found: queue.Queue[set[str]] = queue.Queue()
    thread = threading.Thread(target=lambda: found.put(watch.wait(None)))
    thread.start()
    {"feed": lambda: watch.feed("a"), "wake": watch.wake, "close": watch.close}[how]()
    assert ids(found.get(timeout=30)) == ({"a"} if how == "feed" else set())
    thread.join(30)
    watch.close()


def test_closing_ends_the_feeders_once() -> None:
    """The first close alone calls ``end``, and later calls of anything do no harm."""
    ended = []

    class Mine(FedWatch):
        def end(self) -> None:
            ended.append(True)

    watch = Mine()
    watch.close()
    watch.close()
    watch.update(["a"])
    watch.feed_all()
    assert ended == [True]


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
