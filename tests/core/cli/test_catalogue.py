"""Commands show components, schedulers, plugins, adapters, settings and trackers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from transload.pipelines import Adapter, StateMap
from transload.plugins import get_plugins, hookimpl
from transload.plugins.hookspecs import Register
from transload.schedulers.folder.home import local_home
from transload.specs import AppState


def named(name: str) -> Adapter:
    """Return an adapter of an orchestrator that only has a name."""
    states = StateMap(name, {state: f"{name} {state.name.lower()}" for state in AppState})
    return Adapter(name, convert=str, dry_run=str, states=states)


class Adapters:
    """Registers two of them."""

    @hookimpl
    def transload_adapters(self, register: Register) -> None:
        """Register them."""
        register("cron", lambda: named("cron"))
        register("nightly", lambda: named("nightly"))


def test_components(invoke: Any) -> None:
    """``components`` lists name and first line."""
    rows = dict(line.split("\t") for line in invoke("components").lines)
    assert {"utils.echo", "utils.sh", "dist.ddp", "dist.spmd"} <= set(rows)
    assert all(rows.values())
    document = invoke("components", "--json").json
    assert {item["name"] for item in document["components"]} == set(rows)


def test_components_show(invoke: Any, component_file: str) -> None:
    """``components show`` tells the arguments, as text and as JSON."""
    assert "--replicas" in invoke("components", "show", component_file).out
    document = invoke("components", "show", component_file, "--json").json
    parameters = {item["name"]: item for item in document["parameters"]}
    assert parameters["replicas"] == {
        "name": "replicas", "type": "int", "required": False, "default": 1, "help": "how many"
    }  # fmt: skip


def test_defaults_of_the_settings_are_shown(invoke: Any, component_file: str) -> None:
    """What a settings file sets is the default that the help and ``components show`` tell, however
    a file is named.
    """
    Path("transload.toml").write_text('[component."jobs.py:job"]\nreplicas = 3\n')
    for name in (component_file, f"./{component_file}"):
        assert "(default: 3)" in invoke("run", name, "--help").out
        assert "(default: 3)" in invoke("components", "show", name).out
    found = invoke("components", "show", component_file, "--json").json["parameters"]
    assert {item["name"]: item["default"] for item in found}["replicas"] == 3


def test_a_wrong_default_names_its_file(invoke: Any, component_file: str) -> None:
    """A default of a wrong type, or for an argument that is not there, is told with the settings
    file.
    """
    settings = Path("transload.toml").resolve()
    for line, words in (
        ('replicas = "many"', "replicas (default, set in"),
        ("replica = 3", "unknown default 'replica'"),
    ):
        settings.write_text(f'[component."{component_file}"]\n{line}\n')
        result = invoke("run", "--dry-run", component_file)
        assert result.code == 2
        assert words in result.err and str(settings) in result.err


def test_json_before_the_subcommand(invoke: Any, component_file: str) -> None:
    """``components --json show`` is JSON as ``components show --json`` is."""
    for command in (["show", component_file], ["check", component_file]):
        assert (
            invoke("components", "--json", *command).json
            == invoke("components", *command, "--json").json
        )


def test_components_check(invoke: Any, component_file: str) -> None:
    """``components check`` says what is wrong, by line, and exits with 2."""
    assert invoke("components", "check", component_file).code == 0
    result = invoke("components", "check", "jobs.py:no_annotations")
    assert result.code == 2
    line = next(
        i
        for i, text in enumerate(Path("jobs.py").read_text().splitlines(), 1)
        if "no_annotations" in text
    )
    assert f"jobs.py:{line}: error: " in result.out
    document = invoke("components", "check", "jobs.py:no_annotations", "--json").json
    assert document["ok"] is False
    assert document["findings"][0]["line"] == line


def test_info_of_a_scheduler(invoke: Any) -> None:
    """``info NAME`` shows options with type and default, and what the scheduler can do."""
    result = invoke("info", "local")
    assert f"scheduler local (leads to: {local_home()})" in result.lines
    assert "  state_folder (connection setting, str): folder of its jobs" in result.out
    assert "log_dir (str)" in result.out
    assert "  reach: host" in result.lines
    document = invoke("info", "local", "--json").json
    assert document["default"] == "local"
    (local,) = document["schedulers"]
    options = {option["name"]: option for option in local["options"]}
    assert options["prepend_cwd"]["default"] is False
    assert "tracker_base" in options
    assert local["capabilities"]["reach"] == "host"
    assert (document["adapters"], document["plugins"]) == ([], [])


def test_info_lists_all(invoke: Any) -> None:
    """Without a name, schedulers and plugins are listed with what they provide, one line each."""
    rows = {tuple(line.split("\t")[:2]): line.split("\t")[2:] for line in invoke("info").lines}
    about = f"leads to: {local_home()}; reachable from: host"
    assert rows["scheduler", "local"] == ["default", "transload", about]
    assert rows["plugin", "transload"][:2] == ["loaded", "built in"]
    assert "schedulers: local, local_cwd" in rows["plugin", "transload"][2]
    (core,) = invoke("info", "transload", "--json").json["plugins"]
    assert core["status"] == "loaded"
    assert core["provides"]["schedulers"] == ["local", "local_cwd"]


def test_broken_plugin_is_shown_with_its_traceback(invoke: Any) -> None:
    """A plugin that raises is shown broken, with its traceback, and everything else works."""
    from transload.plugins import hookimpl

    class Broken:
        @hookimpl
        def transload_schedulers(self, register: Any) -> None:
            raise RuntimeError("licence server is down")

    get_plugins().register(Broken(), "broken-one")
    try:
        listed, result = invoke("info"), invoke("info", "broken-one")
        assert listed.code == 0
        assert (
            "plugin\tbroken-one\tbroken\tthis process\tRuntimeError: licence server is down"
            in listed.lines
        )
        assert result.code == 2
        assert "Traceback" in result.out and "RuntimeError: licence server is down" in result.out
        assert invoke("run", "utils.echo").code == 0
    finally:
        get_plugins().unregister("broken-one")


def test_info_of_adapters(invoke: Any) -> None:
    """An adapter is listed, and explained by name with its states."""
    get_plugins().register(Adapters(), "two-hosts")
    try:
        listed = invoke("info").lines
        shown = invoke("info", "nightly").lines
        document = invoke("info", "cron", "--json").json
    finally:
        get_plugins().unregister("two-hosts")
    assert "adapter\tcron\tinstalled\ttwo-hosts\t" in listed
    assert "  FAILED: nightly failed" in shown
    (cron,) = document["adapters"]
    assert cron["states"]["FAILED"] == "cron failed"


def test_config(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``config`` shows each value and where it came from, and masks what looks secret."""
    assert invoke("config").lines == ["scheduler\tlocal\tdefault"]
    Path("transload.toml").write_text(
        'scheduler = "local_cwd"\ntracker_base = "runs"\n[component."utils.echo"]\nmsg = '
        '"hi"\napi_token = "hunter2"\n'
    )
    monkeypatch.setenv("TRANSLOAD_SCHEDULER", "local")
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in invoke("config").lines}
    assert rows["scheduler"] == ["local", "environment TRANSLOAD_SCHEDULER"]
    runs = str(Path("runs").resolve())
    assert rows["tracker_base"] == [runs, str(Path("transload.toml").resolve())]
    assert "hunter2" not in str(rows)
    document = invoke("config", "tracker_base", "--json").json
    assert document["settings"][0]["value"] == runs


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Make a tracker's folder with three runs, ``data`` → ``train`` → ``eval``."""
    from transload.tracker import FsspecTracker

    base = str(tmp_path / "runs")
    tracker = FsspecTracker(None, base)
    tracker.add_metadata("data", rows=1797)
    tracker.add_metadata("train", lr=0.125, name="digits")
    tracker.add_artifact("train", "model", "/models/1", {"size": 3})
    tracker.add_source("train", "data")
    tracker.add_source("eval", "train", "model")
    return base


def test_tracker_commands(invoke: Any, runs: str) -> None:
    """``tracker runs | metadata | artifacts`` read a tracker, as text and as JSON."""

    def tracker(*args: str) -> Any:
        return invoke("tracker", "--base", runs, *args)

    assert sorted(tracker("runs").lines) == ["data", "eval", "train"]
    assert tracker("runs", "--parent", "train", "--json").json["runs"] == ["eval"]
    assert sorted(tracker("metadata", "train").lines) == ["lr\t0.125", "name\tdigits"]
    assert tracker("metadata", "train", "--json").json["metadata"] == {
        "lr": 0.125,
        "name": "digits",
    }
    assert tracker("artifacts", "train").lines == ["model\t/models/1\tsize=3"]
    assert tracker("artifacts", "train", "--json").json["artifacts"] == {
        "model": {"path": "/models/1", "metadata": {"size": 3}}
    }
    unknown = tracker("metadata", "trian")
    assert unknown.code == 2
    assert "did you mean 'train'?" in unknown.err


def test_lineage(invoke: Any, runs: str) -> None:
    """``tracker lineage`` shows both directions."""
    result = invoke("tracker", "--base", runs, "lineage", "train")
    assert result.code == 0
    assert "source\tdata" in result.lines and "descendant\teval" in result.lines
    document = invoke("tracker", "--base", runs, "lineage", "train", "--json").json
    assert (document["parents"], document["descendants"]) == (["data"], ["eval"])


def test_odd_run_ids_are_shown_not_obeyed(invoke: Any, runs: str) -> None:
    """An id, a name or a value takes one line and sends no controls to the terminal.

    JSON has it as it is.
    """
    from transload.tracker import FsspecTracker

    odd = "two\nlines\x1b[31m ü \u202e"
    tracker = FsspecTracker(None, runs)
    tracker.add_metadata(odd, **{"a\tb": "c\x1bd"})
    tracker.add_artifact(odd, "m\n", "/p\x07", {"k": "v\n"})
    shown = "two\\nlines\\x1b[31m ü \\u202e"
    assert shown in invoke("tracker", "--base", runs, "runs").lines
    assert odd in invoke("tracker", "--base", runs, "runs", "--json").json["runs"]
    assert invoke("tracker", "--base", runs, "metadata", odd).lines == ["a\\tb\tc\\x1bd"]
    assert invoke("tracker", "--base", runs, "artifacts", odd).lines == ["m\\n\t/p\\x07\tk=v\\n"]
    assert f"run\t{shown}" in invoke("tracker", "--base", runs, "lineage", odd).lines


def test_configured_tracker(invoke: Any, runs: str) -> None:
    """Without ``--base``, the first configured tracker is read, and another by its name."""
    Path("transload.toml").write_text(f"[tracker.fsspec]\nconfig = {json.dumps(runs)}\n")
    assert sorted(invoke("tracker", "runs").lines) == ["data", "eval", "train"]
    assert sorted(invoke("tracker", "--tracker", "fsspec", "runs").lines) == [
        "data",
        "eval",
        "train",
    ]
    wrong = invoke("tracker", "--tracker", "fsspek", "runs")
    assert wrong.code == 2 and "did you mean 'fsspec'?" in wrong.err
