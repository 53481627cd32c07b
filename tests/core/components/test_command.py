"""A command as an app, and what is set over an app."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from transload.components import (
    NoComponent,
    Overrides,
    command_app,
    get_component,
    overrides_of,
)
from transload.errors import SpecError
from transload.specs import AppDef, Resource, Role

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python3", "jobs/train.py", "--lr", "0.1"], "train"),
        (["python", "-m", "train"], "train"),
        (["python", "-m", "sunspots.main", "train", "--lr", "1"], "sunspots.main"),
        (["python3.11", "-u", "-W", "error", "-X", "dev", "jobs/train.py"], "train"),
        (["python", "-c", "print(1)", "x.py"], "python"),
        (["python", "-m"], "python"),
        (["python", "-"], "python"),
        (["python"], "python"),
        (["/usr/bin/env", "true"], "env"),
        (["./run.sh"], "run"),
        ([".x"], ".x"),
        (["python3", "."], "app"),
        (["python3", ".."], "app"),
        (["./-x"], "x"),
        (["./two words\n.sh"], "two-words"),
        (["a\\b\x1b[31m.sh"], "a-b-31m"),
        (["x" * 300], "x" * 60),
    ],
)
def test_a_command_is_an_app_of_one_role(command: list[str], name: str) -> None:
    """Program and arguments stay as they are. The job has the name of the script or the program."""
    app = command_app(command)
    (role,) = app.roles
    assert (app.name, role.name, role.image) == (name, "main", "")
    assert [role.entrypoint, *role.args] == command
    app.check_runnable()


def test_numbers_in_a_command_are_texts() -> None:
    """A host's values stand in a command as people write them."""
    assert command_app(["train", "--lr", 0.1, "--epochs", 3]).roles[0].args == [
        "--lr",
        "0.1",
        "--epochs",
        "3",
    ]  # type: ignore[list-item]


def test_options_of_a_command_are_its_arguments() -> None:
    """Arguments to compare runs by are read from the command line, with secrets masked."""
    words = [
        "train.py",
        "fast",
        "--lr",
        "0.1",
        "--resume",
        "--token=hunter2",
        "--epochs=3",
        "--",
        "x",
    ]
    assert command_app(["python", *words]).arguments == {
        "lr": "0.1",
        "resume": True,
        "token": "******",
        "epochs": "3",
    }


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["--hidden", "32", "16"], {"hidden": ["32", "16"]}),
        (["--hidden", "32", "--lr", "-0.5", "1e-3"], {"hidden": "32", "lr": ["-0.5", "1e-3"]}),
        (["--layers", "a", "b", "-v", "c"], {"layers": ["a", "b"]}),
        (["--tag", "a", "--tag=b", "--tag", "c", "d"], {"tag": ["a", "b", "c", "d"]}),
        (["--lr", "0.1", "data.csv"], {"lr": "0.1"}),
        (["--token", "hunter2", "hunter3"], {"token": "******"}),
        (["--flag", "--", "x"], {"flag": True}),
        (["--a=1", "2"], {"a": "1"}),
        (["--empty="], {"empty": ""}),
    ],
)
def test_lists_of_a_command_are_whole(words: list[str], arguments: dict[str, Any]) -> None:
    """A list is all that follows an option, and all that it is given again, and nothing else."""
    assert command_app(["python", "train.py", *words]).arguments == arguments


@pytest.mark.parametrize("command", ["python train.py", [], [""], None, ["a", None]])
def test_what_is_no_command_is_refused(command: Any) -> None:
    """One text, nothing, or words that are no texts."""
    with pytest.raises(SpecError):
        command_app(command)


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


def test_overrides_are_set_in_every_role() -> None:
    """What is given is set, what is not stays, and the definition itself is not changed."""
    app = _app()
    more = {
        "image": "j",
        "replicas": 3,
        "retries": 2,
        "retry_delay": 7.5,
        "cpu": 0.5,
        "gpu": 0,
        "mem": (3 << 20) + 1,
    }
    changed = Overrides(name="b", time_limit=9, env={"A": "2", "S": "plain"}, **more).apply(app)  # type: ignore[arg-type]
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
    assert app == _app() and pickle.loads(pickle.dumps(Overrides())).apply(app) == app


def test_overrides_of_one_role() -> None:
    """``role`` narrows the overrides. A missing one is refused with the nearest name."""
    first, second = Overrides(role="reader", replicas=2).apply(_app()).roles
    assert (first.num_replicas, second.num_replicas) == (1, 2)
    with pytest.raises(
        SpecError, match="role 'raeder': 'a' has no such role: did you mean 'reader'"
    ):
        Overrides(role="raeder").apply(_app())
    with pytest.raises(SpecError, match="num_replicas=0"):
        Overrides(replicas=0).apply(_app())


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
    ],
)
def test_values_that_no_job_can_have(values: dict[str, Any], says: str) -> None:
    """They are refused by what the user calls the setting, not by the field that it becomes."""
    with pytest.raises(SpecError, match=says):
        overrides_of(values, lambda name: f"--{name}")
    assert overrides_of({"gpu": -1, "cpu": -1, "retry_delay": 0}).gpu == -1


@pytest.mark.parametrize("returns", ["", " -> None", " -> dict[str, float]", " -> 'int'"])
def test_a_script_is_not_executed_to_look_for_components(plain_folder: str, returns: str) -> None:
    """A file that was given without a function, and can hold no component, may be a training."""
    with open("train.py", "w") as file:
        file.write(f"def main(){returns}: pass\nraise SystemExit('the training ran')\n")
    with pytest.raises(NoComponent, match=r"train.py: holds no component.*its functions: main"):
        get_component("train.py")
