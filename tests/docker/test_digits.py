"""The unchanged digits trainer has the same accuracy over several containers as here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner, get_runner
from transload.specs import AppState

COMPONENT = Path(__file__).parents[2] / "examples" / "digits" / "component.py"
ARGUMENTS = {"replicas": 3, "epochs": 5, "seed": 7}


def train(runner: Runner, scheduler: str, **cfg: Any) -> float:
    """Train, and return the accuracy."""
    handle = runner.run_component(str(COMPONENT), ARGUMENTS, scheduler, cfg)
    status = runner.wait(handle, timeout=180)
    assert status is not None
    assert status.state is AppState.SUCCEEDED, "".join(
        line for k in range(3) for line in runner.log_lines(handle, "trainer", k)
    )
    accuracy = runner.results(handle).value("accuracy", "final")
    runner.delete(handle)
    return float(accuracy)


@pytest.mark.slow  # the session everywhere compares the accuracy of all engines
def test_digits(engine: Any, transload_home: Path) -> None:
    """Nothing changes but the scheduler's name and the image that the code is mounted into."""
    pytest.importorskip("sklearn")
    image = engine.python_image("transload-test/digits:1")
    with get_runner() as runner:
        docker = train(runner, "docker", image=image)
        local = train(runner, "local")
    assert docker == local
    assert docker > 0.8
