"""A command as an app."""

from __future__ import annotations

from typing import Any

import pytest

from transload.components import (
    NoComponent,
    command_app,
    get_component,
)
from transload.errors import SpecError

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


@pytest.mark.parametrize("returns", ["", " -> None", " -> dict[str, float]", " -> 'int'"])
def test_a_script_is_not_executed_to_look_for_components(plain_folder: str, returns: str) -> None:
    """A file that was given without a function, and can hold no component, may be a training."""
    with open("train.py", "w") as file:
        file.write(f"def main(){returns}: pass\nraise SystemExit('the training ran')\n")
    with pytest.raises(NoComponent, match=r"train.py: holds no component.*its functions: main"):
        get_component("train.py")
