"""Copy a prepared MLflow database, since making one takes seconds."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of MLflow and of its dependencies.

    Those of our own code still fail a test.
    """
    for item in items:
        if "mlflow" in item.path.parts:
            for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}"))
            item.add_marker(pytest.mark.filterwarnings("error:::transload"))


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> Iterator[None]:
    """No usage reports from tests, and no settings of an outer MLflow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("MLFLOW_"):
                patch.delenv(name)
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("DO_NOT_TRACK", "true")
        yield


@pytest.fixture(scope="session")
def database(_quiet: None, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a fresh SQLite database of MLflow, which one process of the session makes for
    all.
    """
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    path = folder / "mlflow.db"
    with open(folder / "mlflow.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            mlflow = pytest.importorskip("mlflow")
            mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}.new").search_experiments()
            Path(f"{path}.new").rename(path)
    return path.read_bytes()


@pytest.fixture
def sqlite_uri(database: bytes, tmp_path: Path) -> Iterator[str]:
    """Tracking URI of a database of this test's own."""
    path = tmp_path / "mlflow.db"
    path.write_bytes(database)
    uri = f"sqlite:///{path}"
    yield uri
    _dispose(uri)


def _dispose(uri: str) -> None:
    """Close the connections that MLflow keeps for the life of the process."""
    store = pytest.importorskip("mlflow.store.tracking.sqlalchemy_store")
    engines = getattr(store.SqlAlchemyStore, "_engine_map", {})  # not in MLflow 3.1
    engine = engines.pop(uri, None)
    if engine is not None:
        engine.dispose()
