"""Start one real Airflow for all tests that want one, and a fork server per worker for others."""

from __future__ import annotations

import atexit
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from airflow_server import AirflowServer
from orm_airflow import OrmAirflow
from scripts import Stage
from shared_server import SharedServer, shared_folder
from warm import AIRFLOW_TASKS, warm_up

from transload_testing import ScriptedControl

# before anything imports Airflow: it reads its settings, and makes its home, when it is imported
_HOME = tempfile.mkdtemp(prefix="transload-airflow-")
_OWNER = os.getpid()


def _remove_home() -> None:
    """Remove Airflow's home. A process that only hands out the tests runs no fixture that could."""
    if os.getpid() == _OWNER:
        shutil.rmtree(_HOME, ignore_errors=True)


atexit.register(_remove_home)
os.environ["AIRFLOW_HOME"] = _HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{_HOME}/airflow.db"
# for `airflow dags test` in 3.2, which asks for one and does not make one
os.environ["AIRFLOW__API_AUTH__JWT_SECRET"] = (
    "only-for-these-tests-0123456789abcdef0123456789abcdef"
)


@pytest.fixture(scope="session", autouse=True)
def _fork_server(_no_real_home: None) -> Iterator[None]:
    """End the fork server of the conformance suite, and remove Airflow's home."""
    yield
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
    multiprocessing.resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    _remove_home()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give a test on the real Airflow more time, as it may wait for its start or its turn."""
    for item in items:
        uses_airflow = "airflow" in getattr(item, "fixturenames", ())
        if uses_airflow and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(280, func_only=True))


def make_server() -> AirflowServer:
    """Make an Airflow with the DAGs of these tests, in a folder of its own."""
    home = Path(tempfile.mkdtemp(prefix="tl-af-"))
    environment = {
        "TRANSLOAD_HOME": str(home / "tl"),
        "TRANSLOAD_TRACKERS": "fsspec",
        "TRANSLOAD_TRACKER_FSSPEC_CONFIG": str(home / "tracked"),
        "SESAME": "open-sesame-7",
        **ScriptedControl(home / "scripted").environment(),
    }
    dags = Path(__file__).parent / "dags"
    return AirflowServer(home / "airflow", dags, environment, AIRFLOW_TASKS)


@pytest.fixture(scope="session")
def shared_airflow(
    _fork_server: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SharedServer, AirflowServer]]:
    """Return the real Airflow of all processes of this run, and leave nothing of it behind."""
    shared = SharedServer(shared_folder(tmp_path_factory.getbasetemp()), make_server)
    with shared.joined() as server:
        yield shared, server


@pytest.fixture
def alone() -> None:
    """No other test uses Airflow during this one, which ends parts of it."""


@pytest.fixture
def airflow(
    request: pytest.FixtureRequest, shared_airflow: tuple[SharedServer, AirflowServer]
) -> Iterator[AirflowServer]:
    """A real Airflow, with the DAGs of these tests."""
    shared, server = shared_airflow
    with shared.used(alone="alone" in request.fixturenames):
        yield server


@pytest.fixture
def stage(airflow: AirflowServer) -> Stage:
    """Scripted apps on the real Airflow."""
    return Stage(airflow, ScriptedControl(airflow.environment["TRANSLOAD_SCRIPTED_DIR"]))


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedControl:
    """Scripted apps of a test's own."""
    control = ScriptedControl(tmp_path / "scripted")
    for name, value in control.environment().items():
        monkeypatch.setenv(name, value)
    import transload.runner.api as shared

    monkeypatch.setattr(shared, "_runners", {})
    return control


@pytest.fixture(scope="session")
def database() -> None:
    """Airflow's database, and a server that forks processes which know Airflow."""
    from airflow.utils.db import initdb

    initdb()
    warm_up("airflow", "execution_api")


@pytest.fixture
def host(database: None, tmp_path: Path, control: ScriptedControl) -> Iterator[OrmAirflow]:
    """An Airflow without servers."""
    made = OrmAirflow(tmp_path, control)
    yield made
    made.close()
