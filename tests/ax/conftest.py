"""Import Ax once per process. Trials find this environment's programs and the tests' components."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER)] if str(FOLDER) not in sys.path else []
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# processes that tests start find the components too
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(FOLDER), os.environ.get("PYTHONPATH", "")])
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let warnings of Ax and its dependencies pass. Ours stay errors where a test says so."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("error:::transload"))
        item.add_marker(pytest.mark.filterwarnings("ignore"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Import Ax before the first test's time begins, as that alone can take a minute."""
    if any("conformance" not in item.path.name for item in session.items):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("ax_experiment")
            importlib.import_module("ax.orchestration.orchestrator")


@pytest.fixture
def base(tmp_path: Path) -> str:
    """A tracker base of the test's own."""
    return str(tmp_path / "results")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """Return a file that trials wait for, which is made at the end at the latest."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.fixture
def sobol() -> Callable[[], Any]:
    """Make a generation strategy that needs no model."""
    import ax_experiment

    return ax_experiment.sobol


@pytest.fixture
def orchestrate(transload_home: Path, sobol: Callable[[], Any]) -> Iterator[Callable[..., Any]]:
    """Make Ax's own orchestrator for an experiment, and end all jobs after the test."""
    made: list[Any] = []

    def make(experiment: Any, parallel: int = 1, **options: Any) -> Any:
        import logging

        from ax.orchestration.orchestrator import Orchestrator, OrchestratorOptions

        made.append(experiment)
        settings = {
            "init_seconds_between_polls": 0,
            "min_seconds_before_poll": 0,
            "logging_level": logging.ERROR,
        }
        return Orchestrator(
            experiment,
            sobol(),
            OrchestratorOptions(max_pending_trials=parallel, **{**settings, **options}),
        )

    yield make
    for experiment in made:
        experiment.runner.close(cancel=True)


@pytest.fixture
def experiment(transload_home: Path, base: str) -> Iterator[Callable[..., Any]]:
    """Make an experiment over ``x`` in [-1, 3], and end all jobs after the test."""
    made: list[Any] = []

    def make(component: str = "ax_components:square", **more: Any) -> Any:
        import ax_experiment

        found = ax_experiment.experiment(component, **{"tracker_base": base, **more})
        made.append(found)
        return found

    yield make
    for each in made:
        each.runner.close(cancel=True)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    import logging

    logging.getLogger("ax").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        yield
