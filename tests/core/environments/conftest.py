"""Fixtures for an index of packages on loopback, and a folder of scripts that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from transload_testing.packages import PackageIndex, package_index


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index with the package ``tiny``, which uv and pip ask, with a cache of their own."""
    with package_index(tmp_path / "index") as served:
        served.add("tiny", "1.0")
        for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
            monkeypatch.setenv(name, served.url)
        for name in ("UV_FIND_LINKS", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "UV_LINK_MODE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
        monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
        monkeypatch.setenv("UV_HTTP_TIMEOUT", "5")
        yield served


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the working directory an empty folder of one's own."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
