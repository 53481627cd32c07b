"""Jobs are followed by one thread for each scheduler, which ends when nobody waits."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, StateUnknown, TransloadTimeout
from transload.plugins import AppEvent, get_plugins, hookimpl
from transload.runner import Runner
from transload.schedulers import Observation, follower, watch, watched
from transload.schedulers.api import AppDescription, SchedulerBase
from transload.specs import AppState, AppStatus, parse_app_handle
from transload_testing.scripted import ScriptedControl, scripted_app


class Board:
    """A scheduler of which the test sets every answer, and which reports changes if asked to."""

    name = "board"
    connection = SchedulerBase.connection

    def __init__(self, push: bool = False) -> None:
        self.states: dict[str, AppStatus | None] = {}
        self.error: Exception | None = None
        self.queries: list[list[str]] = []
        self.push = push
        self.watches: list[BoardWatch] = []

    def set(self, app_id: str, state: AppState | None, **more: Any) -> None:
        """Change an app, and tell the watches."""
        self.states[app_id] = None if state is None else AppStatus(state, **more)
        for each in self.watches:
            each.tell(app_id)

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Answer as set, without jobs that were never set."""
        self.queries.append(sorted(app_ids))
        if self.error is not None:
            raise self.error
        found = {app_id: self.states[app_id] for app_id in app_ids if app_id in self.states}
        return {
            app_id: status and AppDescription(app_id, status) for app_id, status in found.items()
        }

    def watch(self, changed: Callable[[Collection[str]], object]) -> BoardWatch | None:
        """Return a watch, where this one pushes."""
        if not self.push:
            return None
        self.watches.append(BoardWatch(changed))
        return self.watches[-1]

    def close(self) -> None:
        """Do nothing."""


class BoardWatch:
    """A watch by which the test reports changes."""

    def __init__(self, changed: Callable[[Collection[str]], object]) -> None:
        self._changed = changed
        self.closed = False

    def tell(self, app_id: str) -> None:
        """Report a job."""
        self._changed([app_id])

    def update(self, app_ids: Collection[str]) -> None:
        """Take which jobs are watched."""

    def close(self) -> None:
        """Note it."""
        self.closed = True


def runner_of(board: Board) -> Runner:
    """Return a runner with this scheduler alone."""
    return Runner("t", {"board": lambda session, **params: board})  # type: ignore[dict-item, return-value]


def collect(runner: Runner, app_id: str, **options: Any) -> queue.SimpleQueue[Observation]:
    """Watch a job, and return what is seen."""
    seen: queue.SimpleQueue[Observation] = queue.SimpleQueue()
    scheduler, interval = runner.scheduler("board"), options.pop("poll_interval", 0.05)
    watch(scheduler, f"board://t/{app_id}", seen.put, poll_interval=interval, **options)
    return seen


def threads() -> list[threading.Thread]:
    """Return the threads that follow."""
    return [
        each
        for each in threading.enumerate()
        if each.name in ("transload-states", "transload-logs")
    ]


def wait_for_end() -> None:
    """Wait until its threads are gone."""
    for thread in threads():
        thread.join(10)
    assert watched() == 0
    assert threads() == []


@pytest.mark.parametrize("push", [False, True])
def test_apps_that_follow_each_other_share_a_thread_which_ends_with_the_runner(
    push: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits a moment for the next subscriber. A closed runner leaves none behind."""
    monkeypatch.setattr(follower, "LINGER", 60.0)
    board, used = Board(push), set()
    runner = runner_of(board)
    for app_id in ("a", "b", "a"):
        board.set(app_id, AppState.SUCCEEDED)
        assert collect(runner, app_id).get(timeout=10).status == AppStatus(AppState.SUCCEEDED)
        used.update(threads())
    assert len(used) == 1
    assert watched() == 0
    runner.close()
    wait_for_end()
    assert all(each.closed for each in board.watches)


@pytest.mark.parametrize("push", [False, True])
def test_changes_arrive_once_each_and_end(push: bool) -> None:
    """First sight, each change and the end arrive once. Then no watch and no thread is left."""
    board = Board(push)
    runner = runner_of(board)
    board.set("a", AppState.PENDING)
    seen = collect(runner, "a")
    states = [seen.get(timeout=10).status]
    for state in (AppState.RUNNING, AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED):
        board.set("a", state, num_restarts=len(states))
        states.append(seen.get(timeout=10).status)
    assert [each and each.state.name for each in states] == [
        "PENDING",
        "RUNNING",
        "PENDING",
        "RUNNING",
        "SUCCEEDED",
    ]
    wait_for_end()
    assert seen.empty()
    assert all(watch.closed for watch in board.watches)


def test_another_reason_to_wait_is_news() -> None:
    """A changed message of a waiting job arrives, but not one of a running job."""
    board = Board(push=True)
    runner = runner_of(board)
    board.set("a", AppState.PENDING, msg="Priority")
    seen = collect(runner, "a")
    told = [seen.get(timeout=10).status]
    for state, msg in (
        (AppState.PENDING, "Resources"),
        (AppState.RUNNING, "1"),
        (AppState.RUNNING, "2"),
    ):
        board.set("a", state, msg=msg)
        told += [seen.get(timeout=10).status] if msg != "2" else []
    board.set("a", AppState.SUCCEEDED)
    told.append(seen.get(timeout=10).status)
    assert [each and each.msg for each in told] == ["Priority", "Resources", "1", ""]
    wait_for_end()


@pytest.mark.parametrize("push", [False, True])
def test_one_thread_and_one_query_for_all(push: bool) -> None:
    """All apps and subscribers of a scheduler share one thread and its queries."""
    boards = [Board(push), Board(push)]
    feeds = []
    for board in boards:
        runner = runner_of(board)
        for n in range(100):
            board.set(f"app{n}", AppState.RUNNING)
            feeds += [collect(runner, f"app{n}"), collect(runner, f"app{n}")]
    for feed in feeds:
        assert feed.get(timeout=10).status is not None
    assert len(threads()) == 2
    assert watched() == 200
    for board in boards:
        for n in range(100):
            board.set(f"app{n}", AppState.SUCCEEDED)
    for feed in feeds:
        status = feed.get(timeout=10).status
        assert status is not None
        assert status.state is AppState.SUCCEEDED
    wait_for_end()


def test_pushed_changes_are_asked_for_alone() -> None:
    """Where changes are pushed, only what changed is asked about, and nobody asks in between."""
    board = Board(push=True)
    runner = runner_of(board)
    feeds = {}
    for n in range(20):
        board.set(f"app{n}", AppState.RUNNING)
        feeds[n] = collect(runner, f"app{n}")
        feeds[n].get(timeout=10)
    # a query that a member's joining caused may still be under way
    board.set("app7", AppState.PENDING)
    feeds[7].get(timeout=10)
    before = len(board.queries)
    board.set("app7", AppState.SUCCEEDED)
    feeds[7].get(timeout=10)
    assert board.queries[before:] == [["app7"]]


def test_a_broken_watch_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    """When a watch breaks, its jobs are looked at instead."""

    class Broken(BoardWatch):
        def update(self, app_ids: Collection[str]) -> None:
            raise OSError("broken pipe")

    board = Board()
    board.watch = Broken  # type: ignore[method-assign, assignment]
    board.set("a", AppState.RUNNING)
    seen = collect(runner_of(board), "a")
    seen.get(timeout=10)
    assert "broken pipe" in caplog.text
    board.states["a"] = AppStatus(AppState.SUCCEEDED)
    assert seen.get(timeout=10).final


def test_a_watch_that_cannot_be_closed_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The thread goes on to watch others, and there is one for whoever comes later."""

    class Stuck(BoardWatch):
        def close(self) -> None:
            super().close()
            raise OSError("cannot say goodbye")

    board, other = Board(push=True), Board()
    board.watch = Stuck  # type: ignore[method-assign, assignment]
    other.set("b", AppState.RUNNING)
    feed = collect(runner_of(other), "b")
    feed.get(timeout=30)
    board.set("a", AppState.SUCCEEDED)
    assert collect(runner_of(board), "a").get(timeout=30).final
    end = time.monotonic() + 30
    while "could not be closed" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    other.set("b", AppState.SUCCEEDED)
    assert feed.get(timeout=30).final
    wait_for_end()
    assert collect(runner_of(board), "a").get(timeout=30).final


def test_gone_is_final() -> None:
    """An app that provably does not exist is the last thing that is told of it."""
    board = Board()
    board.set("a", None)
    seen = collect(runner_of(board), "a").get(timeout=10)
    assert seen.final
    assert seen.status is None
    wait_for_end()


@pytest.mark.parametrize("push", [False, True])
def test_failing_queries_are_unknown_until_patience_ends(push: bool) -> None:
    """A scheduler that cannot be asked gives UNKNOWN, told once, then the exhausted observation."""
    board = Board(push)
    board.set("a", AppState.RUNNING)
    board.error = SchedulerUnavailable("down")
    seen = collect(runner_of(board), "a", patience=0.2)
    first, last = seen.get(timeout=10), seen.get(timeout=10)
    assert first.status is not None
    assert (first.status.state, first.status.msg, first.final) == (AppState.UNKNOWN, "down", False)
    assert last.exhausted
    assert last.unknown_for >= 0.2
    wait_for_end()


@pytest.mark.parametrize("push", [False, True])
def test_recovery_is_told(push: bool) -> None:
    """After UNKNOWN the known state is told, though nobody pushed that the scheduler is back."""
    board = Board(push)
    board.states["a"] = AppStatus(AppState.RUNNING)
    board.error = SchedulerUnavailable("down")
    seen = collect(runner_of(board), "a")
    assert seen.get(timeout=10).status.state is AppState.UNKNOWN  # type: ignore[union-attr]
    board.error = None
    assert seen.get(timeout=10).status.state is AppState.RUNNING  # type: ignore[union-attr]


def test_no_answer_and_a_broken_scheduler_are_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """What a scheduler does not answer for is not gone. One that raises does not end the thread."""
    board = Board()
    seen = collect(runner_of(board), "a")
    assert seen.get(timeout=10).status.state is AppState.UNKNOWN  # type: ignore[union-attr]
    board.error = ValueError("a bug")
    end = time.monotonic() + 10
    while "a bug" not in caplog.text:
        assert time.monotonic() < end
        time.sleep(0.005)
    board.error = None
    board.set("a", AppState.SUCCEEDED)
    assert seen.get(timeout=10).final


def test_who_comes_during_a_look_gets_the_next_one() -> None:
    """An answer that is older than the wait for it would spend a patience that is not spent."""
    board, looking, go = Board(), threading.Event(), threading.Event()
    answer = board.describe

    def late(app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        try:
            return answer(app_ids)
        finally:
            looking.set()
            go.wait(10)

    board.describe = late  # type: ignore[method-assign]
    board.error = SchedulerUnavailable("away")
    runner = runner_of(board)
    collect(runner, "a")
    assert looking.wait(10)
    board.error = None
    board.set("a", AppState.SUCCEEDED)
    seen = collect(runner, "a", patience=1.0, unknown_for=2.0)
    go.set()
    assert seen.get(timeout=10).status == AppStatus(AppState.SUCCEEDED)


def test_subscribers_have_their_own_patience() -> None:
    """One gives up, the other goes on."""
    board = Board()
    board.error = SchedulerUnavailable("down")
    runner = runner_of(board)
    short, long = collect(runner, "a", patience=0.1), collect(runner, "a", patience=60)
    short.get(timeout=10)
    assert short.get(timeout=10).exhausted
    board.error = None
    board.set("a", AppState.SUCCEEDED)
    while not (seen := long.get(timeout=10)).final:
        assert not seen.exhausted
    assert not seen.exhausted


def test_a_failing_subscriber_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A callback that raises or returns False gets no more, and the others do."""
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
        watch(runner.scheduler("board"), "board://t/a", callback, poll_interval=0.05)
    seen = collect(runner, "a")
    seen.get(timeout=10)
    board.set("a", AppState.SUCCEEDED)
    assert seen.get(timeout=10).final
    assert sorted(calls) == ["bad", "enough"]
    assert "subscriber's bug" in caplog.text


def test_closing_a_subscription_ends_the_thread() -> None:
    """Without subscribers nothing runs, and the thread starts again for the next one."""
    board = Board()
    board.set("a", AppState.RUNNING)
    runner = runner_of(board)
    for _ in range(3):
        seen: queue.SimpleQueue[Observation] = queue.SimpleQueue()
        with watch(runner.scheduler("board"), "board://t/a", seen.put):
            seen.get(timeout=10)
            assert len(threads()) == 1
        wait_for_end()


def test_back_off() -> None:
    """Without news the pauses grow, up to the longest one that a subscriber allows."""
    times: list[float] = []

    class Timed(Board):
        def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
            times.append(time.monotonic())
            return super().describe(app_ids)

    board = Timed()
    board.set("a", AppState.RUNNING)
    runner = runner_of(board)
    collect(runner, "a", poll_interval=3600.0).get(timeout=10)
    end = time.monotonic() + 30
    while len(times) < 7:
        assert time.monotonic() < end
        time.sleep(0.005)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[-1] > 3 * pauses[0]
    collect(runner, "a", poll_interval=0.06).get(timeout=10)
    before = len(times)
    while len(times) < before + 10:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_job_that_changes_often_does_not_hide_a_lost_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All jobs are looked at now and then, however often one of them changes."""
    monkeypatch.setattr(follower, "RECHECK", 0.5)
    board = Board(push=True)
    board.set("busy", AppState.RUNNING)
    board.set("quiet", AppState.RUNNING)
    runner = runner_of(board)
    busy, quiet = collect(runner, "busy"), collect(runner, "quiet")
    busy.get(timeout=10)
    quiet.get(timeout=10)
    board.states["quiet"] = AppStatus(AppState.SUCCEEDED)  # nobody reports it
    end = time.monotonic() + 10
    while quiet.empty():
        assert time.monotonic() < end
        board.set("busy", AppState.RUNNING, num_restarts=len(board.queries))
        busy.get(timeout=10)
    assert quiet.get(timeout=10).final


def test_a_slow_scheduler_delays_nobody_else() -> None:
    """While one scheduler takes long to answer, the changes of another are told at once."""
    slow, quick = Board(), Board(push=True)
    asked, answer = threading.Event(), threading.Event()

    def describe(app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        asked.set()
        assert answer.wait(60)
        return {app_id: AppDescription(app_id, AppStatus(AppState.SUCCEEDED)) for app_id in app_ids}

    slow.describe = describe  # type: ignore[method-assign]
    quick.set("b", AppState.RUNNING)
    late, seen = collect(runner_of(slow), "a"), collect(runner_of(quick), "b")
    assert asked.wait(10)
    assert seen.get(timeout=10).status.state is AppState.RUNNING  # type: ignore[union-attr]
    quick.set("b", AppState.SUCCEEDED)
    assert seen.get(timeout=10).final
    assert late.empty()
    answer.set()
    assert late.get(timeout=10).final


def test_a_watch_that_cannot_be_had_is_done_without() -> None:
    """A scheduler whose watch raises is asked instead, and the one who waits does not see it."""
    board = Board()
    board.set("a", AppState.RUNNING)

    def watch(changed: Callable[[Collection[str]], object]) -> BoardWatch:
        raise SchedulerUnavailable("no events today")

    board.watch = watch  # type: ignore[method-assign]
    seen = collect(runner_of(board), "a")
    assert seen.get(timeout=10).status.state is AppState.RUNNING  # type: ignore[union-attr]
    board.set("a", AppState.SUCCEEDED)
    assert seen.get(timeout=10).final


def test_wait(control: ScriptedControl, runner: Runner) -> None:
    """A wait blocks to the end or a timeout. It is None for a gone job, or raises StateUnknown."""
    steps = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"]}
    handle = runner.run(scripted_app("a", steps), "scripted")
    with pytest.raises(TransloadTimeout, match="goes on"):
        runner.wait(handle, timeout=0.05)
    control.open("go")
    status = runner.wait(handle)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert runner.wait("scripted://host/never") is None
    lost = runner.run(
        scripted_app("b", {"steps": [{"state": "UNKNOWN", "msg": "who knows"}]}), "scripted"
    )
    with pytest.raises(StateUnknown, match="who knows"):
        runner.wait(lost, patience=0.1)


async def test_wait_async(control: ScriptedControl, runner: Runner) -> None:
    """The same without blocking the loop, for many at once, with one thread."""
    app = scripted_app("a", {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"]})
    handles = [runner.run(app, "scripted") for _ in range(20)]
    tasks = [asyncio.create_task(runner.job(each).wait_if_there_async()) for each in handles]
    with pytest.raises(TransloadTimeout):
        await runner.job(handles[0]).wait_if_there_async(timeout=0.05)
    assert len(threads()) == 1
    control.open("go")
    statuses = await asyncio.gather(*tasks)
    assert [status and status.state.name for status in statuses] == ["SUCCEEDED"] * 20


async def test_waiting_costs_no_time_of_the_processor(runner: Runner) -> None:
    """While a query is slow, who waits in an event loop does not spin."""
    board = Board()
    answer = threading.Event()

    def describe(app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        answer.wait(60)
        return {app_id: AppDescription(app_id, AppStatus(AppState.SUCCEEDED)) for app_id in app_ids}

    board.describe = describe  # type: ignore[method-assign]
    waiting = asyncio.create_task(runner_of(board).job("board://t/a").wait_async())
    await asyncio.sleep(0.05)
    before = time.process_time()
    await asyncio.sleep(1.0)
    spent = time.process_time() - before
    answer.set()
    assert (await waiting).state is AppState.SUCCEEDED
    assert spent < 0.2


async def test_a_cancelled_waiter_leaves_nothing(control: ScriptedControl, runner: Runner) -> None:
    """A task that is cancelled while it waits ends its subscription."""
    handle = runner.run(scripted_app("a", {"steps": ["RUNNING"]}), "scripted")
    task = asyncio.create_task(runner.job(handle).wait_if_there_async())
    while not watched():
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for_end)


def test_events_are_fired() -> None:
    """Plugins are told of each change of state or attempt, with an id that repeats for the same
    change.
    """
    events: list[AppEvent] = []

    class Listener:
        @hookimpl
        def transload_app_event(self, event: AppEvent) -> None:
            events.append(event)

    board = Board()
    board.set("a", AppState.RUNNING)
    get_plugins().register(Listener(), "listener")
    try:
        seen = collect(runner_of(board), "a")
        seen.get(timeout=10)
        board.set("a", AppState.RUNNING, num_restarts=1)
        seen.get(timeout=10)
        board.set("a", AppState.SUCCEEDED, num_restarts=1)
        seen.get(timeout=10)
    finally:
        get_plugins().unregister("listener")
    assert [(event.state.name, event.attempt) for event in events] == [
        ("RUNNING", 0),
        ("RUNNING", 1),
        ("SUCCEEDED", 1),
    ]
    assert len({event.id for event in events}) == 3


@pytest.mark.parametrize("push", [False, True])
def test_a_slow_plugin_holds_up_its_own_job_alone(push: bool) -> None:
    """Others are followed meanwhile. Its waiters hear of the end once the plugin has."""
    begun, go, heard = threading.Event(), threading.Event(), []

    class Slow:
        @hookimpl
        def transload_app_event(self, event: AppEvent) -> None:
            heard.append((event.handle[-1], event.state.name))
            if event.handle.endswith("/slow-a") and event.state is AppState.SUCCEEDED:
                begun.set()
                assert go.wait(30)

    board = Board(push)
    for app_id in ("slow-a", "slow-b"):
        board.set(app_id, AppState.RUNNING)
    runner = runner_of(board)
    get_plugins().register(Slow(), "slow")
    try:
        first, second, third = (collect(runner, each) for each in ("slow-a", "slow-a", "slow-b"))
        for each in (first, second, third):
            assert each.get(timeout=10).status.state is AppState.RUNNING
        board.set("slow-a", AppState.SUCCEEDED)
        assert begun.wait(10)
        board.set("slow-b", AppState.SUCCEEDED)
        assert third.get(timeout=10).final
        asked = len(board.queries)
        assert first.empty() and second.empty()
        time.sleep(0.3)
        assert len(board.queries) - asked < 20, "it is not asked without a pause"
        go.set()
        assert first.get(timeout=10).final and second.get(timeout=10).final
    finally:
        go.set()
        get_plugins().unregister("slow")
    assert [state for app, state in heard if app == "a"] == ["RUNNING", "SUCCEEDED"]
    assert [state for app, state in heard if app == "b"] == ["RUNNING", "SUCCEEDED"]


def test_a_forked_child_has_a_follower_of_its_own() -> None:
    """A thread does not survive a fork, and the child does not wait for the parent's."""
    board = Board()
    board.set("a", AppState.RUNNING)
    collect(runner_of(board), "a").get(timeout=10)
    pid = os.fork()
    if pid == 0:
        mine = not watched()
        board.set("b", AppState.SUCCEEDED)
        os._exit(0 if mine and collect(runner_of(board), "b").get(timeout=10).final else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_handles_are_parsed() -> None:
    """The job id may hold what a handle encodes."""
    board = Board()
    board.set("ns:a b", AppState.SUCCEEDED)
    handle = "board://t/ns:a%20b"
    assert parse_app_handle(handle).app_id == "ns:a b"
    assert runner_of(board).wait(handle) is not None


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process at its limit of threads fails once, and watches when there is one again (the limit
    is a stand-in).
    """
    board, start = Board(), threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    board.set("a", AppState.SUCCEEDED)
    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError, match="new thread"):
        watch(board, "board://s/a")  # type: ignore[arg-type]
    monkeypatch.setattr(threading.Thread, "start", start)
    with watch(board, "board://s/a") as news:  # type: ignore[arg-type]
        seen = news.next(10)
    assert seen is not None and seen.final


def test_tending_that_fails_ends_nobodys_waiting() -> None:
    """An error that nobody foresaw, in what an owner does for an app, costs a look, and not all who
    wait.
    """

    class Clumsy(Board):
        failed = False

        def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
            return {
                app_id: AppDescription(app_id, AppStatus(AppState.SUCCEEDED), needs_reconcile=True)
                for app_id in app_ids
            }

        def reconcile(self, app_id: str) -> None:
            if not self.failed:
                self.failed = True
                raise RuntimeError("can't start new thread")

    board = Clumsy()
    with watch(board, "board://s/a") as news:  # type: ignore[arg-type]
        seen = [news.next(10), news.next(10)]
    assert [each and each.status and each.status.state for each in seen] == [
        AppState.UNKNOWN,
        AppState.SUCCEEDED,
    ]
