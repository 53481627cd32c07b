"""What a flow run keeps about its apps, and the threads that keep it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest


def _notes(host: Any) -> tuple[UUID, Any]:
    from transload_prefect.context import RunContext
    from transload_prefect.notes import notes_of

    flow = host.post("/flows/", name="notes")
    flow_run_id = UUID(host.post("/flow_runs/", flow_id=flow["id"])["id"])
    return flow_run_id, notes_of(RunContext("train", "train#0", flow_run_id))


def _kept(host: Any, flow_run_id: UUID) -> dict[str, str]:
    found = host.artifacts(flow_run_id)
    return dict(found[0]["metadata_"]) if found else {}


def test_how_far_a_log_came_is_kept_after_its_lines(
    host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor is stored once the server has its lines. One that is put meanwhile follows."""
    from transload_prefect import notes

    waits: list[float] = []
    jobs: list[Any] = []

    class Waiting:
        ending = False

        def post(self, job: Any, after: float = 0.0) -> None:
            waits.append(after)
            jobs.append(job)

    def arrives(moment: datetime) -> None:
        line = {"name": "x", "level": 20, "message": "line", "timestamp": moment.isoformat()}
        host.ask("POST", "/logs/", [{**line, "flow_run_id": str(flow_run_id)}])

    flow_run_id, made = _notes(host)
    monkeypatch.setattr(notes, "background", Waiting)
    arrives(datetime.now(UTC))  # of an earlier line
    made.cursor.handing()
    handed = datetime.now(UTC)
    made.cursor.put({"n": 1})
    jobs.pop()()
    assert _kept(host, flow_run_id) == {}
    made.cursor.handing()
    made.cursor.put({"n": 2})
    assert made.cursor.get() == {"n": 2}
    arrives(handed)
    jobs.pop()()
    assert _kept(host, flow_run_id)["transload.log"] == '{"n": 1}'
    arrives(datetime.now(UTC))
    jobs.pop()()
    assert _kept(host, flow_run_id)["transload.log"] == '{"n": 2}'
    assert jobs == []
    assert waits == [1.5, 1.5, 1.5]  # Prefect sends every half second here


def test_notes_outlive_the_process(
    host: Any, drain: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process reads what was kept, and makes a note anew whose artifact was deleted."""
    from transload_prefect import notes
    from transload_prefect.context import RunContext

    flow_run_id, made = _notes(host)
    made.put({"handle": "local://x/app"})
    drain()
    made.cursor.put({"n": 1})
    drain()
    notes._notes_in.cache_clear()
    again = notes.notes_of(RunContext("train", "train#0", flow_run_id))
    assert again is not None and again is not made
    assert (again.get(), again.cursor.get()) == ({"handle": "local://x/app"}, {"n": 1})
    host.ask("DELETE", f"/artifacts/{host.artifacts(flow_run_id)[0]['id']}")
    again.put({"handle": "local://x/app", "lost": True})
    assert set(_kept(host, flow_run_id)) == {"transload.unit", "transload.app", "transload.log"}


def test_a_zero_byte_does_not_reach_the_server() -> None:
    """A zero byte in a line is shown as unreadable, since a database may refuse a whole batch."""
    from transload.schedulers.api import Stream
    from transload_prefect.context import RunContext
    from transload_prefect.traces import Traces

    lines: list[str] = []
    logger = logging.getLogger("test_notes.zero")
    logger.setLevel(logging.INFO)
    logger.addFilter(lambda record: lines.append(record.getMessage()) or False)
    context = RunContext("train", None, None)
    traces = Traces(context, logger, artifacts=False, events=False, stderr_level=logging.WARNING)
    traces.sink("main", 0, Stream.STDOUT, "a\0b\n")
    assert lines == ["main/0 a\ufffdb"]


def test_jobs_are_done_when_they_are_due() -> None:
    """A job for later lets those for now pass, and is done at once when the process ends."""
    from transload_prefect.background import Background

    made, done, now = Background("test"), list[str](), threading.Event()
    try:
        made.post(lambda: done.append("later"), after=3600)
        made.post(lambda: done.append("now"))
        made.post(now.set)
        assert now.wait(30)
        assert done == ["now"]
    finally:
        made.stop()
    assert done == ["now", "later"]


def test_what_is_asked_while_the_process_ends_is_done() -> None:
    """What a last job posts is done before the thread ends. An error ends nothing."""
    from transload_prefect.background import Background

    made, began, ending, last = (
        Background("test"),
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )

    def job() -> None:
        began.set()
        assert ending.wait(30)
        made.post(last.set, after=3600)
        raise ConnectionError("nobody there")

    made.post(job)
    assert began.wait(30)
    threading.Timer(0.1, ending.set).start()
    made.stop()
    assert made.ending
    assert last.is_set()
    assert made._thread is not None and not made._thread.is_alive()


def test_a_handle_is_noted_before_its_submit_has_returned(
    host: Any, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """The server is told of an app although the task has not gone on yet."""
    from jobs import job
    from prefect import flow

    from transload.pipelines import Driver
    from transload_prefect import app_task

    def late(self: Driver, handle: str, really: Any = Driver.attach) -> None:
        noted = [
            dict(each["metadata_"] or {})
            for each in eventually(lambda: host.artifacts(flow_run_ids[0]), 30)
        ]
        assert [handle in each["transload.app"] for each in noted] == [True]
        really(self, handle)

    @flow
    def work() -> None:
        from prefect.runtime import flow_run

        flow_run_ids.append(UUID(flow_run.id))
        app_task(job, name="train", artifacts=False)()

    flow_run_ids: list[UUID] = []
    monkeypatch.setattr(Driver, "attach", late)
    work()
