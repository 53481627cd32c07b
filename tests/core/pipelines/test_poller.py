"""The poller: one thread for everything, woken or asking with back-off, gone when nothing is watched."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Collection
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, TransloadTimeout
from transload.pipelines import Observation, Poller, StateUnknown, get_poller
from transload.plugins import AppEvent, get_plugins, hookimpl
from transload.runner import Runner
from transload.schedulers.api import AppDescription, Change
from transload.specs import AppState, AppStatus, parse_app_handle
from transload_testing.scripted import ScriptedControl, scripted_app


class Board:
    """A scheduler of which the test sets every answer; pushes changes if asked to."""

    name = "board"

    def __init__(self, push: bool = False) -> None:
        self.states: dict[str, AppStatus | None] = {}
        self.error: Exception | None = None
        self.queries: list[list[str]] = []
        self.push = push
        self.watches: list[BoardWatch] = []

    def set(self, app_id: str, state: AppState | None, **more: Any) -> None:
        """Change an app, and tell the watches."""
        self.states[app_id] = None if state is None else AppStatus(state, **more)
        for watch in self.watches:
            watch.tell(app_id)

    def describe_many(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Answer as set; apps that were never set are not in the answer."""
        self.queries.append(sorted(app_ids))
        if self.error is not None:
            raise self.error
        found = {app_id: self.states[app_id] for app_id in app_ids if app_id in self.states}
        return {app_id: status and AppDescription(app_id, status) for app_id, status in found.items()}

    def watch(self) -> BoardWatch | None:
        """Return a watch, where this one pushes."""
        if not self.push:
            return None
        self.watches.append(BoardWatch())
        return self.watches[-1]

    def close(self) -> None:
        """Do nothing."""


class BoardWatch:
    """A watch with a descriptor."""

    def __init__(self) -> None:
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[0], False)
        self._changed: set[str] = set()
        self._lock = threading.Lock()
        self.closed = False
        self.members: set[str] = set()

    def tell(self, app_id: str) -> None:
        """Note a change."""
        with self._lock:
            if app_id in self.members and not self.closed:
                self._changed.add(app_id)
                os.write(self._pipe[1], b"x")

    def update(self, app_ids: Collection[str]) -> None:
        """Replace the members; new ones count as changed."""
        fresh = set(app_ids) - self.members
        self.members = set(app_ids)
        for app_id in fresh:
            self.tell(app_id)

    def fileno(self) -> int:
        """Return what becomes readable."""
        return self._pipe[0]

    def drain(self) -> set[Change]:
        """Return what changed."""
        try:
            os.read(self._pipe[0], 4096)
        except BlockingIOError:
            pass
        with self._lock:
            changed, self._changed = self._changed, set()
        return {Change(app_id) for app_id in changed}

    def close(self) -> None:
        """Free the pipe."""
        with self._lock:
            if not self.closed:
                self.closed = True
                for end in self._pipe:
                    os.close(end)


def runner_of(board: Board) -> Runner:
    """Return a runner with this scheduler alone."""
    return Runner("t", {"board": lambda session, **params: board})  # type: ignore[dict-item, return-value]


def collect(poller: Poller, runner: Runner, app_id: str, **options: Any) -> queue.SimpleQueue[Observation]:
    """Watch an app; return what is seen."""
    seen: queue.SimpleQueue[Observation] = queue.SimpleQueue()
    poller.watch(runner, f"board://t/{app_id}", seen.put, poll_interval=options.pop("poll_interval", 0.05), **options)
    return seen


def threads() -> list[threading.Thread]:
    """Return the pollers' threads."""
    return [each for each in threading.enumerate() if each.name == "transload-poller"]


def wait_for_end(poller: Poller) -> None:
    """Wait until the poller's thread is gone."""
    for thread in threads():
        thread.join(10)
    assert poller.watched == 0
    assert threads() == []


@pytest.mark.parametrize("push", [False, True])
def test_changes_arrive_once_each_and_end(poller: Poller, push: bool) -> None:
    """First sight, each change, and the end; then nothing is watched and no thread is left."""
    board = Board(push)
    runner = runner_of(board)
    board.set("a", AppState.PENDING)
    seen = collect(poller, runner, "a")
    states = [seen.get(timeout=10).status]
    for state in (AppState.RUNNING, AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED):
        board.set("a", state, num_restarts=len(states))
        states.append(seen.get(timeout=10).status)
    assert [each and each.state.name for each in states] == ["PENDING", "RUNNING", "PENDING", "RUNNING", "SUCCEEDED"]
    wait_for_end(poller)
    assert seen.empty()
    assert all(watch.closed for watch in board.watches)


@pytest.mark.parametrize("push", [False, True])
def test_one_thread_and_one_query_for_all(poller: Poller, push: bool) -> None:
    """Apps, subscribers and schedulers share one thread; apps of one scheduler share their queries."""
    boards = [Board(push), Board(push)]
    feeds = []
    for board in boards:
        runner = runner_of(board)
        for n in range(100):
            board.set(f"app{n}", AppState.RUNNING)
            feeds += [collect(poller, runner, f"app{n}"), collect(poller, runner, f"app{n}")]
    for feed in feeds:
        assert feed.get(timeout=10).status is not None
    assert len(threads()) == 1
    assert poller.watched == 200
    for board in boards:
        for n in range(100):
            board.set(f"app{n}", AppState.SUCCEEDED)
    for feed in feeds:
        status = feed.get(timeout=10).status
        assert status is not None
        assert status.state is AppState.SUCCEEDED
    wait_for_end(poller)


def test_pushed_changes_are_asked_for_alone(poller: Poller) -> None:
    """Where changes are pushed, only what changed is asked about, and nobody asks in between."""
    board = Board(push=True)
    runner = runner_of(board)
    feeds = {}
    for n in range(20):
        board.set(f"app{n}", AppState.RUNNING)
        feeds[n] = collect(poller, runner, f"app{n}")
        feeds[n].get(timeout=10)
    # a query that a member's joining caused may still be under way
    board.set("app7", AppState.PENDING)
    feeds[7].get(timeout=10)
    before = len(board.queries)
    board.set("app7", AppState.SUCCEEDED)
    feeds[7].get(timeout=10)
    assert board.queries[before:] == [["app7"]]


@pytest.mark.parametrize("how", ["drain raises", "descriptor closed"])
def test_a_broken_watch_is_done_without(poller: Poller, caplog: pytest.LogCaptureFixture, how: str) -> None:
    """When a watch breaks, its apps are asked for instead; nobody waits for ever, nothing spins."""
    board = Board(push=True)
    board.set("a", AppState.RUNNING)
    seen = collect(poller, runner_of(board), "a")
    seen.get(timeout=10)
    (watch,) = board.watches
    if how == "drain raises":

        def fail() -> set[str]:
            raise OSError("broken pipe")

        watch.drain = fail  # type: ignore[method-assign]
        watch.tell("a")
    else:
        watch.close()
        poller._wake()
    end = time.monotonic() + 10
    while "broke" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    board.states["a"] = AppStatus(AppState.SUCCEEDED)
    assert seen.get(timeout=10).final


def test_a_watch_that_cannot_be_closed_harms_nobody(poller: Poller, caplog: pytest.LogCaptureFixture) -> None:
    """The thread goes on to watch others, and there is one for whoever comes later."""

    class Stuck(BoardWatch):
        def close(self) -> None:
            super().close()
            raise OSError("cannot say goodbye")

    board, other = Board(push=True), Board()
    board.watch = Stuck  # type: ignore[method-assign, assignment]
    other.set("b", AppState.RUNNING)
    feed = collect(poller, runner_of(other), "b")
    feed.get(timeout=30)
    board.set("a", AppState.SUCCEEDED)
    assert collect(poller, runner_of(board), "a").get(timeout=30).final
    end = time.monotonic() + 30
    while "could not be closed" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    other.set("b", AppState.SUCCEEDED)
    assert feed.get(timeout=30).final
    wait_for_end(poller)
    assert collect(poller, runner_of(board), "a").get(timeout=30).final


def test_gone_is_final(poller: Poller) -> None:
    """An app that provably does not exist is the last thing that is told of it."""
    board = Board()
    board.set("a", None)
    seen = collect(poller, runner_of(board), "a").get(timeout=10)
    assert seen.final
    assert seen.status is None
    wait_for_end(poller)


@pytest.mark.parametrize("push", [False, True])
def test_failing_queries_are_unknown_until_patience_ends(poller: Poller, push: bool) -> None:
    """A scheduler that cannot be asked gives UNKNOWN, told once, then the exhausted observation."""
    board = Board(push)
    board.set("a", AppState.RUNNING)
    board.error = SchedulerUnavailable("down")
    seen = collect(poller, runner_of(board), "a", patience=0.2)
    first, last = seen.get(timeout=10), seen.get(timeout=10)
    assert first.status is not None
    assert (first.status.state, first.status.msg, first.final) == (AppState.UNKNOWN, "down", False)
    assert last.exhausted
    assert last.unknown_for >= 0.2
    wait_for_end(poller)


@pytest.mark.parametrize("push", [False, True])
def test_recovery_is_told(poller: Poller, push: bool) -> None:
    """After UNKNOWN the known state is told, though nobody pushed that the scheduler is back."""
    board = Board(push)
    board.states["a"] = AppStatus(AppState.RUNNING)
    board.error = SchedulerUnavailable("down")
    seen = collect(poller, runner_of(board), "a")
    assert seen.get(timeout=10).status.state is AppState.UNKNOWN  # type: ignore[union-attr]
    board.error = None
    assert seen.get(timeout=10).status.state is AppState.RUNNING  # type: ignore[union-attr]


def test_no_answer_and_a_broken_scheduler_are_unknown(poller: Poller, caplog: pytest.LogCaptureFixture) -> None:
    """What a scheduler does not answer for is not gone; one that raises anything does not end the thread."""
    board = Board()
    seen = collect(poller, runner_of(board), "a")
    assert seen.get(timeout=10).status.state is AppState.UNKNOWN  # type: ignore[union-attr]
    board.error = ValueError("a bug")
    end = time.monotonic() + 10
    while "a bug" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    board.error = None
    board.set("a", AppState.SUCCEEDED)
    assert seen.get(timeout=10).final


def test_subscribers_have_their_own_patience(poller: Poller) -> None:
    """One gives up, the other goes on."""
    board = Board()
    board.error = SchedulerUnavailable("down")
    runner = runner_of(board)
    short, long = collect(poller, runner, "a", patience=0.1), collect(poller, runner, "a", patience=60)
    short.get(timeout=10)
    assert short.get(timeout=10).exhausted
    board.error = None
    board.set("a", AppState.SUCCEEDED)
    while not (seen := long.get(timeout=10)).final:
        assert not seen.exhausted
    assert not seen.exhausted


def test_a_failing_subscriber_harms_nobody(poller: Poller, caplog: pytest.LogCaptureFixture) -> None:
    """A callback that raises gets no more; one that returns False neither; the others do."""
    board = Board()
    board.set("a", AppState.RUNNING)
    runner = runner_of(board)
    calls: list[str] = []

    def bad(_: Observation) -> None:
        calls.append("bad")
        raise RuntimeError("subscriber's bug")

    def enough(_: Observation) -> bool:
        calls.append("enough")
        return False

    for callback in (bad, enough):
        poller.watch(runner, "board://t/a", callback, poll_interval=0.05)
    seen = collect(poller, runner, "a")
    seen.get(timeout=10)
    board.set("a", AppState.SUCCEEDED)
    assert seen.get(timeout=10).final
    assert sorted(calls) == ["bad", "enough"]
    assert "subscriber's bug" in caplog.text


def test_closing_a_subscription_ends_the_thread(poller: Poller) -> None:
    """Nobody interested, nothing running; and it starts again for the next one."""
    board = Board()
    board.set("a", AppState.RUNNING)
    runner = runner_of(board)
    for _ in range(3):
        seen: queue.SimpleQueue[Observation] = queue.SimpleQueue()
        with poller.watch(runner, "board://t/a", seen.put):
            seen.get(timeout=10)
            assert len(threads()) == 1
        wait_for_end(poller)


def test_back_off(poller: Poller) -> None:
    """Without news the pauses grow; the longest one that a subscriber allows is kept."""
    board = Board()
    board.set("a", AppState.RUNNING)
    runner = runner_of(board)
    collect(poller, runner, "a", poll_interval=3600.0).get(timeout=10)
    (group,) = poller._groups.values()
    pauses = []
    for _ in range(12):
        group._next = 0.0
        group.step(time.monotonic())
        pauses.append(group._pause)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 50 * pauses[0]
    collect(poller, runner, "a", poll_interval=0.5).get(timeout=10)
    for _ in range(20):
        group._next = 0.0
        group.step(time.monotonic())
    assert group._pause == 0.5


def test_wait_for(control: ScriptedControl, runner: Runner, poller: Poller) -> None:
    """Blocking: to the end, to a state, to a timeout; None for what is gone; StateUnknown for what stays unknown."""
    steps = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"]}
    handle = runner.run(scripted_app("a", steps), "scripted")
    fast = {"poll_interval": 0.05}
    status = poller.wait_for(runner, handle, until=lambda status: status.state is AppState.RUNNING, **fast)  # type: ignore[arg-type]
    assert status is not None
    assert status.state is AppState.RUNNING
    with pytest.raises(TransloadTimeout, match="goes on"):
        poller.wait_for(runner, handle, timeout=0.05)
    control.open("go")
    status = poller.wait_for(runner, handle, **fast)  # type: ignore[arg-type]
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert poller.wait_for(runner, "scripted://host/never") is None
    lost = runner.run(scripted_app("b", {"steps": [{"state": "UNKNOWN", "msg": "who knows"}]}), "scripted")
    with pytest.raises(StateUnknown, match="who knows"):
        poller.wait_for(runner, lost, patience=0.1, **fast)  # type: ignore[arg-type]


async def test_wait_for_async(control: ScriptedControl, runner: Runner, poller: Poller) -> None:
    """The same without blocking the loop, for many at once, with one thread."""
    app = scripted_app("a", {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"]})
    handles = [runner.run(app, "scripted") for _ in range(20)]
    tasks = [asyncio.create_task(poller.wait_for_async(runner, each, poll_interval=0.05)) for each in handles]
    with pytest.raises(TransloadTimeout):
        await poller.wait_for_async(runner, handles[0], timeout=0.05)
    assert len(threads()) == 1
    control.open("go")
    statuses = await asyncio.gather(*tasks)
    assert [status and status.state.name for status in statuses] == ["SUCCEEDED"] * 20


async def test_a_cancelled_waiter_leaves_nothing(control: ScriptedControl, runner: Runner, poller: Poller) -> None:
    """A task that is cancelled while it waits ends its subscription."""
    handle = runner.run(scripted_app("a", {"steps": ["RUNNING"]}), "scripted")
    task = asyncio.create_task(poller.wait_for_async(runner, handle))
    while not poller.watched:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for_end, poller)


def test_events_are_fired(poller: Poller) -> None:
    """Plugins are told of each change of state or attempt, with an id that repeats for the same change."""
    events: list[AppEvent] = []

    class Listener:
        @hookimpl
        def transload_app_event(self, event: AppEvent) -> None:
            events.append(event)

    board = Board()
    board.set("a", AppState.RUNNING)
    get_plugins().register(Listener(), "listener")
    try:
        seen = collect(poller, runner_of(board), "a")
        seen.get(timeout=10)
        board.set("a", AppState.RUNNING, num_restarts=1)
        seen.get(timeout=10)
        board.set("a", AppState.SUCCEEDED, num_restarts=1)
        seen.get(timeout=10)
    finally:
        get_plugins().unregister("listener")
    assert [(event.state.name, event.attempt) for event in events] == [("RUNNING", 0), ("RUNNING", 1), ("SUCCEEDED", 1)]
    assert len({event.id for event in events}) == 3


def test_a_forked_child_has_a_poller_of_its_own() -> None:
    """A thread does not survive a fork; the child does not wait for the parent's."""
    mine = get_poller()
    assert get_poller() is mine
    pid = os.fork()
    if pid == 0:
        os._exit(0 if get_poller() is not mine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_handles_are_parsed(poller: Poller) -> None:
    """The app id may hold what a handle encodes."""
    board = Board()
    board.set("ns:a b", AppState.SUCCEEDED)
    handle = "board://t/ns:a%20b"
    assert parse_app_handle(handle).app_id == "ns:a b"
    assert poller.wait_for(runner_of(board), handle) is not None
