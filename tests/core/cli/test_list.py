"""`transload list` finds jobs by what they were given, what they reported and where they run."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
from transload.specs import AppDef, Role


def train(lr: float, note: str = "plain") -> AppDef:
    code = f"transload put loss={lr * 2} && echo {note}"
    return AppDef("train", [Role("main", "", entrypoint="sh", args=["-c", code])])
"""


@pytest.fixture
def jobs(invoke: Any, plain_folder: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Run three jobs, which report twice their learning rate, and return their handles."""
    Path(plain_folder, "train.py").write_text(TRAIN)
    monkeypatch.chdir(plain_folder)
    handles = []
    for rate, more in (("0.1", []), ("0.2", ["--note", "second"]), ("0.05", [])):
        words = ["run", "--json", "--wait", "train.py:train", "--lr", rate, *more]
        ended = invoke(*words)
        assert ended.code == 0, ended.err
        handles.append(ended.json["handle"])
    assert invoke("run", "--wait", "--name", "other", "--", "true").code == 0
    return handles


def handles(invoke: Any, *words: str) -> list[str]:
    """Return the handles that a list shows."""
    listed = invoke("list", *words, "--json")
    assert listed.code == 0, listed.err
    return [each["handle"] for each in listed.json["apps"]]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--where", "lr=0.05"], [2]),
        (["--where", "lr=0.050"], [2]),
        (["--where", "lr != 0.05"], [1, 0]),
        (["--where", "loss<0.3"], [2, 0]),
        (["--where", "loss >= 0.2", "--where", "note=plain"], [0]),
        (["--where", "note=second"], [1]),
        (["--where", "note<3"], []),
        (["--name", "train", "--where", "state=succeeded"], [2, 1, 0]),
        (["--name", "train", "--where", "state!=Succeeded"], []),
        (["--name", "train", "--sort", "loss"], [2, 0, 1]),
        (["--name", "train", "--sort", "-loss"], [1, 0, 2]),
        (["--name", "train", "--sort", "-age"], [0, 1, 2]),
        (["--name", "train", "--since", "2d"], [2, 1, 0]),
        (["--sort", "-loss", "--limit", "3"], [1, 0, 2]),
        (["--name", "train", "--where", "disk>4000", "--where", "disk<4000000"], [2, 1, 0]),
        (["--name", "train", "--sort", "-lr", "--limit", "1"], [1]),
    ],
)
def test_filters_and_order(
    invoke: Any, jobs: list[str], words: list[str], wanted: list[int]
) -> None:
    """Arguments and results filter and sort: numbers as numbers, other texts by equality alone."""
    assert handles(invoke, *words) == [jobs[each] for each in wanted]


def test_since(invoke: Any, jobs: list[str], eventually: Any) -> None:
    """Jobs that were submitted longer ago are left out."""
    eventually(lambda: handles(invoke, "--since", "1ms") == [])
    assert len(handles(invoke, "--since", "1h")) == 1 + len(jobs)


def test_columns(invoke: Any, jobs: list[str]) -> None:
    """A column shows an argument, a result or a figure; it is empty where a job has none."""
    words = ["list", "--columns", "lr,loss,elapsed,gpu_hours"]
    rows = {each["handle"]: each for each in invoke(*words, "--json").json["apps"]}
    assert [rows[each]["columns"]["loss"] for each in jobs] == [0.2, 0.4, 0.1]
    assert rows[jobs[1]]["columns"]["lr"] == 0.2
    assert 0 < rows[jobs[1]]["columns"]["elapsed"] < 60
    assert rows[jobs[1]]["columns"]["gpu_hours"] == 0
    (other,) = [each for each in rows.values() if each["name"] == "other"]
    assert other["columns"]["loss"] is None
    line = next(line for line in invoke(*words).lines if line.startswith(jobs[1]))
    assert line.split("\t")[5:7] == ["0.2", "0.4"]


def test_why(invoke: Any, jobs: list[str]) -> None:
    """A column says why each job is in its state, as `status` does; it is empty for one that
    succeeded.
    """
    failed = invoke("run", "--json", "--wait", "--", "sh", "-c", "exit 7").json["handle"]
    shown = invoke("list", "--state", "failed", "--columns", "why")
    (line,) = [each.split("\t") for each in shown.lines if each.startswith(failed)]
    assert line[5] == invoke("status", failed, "--json").json["status"]["msg"] and "7" in line[5]
    rows = invoke("list", "--columns", "why", "--json").json["apps"]
    assert {each["handle"]: each["columns"]["why"] for each in rows}[jobs[0]] is None


def test_hours_are_asked_for(invoke: Any) -> None:
    """Hours are what the job asked for × how long it took."""
    ended = invoke("run", "--json", "--wait", "--cpu", "2", "--replicas", "3", "--", "sleep", "0.2")
    (row,) = invoke("list", "--columns", "cpu_hours,elapsed", "--json").json["apps"]
    assert row["handle"] == ended.json["handle"]
    assert row["columns"]["cpu_hours"] == pytest.approx(row["columns"]["elapsed"] * 6 / 3600)


@pytest.mark.parametrize(
    ("text", "place"),
    [("loss<<0.3", 4), ("=3", 0), ("lr=", 3), ("lr", 2), ("lr ~ 3", 3), ("loss < abc", 7)],
)
def test_filter_that_cannot_be_read(invoke: Any, text: str, place: int) -> None:
    """It is refused with a caret below the place."""
    refused = invoke("list", "--where", text)
    assert refused.code == 2
    shown, caret, error = refused.err.splitlines()
    assert shown.index(text) + place == caret.index("^")
    assert "NAME OP VALUE" in error


@pytest.mark.parametrize("words", [["--columns", "los"], ["--sort", "los"], ["--where", "los=1"]])
def test_name_that_no_job_has(invoke: Any, jobs: list[str], words: list[str]) -> None:
    """A name that no job has is refused, with the nearest one."""
    refused = invoke("list", *words)
    assert refused.code == 2
    assert "'los'" in refused.err
    assert "'loss'" in refused.err


def test_state_that_there_is_not(invoke: Any) -> None:
    """A filter by a state that there is not is refused, rather than being true of no job."""
    refused = invoke("list", "--where", "state=failing")
    assert refused.code == 2
    assert "failing" in refused.err and "FAILED" in refused.err


@pytest.mark.parametrize("text", ["lr,,loss", ","])
def test_columns_without_a_name(invoke: Any, text: str) -> None:
    """A list of columns in which a name is missing is refused."""
    refused = invoke("list", "--columns", text)
    assert refused.code == 2
    assert repr(text) in refused.err


def test_all_configured_schedulers(
    invoke: Any, plain_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of each are listed together. One that does not answer is named, and hides no others."""
    folder = Path(plain_folder)
    monkeypatch.chdir(folder)
    here = socket.socket(socket.AF_UNIX)
    here.bind(str(folder / "silent.sock"))
    here.listen()  # it takes a connection, and never answers
    (folder / "transload.toml").write_text(
        f'[schedulers.second]\nkind = "local"\nstate_folder = "{folder}/second"\n'
        f'[schedulers.silent]\nkind = "docker"\ndocker_host = "unix://{folder}/silent.sock"\n'
    )
    first = invoke("run", "--json", "--wait", "--", "true").json["handle"]
    second = invoke("run", "--json", "--wait", "-s", "second", "--", "true").json["handle"]
    assert second.startswith("second://")
    with here:
        before = time.monotonic()
        listed = invoke("list", "--json")
        assert time.monotonic() - before < 20
        assert [each["handle"] for each in listed.json["apps"]] == [second, first]
        assert list(listed.json["unreachable"]) == ["silent"]
    assert handles(invoke, "-s", "second") == [second]
    assert os.path.isdir(folder / "second")
