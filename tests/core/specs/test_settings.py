"""Settings of a job, wherever they are given, and what goes before what."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.components import command_app
from transload.errors import ConfigError, SpecError
from transload.runner import Launch, Runner
from transload.specs import AppDef, Notice, Resource, Role
from transload.specs.settings import SETTINGS, read_settings, with_settings


def _app() -> AppDef:
    roles = [
        Role(
            name,
            "i",
            entrypoint="e",
            env={"A": "1"},
            secrets={"S": "env:S"},
            resource=Resource(1, 1, 100),
        )
        for name in ("trainer", "reader")
    ]
    return AppDef("a", roles, timeout=5)


def test_settings_are_in_force_in_every_role() -> None:
    """What is given is set, what is not stays, and the definition itself is not changed."""
    app = _app()
    more = {
        "name": "b",
        "time_limit": "9s",
        "env": {"A": "2", "S": "plain"},
        "image": "j",
        "replicas": 3,
        "retries": 2,
        "retry_delay": "7.5s",
        "cpu": 0.5,
        "gpu": 0,
        "mem": (3 << 20) + 1,
    }
    changed = with_settings(app, read_settings(more))
    assert (changed.name, changed.timeout) == ("b", 9)
    for role in changed.roles:
        assert (role.image, role.num_replicas, role.max_retries, role.retry_delay) == (
            "j",
            3,
            2,
            7.5,
        )
        assert role.resource == Resource(0.5, 0, 4)
        assert (role.env, role.secrets) == ({"A": "2", "S": "plain"}, {})
    assert app == _app() and with_settings(app, {}) is app


def test_settings_of_one_role() -> None:
    """``role`` narrows the settings. A missing one is refused with the nearest name."""
    first, second = with_settings(_app(), {"role": "reader", "replicas": 2}).roles
    assert (first.num_replicas, second.num_replicas) == (1, 2)
    with pytest.raises(
        SpecError, match="role 'raeder': 'a' has no such role: did you mean 'reader'"
    ):
        with_settings(_app(), {"role": "raeder"})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"gpu": "-2"}, "--gpu=-2: must be 0 or more"),
        ({"cpu": "nan"}, "--cpu=nan: must be finite"),
        ({"cpu": True}, "--cpu=True: must be a number"),
        ({"replicas": 0}, "--replicas=0: must be 1 or more"),
        ({"retries": 1.5}, "--retries=1.5: must be an int"),
        ({"time_limit": 0}, "--time_limit=0: must be above 0"),
        ({"stall_after": "0s"}, "--stall_after='0s': must be above 0"),
        ({"notice": "0s"}, "--notice='0s': must be above 0"),
        ({"time_limit": "10"}, "--time_limit='10': must have a unit, such as '10s', '10m'"),
        ({"time_limit": 10}, "--time_limit=10: must have a unit, such as '10s', '10m' or '10h'"),
        ({"segment": "1.5"}, "--segment='1.5': must have a unit"),
        ({"notice": 30.0}, "--notice=30.0: must have a unit"),
        ({"stall_after": 20}, "--stall_after=20: must have a unit"),
        ({"retry_delay": "5"}, "--retry_delay='5': must have a unit"),
        ({"time_limit": math.nan}, "--time_limit=nan: must be finite"),
        ({"retry_delay": -1}, "--retry_delay=-1: must be 0 or more"),
        ({"name": "a/b"}, "--name='a/b': must be 1 to 200 printable characters"),
        ({"image": 3}, "--image=3: must be a str"),
        ({"env": {"A": 1}}, r"--env\['A'\]=1: must be a str"),
        ({"checkpoints": 3}, "--checkpoints=3: must be true or false"),
        ({"on_stall": "dmp"}, "--on_stall='dmp': must be one of: note, dump; did you mean 'dump'"),
        ({"notice": {"seconds": "60"}}, "--notice.seconds='60': must have a unit"),
        ({"notice": {"second": 3}}, "--notice: Notice has no field 'second'"),
        ({"mem": 8.5}, "--mem=8.5: must be a size"),
    ],
)
def test_values_that_no_job_can_have(values: dict[str, Any], says: str) -> None:
    """They are refused by what the user calls the setting, not by the field that it becomes."""
    with pytest.raises(SpecError, match=says):
        read_settings(values, lambda name: f"--{name}")
    assert read_settings({"gpu": "-1", "cpu": -1, "retry_delay": 0, "mem": None}) == {
        "gpu": -1,
        "cpu": -1,
        "retry_delay": 0.0,
    }


EVERYTHING: dict[str, Any] = {
    "image": "j:1",
    "replicas": 2,
    "cpu": "0.5",
    "gpu": "0",
    "mem": "2G",
    "env": {"MODE": "fast"},
    "secrets": {"HF_TOKEN": "env:HF_TOKEN"},
    "time_limit": "2h",
    "segment": "1h",
    "notice": "5m",
    "max_interruptions": 7,
    "stall_after": "20m",
    "on_stall": "dump",
    "stall_signal": "SIGUSR2",
    "progress_server": True,
    "name": "mine",
    "retries": 3,
    "retry_delay": "5s",
    "checkpoints": True,
}


def _toml(settings: dict[str, Any], dash: str = "_") -> list[str]:
    """Return settings as lines of TOML."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{name} = {text(each)}" for name, each in value.items()) + " }"
        return {True: "true"}.get(value, f"'{value}'" if isinstance(value, str) else str(value))

    return [f"{name.replace('_', dash)} = {text(value)}" for name, value in settings.items()]


def _header(settings: dict[str, Any]) -> str:
    lines = ["/// script", "[tool.transload]", *_toml(settings, "-"), "///"]
    return "".join(f"# {line}\n" for line in lines)


def _planned(**launch: Any) -> AppDef:
    with Runner("t") as runner:
        return Launch(**launch).plan(runner).app


@pytest.fixture
def folder(plain_folder: str) -> Path:
    """An empty working folder with a script."""
    Path("train.py").write_text("print(1)\n")
    return Path()


def _by_keywords(folder: Path) -> AppDef:
    return _planned(command=["python", "train.py"], overrides=EVERYTHING)


def _by_header(folder: Path) -> AppDef:
    (folder / "train.py").write_text(_header(EVERYTHING))
    return _planned(command=["python", "train.py"])


def _by_project(folder: Path) -> AppDef:
    (folder / "transload.toml").write_text("\n".join(["[job]", *_toml(EVERYTHING)]))
    return _planned(command=["python", "train.py"])


@pytest.mark.parametrize("by", [_by_keywords, _by_header, _by_project])
def test_each_setting_works_everywhere(folder: Path, by: Callable[[Path], AppDef]) -> None:
    """All of them do the same as keywords, in a script's header, and for all jobs of a project."""
    assert set(EVERYTHING) == set(SETTINGS) - {"role", "mounts"}
    app = by(folder)
    assert app == with_settings(command_app(["python", "train.py"]), read_settings(EVERYTHING))
    role = app.roles[0]
    assert (app.name, app.timeout, app.segment, role.num_replicas) == ("mine", 7200, 3600, 2)
    assert role.resource == Resource(0.5, 0, 2048)
    assert (role.notice, role.on_stall, role.stall_signal) == (Notice(300), "dump", "USR2")
    assert (role.max_retries, role.retry_delay, role.checkpoints) == (3, 5, True)


COMPONENT = """
from transload.specs import AppDef, Role
def c(gpu: int = 1, image: str = "") -> AppDef:
    role = Role("m", image, entrypoint="python3", args=["train.py", str(gpu)], max_retries=1)
    return AppDef("c", [role])
"""


def test_what_goes_before_what(folder: Path) -> None:
    """What is set for the launch, the component, by the job, its script, and for all jobs."""
    (folder / "comp.py").write_text(COMPONENT)
    (folder / "train.py").write_text(
        _header({"cpu": 2, "mem": "2G", "retries": 2, "time_limit": "2h", "env": {"A": "h"}})
    )
    (folder / "transload.toml").write_text(
        "[job]\ncpu = 1\nstall_after = '1h'\nreplicas = 9\nenv = { A = 'j', B = 'j', C = 'j' }\n"
        "[component.'comp.py']\ngpu = 4\nmem = '3G'\nenv = { B = 'c' }\n"
    )
    app = _planned(component="comp.py", overrides={"time_limit": "3h", "env": {"D": "l"}})
    role = app.roles[0]
    assert role.args == ["train.py", "4"]  # the component has an argument of that name
    assert (role.resource, role.max_retries, role.num_replicas) == (Resource(2, -1, 3072), 1, 1)
    assert (app.timeout, role.stall_after) == (10800, 3600)
    assert role.env == {"A": "h", "B": "c", "C": "j", "D": "l"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[job]\ngpus = 1\n", r"transload\.toml: job\.gpus: unknown key: did you mean 'gpu'"),
        ("[job]\nrole = 'a'\n", r"job\.role: unknown key"),
        ("[job]\ngpu = 'one'\n", r"transload\.toml: job\.gpu='one': must be a whole number"),
        ("[job]\ntime_limit = 10\n", r"job\.time_limit=10: must have a unit"),
        (
            "[job]\ntime_limit = '1h'\ntime-limit = '2h'\n",
            r"job\.time-limit: sets the same as .*_limit",
        ),
        ("job = 3\n", "job=3: must be a dict"),
        ("[job.env]\nHF_TOKEN = 'x'\n", "HF_TOKEN in env: looks like a secret"),
        ("[job.secrets]\nHF_TOKEN = 'x'\n", "HF_TOKEN in secrets=.*must be a reference"),
        (
            "[component.'utils.echo']\nmem = 8\n",
            r"transload\.toml: component\.utils\.echo\.mem=8: is a number of bytes",
        ),
    ],
)
def test_wrong_settings_of_a_project(folder: Path, text: str, says: str) -> None:
    """They are refused with the file and the key, and nothing is planned."""
    (folder / "transload.toml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        _planned(component="utils.echo")
