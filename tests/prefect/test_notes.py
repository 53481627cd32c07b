"""What a flow run keeps about its apps, and the threads that keep it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID


def _notes(host: Any) -> tuple[UUID, Any]:
    from transload_prefect.notes import notes_of

    flow = host.post("/flows/", name="notes")
    flow_run_id = UUID(host.post("/flow_runs/", flow_id=flow["id"])["id"])
    return flow_run_id, notes_of(_context(flow_run_id))


def _context(flow_run_id: UUID) -> Any:
    """Return the context of a flow run, of which these tests need the id only."""
    from transload_prefect.runs import RunContext

    flow: Any = SimpleNamespace(flow_run=SimpleNamespace(id=flow_run_id))
    return RunContext("train", "train#0", flow)


def _kept(host: Any, flow_run_id: UUID) -> dict[str, str]:
    found = host.artifacts(flow_run_id)
    return dict(found[0]["metadata_"]) if found else {}


def test_notes_outlive_the_process(host: Any, drain: Callable[[], None]) -> None:
    """Another process reads what was kept, and makes a note anew whose artifact was deleted."""
    from transload_prefect import notes

    flow_run_id, made = _notes(host)
    made.submitted("local://x/app")
    drain()
    notes._notes_in.cache_clear()
    again = notes.notes_of(_context(flow_run_id))
    assert again is not None and again is not made
    assert (again.handle, again.generation) == ("local://x/app", "0")
    host.ask("DELETE", f"/artifacts/{host.artifacts(flow_run_id)[0]['id']}")
    assert not again.lost
    again.was_lost("local://x/app")
    assert again.lost
    again.end_generation("0")
    assert _kept(host, flow_run_id) == {
        "transload.lost": "local://x/app",
        "transload.unit": "train#0",
        "transload.handle": "local://x/app",
        "transload.generation": "1",
    }


def test_a_zero_byte_does_not_reach_the_server() -> None:
    """A zero byte in a line is shown as unreadable, since a database may refuse a whole batch."""
    from transload.schedulers.api import Stream
    from transload_prefect.runs import RunContext
    from transload_prefect.traces import Traces

    lines: list[str] = []
    logger = logging.getLogger("test_notes.zero")
    logger.setLevel(logging.INFO)
    logger.addFilter(lambda record: lines.append(record.getMessage()) or False)
    context = RunContext("train", "train#0")
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
