"""Fixtures of the core's suite."""

from __future__ import annotations

import pytest


@pytest.fixture
def plain_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty current directory, so that no settings file of this repository is in force."""
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    return str(folder)
