"""``transload run -- COMMAND``, and what is set over an app on the command line."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.cli.env_file import read_env_file
from transload.errors import SpecError


def test_a_command_runs_as_it_is(invoke: Any) -> None:
    """What stands after ``--`` reaches the program word by word. Its exit code is the job's."""
    code = "import sys; print(sys.argv[1:]); sys.exit(3)"
    result = invoke("run", "--", sys.executable, "-c", code, "--detach", "--", "a b", "$HOME")
    assert result.lines == ["main/0 ['--detach', '--', 'a b', '$HOME']"]
    assert result.code == 1 and "exit code 3" in result.err


def test_a_command_with_all_that_can_be_set(invoke: Any) -> None:
    """The options before ``--`` are in the job. What the dry-run wrote is run by ``--stdin``."""
    Path("x.env").write_text("A=of the file\nB=2\n")
    options = [
        "--name",
        "mine",
        "--replicas",
        "2",
        "--retries",
        "3",
        "--time-limit",
        "2h",
        "--cpu",
        "1.5",
    ]
    options += [
        "--gpu",
        "0",
        "--mem",
        "1.5G",
        "--env-file",
        "x.env",
        "--env",
        "A=1=1",
        "--image",
        "img:1",
    ]
    app = invoke("run", *options, "--dry-run", "--json", "--", "echo", "hi").json["app"]
    (role,) = app["roles"]
    assert (app["name"], app["timeout"]) == ("mine", 7200)
    assert (role["num_replicas"], role["max_retries"], role["image"]) == (2, 3, "img:1")
    assert (role["resource"]["cpu"], role["resource"]["gpu"], role["resource"]["memMB"]) == (
        1.5,
        0,
        1536,
    )
    assert role["env"] == {"A": "1=1", "B": "2"}


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_dry_run_wrote_is_what_stdin_takes(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """The document of ``--dry-run --json``, or the job in it, runs. Options go over it."""
    text = invoke("run", "--env", "A=1", "--dry-run", "--json", "--", "sh", "-c", "echo $A $B").out
    if not whole:
        import json

        text = json.dumps(json.loads(text)["app"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert invoke("run", "--stdin", "--env", "B=2").lines == ["main/0 1 2"]


def test_a_component_with_what_is_set_over_it(invoke: Any, component_file: str) -> None:
    """Options before a component change its job, and `--role` says of which role."""
    code = "import os; print(os.environ['A'])"
    result = invoke("run", "--env", "A=over", "--replicas", "2", component_file, "--code", code)
    assert sorted(result.lines) == ["train/0 over", "train/1 over"]
    result = invoke("run", "--role", "trian", component_file)
    assert result.code == 2 and "did you mean 'train'" in result.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--"], "a command is missing after --"),
        (["--stdin", "--", "true"], "give no component, and no command"),
        (["--mem", "8X", "--", "true"], "--mem='8X': must be a size such as 500M or 10G"),
        (["--env", "A", "--", "true"], "--env 'A': must be NAME=VALUE"),
        (
            ["--env", "A B=1", "--", "true"],
            "--env 'A B': must be NAME=VALUE, the name of letters, digits, _, . and -",
        ),
        (["--env-file", "none.env", "--", "true"], "--env-file none.env: cannot be read"),
        (["--replicas", "0", "--", "true"], "--replicas=0: must be 1 or more"),
        (["--cpu", "-3", "--", "true"], "--cpu=-3.0: must be 0 or more"),
        (["--time-limit", "soon", "--", "true"], "must be a duration"),
        (
            ["--time-limit", "2", "--", "true"],
            "--time-limit='2': must have a unit, such as '2s', '2m'",
        ),
        (
            ["--time-limit", "2:00", "--", "true"],
            "must be a duration such as 90s, 10m, 1h30m, 2:00:00 or 7d",
        ),
        (["--mem", "8", "--", "true"], "--mem='8': must have a unit, such as 8M or 8G"),
        (["--", "no-such-program"], "no-such-program"),
        (
            [],
            (
                "a COMPONENT is missing (`transload components` lists them), or -- and a command, or "
                "--stdin"
            ),
        ),
    ],
)
def test_mistakes_are_one_line_and_start_nothing(
    invoke: Any, args: list[str], message: str
) -> None:
    """Each names the option, the value and what is allowed."""
    result = invoke("run", *args)
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert invoke("list").out == ""


def test_a_script_is_told_the_command_that_runs_it(invoke: Any) -> None:
    """`run train.py` without a component in it says what to type, and does not execute the file."""
    Path("train.py").write_text("raise SystemExit('ran')\n")
    result = invoke("run", "--gpu", "1", "train.py", "--lr", "0.1")
    assert result.code == 2
    assert "to run the file itself: transload run --gpu 1 -- python train.py --lr 0.1" in result.err


@pytest.mark.parametrize(
    "value",
    [
        r"\d+\.csv",
        r"a\nb",
        r"C:\new",
        r"\\host\share",
        r"\$HOME \`x\` \"q\"",
        r"trailing\\",
        "two\nlines",
        "é\u2028",
    ],
)
def test_double_quotes_of_env_files_are_those_of_a_shell(tmp_path: Path, value: str) -> None:
    """Double quotes are read as ``sh`` reads them, and a byte order mark changes nothing."""
    file = tmp_path / "x.env"
    file.write_bytes(f'\ufeffVALUE="{value}"\r\nNEXT=1\r\n'.encode())
    shell = subprocess.run(
        ["sh", "-c", f'VALUE="{value}"; printf %s "$VALUE"'],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert read_env_file(str(file)) == {"VALUE": shell.stdout, "NEXT": "1"}


def test_env_files(tmp_path: Path) -> None:
    """Comments, ``export`` and quotes are read as in a shell.

    The message names a wrong line, and does not show it.
    """
    file = tmp_path / "x.env"
    file.write_text(
        '# a comment\n\nA=1\nexport B = two words # and why\nC=\'#=$A\\n\'\nD="x\ny\\"" # '
        "z\nE=\nF=a#b\n",
        encoding="utf-8",
    )
    found = read_env_file(str(file))
    assert found == {"A": "1", "B": "two words", "C": "#=$A\\n", "D": 'x\ny"', "E": "", "F": "a#b"}
    for wrong in ("A", "1A=2", "A='x", 'A="x'):
        file.write_text(f"OK=1\n{wrong}\n")
        with pytest.raises(SpecError, match=r"x\.env:2: must be NAME=VALUE"):
            read_env_file(str(file))
