"""Whatever is absurd (a record, an app, a settings file, a number) is one line and exit code 2 or
3, in time.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from transload_testing.schedulers import Damage, damage_file

DEEP = "[" * 100_000
DAMAGED_RECORDS = [
    "",
    "{",
    DEEP,
    '{"schema": 1, "app": "x", "session": 5}',
    (
        '{"schema": 1, "app": {"name": ["x"], "roles": 5}, "session": "transload", "created": '
        '"yesterday"}'
    ),
    '{"schema": 1, "session": "a", "created": 1e400, "app": null}',
    (
        '{"schema": 1, "session": "\\ud800", "created": true, "app": {"name": "\\ud800"}, '
        '"workspaces": 5}'
    ),
    '{"schema": "x"}',
    '{"schema": [1]}',
    '{"schema": 1e400}',
    '{"schema": 99}',
]
DAMAGED_STATES = [
    DEEP,
    '{"state": 5}',
    '{"state": "RUNNING", "roles": 5}',
    '{"state": "SUCCEEDED", "roles": [{"role": 1, "replicas": [{"id": "x", "state": "ODD"}]}]}',
    (
        '{"state": "SUCCEEDED", "roles": [{"role": "r", "replicas": [{"id": "x", "exit_code": "a"}]}], '
        '"msg": [1]}'
    ),
    '{"state": "SUCCEEDED", "num_restarts": 1e400}',
    '{"state": "RUNNING", "time_limit": "long", "ends_by": "later"}',
    '{"state": "RUNNING", "time_limit": 1e300, "ends_by": 1e300, "segment_ends": 1e400}',
    '{"state": "RUNNING", "progress": {"fraction": 1e400, "at": 1e300, "eta_seconds": 1e400}}',
    (
        '{"state": "RUNNING", "progress": {"step": "x", "total": 0, "text": "going", '
        '"history": [[1e400, "x"]]}}'
    ),
    *(
        '{"state": "FAILED", "roles": [{"role": "r", "replicas": '
        f'[{{"id": 0, "state": "FAILED", {field}}}]}}]}}'
        for field in (
            '"exit_code": 1e400',
            '"start_time": "x", "end_time": "y"',
            '"start_time": -1e300, "end_time": 1e300',
            '"restarts": "x"',
            '"hostname": 5',
            '"usage": {"peak_memory": "x", "cpu_seconds": 1e400}',
            '"earlier": [{"state": "FAILED", "start_time": "x", "exit_code": "y"}]',
        )
    ),
]
COMMANDS = [
    "list",
    "list --arguments",
    "list --json",
    "describe X",
    "status X",
    "results X",
    "log X",
    "wait X --timeout 1",
]


def _one_line(result: Any, what: object) -> None:
    assert "Traceback" not in result.err and result.code in (0, 1, 2, 3, 5), (
        what,
        result.code,
        result.err[-300:],
    )
    assert "internal error" not in result.err, (what, result.err[-300:])


def _damage(transload_home: Path, handle: str, name: str, text: str) -> None:
    path = transload_home / "local" / "apps" / handle.rpartition("/")[2] / name
    path.write_text(text + "\n")


def test_damaged_record_hides_nothing(started: Any, invoke: Any, transload_home: Path) -> None:
    """All jobs are listed, every command ends in a line, and the damaged job can be deleted."""
    bad, good = started("pass"), started("pass")
    for handle in (bad, good):
        assert invoke("wait", handle).code == 0
    for text in DAMAGED_RECORDS:
        _damage(transload_home, bad, "record.json", text)
        for command in COMMANDS:
            _one_line(invoke(*command.replace("X", bad).split()), (text[:40], command))
        listed = invoke("list").out
        assert good in listed and bad.rpartition("/")[2] in listed, text[:40]
        shown = invoke("list", "--arguments", "--json")
        assert {each["app_id"]: bool(each["arguments"]) for each in shown.json["apps"]} == {
            bad.rpartition("/")[2]: False,
            good.rpartition("/")[2]: True,
        }, text[:40]
        _one_line(invoke("delete", "--older-than", "1000d"), "prune")
        assert invoke("status", good).code == 0
    _damage(transload_home, bad, "record.json", DAMAGED_RECORDS[0])
    assert invoke("delete", "--force", bad).code == 0
    assert bad.rpartition("/")[2] not in invoke("list").out


@pytest.mark.parametrize("damage", ["empty", "folder", "FIFO"])
def test_status_says_what_is_damaged(
    started: Any, invoke: Any, transload_home: Path, damage: Damage
) -> None:
    """Status, description and log name the record and the command that removes the job, whatever is
    in its place.
    """
    bad = started("pass")
    assert invoke("wait", bad).code == 0
    record = transload_home / "local" / "apps" / bad.rpartition("/")[2] / "record.json"
    damage_file(record, damage)
    said = f"its record {record} is damaged; `transload delete --force` removes the job"
    for command in ("status", "describe"):
        result = invoke(command, bad)
        assert result.code == 0 and said in result.out, (command, result)
    result = invoke("log", bad)
    assert result.code == 3 and said in result.err and result.err.count("\n") == 1
    assert invoke("delete", "--force", bad).code == 0
    assert bad not in invoke("list").out
    assert not record.parent.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give up what lets it read everything")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not here")
@pytest.mark.parametrize("name", ["record.json", "states.jsonl", "."])
def test_job_that_may_not_be_read(
    started: Any, invoke: Any, transload_home: Path, name: str
) -> None:
    """What may not be read proves nothing, so the job is UNKNOWN, and is not deleted.

    The message has the file, and no other job is hidden.
    """
    bad, good = started("pass"), started("pass")
    for handle in (bad, good):
        assert invoke("wait", handle).code == 0
    place = transload_home / "local" / "apps" / bad.rpartition("/")[2] / name
    place.chmod(0)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        bounded = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        command = [*bounded, sys.executable, "-m", "transload", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    try:
        listed = call("list")
        assert f"{good}\tSUCCEEDED" in listed.stdout and f"{bad}\tUNKNOWN" in listed.stdout, listed
        assert "Permission denied" in call("status", bad).stdout
        refused = call("delete", "--force", bad)
        assert refused.returncode == 3 and "Permission denied" in refused.stderr
        assert refused.stderr.count("\n") == 1, refused.stderr
        pruned = call("delete", "--older-than", "1000d")
        assert pruned.returncode == 0, pruned.stderr
    finally:
        place.chmod(0o700)
    assert invoke("status", bad).code == 0


def test_damaged_state_hides_nothing(started: Any, invoke: Any, transload_home: Path) -> None:
    """It is shown as UNKNOWN, or as FAILED where nobody looks after it any more, and can be
    deleted.
    """
    bad, good = started("pass"), started("pass")
    for handle in (bad, good):
        assert invoke("wait", handle).code == 0
    for text in DAMAGED_STATES:
        _damage(transload_home, bad, "states.jsonl", text)
        for command in COMMANDS[:-1]:
            _one_line(invoke(*command.replace("X", bad).split()), (text[:40], command))
        assert good in invoke("list").out, text[:40]
        shown = invoke("status", bad).out
        assert "UNKNOWN" in shown or "FAILED" in shown, text[:40]
    assert invoke("delete", "--force", bad).code == 0
    assert bad not in invoke("list").out


def _app(**changes: Any) -> str:
    role = {"name": "r", "image": "", "entrypoint": "true", **changes}
    return json.dumps({"schema": 1, "name": "a", "roles": [role]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DEEP, "not valid JSON"),
        (
            '{"schema": 1, "name": "a", "roles": [{"name": "r", "metadata": '
            + "[" * 5000
            + "]" * 5000
            + "}]}",
            "",
        ),
        (_app(num_replicas=10**400), "must be 100000 or less"),
        (_app(num_replicas=100_001), "must be 100000 or less"),
        (_app(max_retries=10**400), "max_retries"),
        (_app(entrypoint="\ud800x"), "entrypoint"),
        (_app(args=["a\ud800"]), "args[0]"),
        (_app(env={"A": "\ud800"}), "env['A']"),
        (_app(env={"\ud800": "a"}), "env"),
        (_app(image="\ud800"), "image"),
        (_app(secrets={"A": "env:\ud800"}), "secrets['A']"),
        (_app(secrets={"A": "file:/\ud800"}), "secrets['A']"),
        (_app().replace('"name": "a"', r'"name": "a\ud800"'), "name"),
        (_app().replace('"name": "a"', r'"name": "a\udcff"'), "name"),
        (_app(retry_delay=10**400), "retry_delay"),
        (_app(stall_after=10**12), "stall_after"),
        (_app(notice={"seconds": 10**400, "signal": "TERM"}), "seconds"),
        (_app(resource={"cpu": 10**400, "gpu": 0, "memMB": 1}), "cpu"),
        (_app(resource={"cpu": 1, "gpu": 10**400, "memMB": 1}), "gpu"),
        (_app(resource={"cpu": 1, "gpu": 0, "memMB": 10**400}), "memMB"),
        (_app(port_map={"p": 10**400}), "port_map"),
        (_app(min_replicas=10**400), "min_replicas"),
        (_app().replace('"name": "a"', f'"name": "a", "timeout": {10**400}'), "timeout"),
        (_app().replace('"name": "a"', '"name": "a", "timeout": 1e300'), "timeout"),
        (_app().replace('"name": "a"', f'"name": "a", "segment": {10**400}'), "segment"),
        (_app(args=["x" * 1_000_000] * 40), "roles[0].args='…': have 40,000,000 characters"),
        (" " * (65 << 20), "stdin: more than 67,108,864 bytes"),
        (_app(secrets={"S": "file:nul"}), "holds a NUL character"),
    ],
    ids=lambda text: text[:20],
)
def test_absurd_apps(
    invoke: Any,
    monkeypatch: pytest.MonkeyPatch,
    plain_folder: str,
    transload_home: Path,
    text: str,
    said: str,
) -> None:
    """Nothing is started, and the message names the field."""
    Path("nul").write_bytes(b"a\0b")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    began = time.monotonic()
    result = invoke("run", "--stdin", "--detach")
    assert time.monotonic() - began < 20
    assert result.code == 2 and said in result.err and result.err.count("\n") == 1, result.err[
        -300:
    ]
    assert not list(transload_home.rglob("record.json"))


def test_several_roles_have_a_bound_together() -> None:
    """The bound is the app's."""
    from transload.specs import AppDef, Role, SpecError

    roles = [Role(name, "", entrypoint="true", num_replicas=60_000) for name in "ab"]
    with pytest.raises(SpecError, match="120,000 replicas together; at most 100,000"):
        AppDef("a", roles).check()


def test_deep_settings(invoke: Any, plain_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A settings file that is nested deeper than can be read is a mistake of the file's."""
    Path("transload.toml").write_text("# transload\na = " + "[" * 5000 + "]" * 5000)
    result = invoke("list")
    assert (
        result.code == 2
        and "transload.toml: cannot be read as TOML" in result.err
        and result.err.count("\n") == 1
    )


@pytest.mark.parametrize("name", [".transloadignore", ".dockerignore"])
@pytest.mark.parametrize("pattern", ["*a" * 25 + "b", "**/" * 30 + "x", "a*" * 9 + "/b"])
def test_ignore_file_that_never_ends(
    invoke: Any, plain_folder: str, name: str, pattern: str
) -> None:
    """A pattern that could be tried on a name for ever is refused by its line. Others are not."""
    Path("w").mkdir()
    Path("w", "a" * 60 + ".txt").touch()
    Path("w", name).write_text(f"# all stars: {'*' * 30}\n*.pt\n{pattern}\n")
    began = time.monotonic()
    result = invoke("run", "--detach", "--workspace", "w", "--", "true")
    assert time.monotonic() - began < 20
    assert result.code == 2 and f"{name}:3: " in result.err and result.err.count("\n") == 1, (
        result.err
    )
    Path("w", name).write_text("**/data/**/*.tar.*\n*_test_*.py\n!keep\n")
    assert invoke("run", "--workspace", "w", "--", "true").code == 0


@pytest.mark.parametrize(
    "handle", ["local://transload/a\ud800", "\udcff", "local://transload/\udcff\udcfe"]
)
def test_handles_that_no_text_can_hold(invoke: Any, handle: str) -> None:
    """A lone surrogate in a handle is no job's."""
    for command in ("status", "log", "cancel", "describe", "results", "wait", "get", "delete"):
        result = invoke(command, handle)
        assert result.code in (2, 3) and result.err.count("\n") == 1, (command, result.err[-300:])


@pytest.mark.parametrize("home", ["/proc/transload", "/dev/null/home"])
def test_home_that_cannot_be_made(
    invoke: Any, plain_folder: str, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    """A state folder that cannot be made, or be written to, is one line that names it."""
    monkeypatch.setenv("TRANSLOAD_HOME", home)
    result = invoke("run", "--detach", "--", "true")
    assert (
        result.code in (2, 3)
        and home.removesuffix("/home") in result.err
        and result.err.count("\n") == 1
    ), result.err
    for command in ("list", "doctor", "search", "config"):
        _one_line(invoke(command), command)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a file system")
def test_home_that_became_read_only(
    started: Any, invoke: Any, transload_home: Path, tmp_path: Path
) -> None:
    """A disk that has become read-only is named in one line by whatever would write to it."""
    handle = started("pass")
    assert invoke("wait", handle).code == 0
    subprocess.run(["mount", "--bind", str(transload_home), str(transload_home)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(transload_home)], check=True)
        for command in (["delete", "--force", handle], ["delete", "--older-than", "0s"]):
            result = invoke(*command)
            assert (
                result.code == 3
                and "Read-only file system" in result.err
                and result.err.count("\n") == 1
            )
        for command in (["list"], ["status", handle], ["cancel", handle], ["doctor"]):
            _one_line(invoke(*command), command)
        assert handle in invoke("list").out
    finally:
        subprocess.run(["umount", "-l", str(transload_home)], check=True)


LARGE = "9" * 401


@pytest.mark.parametrize("number", [LARGE, "99999999999999999999", f"-{LARGE}", "1e400", "nan"])
@pytest.mark.parametrize(
    "words",
    [
        "log X --tail=N",
        "log X --since=Ns",
        "wait X --timeout=N",
        "list --limit=N",
        "delete --older-than=Nd",
        "delete --larger-than=NG",
        "run --timeout=Ns -- true",
        "run --startup-timeout=Ns -- true",
        "run --time-limit=Ns -- true",
        "run --time-limit=N:00:00 -- true",
        "run --stall-after=Ns -- true",
        "run --notice=Ns -- true",
        "run --retry-delay=Ns -- true",
        "run --cpu=N -- true",
        "run --gpu=N -- true",
        "run --mem=NG -- true",
        "run --retries=N -- true",
        "run --replicas=N -- true",
        "run --max-interruptions=N -- true",
        "run -c max_log_size=N -- true",
    ],
)
def test_absurd_numbers(invoke: Any, words: str, number: str) -> None:
    """A number that nobody means is refused in one short line, wherever it is typed."""
    command = [word.replace("X", "local://t/x").replace("N", number) for word in words.split()]
    result = invoke(*command)
    assert result.code in (2, 5), result
    assert "internal error" not in result.err
    assert len(result.err.strip().splitlines()) <= 2
    assert len(result.err) < 600


def test_many_lines_are_all_lines(started: Any, invoke: Any) -> None:
    """A number of lines that is large, and no more, shows all of them."""
    job = started("print('one'); print('two')")
    assert invoke("wait", job).code == 0
    assert "one" in invoke("log", "--tail", str(2**62), job).out
