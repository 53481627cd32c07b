"""Fixtures of the core's suite."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.runner import Runner
from transload.schedulers import watched
from transload.schedulers.follower import release
from transload_testing.scripted import ScriptedControl


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files that have such tests where `-m unit` asks for no others."""
    if config.option.markexpr != "unit" or not collection_path.match("test_*.py"):
        return None
    return True if b"pytest.mark.unit" not in collection_path.read_bytes() else None


@pytest.fixture
def plain_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty current directory, so that no settings file of this repository is in force."""
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    return str(folder)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedControl:
    """Control the scripted scheduler of this test, which child processes and runners find too."""
    made = ScriptedControl(tmp_path / "scripted")
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def runner(control: ScriptedControl) -> Iterator[Runner]:
    """A runner with the scripted scheduler."""
    with Runner("host", inherit_env=False) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Fail the test that leaves a thread behind that follows apps."""
    yield
    release()
    left = [
        each
        for each in threading.enumerate()
        if each.name in ("transload-states", "transload-logs")
    ]
    for thread in left:
        thread.join(5.0)
    left = [each for each in left if each.is_alive()]
    assert not left, f"left behind: {left}, watching {watched()}"
