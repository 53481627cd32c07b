"""A scripted scheduler and a runner of the test's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.following import Follower, get_follower
from transload.runner import Runner
from transload_testing.scripted import ScriptedControl


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedControl:
    """Directs the scripted scheduler of this test; child processes and runners find the same one."""
    made = ScriptedControl(tmp_path / "scripted")
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def runner(control: ScriptedControl) -> Iterator[Runner]:
    """A runner with the scripted scheduler."""
    with Runner("host", inherit_env=False) as made:
        yield made


@pytest.fixture
def follower() -> Iterator[Follower]:
    """A follower of the test's own; it leaves no thread behind."""
    made = Follower()
    yield made
    made.close()
    assert made.watched == 0


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Fail the test that leaves a thread behind that follows apps."""
    yield
    left = [each for each in threading.enumerate() if each.name in ("transload-states", "transload-logs")]
    for thread in left:
        thread.join(5.0)
    left = [each for each in left if each.is_alive()]
    assert not left, f"left behind: {left}, watching {get_follower().watched}"
