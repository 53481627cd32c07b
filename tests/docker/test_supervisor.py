"""Trouble with one job is no trouble for the supervisor's others, without an engine."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload_docker.engine import Engine, EngineError
from transload_docker.home import Home
from transload_docker.plan import Facts, Plan
from transload_docker.supervisor import Supervisor


@pytest.fixture
def supervisor(transload_home: Path) -> Supervisor:
    """A supervisor of an engine that nobody asks."""
    url = "tcp://127.0.0.1:1"
    return Supervisor(Engine(url), Home(url))


def test_an_app_that_nobody_understands(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The supervisor logs facts that it does not understand, looks at them again, and goes on."""

    def look(app_id: str) -> Any:
        raise KeyError("replicas")

    monkeypatch.setattr(supervisor, "_look", look)
    supervisor._look_safely("odd")
    assert supervisor._due["odd"] > time.monotonic()
    assert "job odd" in capsys.readouterr().err


def test_an_engine_that_is_away_is_not_an_apps_trouble(supervisor: Supervisor) -> None:
    """That the engine is away is told to the loop, which waits for it."""
    with pytest.raises(SchedulerUnavailable):
        supervisor._look_safely("any")


def test_an_engine_that_was_never_there(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor without an engine asks again each second, and stays."""
    asked: list[float] = []
    notes = supervisor.engine.notes

    def ask(*arguments: str) -> dict[str, Facts]:
        asked.append(time.monotonic())
        return notes(*arguments)

    monkeypatch.setattr(supervisor.engine, "notes", ask)
    supervisor.linger = 0.1
    supervisor.home.ensure()
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    thread.join(2.5)
    assert thread.is_alive()
    supervisor.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert 2 <= len(asked) <= 4


def test_rubbish_that_cannot_be_cleared(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that refuses to remove what a dead submit has left does not keep the supervisor from
    its apps.
    """

    def clear(app_id: str) -> Any:
        raise EngineError("driver failed to remove", 409)

    mine = Facts(Plan("mine", "u", supervisor.home.owner, (), 0.0))
    monkeypatch.setattr(supervisor.engine, "notes", lambda: {"mine": mine})
    monkeypatch.setattr(supervisor, "_unclaimed", lambda notes: {"rubbish"})
    monkeypatch.setattr(supervisor, "_clear", clear)
    assert supervisor._all() == {"mine"}
