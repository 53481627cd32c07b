"""Finding and describing adapters."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from transload.errors import ConfigError, PluginError
from transload.pipelines import Adapter, StateMap, get_adapter
from transload.pipelines.adapter import adapters, describe_adapters
from transload.plugins import Plugins, hookimpl, manager
from transload.plugins.hookspecs import Register
from transload.specs import AppState


def cron() -> Adapter:
    """Return an adapter of a host that has steps with a name and nothing else."""
    states = StateMap("Cron", {state: state.name.lower() for state in AppState})
    return Adapter("cron", convert=lambda source: source, dry_run=str, states=states)


def vague() -> Adapter:
    """Return an adapter whose states are no table."""
    states: Any = {"RUNNING": "on"}
    return Adapter("vague", convert=str, dry_run=str, states=states)


def broken() -> Adapter:
    """Fail."""
    raise ValueError("no cron here")


class CronPlugin:
    """Registers adapters, good and bad."""

    @hookimpl
    def transload_adapters(self, register: Register) -> None:
        """Register them."""
        register("cron", cron)
        register("broken", broken)
        register("half", lambda: object())
        register("vague", vague)
        register("absent", "no.such.module:thing")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins of this test alone."""
    testing = ("testing", "transload_testing.plugin", "transload-testing", "0.1.0")
    mine = Plugins(entry_points=[testing])
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
    [
        ("broken", "no cron"),
        ("half", "object is no transload.pipelines.Adapter"),
        ("vague", "with a StateMap"),
        ("absent", "cannot be loaded"),
    ],
)
def test_broken_adapters_are_the_plugins_fault(name: str, says: str) -> None:
    """One clear line that names adapter and reason."""
    with pytest.raises(PluginError, match=says) as caught:
        get_adapter(name)
    assert name in str(caught.value)


def test_describe_adapters() -> None:
    """The table of adapters has the names of states, and does not fail for broken ones."""
    rows = {row["name"]: row for row in describe_adapters()}
    assert rows["cron"]["status"] == "installed"
    assert rows["cron"]["states"]["SUCCEEDED"] == "succeeded"
    assert rows["cron"]["plugin"] == "crons"
    assert "no cron here" in rows["broken"]["status"]
    assert "StateMap" in rows["vague"]["status"]


def test_a_state_table_costs_little() -> None:
    """Reading a state map loads nothing that only a submit needs."""
    code = (
        "import sys; from transload.pipelines import StateMap; "
        "print([m for m in ('asyncio', 'pluggy', 'fsspec', 'subprocess') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
