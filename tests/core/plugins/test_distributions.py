"""The table of what can be installed beside the core is true, and hints come from it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transload.plugins import Plugins
from transload.plugins.distributions import DISTRIBUTIONS, install_command
from transload.runner import get_runner
from transload.specs import UnknownSchedulerException

ROOT = Path(__file__).parents[3]
NOT_LISTED = ("testing",)
"""Plugins that nobody who runs jobs needs."""
REGISTERED = """
import json, sys
from transload.plugins import Plugins

plugins = Plugins(json.loads(sys.argv[1]), disabled=set())
print(json.dumps({info.name: info.provides for info in plugins.infos()}))
"""
KINDS = ("adapters", "cli_commands", "schedulers", "suggesters", "trackers")


def project(folder: Path) -> dict[str, Any]:
    """Return the table ``[project]`` of a distribution."""
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def registered() -> dict[str, dict[str, list[str]]]:
    """Return the names of each kind that each plugin of this repository registers."""
    folders = sorted(path.parent for path in ROOT.glob("plugins/[!_]*/pyproject.toml"))
    points = []
    for folder in folders:
        for name, value in project(folder)["entry-points"]["transload"].items():
            points.append((name, value, folder.name, "0"))
    search = f"import sys; sys.path[:0] = {[str(folder / 'src') for folder in folders]}\n"
    answer = subprocess.run(
        [sys.executable, "-c", search + REGISTERED, json.dumps(points)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, dict[str, list[str]]] = json.loads(answer.stdout)
    return found


def test_the_table_holds_what_plugins_register(registered: dict[str, Any]) -> None:
    """Each plugin of this repository is in the table, with the very names that it registers."""
    wanted = {}
    for name, provides in registered.items():
        if name != "transload" and name not in NOT_LISTED:
            wanted[name] = {kind: provides[kind] for kind in KINDS if provides.get(kind)}
    listed = {}
    for each in DISTRIBUTIONS:
        listed[each.plugin] = {kind: sorted(names) for kind, names in each.provides.items()}
    assert listed == {
        name: {kind: sorted(names) for kind, names in provides.items()}
        for name, provides in wanted.items()
    }


def test_each_distribution_is_an_extra_of_the_core() -> None:
    """``transload[slurm]`` brings ``transload-slurm``, and so on."""
    extras = project(ROOT / "core")["optional-dependencies"]
    wanted = {each.plugin: [f"transload-{each.plugin}>=0.1,<1"] for each in DISTRIBUTIONS}
    assert {name: extras.get(name) for name in wanted} == wanted
    schedulers = [each.plugin for each in DISTRIBUTIONS if "schedulers" in each.provides]
    assert extras["all-schedulers"] == [line for name in schedulers for line in wanted[name]]
    names = {project(path.parent)["name"] for path in ROOT.glob("plugins/[!_]*/pyproject.toml")}
    assert {f"transload-{each.plugin}" for each in DISTRIBUTIONS} <= names


def test_nothing_else_in_the_core_names_them() -> None:
    """Only the table, and the examples in the hooks' own documentation, name a distribution."""
    words = "|".join(each.plugin for each in DISTRIBUTIONS)
    source = ROOT / "core" / "src" / "transload"
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(rf"\btransload[-_]({words})\b", path.read_text(encoding="utf-8"))
    }
    assert found <= {"plugins/hookspecs.py", "plugins/distributions.py"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "slurm",
            r"Slurm support is not installed. Install it: (pip|python3) .*slurm$",
        ),
        ("slrum", r"did you mean 'slurm'\?"),
        ("lcoal", r"did you mean 'local'\?"),
        (
            "zzz",
            r"must be one of: local, local_cwd; not installed: docker.*\[schedulers.NAME\] in transload.toml",
        ),
    ],
)
def test_an_unknown_scheduler_says_what_to_type(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be installed is said with its command, and a misspelt name gets a suggestion."""
    plugins = Plugins(entry_points=[])
    monkeypatch.setattr("transload.plugins.manager._plugins", plugins)
    with get_runner("hints") as runner, pytest.raises(UnknownSchedulerException, match=says):
        runner.scheduler(name)


def test_what_is_typed_to_install_a_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fits this environment: a released core, or a checkout with or without an environment."""
    note = {"url": (tmp_path / "a b" / "core").as_uri(), "dir_info": {"editable": True}}
    noted = SimpleNamespace(read_text=lambda name: json.dumps(note))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: noted)
    assert install_command("slurm") == "pip install transload-slurm"  # the folder is gone
    checkout = tmp_path / "a b"
    checkout.mkdir()
    program = checkout / "quickstart.py"
    program.touch()
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", str(checkout / ".venv"))
    assert shlex.split(install_command("slurm")) == ["python3", str(program), "--with", "slurm"]
    monkeypatch.setattr(sys, "prefix", "/opt/mine")
    words = ["python3", str(program), "--venv", "/opt/mine", "--with", "slurm"]
    assert shlex.split(install_command("slurm")) == words
    monkeypatch.setattr(sys, "prefix", "/usr")
    words = ["pip", "install", "-e", str(checkout / "plugins" / "slurm")]
    assert shlex.split(install_command("slurm")) == words
    note = {"url": "https://example.org/transload.whl", "archive_info": {}}
    assert install_command("slurm") == "pip install transload-slurm"


def test_a_disabled_plugin_is_not_said_to_be_missing() -> None:
    """Who switched a plugin off reads so, and is not sent to install it."""
    plugins = Plugins(
        entry_points=[("slurm", "transload_slurm.plugin", "transload-slurm", "1")],
        disabled={"slurm"},
    )
    hint = plugins.hint("schedulers", "slurm")
    assert hint == "the plugin 'slurm' is disabled by TRANSLOAD_DISABLE_PLUGINS"


def test_a_broken_plugin_is_not_said_to_be_missing() -> None:
    """A plugin that cannot be imported is named as broken."""
    plugins = Plugins(entry_points=[("slurm", "no_such_module", "transload-slurm", "1")])
    hint = plugins.hint("schedulers", "slurm")
    assert hint.startswith("the plugin 'slurm' is broken (broken plugins")
