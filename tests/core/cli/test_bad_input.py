"""A user's mistake is exit code 2, and one line that says what is allowed. Nothing is started."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

ROLE = {"name": "r", "image": "", "entrypoint": "true"}


def _app(**changes: Any) -> str:
    return json.dumps({"schema": 1, "name": "a", "roles": [{**ROLE, **changes}]})


def _refused(result: Any, *words: str) -> None:
    """One line on stderr that has all the words, nothing on stdout, exit code 2."""
    assert result.code == 2, result.err
    assert result.out == ""
    lines = result.err.splitlines()
    assert len(lines) == 1, result.err
    assert lines[0].startswith("transload: error: ")
    for word in words:
        assert word in lines[0], lines[0]


@pytest.fixture(autouse=True)
def _nothing_started(transload_home: Path) -> Any:
    """No app may be left by any of these."""
    yield
    apps = transload_home / "local" / "apps"
    assert not apps.is_dir() or os.listdir(apps) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["utils.ecko"], ["utils.ecko", "did you mean 'utils.echo'"]),
        (["nosuch.py:job"], ["nosuch.py"]),
        (["jobs.py:jub"], ["jub", "did you mean 'job'"]),
        (["jobs.py:no_annotations"], ["code", "annotation"]),
        (["no.such.module:fn"], ["no.such.module"]),
        (["jobs.py:job", "--replicas", "many"], ["replicas", "many", "int"]),
        (["jobs.py:job", "--replicas", "1_0"], ["replicas", "1_0", "int"]),
        (["--replicas", "1_0", "utils.echo"], ["--replicas", "1_0"]),
        (["--retries", "1_0", "utils.echo"], ["--retries", "1_0"]),
        (["--gpu", "1_0", "utils.echo"], ["--gpu", "1_0"]),
        (["--cpu", "1_0", "utils.echo"], ["--cpu", "1_0"]),
        (["--time-limit", "\u0661h", "utils.echo"], ["--time-limit", "10m"]),
        (["--mem", "\u0661G", "utils.echo"], ["--mem", "10G"]),
        (["jobs.py:job", "--replicas", "0"], ["num_replicas", "0", "1 or more"]),
        (["jobs.py:job", "--replicas", "-3"], ["num_replicas", "-3"]),
        (["jobs.py:job", "--retries", "-1"], ["max_retries", "-1", "0 or more"]),
        (["jobs.py:job", "--replica", "1"], ["replica", "did you mean"]),
        (["jobs.py:job", "--role", "../x"], ["name", "../x"]),
        (["utils.echo", "stray"], ["stray"]),
        (["-s", "lokal", "utils.echo"], ["lokal", "did you mean 'local'"]),
        (["-c", "log_dri=/tmp", "utils.echo"], ["log_dri", "did you mean 'log_dir'"]),
        (["-c", "prepend_cwd=perhaps", "utils.echo"], ["prepend_cwd", "perhaps", "true or false"]),
        (["-c", "nonsense", "utils.echo"], ["nonsense", "key=value"]),
        (["utils.binary", "--entrypoint", "no-such-program-here"], ["no-such-program-here"]),
        (["utils.binary", "--entrypoint", "./plain.txt"], ["plain.txt", "executable"]),
        (["--app-id", "a/b", "utils.echo"], ["app_id", "a/b"]),
        (["--timeout", "soon", "utils.echo"], ["timeout", "soon", "10m"]),
        (["--detach", "--wait", "utils.echo"], ["--detach and --wait"]),
        (["--detach", "--timeout", "10m", "utils.echo"], ["--timeout", "--detach"]),
        (["--detach", "--patience", "10m", "utils.echo"], ["--patience", "--detach"]),
        (["--no-such-option", "utils.echo"], ["--no-such-option"]),
        ([], ["COMPONENT"]),
    ],
)
def test_run(invoke: Any, component_file: str, args: list[str], words: list[str]) -> None:
    """``run`` refuses what cannot be run."""
    Path("plain.txt").write_text("not a program\n")
    _refused(invoke("run", *args), *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["JSON"]),
        ("[]", ["JSON object"]),
        (_app(num_replicas="3"), ["roles[0].num_replicas", "int"]),
        (_app(num_replicas=0), ["roles[0].num_replicas=0", "1 or more"]),
        (_app(args="-c"), ["roles[0].args", "list"]),
        (_app(env={"A": 1}), ["roles[0].env", "str"]),
        (_app(name="a/b"), ["roles[0].name", "a/b"]),
        (_app(resource={"cpu": -2, "gpu": 0, "memMB": 1}), ["roles[0].resource.cpu", "-2"]),
        (_app(resource={"cpu": 1, "gpu": 0, "memMB": 1e400}), ["roles[0].resource.memMB"]),
        (_app(comand="x"), ["comand"]),
        (_app(metadata=json.loads("[" * 500 + "]" * 500)), ["roles[0].metadata", "dict"]),
        (
            _app(metadata={"x": json.loads("[" * 500 + "]" * 500)}),
            ["roles[0].metadata['x'][0]", "100 deep"],
        ),
        (json.dumps({"schema": 99, "name": "a", "roles": [ROLE]}), ["schema", "newer"]),
        (json.dumps({"schema": 1, "name": "a", "roles": [ROLE, ROLE]}), ["roles[1].name", "taken"]),
        (json.dumps({"schema": 1, "name": "a", "roles": []}), ["roles"]),
        (
            json.dumps({"schema": 1, "name": "a", "roles": [{"name": "r", "image": ""}]}),
            ["entrypoint"],
        ),
    ],
)
def test_stdin(invoke: Any, monkeypatch: pytest.MonkeyPatch, text: str, words: list[str]) -> None:
    """``run --stdin`` refuses an AppDef that is wrong, by the path of the field."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    _refused(invoke("run", "--stdin"), *words)


@pytest.mark.parametrize(
    "command", ["status", "wait", "log", "describe", "results", "cancel", "delete"]
)
@pytest.mark.parametrize(
    ("handle", "word"),
    [
        ("local://transload/nothing-here", "no such job"),
        ("nothing-here", "no such job"),
        ("local:/transload/x", "SCHEDULER://SESSION/APP_ID"),
        ("two words", "SCHEDULER://SESSION/APP_ID"),
        ("nosuch://transload/x", "nosuch"),
        ("local://transload/..", "no such job"),
    ],
)
def test_handles(invoke: Any, command: str, handle: str, word: str) -> None:
    """Every command refuses a malformed handle and an unknown app."""
    _refused(invoke(command, handle), word)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["delete"], ["HANDLE", "--older-than", "--larger-than"]),
        (["delete", "x", "--older-than", "1d"], ["HANDLE", "--older-than"]),
        (["delete", "x", "-s", "local"], ["--scheduler only goes with --older-than"]),
        (["delete", "--force", "--older-than", "1d"], ["--force only goes with handles"]),
        (["delete", "--older-than", "old"], ["old", "7d"]),
        (["delete", "--older-than", "30"], ["must have a unit", "30h"]),
        (["delete", "--larger-than", "10"], ["must have a unit", "10G"]),
        (["delete", "--larger-than", "big"], ["big", "10G"]),
        (
            ["delete", "-s", "scripted", "--larger-than", "1G"],
            ["scripted", "by age or size", "by their handles"],
        ),
        (
            ["status", "local://transload/x", "FAILED", "3 min 05 s"],
            ["no more: 'FAILED 3 min 05 s'", "first column"],
        ),
        (["cancel", "local://transload/x", "RUNNING"], ["'RUNNING' is a state", "first column"]),
        (["log"], ["HANDLE"]),
        (["run", "--msg", "hi", "utils.echo"], ["--msg", "come after its name"]),
        (
            ["run", "utils.echo", "--dry-run"],
            ["--dry-run is an option of `run`: put it before utils.echo"],
        ),
        (["list", "-s", "lokal"], ["lokal", "did you mean 'local'"]),
        (["list", "--state", "DONE"], ["DONE"]),
        (["lsit"], ["lsit", "did you mean 'list'"]),
        (["info", "lokal"], ["lokal", "did you mean 'local'"]),
        (["components", "show", "utils.ecko"], ["utils.ecko", "did you mean 'utils.echo'"]),
        (["components", "check", "nosuch.py:fn"], ["nosuch.py"]),
        (["config", "schedulre"], ["schedulre", "did you mean 'scheduler'"]),
        (["tracker", "runs"], ["no tracker is configured"]),
        (
            ["tracker", "--base", "transload.toml", "runs"],
            ["--base='transload.toml'", "cannot be read"],
        ),
        (
            ["tracker", "--base", "transload.toml", "lineage", "r", "--json"],
            ["transload.toml", "cannot be read"],
        ),
        (["tracker", "--base", "nosuch://x", "runs"], ["nosuch"]),
        (["results", "x", "--key", "1"], ["--key", "--value"]),
        (["completion", "tcsh"], ["tcsh", "bash"]),
        (["status"], ["HANDLE"]),
        (["cancel", "x", "--timeout", "5"], ["--timeout", "--wait"]),
        (["results", "x", "--key", "k"], ["--key", "--value"]),
    ],
)
def test_other_commands(invoke: Any, args: list[str], words: list[str]) -> None:
    """The other commands refuse wrong arguments."""
    Path("transload.toml").write_text("")
    _refused(invoke(*args), *words)


def test_bad_settings_file(invoke: Any) -> None:
    """A wrong key in a settings file is named with its file."""
    Path("transload.toml").write_text("schedular = 'local'\n")
    _refused(invoke("run", "utils.echo"), "transload.toml", "schedular", "did you mean 'scheduler'")


def test_unwritable_state_folder(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A state folder that cannot be one is named, with the variable that sets it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSLOAD_HOME", str(tmp_path / "file"))
    _refused(invoke("run", "utils.echo"), "state folder", "TRANSLOAD_HOME")


def test_component_that_leaves(invoke: Any) -> None:
    """A component that ends the program does not decide over its exit code."""
    Path("leave.py").write_text(
        "import sys\nfrom transload.specs import AppDef\n\n\n"
        'def leave() -> AppDef:\n    """Leave."""\n    sys.exit(3)\n'
    )
    _refused(invoke("run", "leave.py"), "leave.py", "SystemExit: 3", "leave.py:7")


def test_component_that_raises(invoke: Any) -> None:
    """What a component raises is the component's mistake, in one line without a traceback."""
    Path("bad.py").write_text(
        "from transload.specs import AppDef\n\n\n"
        'def bad() -> AppDef:\n    """Be bad."""\n    raise RuntimeError("no data set")\n'
    )
    _refused(invoke("run", "bad.py:bad"), "no data set")
