"""Logs on a real engine have whole lines, each once, through retries, restarts and reconnects."""

from __future__ import annotations

import time
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import SpecError
from transload.runner import Runner
from transload.schedulers import OpenReadings
from transload.schedulers.api import LogPage, LogQuery, Stream
from transload.schedulers.timed_log import Place
from transload.specs import AppState, RetryPolicy, parse_app_handle
from transload_docker.engine import Box
from transload_docker.logs import STDERR, STDOUT, Cursor
from transload_docker.logview import Key, LogView, Reached, Reading
from transload_docker.names import LABEL_ATTEMPT

PLACES = st.builds(Place, st.integers(0, 2**62), st.integers(0, 10**6))


@given(st.integers(0, 1000), PLACES, PLACES)
def test_cursor_round_trip(attempt: int, out: Place, err: Place) -> None:
    """A cursor survives being text."""
    cursor = Cursor(attempt, {STDOUT: out, STDERR: err})
    assert Cursor.of(cursor.text()) == cursor


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "1:2.3", "1:a.b:0.0", "1:2.3:4.5:6.7"])
def test_malformed_cursor(text: str) -> None:
    """What is not a cursor is refused, and shown."""
    with pytest.raises(SpecError, match="log cursor"):
        Cursor.of(text)


def test_since_allows_for_disorder_between_streams() -> None:
    """A silent stream does not make the engine read everything again, and may lag for seconds."""
    second = 1_000_000_000
    cursor = Cursor(0, {STDOUT: Place(99 * second, 1), STDERR: Place()})
    assert cursor.since((STDOUT,)) == 99 * second
    assert 80 * second < cursor.since((STDOUT, STDERR)) < 95 * second
    assert Cursor().since((STDOUT, STDERR)) == 0


class Recorded:
    """An engine that has taken these messages, each as (stream, nanoseconds, text)."""

    url = "recorded"

    def __init__(self, messages: list[tuple[int, int, str]]) -> None:
        self._messages = messages
        self.asked = 0
        self.containers: list[Box] = []

    def boxes(self, **labels: str) -> list[Box]:
        """Return the containers of the one replica."""
        return list(self.containers)

    def call(self, question: Any, *, again: bool = False) -> Any:
        """Ask this instead of a client."""
        return question(self)

    def _url(self, *parts: str) -> str:
        return "/".join(parts)

    def _raise_for_status(self, response: Any) -> None:
        pass

    def _get(self, url: str, *, params: dict[str, Any], stream: bool, timeout: None) -> Any:
        self.asked += 1
        since = round(float(params.get("since", 0)) * 1_000_000_000)
        data = b""
        for number, moment, text in self._messages:
            if params[{STDOUT: "stdout", STDERR: "stderr"}[number]] and moment >= since:
                payload = f"1970-01-01T00:00:{moment / 1e9:012.9f}Z {text}".encode()
                data += bytes([number, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload
        return SimpleNamespace(raw=BytesIO(data), close=lambda: None)


def box(status: str, attempt: int = 0) -> Box:
    """Return the container of an attempt of the one replica."""
    return Box(
        f"{attempt}" * 64, f"app.main.0.{attempt}", status, 0.0, {LABEL_ATTEMPT: str(attempt)}
    )


def test_a_stream_that_lags_behind_loses_nothing() -> None:
    """Read line by line, all lines come, though one stream is seconds late.

    With a recorded log: a real engine lags so only on a busy machine, now and then.
    """
    second = 1_000_000_000
    messages = [
        (STDOUT, second, "a\n"),
        (STDOUT, 30 * second, "b\n"),
        (STDERR, 2 * second, "late\n"),
    ]
    query = LogQuery("main", 0, Stream.COMBINED)
    view = LogView(Recorded(messages), "app", query, ended=True)  # type: ignore[arg-type]
    container: Any = SimpleNamespace(id="0" * 64)
    cursor, lines = Cursor(), []  # type: ignore[var-annotated]
    reached = Reached.FULL
    while reached is Reached.FULL:
        cursor = Cursor.of(cursor.text())
        budget = sum(line.size for line in lines) + 1
        reached = view._read(container, cursor, lines, budget, ended=True, is_final=True)
    assert [line.text for line in lines] == ["a\n", "late\n", "b\n"]


def test_pages_of_a_log_ask_for_it_once() -> None:
    """An engine looks for a place from the beginning on, so that a request goes on from page to
    page.

    With a recorded log: how much of it an engine reads cannot be seen from outside.
    """
    messages = [
        (STDOUT + number % 2, number * 1000 + 1, f"line {number}\n") for number in range(3000)
    ]
    engine: Any = Recorded(messages)
    engine.containers = [box("running")]
    kept: OpenReadings[Key, Reading] = OpenReadings()

    def page_behind(cursor: str | None) -> LogPage:
        query = LogQuery("main", 0, Stream.COMBINED, cursor, max_bytes=500)
        ended = engine.containers[0].status == "exited"
        return LogView(engine, "app", query, ended=ended, kept=kept).log_page()

    lines: list[str] = []
    cursor = None
    while (page := page_behind(cursor)).lines:
        lines += page.lines
        cursor = page.cursor
    assert lines == [text for _, _, text in messages]
    # both streams, the newest line, and both streams once more at their end: the container runs
    assert engine.asked == 5
    messages.append((STDOUT, 3_000_001, "later\n"))
    engine.containers = [box("exited")]
    page = page_behind(cursor)
    assert (page.lines, page.complete) == (["later\n"], True)
    page_behind(page_behind(None).cursor)
    assert len(kept)
    kept.close()
    assert not len(kept)


def test_an_attempt_that_could_not_be_started_hides_no_later_one() -> None:
    """An engine that dies while it starts a container leaves one that is for ever to be started,
    and has no log.

    With a recorded log: an engine dies there only now and then.
    """
    engine: Any = Recorded([(STDOUT, 1_000_000_000, "began\n")])
    engine.containers = [box("created")]
    query = LogQuery("main", 0, Stream.STDOUT)
    page = LogView(engine, "app", query, ended=False).log_page()
    assert page.lines == [] and not page.complete
    engine.containers.append(box("running", attempt=1))
    query = LogQuery("main", 0, Stream.STDOUT, page.cursor)
    page = LogView(engine, "app", query, ended=False).log_page()
    assert page.lines == ["began\n"] and not page.complete
    engine.containers[1] = box("exited", attempt=1)
    query = LogQuery("main", 0, Stream.STDOUT, page.cursor)
    page = LogView(engine, "app", query, ended=True).log_page()
    assert page.lines == [] and page.complete


def _pages(runner: Runner, handle: str, stream: Stream, max_bytes: int) -> list[str]:
    """Read a log page by page until it is complete."""
    scheduler = runner.scheduler("docker")
    app_id = parse_app_handle(handle).app_id
    found: list[str] = []
    cursor: str | None = None
    deadline = time.monotonic() + 60
    while True:
        page = scheduler.log_read(app_id, LogQuery("main", 0, stream, cursor, max_bytes))
        assert not page.dropped
        found += page.lines
        cursor = page.cursor
        if page.complete:
            return found
        assert time.monotonic() < deadline


def test_pages_while_it_writes(runner: Runner, shell: Any) -> None:
    """Pages read while both streams are written have every line once, in order."""
    count = 40
    command = f"for i in $(seq {count}); do echo out $i; echo err $i >&2; done; sleep 1; echo last"
    handle = runner.run(shell(command), "docker")
    expected = [f"out {i}\n" for i in range(1, count + 1)]
    found = _pages(runner, handle, Stream.COMBINED, 1)
    assert [line for line in found if line.startswith("out")] == expected
    assert [line for line in found if line.startswith("err")] == [
        line.replace("out", "err") for line in expected
    ]
    assert found[-1] == "last\n" and len(found) == 2 * count + 1
    assert _pages(runner, handle, Stream.STDERR, 1) == [
        line.replace("out", "err") for line in expected
    ]


def test_long_lines_of_both_streams_at_once(runner: Runner, shell: Any) -> None:
    """Lines of more than 16 kB, which the engine cuts, come back whole, also line by line."""
    piece = "printf '%s' $(head -c 50000 /dev/zero | tr '\\\\0' a)"
    command = f"for i in 1 2 3; do {piece}; {piece} >&2; echo $i; echo $i >&2; done"
    handle = runner.run(shell(command.replace("\\\\0", "\\0")), "docker")
    expected = ["a" * 50_000 + f"{i}\n" for i in (1, 2, 3)]
    assert _pages(runner, handle, Stream.STDOUT, 1) == expected
    assert sorted(_pages(runner, handle, Stream.COMBINED, 1)) == sorted(expected * 2)


def test_unfinished_line_of_an_earlier_attempt(runner: Runner, shell: Any) -> None:
    """Each attempt begins a line of its own, and the log is not complete before the last has
    ended.
    """
    app = shell(
        'printf "try $TRANSLOAD_RETRY"; exit 1', max_retries=1, retry_policy=RetryPolicy.REPLICA
    )
    handle = runner.run(app, "docker")
    assert _pages(runner, handle, Stream.STDOUT, 1 << 20) == ["try 0\n", "try 1"]
    status = runner.status(handle)
    assert status is not None and status.state is AppState.FAILED


def test_tail_ends_when_the_app_is_deleted(runner: Runner, shell: Any) -> None:
    """Following ends when somebody deletes the job."""
    handle = runner.run(shell("echo first; sleep 60"), "docker")
    tail = runner.log_lines(handle, "main", should_tail=True)
    next(tail)
    runner.delete(handle)
    assert list(tail) == []
