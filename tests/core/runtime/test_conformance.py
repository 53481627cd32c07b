"""Run the results suite on a local folder and in memory.

Other storages are in ``test_conformance_remote.py``.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from transload_testing.trackers import ResultTrackerConformance


class TestFile(ResultTrackerConformance):
    """On a local folder."""

    kills = 50

    @pytest.fixture
    def tracker_base(self, tmp_path: Path) -> str:
        """A folder that does not exist yet."""
        return str(tmp_path / "some" / "results")


@pytest.mark.slow
class TestFileLong(TestFile):
    """The same, with more kills."""

    kills = 200


class TestMemory(ResultTrackerConformance):
    """In the memory of one process."""

    processes = False

    @pytest.fixture
    def tracker_base(self) -> str:
        """A place of its own."""
        return f"memory://{uuid.uuid4().hex}/results"
