"""Reasons to stop an app are seen, whatever the server does."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import pytest


class Killed:
    """Stands for an execution, and notes that it was killed.

    The real one would be killed just so. What counts is when.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.kills = 0

    def kill(self, asked: bool | None = None) -> None:
        """Note it."""
        self.kills += 1
        self.event.set()


def test_a_server_that_does_not_answer_holds_up_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the question for the flow run's state is open, an ending task runner still ends its
    apps.
    """
    from transload_prefect import api, watch

    asked, answer, stop = threading.Event(), threading.Event(), threading.Event()

    def client() -> Any:
        asked.set()
        answer.wait(60)
        raise ConnectionError("no answer")

    monkeypatch.setattr(api, "client", client)
    monkeypatch.setattr(watch, "ASK_INTERVAL", 0.0)
    execution: Any = Killed()
    try:
        with watch.FlowRunWatch(uuid4()).around(execution, stop.is_set):
            assert asked.wait(30)
            stop.set()
            assert execution.event.wait(30)
    finally:
        answer.set()


def test_an_app_is_told_once_that_it_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its execution asks its scheduler again by itself, with pauses."""
    from transload_prefect import watch

    seen = watch.FlowRunWatch(uuid4())
    seen.cancelled = True
    monkeypatch.setattr(
        watch, "background", lambda errand: type("None", (), {"post": lambda self, job: None})()
    )
    execution: Any = Killed()
    with seen.around(execution, lambda: True):
        for _ in range(4):
            seen._look(False)
    assert execution.kills == 1
