"""Run the tracker suite on a local folder and in memory.

Other storages are in ``test_conformance_remote.py``.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from transload_testing.trackers import TrackerConformance


class TestFile(TrackerConformance):
    """On a local folder."""

    kills = 50

    @pytest.fixture
    def tracker_config(self, tmp_path: Path) -> str:
        """A folder that does not exist yet."""
        return str(tmp_path / "some" / "runs")


@pytest.mark.slow
class TestFileLong(TestFile):
    """The same, with more kills."""

    kills = 200


class TestMemory(TrackerConformance):
    """In the memory of one process."""

    processes = False
    writes = 100

    @pytest.fixture
    def tracker_config(self) -> str:
        """A place of its own."""
        return f"memory://{uuid.uuid4().hex}/runs"
