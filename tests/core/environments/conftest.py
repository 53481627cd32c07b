"""Fixtures for an index of packages on loopback, and a folder of scripts that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from transload_testing.packages import PackageIndex, package_index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index with the package ``tiny``, the only one that uv and pip ask."""
    with package_index(tmp_path / "index") as served:
        served.add("tiny", "1.0")
        served.be_the_only_one(monkeypatch)
        yield served


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working directory an empty folder of one's own."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
