"""Log forwarding loses no line and repeats none, whatever happens in between."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transload.errors import AppFailed, AppNotFound, SchedulerUnavailable, SpecError
from transload.pipelines import ExecutionOptions, Identity, LogSink
from transload.pipelines.logs import LogForwarder
from transload.runner import Launch, Runner
from transload.runner.failures import failure_message
from transload.schedulers.api import AppDescription, LogPage, LogQuery, Stream
from transload.specs import AppDef, AppState, AppStatus, ReplicaStatus, Role, RoleStatus
from transload_testing.scripted import ScriptedControl, scripted_app
from transload_testing.steps import PlainStep


class Paper:
    """A scheduler that has logs and nothing else, with pages of random size, failing at times."""

    name = "paper"
    streams = frozenset(Stream)
    since_until = False

    def __init__(
        self, logs: dict[tuple[str, int, Stream], list[str]], seed: int = 0, mishaps: float = 0.0
    ) -> None:
        self.logs = logs
        self.ended = True
        self.gone = False
        self._random = random.Random(seed)
        self._mishaps = mishaps
        roles = sorted({role for role, _, _ in logs})
        counts = {role: 1 + max(k for each, k, _ in logs if each == role) for role in roles}
        self._app = AppDef(
            "a", [Role(role, "i", entrypoint="e", num_replicas=counts[role]) for role in roles]
        )

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Describe the app, or not."""
        self._maybe_fail()
        ended = AppStatus(AppState.SUCCEEDED)
        return {app_id: AppDescription(app_id, ended, self._app) for app_id in app_ids}

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return a page of random size."""
        self._maybe_fail()
        if self.gone:
            raise AppNotFound(app_id)
        lines = self.logs.get((query.role, query.replica, query.stream), [])
        start = int(query.cursor or 0)
        page = lines[start : start + self._random.randint(1, 5)]
        return LogPage(page, str(start + len(page)), self.ended and start + len(page) == len(lines))

    def _maybe_fail(self) -> None:
        if self._random.random() < self._mishaps:
            raise SchedulerUnavailable("now and then")


def paper(count: int = 50, mishaps: float = 0.0, seed: int = 0) -> Paper:
    """Return logs of two roles."""
    logs = {
        (role, k, stream): [f"{role}/{k} {stream.value} {n}\n" for n in range(count)]
        for role in ("one", "two")
        for k in range(2)
        for stream in (Stream.STDOUT, Stream.STDERR)
    }
    return Paper(logs, seed, mishaps)


def forward(scheduler: Paper, sink: LogSink, cursor: Any = None) -> LogForwarder:
    """Return what forwards the logs of that scheduler's app."""
    return LogForwarder("paper://t/a", lambda: (scheduler, "a"), sink, 2.0, cursor=cursor)  # type: ignore[arg-type, return-value]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.4), st.floats(0, 0.3), st.floats(0, 0.4))
def test_every_line_once(seed: int, mishaps: float, sink_fails: float, moves: float) -> None:
    """Failing queries, a failing sink and moves to another process lose no line and repeat none."""
    scheduler = paper(seed=seed, mishaps=mishaps)
    dice = random.Random(seed)
    got: dict[tuple[str, int, Stream], list[str]] = {}

    def sink(role: str, k: int, stream: Stream, line: str) -> None:
        if dice.random() < sink_fails / 10:
            raise OSError("the host's log is away")
        got.setdefault((role, k, stream), []).append(line)

    forwarder = forward(scheduler, sink)
    for _ in range(5000):
        try:
            forwarder.pump()
        except OSError:
            pass
        if forwarder.complete:
            break
        if dice.random() < moves:
            forwarder = forward(scheduler, sink, json.loads(json.dumps(forwarder.cursor)))
    assert got == scheduler.logs


def test_a_silent_app_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that are complete once they were read end it at once."""
    forwarder = forward(paper(0), print)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("paused"))
    forwarder.finish()
    assert forwarder.complete


def test_lines_that_come_later() -> None:
    """What is written after a look comes with the next. A log is complete only after the end."""
    scheduler = paper(3)
    scheduler.ended = False
    lines: list[str] = []
    forwarder = forward(scheduler, lambda *each: lines.append(each[3]))
    assert forwarder.pump() == 24
    assert forwarder.pump() == 0
    assert not forwarder.complete
    scheduler.logs["one", 0, Stream.STDOUT].append("late\n")
    assert forwarder.pump() == 1
    scheduler.ended = True
    forwarder.finish(0.0)
    assert forwarder.complete
    assert lines[-1] == "late\n"
    assert len(lines) == 25


def test_wrong_cursors() -> None:
    """What is no cursor of ours is refused."""
    for cursor in ({}, {"sources": {"x": [1]}}, {"schema": 99, "sources": {}}):
        with pytest.raises(SpecError, match="log cursor"):
            forward(paper(), print, cursor)


@pytest.mark.parametrize("host", ["forwards", "is deaf", "starts again"])
def test_last_lines_of_both_streams(control: ScriptedControl, tmp_path: Path, host: str) -> None:
    """A failure's message has them in order of time, whatever the host has forwarded, and in which
    of its lives.
    """
    gate = tmp_path / "gate"
    pairs = "for n in 1 2 3 4; do echo out $n; sleep 0.05; echo err $n >&2; sleep 0.05; done"
    script = f"{pairs}; until [ -e {gate} ]; do sleep 0.02; done; echo bye; exit 5"
    launch = Launch(
        app=AppDef("both", [Role("main", "", entrypoint="/bin/sh", args=["-c", script])]),
        scheduler="local",
    )
    who, options, seen = (
        Identity("host", ("here",), ("both",)),
        ExecutionOptions(tail_lines=4),
        list[str](),
    )

    class Listens(PlainStep):
        """Keeps the lines."""

        def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
            seen.append(line)

    with Runner("host") as runner:
        one = Listens(runner, launch, who, options)
        one.hands_on_lines = host != "is deaf"
        one.start()
        while host == "starts again" and len(seen) < 8:
            one.look()
            time.sleep(0.02)
        if seen:
            position = json.loads(json.dumps(one.cursor))
            handle = str(one.handle)
            one = Listens(runner, None, who, options)
            one.attach(handle, position)
        gate.touch()
        with pytest.raises(AppFailed) as caught:
            one.collect(one.follow())
    assert len(seen) == (0 if host == "is deaf" else 9)
    told = str(caught.value).splitlines()[2:]
    assert told == ["last lines of main/0:", "    err 3", "    out 4", "    err 4", "    bye"]


def status(*replicas: ReplicaStatus) -> AppStatus:
    """Return a failed status."""
    return AppStatus(
        AppState.FAILED, msg="retries used up", roles=[RoleStatus("main", list(replicas))]
    )


def test_failure_names_the_first_culprit() -> None:
    """Exit codes come before the signals that ended the rest of a gang, the earlier before the
    later.
    """
    ended = ReplicaStatus(0, AppState.FAILED, "main", "h", exit_code=-15, end_time=1.0)
    late = ReplicaStatus(1, AppState.FAILED, "main", "h", exit_code=1, end_time=3.0)
    first = ReplicaStatus(2, AppState.FAILED, "main", "h", exit_code=2, end_time=2.0, restarts=3)
    assert status(ended, late, first).first_failure() is first
    text = failure_message(
        status(ended, late, first),
        lambda role, k: [f"{role} {k}\n"] * 30,
        handle="h://x/y",
        lines=2,
    )
    assert text.splitlines() == [
        "h://x/y FAILED: retries used up",
        "main/2 exit code 2 on h after 3 restarts",
        "last lines of main/2:",
        "    main 2",
        "    main 2",
    ]
    error = '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "T:\\n  File a\\n    f()\\nE: x"}}}'
    said = ReplicaStatus(0, AppState.FAILED, "main", "h", error, exit_code=1)
    assert failure_message(status(said), lambda *_: ["x\n"]).splitlines()[2:5] == [
        *("    File a", "      f()", "last lines of main/0:")
    ]
    assert AppStatus(AppState.FAILED).first_failure() is None
    assert failure_message(AppStatus(AppState.FAILED)) == "the job FAILED"


def test_the_replica_that_the_scheduler_names_failed_first() -> None:
    """Another one's exit code may look like the first. What the message says does not matter."""
    other = ReplicaStatus(0, AppState.FAILED, "main", "", exit_code=1, end_time=1.0)
    named = ReplicaStatus(1, AppState.FAILED, "main", "", exit_code=-9, end_time=2.0)
    failed = status(other, named)
    failed.msg = "main/0 exit code 1: not this one"
    failed.failed = ("main", 1)
    assert AppStatus.from_json(failed.to_json()).first_failure() == named
    text = failure_message(failed, handle="h://x/y")
    assert text == f"h://x/y FAILED: {failed.msg}\nmain/1 killed by SIGKILL"
    failed.failed = ("other", 1)
    assert failed.first_failure() is other


@pytest.mark.parametrize("wrong", ["main/1", ["main"], ["main", "1"], ["main", True], {}, None])
def test_a_replica_that_is_none_is_not_read(wrong: object) -> None:
    """A record that a job or another version has written names nothing."""
    text = json.dumps({"state": "FAILED", "failed": wrong})
    assert AppStatus.from_json(text).failed is None


def test_tail_is_read_where_nothing_was_forwarded(control: ScriptedControl, runner: Runner) -> None:
    """The last lines are found also by a host that forwards no logs."""
    from transload.runner import tail

    steps = [{"state": "FAILED", "lines": [f"{n}" for n in range(100)]}]
    handle = runner.run(scripted_app("a", {"steps": steps}), "scripted")
    assert tail(runner.scheduler("scripted"), handle.rsplit("/", 1)[1], "main", 0, 2) == [
        "98\n",
        "99\n",
    ]
