"""Fixtures of the documentation's suite."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the plugins that are installed for their state tables, without the hosts that they
    need.
    """
    names = {
        path.parent.name for path in Path(__file__).parents[2].glob("plugins/[!_]*/pyproject.toml")
    }
    monkeypatch.setenv("TRANSLOAD_DISABLE_PLUGINS", ",".join(sorted(names - {"search"})))
