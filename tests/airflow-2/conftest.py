"""Airflow 2 makes its home, and its database, where it is told to; nothing of it is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload_testing import ScriptedControl


@pytest.fixture(scope="session")
def airflow_2(_no_real_home: None) -> Iterator[dict[str, str]]:
    """The environment of an Airflow 2 with a database of its own."""
    home = Path(tempfile.mkdtemp(prefix="tl-af2-"))
    environment = {
        **os.environ,
        **ScriptedControl(home / "scripted").environment(),
        "TRANSLOAD_HOME": str(home / "tl"),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "*",
    }
    made = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], env=environment, capture_output=True, text=True
    )
    try:
        assert made.returncode == 0, made.stderr[-3000:]
        yield environment
    finally:
        shutil.rmtree(home, ignore_errors=True)
