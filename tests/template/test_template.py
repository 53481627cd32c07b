"""The template is small, complete, and true to the habits of all adapters."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TEMPLATE = Path(__file__).parents[2] / "plugins" / "_template"
SOURCES = TEMPLATE / "src" / "transload_tinyflow"


def test_small() -> None:
    """All of the adapter is less than 300 lines, in four files."""
    names = {path.name for path in SOURCES.glob("*.py")}
    assert names == {"__init__.py", "adapter.py", "states.py", "plugin.py"}
    assert sum(len(path.read_text().splitlines()) for path in SOURCES.glob("*.py")) < 300


def test_plugin_and_states_import_no_host() -> None:
    """What core loads at every start does not pay for the host."""
    code = (
        f"import sys; sys.path[:0] = {[str(TEMPLATE / 'src'), str(TEMPLATE)]!r}\n"
        "import transload_tinyflow.plugin, transload_tinyflow.states, transload_tinyflow.adapter\n"
        "print('tinyflow' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_entry_point_names_the_plugin() -> None:
    """The one entry point leads to the hooks."""
    data = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())
    assert data["project"]["entry-points"]["transload"] == {"tinyflow": "transload_tinyflow.plugin"}


def test_states_are_the_hosts() -> None:
    """The table's values are names that the host has."""
    import tinyflow

    from transload_tinyflow.states import STATES

    assert set(STATES.values()) <= set(tinyflow.StepState.__members__)


def test_through_the_uniform_door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Registered like any plugin, the adapter is found by name, converts and shows a dry-run."""
    import tinyflow

    import transload_tinyflow.plugin
    from transload.errors import ConfigError, SpecError
    from transload.pipelines import get_adapter
    from transload.pipelines.adapter import describe_adapters
    from transload.plugins import Plugins, manager

    tinyflow_entry = ("tinyflow", "transload_tinyflow.plugin", "transload-tinyflow", "0.1.0")
    mine = Plugins(
        entry_points=[
            tinyflow_entry,
            ("testing", "transload_testing.plugin", "transload-testing", "0.1.0"),
        ]
    )
    monkeypatch.setattr(manager, "_plugins", mine)
    monkeypatch.setenv("TRANSLOAD_HOME", str(tmp_path))
    assert transload_tinyflow.plugin.transload_adapters
    adapter = get_adapter("tinyflow")
    launch = {"args": {"msg": "hello"}, "scheduler": "scripted"}
    step = adapter.convert("utils.echo", launch=launch, retries=2)
    assert isinstance(step, tinyflow.Step)
    assert (step.name, step.retries) == ("utils.echo", 2)
    assert "hello" in adapter.dry_run("utils.echo", launch=launch)
    here = {"args": {"msg": "hello"}, "scheduler": "local"}
    shown = adapter.dry_run("utils.echo", launch=here, replicas=7, overrides={"retries": 3})
    assert "7 replica(s)" in shown and "retries: 3" in shown
    (row,) = describe_adapters()
    assert (row["name"], row["status"]) == ("tinyflow", "installed")
    assert row["states"]["SUCCEEDED"] == "DONE"
    assert "hello" in adapter.dry_run(
        "utils.echo", launch=launch, name="s", retries=2, inherit_env=True, patience=5
    )
    for door in (adapter.convert, adapter.dry_run):
        with pytest.raises(ConfigError, match="on_kill"):
            door("utils.echo", on_kill="pause")
        with pytest.raises(ConfigError, match="patiense=5: .*did you mean 'patience'"):
            door("utils.echo", patiense=5)
        with pytest.raises(ConfigError, match="gpuu=1: .*did you mean 'gpu'"):
            door("utils.echo", gpuu=1)
    with pytest.raises(SpecError):
        adapter.convert(7)
