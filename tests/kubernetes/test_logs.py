"""The cost of reading a log grows with its length, and no faster."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner, log_lines
from transload.schedulers.api import LogQuery, Stream
from transload.specs import AppState, RetryPolicy
from transload_kubernetes import logs
from transload_kubernetes.scheduler import create_scheduler

LINES = 30_000
FAST = f"seq -f 'line %06g of a program that writes fast ...........................' {LINES}"
STAMP = 31
"""Bytes of a time in front of a line."""


def size(lines: list[str]) -> int:
    """Return how many bytes a cluster sends for lines."""
    return sum(len(line) + STAMP for line in lines)


def test_each_line_is_sent_once(fake: Any, runner: Runner, shell: Any) -> None:
    """Of each attempt of each replica the log is sent once, however many pages it takes."""
    failing = f'{FAST}; exit "$((1 - TRANSLOAD_RETRY))"'
    app = shell(failing, replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    handle = runner.run(app, "kubernetes", {"jobset": "never"})
    assert runner.wait(handle, timeout=90).state is AppState.SUCCEEDED
    for k in range(2):
        before = fake.cluster.sent
        lines = list(runner.log_lines(handle, "main", k))
        assert len(lines) == 2 * LINES
        assert fake.cluster.sent - before < 1.1 * size(lines)


def test_each_line_is_sent_once_in_small_pages(
    fake: Any, runner: Runner, scheduler: Any, shell: Any
) -> None:
    """The size of a page has no part in it."""
    handle = runner.run(shell(FAST), "kubernetes")
    runner.wait(handle, timeout=90)
    app_id = handle.rpartition("/")[2]
    before, cursor, lines = fake.cluster.sent, None, []
    while not (
        page := scheduler.log_read(app_id, LogQuery("main", 0, Stream.COMBINED, cursor, 20_000))
    ).complete:
        lines += page.lines
        assert sum(map(len, page.lines)) < 20_100
        cursor = page.cursor
    assert len(lines + page.lines) == LINES
    assert fake.cluster.sent - before < 1.1 * size(lines)


@pytest.mark.parametrize("streams", [64, 0])
def test_following_a_program_that_writes_fast(
    fake: Any,
    runner: Runner,
    scheduler: Any,
    shell: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    streams: int,
) -> None:
    """Whoever follows it gets each line once, and so does the one whose pods are read in turns."""
    monkeypatch.setattr(logs, "MAX_STREAMS", streams)
    parts = [f"{FAST}; until test -e {tmp_path}/{part}; do sleep 0.05; done" for part in range(3)]
    handle = runner.run(shell("; ".join([*parts, FAST])), "kubernetes")
    lines: list[str] = []
    for line in log_lines(scheduler, handle.rpartition("/")[2], "main", 0, follow=True):
        lines.append(line)
        if len(lines) % LINES == 0:  # what comes after it was written while somebody follows
            (tmp_path / str(len(lines) // LINES - 1)).touch()
    assert len(lines) == 4 * LINES
    # every request begins with the last second: three where there is a stream, else one in each
    # turn
    assert fake.cluster.sent < 4 * size(lines)
    assert sum("follow=true" in each for each in fake.cluster.requests) == min(streams, 1)


def test_a_place_needs_no_clock(fake: Any, runner: Runner, scheduler: Any, shell: Any) -> None:
    """Another process goes on where one has stopped, and is sent no more than what came within that
    second.
    """
    handle = runner.run(shell(f"{FAST}; sleep 2.5; echo last"), "kubernetes")
    runner.wait(handle, timeout=90)
    app_id = handle.rpartition("/")[2]
    place = None
    for _ in range(1000):
        page = scheduler.log_read(app_id, LogQuery("main", 0, Stream.COMBINED, place))
        if page.lines[-1:] == ["last\n"]:
            break
        place = page.cursor
    assert page.lines[-1:] == ["last\n"]
    other = create_scheduler("other")
    before = fake.cluster.sent
    again = other.log_read(app_id, LogQuery("main", 0, Stream.COMBINED, page.cursor))
    assert (again.lines, again.complete) == ([], True)
    assert fake.cluster.sent - before < 1000
    earlier = other.log_read(app_id, LogQuery("main", 0, Stream.COMBINED, place))
    assert earlier.lines == page.lines
    other.close()
    assert not [each for each in fake.cluster.requests if "sinceSeconds" in each]


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_lines_after_a_suspension(
    fake: Any, runner: Runner, shell: Any, eventually: Any, tmp_path: Path, jobset: str
) -> None:
    """Whoever follows a job that somebody suspends and resumes gets the lines of its next pod, too.

    Until then its replica waits. It has not ended.
    """
    plural = {"never": "jobs", "always": "jobsets"}[jobset]
    command = f"echo begun; until test -e {tmp_path}/go; do sleep 0.05; done; echo end"
    handle = runner.run(shell(command), "kubernetes", {"jobset": jobset})
    lines: list[str] = []
    seen: list[AppState] = []

    def follow() -> None:
        lines.extend(runner.log_lines(handle, "main", should_tail=True))

    def look() -> AppState:
        status = runner.status(handle)
        assert status is not None
        (replica,) = status.roles[0].replicas
        seen.append(replica.state)
        return replica.state

    def suspend(value: bool) -> None:
        (item,) = fake.cluster.items(plural)
        change = {"spec": {"suspend": value}}
        fake.cluster.patch(plural, "default", item["metadata"]["name"], change)

    thread = threading.Thread(target=follow)
    thread.start()
    eventually(lambda: look() is AppState.RUNNING, 30)
    suspend(True)
    eventually(lambda: look() is not AppState.RUNNING, 30)
    eventually(lambda: look() and not fake.cluster.items("pods"), 30)
    suspend(False)
    eventually(lambda: look() is AppState.RUNNING, 30)
    (tmp_path / "go").touch()
    ended = runner.wait(handle, timeout=60)
    thread.join(30)
    assert ended is not None and ended.state is AppState.SUCCEEDED
    assert lines == ["begun\n", "begun\n", "end\n"]
    waits = {AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING}
    assert set(seen) <= waits


def test_requests_that_nobody_reads_on_are_closed(
    fake: Any, runner: Runner, scheduler: Any, shell: Any
) -> None:
    """A page that was the last one asked for leaves no request open for ever, and no thread."""
    scheduler._logs._open.idle_seconds = 0.0
    handle = runner.run(shell(FAST, replicas=3), "kubernetes")
    runner.wait(handle, timeout=90)
    app_id = handle.rpartition("/")[2]
    for k in range(3):
        page = scheduler.log_read(app_id, LogQuery("main", k, Stream.COMBINED, None, 1000))
        assert scheduler.log_read(
            app_id, LogQuery("main", k, Stream.COMBINED, page.cursor, 1000)
        ).lines
    assert len(scheduler._logs._open) == 1
    scheduler.close()
    assert not scheduler._logs._open
    assert not [each for each in threading.enumerate() if "kubernetes-log" in each.name]
