"""Finding and describing adapters."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from transload.errors import ConfigError, PluginError
from transload.pipelines import AdapterCapabilities, StateMap, get_adapter
from transload.pipelines.adapter import adapters, describe_adapters
from transload.plugins import Plugins, hookimpl, manager
from transload.plugins.hookspecs import Register
from transload.specs import AppState


class Cron:
    """An adapter."""

    name = "cron"
    state_map = StateMap("Cron", {state: state.name.lower() for state in AppState})
    capabilities = AdapterCapabilities(deferred=True, notes={"ports": "not yet"})

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return the source."""
        return source

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return a text."""
        return "dry"


class Vague(Cron):
    """An adapter that does not say what it can do in the way that all do."""

    capabilities: Any = "all"


def broken() -> Cron:
    """Fail."""
    raise ValueError("no cron here")


class CronPlugin:
    """Registers adapters, good and bad."""

    @hookimpl
    def transload_adapters(self, register: Register) -> None:
        """Register them."""
        register("cron", Cron)
        register("broken", broken)
        register("half", lambda: object())
        register("vague", Vague)
        register("absent", "no.such.module:thing")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of this test alone."""
    mine = Plugins(entry_points=[])
    mine.register(CronPlugin(), "crons")
    monkeypatch.setattr(manager, "_plugins", mine)


def test_get_adapter() -> None:
    """By name, with the nearest one suggested."""
    assert adapters() == ["absent", "broken", "cron", "half", "vague"]
    assert get_adapter("cron").convert("x") == "x"
    with pytest.raises(ConfigError, match="'cron'"):
        get_adapter("corn")


@pytest.mark.parametrize(
    ("name", "says"),
    [("broken", "no cron"), ("half", "lacks"), ("vague", "lacks"), ("absent", "cannot be loaded")],
)
def test_broken_adapters_are_the_plugins_fault(name: str, says: str) -> None:
    """One clear line that names adapter and reason."""
    with pytest.raises(PluginError, match=says) as caught:
        get_adapter(name)
    assert name in str(caught.value)


def test_describe_adapters() -> None:
    """The table of adapters has what each can express, and does not fail for broken ones."""
    rows = {row["name"]: row for row in describe_adapters()}
    assert rows["cron"]["status"] == "ready"
    assert rows["cron"]["capabilities"]["deferred"] is True
    assert rows["cron"]["notes"] == {"ports": "not yet"}
    assert rows["cron"]["states"]["SUCCEEDED"] == "succeeded"
    assert rows["cron"]["plugin"] == "crons"
    assert "no cron here" in rows["broken"]["status"]
    assert "lacks" in rows["vague"]["status"]


def test_a_state_table_costs_little() -> None:
    """Reading a state map loads nothing that only a submit needs."""
    code = (
        "import sys; from transload.pipelines import StateMap; "
        "print([m for m in ('asyncio', 'pluggy', 'fsspec', 'subprocess') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
