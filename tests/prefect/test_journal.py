"""What a flow run keeps about its apps reaches the server, whatever else goes wrong."""

from __future__ import annotations

import contextvars
import logging
import threading
from typing import Any
from uuid import UUID

import httpx
import pytest


def _flow_run(host: Any) -> UUID:
    flow = host.post("/flows/", name="journal")
    return UUID(host.post("/flow_runs/", flow_id=flow["id"])["id"])


def test_a_refused_line_holds_up_no_other(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One line that the server refuses for good is left out and named; those before and after it arrive, once."""
    from transload_prefect.journal import Journal

    flow_run_id = _flow_run(host)
    journal = Journal(flow_run_id)
    for n in range(5):
        journal.line("test", logging.INFO, f"line {n}", "no such id" if n == 2 else None)
    with caplog.at_level(logging.WARNING, "transload_prefect"):
        journal.flush()
    assert [line["message"] for line in host.logs(flow_run_id)] == ["line 0", "line 1", "line 3", "line 4"]
    assert "refused a log line" in caplog.text and "line 2" in caplog.text


def test_lines_outlive_a_silent_server(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that could not be sent when the process ends are tried again, and none comes twice."""
    from transload_prefect import api, journal

    flow_run_id = _flow_run(host)
    made = journal.Journal(flow_run_id)
    client = api.client()
    send, failures = client.create_logs, iter([True, True])

    def create_logs(lines: Any) -> Any:
        if next(failures, False):
            raise httpx.ConnectError("nobody there")
        return send(lines)

    monkeypatch.setattr(client, "create_logs", create_logs)
    monkeypatch.setattr(journal, "LAST_PAUSES", (0.0, 0.0))
    made.line("test", logging.INFO, "the last line", None)
    assert made._look(True) is False
    assert [line["message"] for line in host.logs(flow_run_id)] == ["the last line"]


def test_a_watcher_added_while_its_like_ends_is_kept() -> None:
    """A look that ends while an equal one is asked for does not take that with it, also when the process ends."""
    from transload_prefect.background import Background

    made = Background()
    looks: list[bool] = []
    again = threading.Event()

    def look(last: bool) -> bool:
        looks.append(last)
        if len(looks) == 1:
            contextvars.Context().run(made.watch, look)
        else:
            again.set()
        return False

    contextvars.Context().run(made.watch, look)
    assert again.wait(30)
    made.stop()


def test_last_look_for_what_is_asked_while_the_process_ends() -> None:
    """What a last job asks to be watched is looked at once more before the thread ends."""
    from transload_prefect.background import Background

    made = Background()
    looks: list[bool] = []
    ending = threading.Event()

    def look(last: bool) -> bool:
        looks.append(last)
        return True

    def job() -> None:
        ending.wait(30)
        made.watch(look)

    made.post(job)
    threading.Timer(0.1, ending.set).start()
    made.stop()
    assert looks[-1] is True
    assert made._thread is None
