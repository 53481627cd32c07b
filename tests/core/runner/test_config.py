"""Settings are in force by a known order, and say where they came from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from transload.components import Component, get_component
from transload.errors import ConfigError
from transload.runner import load_settings
from transload.specs import Options, option

pytestmark = pytest.mark.unit

ENV: dict[str, str] = {"HOME": "/nonexistent"}


@dataclass(frozen=True, kw_only=True)
class _Options(Options):
    partition: str | None = option("where to run")
    nodes: int | None = option("how many")


def test_nothing_is_set_by_default(tmp_path: Path) -> None:
    """Without files and variables the scheduler is local and nothing else is set."""
    settings = load_settings(str(tmp_path), ENV)
    assert settings.scheduler == "local"
    assert settings.trackers() == {}
    assert [(item.key, item.source) for item in settings.all()] == [("scheduler", "default")]


def test_the_nearest_file_upwards_counts(tmp_path: Path) -> None:
    """A transload.toml in a parent folder is found. A pyproject.toml without our table is not."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "transload.toml").write_text('scheduler = "outer"\n')
    (inner / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert load_settings(str(inner), ENV).scheduler == "outer"
    (inner / "pyproject.toml").write_text('[tool.transload]\nscheduler = "inner"\n')
    assert load_settings(str(inner), ENV).scheduler == "inner"


def test_the_environment_is_stronger_than_files_and_the_user_file_weaker(tmp_path: Path) -> None:
    """The environment goes before the project's file, and that before the user's file."""
    config = tmp_path / "config" / "transload"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('scheduler = "user"\nworkspace = "mine"\n')
    env = {**ENV, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert load_settings(str(tmp_path), env).scheduler == "user"
    (tmp_path / "transload.toml").write_text('scheduler = "project"\n')
    settings = load_settings(str(tmp_path), env)
    assert (settings.scheduler, settings.get("workspace")) == ("project", "mine")
    settings = load_settings(str(tmp_path), {**env, "TRANSLOAD_SCHEDULER": "env"})
    assert settings.scheduler == "env"
    sources = {item.key: item.source for item in settings.all()}
    assert sources["scheduler"] == "environment TRANSLOAD_SCHEDULER"
    assert sources["workspace"].endswith("config.toml")


OVER = "TRANSLOAD_SETTINGS"


def test_a_text_of_settings_goes_before_the_files(tmp_path: Path) -> None:
    """A variable holds whatever a file may hold, and replaces what the file says, key by key."""
    (tmp_path / "transload.toml").write_text('[schedulers.slurm]\npartition = "main"\nnodes = 2\n')
    env = {**ENV, OVER: "scheduler = 'slurm'\nschedulers.slurm.nodes = 4"}
    settings = load_settings(str(tmp_path), env)
    assert settings.scheduler == "slurm"
    assert settings.cfg("slurm", _Options) == {"partition": "main", "nodes": 4}
    settings = load_settings(str(tmp_path), {**env, "TRANSLOAD_SCHEDULER": "env"})
    assert settings.scheduler == "env"
    assert load_settings(str(tmp_path), {**ENV, OVER: ""}).scheduler == "local"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "schedulers.slurm.node = 4",
            "schedulers.slurm.node: unknown option: did you mean 'nodes'",
        ),
        ("schedular = 'x'", "unknown key 'schedular': did you mean 'scheduler'"),
        ("slurm", "cannot be read as TOML"),
        ("a." * 5000 + "b = 1", "unknown key 'a'|nested too deep"),
    ],
)
def test_a_wrong_text_of_settings_is_refused_by_name(
    tmp_path: Path, text: str, message: str
) -> None:
    """What is wrong in the variable is said with its name."""
    with pytest.raises(ConfigError, match=f"TRANSLOAD_SETTINGS: ({message})"):
        load_settings(str(tmp_path), {**ENV, OVER: text}).cfg("slurm", _Options)


def test_the_options_of_every_scheduler_are_among_its_own(tmp_path: Path) -> None:
    """What the runner carries out may be set for each scheduler. Records have the others alone."""
    (tmp_path / "transload.toml").write_text(
        '[schedulers.slurm]\ntracker_base = "/runs"\nnodes = 2\n'
    )
    cfg = load_settings(str(tmp_path), ENV).cfg("slurm", _Options)
    assert cfg == {"tracker_base": "/runs", "nodes": 2}
    assert _Options.read(cfg).cfg() == {"partition": None, "nodes": 2}


def test_what_is_shown_is_what_is_in_force(tmp_path: Path) -> None:
    """An option that a file and a variable set is shown once, as the variable has it."""
    (tmp_path / "transload.toml").write_text('[schedulers.slurm]\npartition = "main"\nnodes = 2\n')
    env = {**ENV, OVER: "schedulers.slurm.nodes = 4"}
    shown = {
        item.key: (item.value, item.source) for item in load_settings(str(tmp_path), env).all()
    }
    assert shown == {
        "scheduler": ("local", "default"),
        "schedulers.slurm.partition": ("main", str(tmp_path / "transload.toml")),
        "schedulers.slurm.nodes": (4, f"environment variable {OVER}"),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('schedular = "x"', "unknown key 'schedular': did you mean 'scheduler'"),
        ("scheduler = 3", "scheduler=3: must be a str"),
        ("schedulers = 3", "schedulers=3: must be a dict"),
        ("[schedulers]\nslurm = 3", r"schedulers\.slurm=3: must be a table"),
        ("plugins = true", "plugins=True: must be a dict"),
        ("[plugins]\nreport = 3", r"plugins\.report=3: must be a table"),
        ("scheduler = ", "cannot be read as TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    """What is wrong in a file is said with the file's path."""
    (tmp_path / "transload.toml").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_settings(str(tmp_path), ENV)
    assert str(tmp_path / "transload.toml") in str(caught.value)


def test_an_unknown_option_says_where_it_was_set(tmp_path: Path) -> None:
    """An option that the scheduler does not have names the file and the nearest valid option."""
    (tmp_path / "transload.toml").write_text('[schedulers.slurm]\npartitoin = "main"\n')
    with pytest.raises(
        ConfigError,
        match=r"transload\.toml: schedulers\.slurm\.partitoin.*did you mean 'partition'",
    ):
        load_settings(str(tmp_path), ENV).cfg("slurm", _Options)


def test_a_plugin_has_a_table_of_its_own(tmp_path: Path) -> None:
    """``[plugins.NAME]`` is for the plugin alone, which checks its keys."""
    (tmp_path / "transload.toml").write_text(
        '[plugins.mine]\nauto = true\ndir = "/pages"\n[plugins.other]\nx = [1]\n'
    )
    settings = load_settings(str(tmp_path), ENV)
    assert settings.plugin("mine", {"auto": bool, "dir": str}) == {"auto": True, "dir": "/pages"}
    assert settings.plugin("other", {"x": list}) == {"x": [1]}
    assert settings.plugin("none", {}) == {}
    for known, message in (
        ({"auto": bool, "folder": str}, "mine.dir: unknown key"),
        ({"auto": str, "dir": str}, "auto=True"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            settings.plugin("mine", known)
        assert str(caught.value).startswith(str(tmp_path / "transload.toml"))


def _component(name: str) -> Component:
    return replace(get_component("utils.echo"), name=name)


def test_component_defaults_keep_dots_in_names(tmp_path: Path) -> None:
    """Defaults are set per component, whose name may hold dots."""
    (tmp_path / "transload.toml").write_text(
        '[component."utils.echo"]\nmsg = "hi"\n[component.other]\nx = 1\n'
    )
    settings = load_settings(str(tmp_path), ENV)
    assert settings.component_defaults(_component("utils.echo")) == {"msg": "hi"}
    assert settings.component_defaults(_component("echo")) == {}


def test_a_file_is_one_component_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are compared from the working directory or the settings file's folder.

    Another function is another component.
    """
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "transload.toml").write_text('[component."job.py:train"]\nx = 1\n')
    for folder, spelled in ((tmp_path, "job.py"), (below, "../job.py")):
        monkeypatch.chdir(folder)
        settings = load_settings(None, ENV)
        for name in (spelled, f"{spelled}:train", f"{tmp_path}/./job.py:train"):
            assert settings.component_defaults(_component(name)) == {"x": 1}, name
        for name in (f"{spelled}:other", "other.py", "job:train", "job"):
            assert settings.component_defaults(_component(name)) == {}, name
    assert settings.component_defaults(_component("../job.py")).sources == {
        "x": str(tmp_path / "transload.toml")
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'tracking_uri = "x"',
            r"transload.toml: tracker.mlflow.tracking_uri: unknown key; a tracker has one, config",
        ),
        ("config = 7", r"transload.toml: tracker.mlflow.config=7: must be a str"),
        (
            'config = {root_path = "/runs"}',
            r"tracker.mlflow.config=.*must be a str; several settings are JSON",
        ),
    ],
)
def test_a_tracker_has_one_setting(tmp_path: Path, line: str, message: str) -> None:
    """What a tracker would not get is refused with file and key, not passed over."""
    (tmp_path / "transload.toml").write_text(f"[tracker.mlflow]\n{line}\n")
    with pytest.raises(ConfigError, match=message):
        load_settings(str(tmp_path), ENV)


def test_trackers_from_files_and_variables(tmp_path: Path) -> None:
    """Files name trackers. TRANSLOAD_TRACKERS replaces the names, and variables the settings."""
    (tmp_path / "transload.toml").write_text(
        '[tracker.fsspec]\nconfig = "/runs"\n[tracker."m:f"]\n'
    )
    assert load_settings(str(tmp_path), ENV).trackers() == {"fsspec": "/runs", "m:f": None}
    env = {**ENV, "TRANSLOAD_TRACKER_FSSPEC_CONFIG": "/other"}
    assert load_settings(str(tmp_path), env).trackers()["fsspec"] == "/other"
    env = {**ENV, "TRANSLOAD_TRACKERS": "fsspec"}
    assert load_settings(str(tmp_path), env).trackers() == {"fsspec": "/runs"}


def test_a_setting_of_jobs_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    """A project's time_limit goes before the time-limit of its user."""
    config = tmp_path / "home" / ".config" / "transload"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[job]\ntime-limit = "1h"\n')
    (tmp_path / "transload.toml").write_text('[job]\ntime_limit = "2h"\n')
    settings = load_settings(str(tmp_path), {"HOME": str(tmp_path / "home")})
    assert settings.job() == {"time_limit": 7200}
