"""The keeper, without an engine: trouble with one app is not the others'."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload_docker.engine import Engine, EngineError
from transload_docker.home import Home
from transload_docker.keeper import Keeper
from transload_docker.plan import Facts, Plan


@pytest.fixture
def keeper(transload_home: Path) -> Keeper:
    """A keeper of an engine that nobody asks."""
    url = "tcp://127.0.0.1:1"
    return Keeper(Engine(url), Home(url))


def test_an_app_that_nobody_understands(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Facts that no version foresaw are written to the keeper's log, and looked at again; it goes
    on.
    """

    def look(app_id: str) -> Any:
        raise KeyError("replicas")

    monkeypatch.setattr(keeper, "_look", look)
    keeper._look_safely("odd")
    assert keeper._due["odd"] > time.monotonic()
    assert "job odd" in capsys.readouterr().err


def test_an_engine_that_is_away_is_not_an_apps_trouble(keeper: Keeper) -> None:
    """That the engine is away is told to the loop, which waits for it."""
    with pytest.raises(SchedulerUnavailable):
        keeper._look_safely("any")


def test_an_engine_that_was_never_there(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that comes as the engine goes has seen no app, and waits: it asks again each second,
    and stays.
    """
    asked: list[float] = []
    notes = keeper.engine.notes

    def ask(*arguments: str) -> dict[str, Facts]:
        asked.append(time.monotonic())
        return notes(*arguments)

    monkeypatch.setattr(keeper.engine, "notes", ask)
    keeper.linger = 0.1
    keeper.home.ensure()
    thread = threading.Thread(target=keeper.run)
    thread.start()
    thread.join(2.5)
    assert thread.is_alive()
    keeper.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert 2 <= len(asked) <= 4


def test_rubbish_that_cannot_be_cleared(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that refuses to remove what a dead submit has left does not keep the keeper from
    its apps.
    """

    def clear(app_id: str) -> Any:
        raise EngineError("driver failed to remove", 409)

    mine = Facts(Plan("mine", "u", keeper.home.owner, (), 0.0))
    monkeypatch.setattr(keeper.engine, "notes", lambda: {"mine": mine})
    monkeypatch.setattr(keeper, "_unclaimed", lambda notes: {"rubbish"})
    monkeypatch.setattr(keeper, "_clear", clear)
    assert keeper._all() == {"mine"}
