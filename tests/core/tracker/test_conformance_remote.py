"""Run both tracking suites on real servers of S3 and SFTP. All are slow."""

from __future__ import annotations

import pytest

from transload_testing.trackers import ResultTrackerConformance, TrackerConformance


@pytest.mark.usefixtures("moto_s3")
@pytest.mark.slow
class TestMotoResults(ResultTrackerConformance):
    """Results on S3, with fewer writers and writes, since the server is one slow process."""

    writers = 2
    writes = 20
    kills = 4
    longest = 0.05
    preload = ("transload.runtime.tracking", "s3fs")

    @pytest.fixture
    def tracker_base(self, place: str) -> str:
        """A prefix of its own."""
        return f"s3://runs/{place}/results"


@pytest.mark.slow
@pytest.mark.usefixtures("moto_s3")
class TestMotoTracker(TrackerConformance):
    """Runs on S3, with fewer writes, since the server is one slow process."""

    writes = 8
    kills = 4
    longest = 0.05
    preload = ("transload.tracker.fsspec", "s3fs")

    @pytest.fixture
    def tracker_config(self, place: str) -> str:
        """A prefix of its own."""
        return f"s3://runs/{place}/runs"


@pytest.mark.slow
@pytest.mark.usefixtures("seaweed_s3")
class TestSeaweedResults(ResultTrackerConformance):
    """Results on another S3."""

    kills = 20
    longest = 0.05
    preload = ("transload.runtime.tracking", "s3fs")

    @pytest.fixture
    def tracker_base(self, place: str) -> str:
        """A prefix of its own."""
        return f"s3://runs/{place}/results"


@pytest.mark.slow
@pytest.mark.usefixtures("seaweed_s3")
class TestSeaweedTracker(TrackerConformance):
    """Runs on another S3."""

    writes = 100
    kills = 20
    longest = 0.05
    preload = ("transload.tracker.fsspec", "s3fs")

    @pytest.fixture
    def tracker_config(self, place: str) -> str:
        """A prefix of its own."""
        return f"s3://runs/{place}/runs"


@pytest.mark.slow
class TestSftpResults(ResultTrackerConformance):
    """Results over SFTP."""

    kills = 50
    longest = 0.02
    preload = ("transload.runtime.tracking", "paramiko")

    @pytest.fixture
    def tracker_base(self, sftp_url: str, place: str) -> str:
        """A folder of its own."""
        return f"{sftp_url}/{place}/results"


@pytest.mark.slow
class TestSftpTracker(TrackerConformance):
    """Runs over SFTP."""

    writes = 100
    kills = 50
    longest = 0.02
    preload = ("transload.tracker.fsspec", "paramiko")

    @pytest.fixture
    def tracker_config(self, sftp_url: str, place: str) -> str:
        """A folder of its own."""
        return f"{sftp_url}/{place}/runs"
