"""A job has one handle, that of the session which submitted it, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, Role

_HANDLE = "local://airflow/job"


@pytest.fixture
def job() -> str:
    """Run a job of another session to its end, and return its handle."""
    app = AppDef("job", [Role("main", "", entrypoint="true")])
    with Runner("airflow") as runner:
        handle = runner.run(app, "local", app_id="job")
        runner.wait(handle, timeout=60)
    assert handle == _HANDLE
    return handle


@pytest.mark.parametrize("asked", ["job", "local://transload/job", _HANDLE])
@pytest.mark.parametrize(
    "command",
    [
        ("status", "--json"),
        ("describe", "--json"),
        ("wait", "--json"),
        ("results", "--json"),
        ("results",),
        ("status",),
        ("describe",),
        ("get", "--json"),
        ("delete",),
    ],
    ids=" ".join,
)
def test_every_command_writes_it(
    invoke: Any, job: str, asked: str, command: tuple[str, ...]
) -> None:
    """However the job was named, it is written as the session that submitted it has it."""
    said = invoke(command[0], asked, *command[1:])
    assert "://transload" not in said.out + said.err
    if command != ("status",):
        assert _HANDLE in said.out + said.err


def test_lists(invoke: Any, job: str) -> None:
    """A list has it in Python and on the command line."""
    assert [row["handle"] for row in invoke("list", "--json").json["apps"]] == [_HANDLE]
    with Runner("mine") as runner:
        assert [row.app_handle for row in runner.list("local")] == [_HANDLE]
        assert runner.results("local://mine/job").handle == _HANDLE


def test_a_submit_that_reattaches(invoke: Any, job: str) -> None:
    """A submit that finds the job of another session names that one."""
    with Runner("transload") as runner:
        definition = runner.job(_HANDLE).description()
    assert definition is not None and definition.app is not None
    said = invoke("run", "--app-id", "job", "--name", "job", "--", "true")
    assert "reattached to local://airflow/job" in said.err, said
