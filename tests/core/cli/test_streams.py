"""Unwritable output, closed streams and a missing working directory give no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def _shell(script: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which ``$TL`` is the command line."""
    env = {**os.environ, "TL": f"{sys.executable} -m transload"}
    return subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=False,
        **settings,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", ["info", "list --json", "log app", "log -f --json app", "run utils.echo"]
)
def test_a_full_disk(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, command: str, unbuffered: str
) -> None:
    """Output without room is one line and an exit code of its own, and the job goes on."""
    assert invoke("run", "--app-id", "app", "utils.echo").code == 0
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    done = _shell(f"$TL {command} > /dev/full")
    assert done.returncode == 141, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "transload: error: the output cannot be written: "
    )
    for row in invoke("list", "--json").json["apps"]:
        assert invoke("wait", row["handle"]).code == 0


def test_closed_streams() -> None:
    """A stream that was closed from the start is as good as /dev/null."""
    done = _shell("$TL run utils.echo --msg hi >&- 2>&- <&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = _shell("$TL run utils.echo --msg hi 2>&-")
    assert (done.returncode, done.stdout) == (0, "echo/0 hi\n")
    done = _shell("$TL run --stdin <&-")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "not valid JSON" in done.stderr
    assert _shell("$TL status nobody 2> /dev/full").returncode == 2


@pytest.mark.parametrize("command", ["run utils.echo", "list", "config", "components show x.py"])
def test_a_working_directory_that_is_gone(tmp_path: Path, command: str) -> None:
    """In a folder that somebody removed the command is one line, and nothing is started."""
    (tmp_path / "here").mkdir()
    done = _shell(f"rmdir ../here; $TL {command}", cwd=tmp_path / "here")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "transload: error: the working directory has been removed: change to another one\n"
    )


def test_json_of_arguments_that_are_no_text() -> None:
    """A file name that is not UTF-8 is valid JSON all the same."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "transload",
            "run",
            "--dry-run",
            "--json",
            "utils.echo",
            "--msg",
            b"a\xffb",
        ],
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout.decode("utf-8"))["app"]["roles"][0]["args"] == ["a\udcffb"]
