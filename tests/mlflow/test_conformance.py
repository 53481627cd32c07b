"""The tracker suite on a real MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from transload_testing.trackers import TrackerConformance


class TestSqlite(TrackerConformance):
    """On a database."""

    factory = "mlflow"
    writes = 25
    kills = 10
    longest = 0.02
    preload = ("transload_mlflow.tracker", "mlflow", "mlflow.store.tracking.sqlalchemy_store")

    @pytest.fixture
    def tracker_config(self, sqlite_uri: str) -> str:
        """A database of its own."""
        return sqlite_uri


@pytest.mark.slow
class TestSqliteLong(TestSqlite):
    """The same, with more kills."""

    kills = 30


IN_PLACE = "MLflow writes in place in a folder: a reader may meet a part, and a kill loses the value (README)"


class TestFolder(TrackerConformance):
    """The suite on a folder, which MLflow advises against, with one writer and no kills."""

    factory = "mlflow"

    @pytest.fixture
    def tracker_config(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A folder of its own."""
        monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        return f"file://{tmp_path}/mlruns"

    @pytest.mark.skip(reason=IN_PLACE)
    def test_killed_writers_do_no_harm(self) -> None:
        """Cannot hold here."""

    @pytest.mark.skip(reason=IN_PLACE)
    def test_no_torn_read(self) -> None:
        """Cannot hold here."""

    @pytest.mark.skip(reason=IN_PLACE)
    def test_distinct_names_are_all_there(self) -> None:
        """Cannot hold here."""

    @pytest.mark.skip(reason=IN_PLACE)
    def test_threads_share_a_tracker(self) -> None:
        """Cannot hold here."""
