"""Variables that each job gets, and those that no job takes over from another one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import transload
from transload.runner import Runner, get_runner
from transload.specs import AppDef, AppState, Role

pytestmark = pytest.mark.usefixtures("plain_folder")

PRINTS = """
import time
print("first")
while True:
    time.sleep(1)
    print("again")
"""

OF_ONE_JOB = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "elsewhere",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "outer",
    "WANDB_RUN_ID": "outer",
    "KUBEFLOW_TRAINER_SERVER_URL": "http://127.0.0.1:9/",
    "KUBEFLOW_TRAINER_SERVER_TOKEN": "/no/such/token",
    "TRANSLOAD_CHECKPOINT_DIR": "/no/such/checkpoints",
}

SUBMITS = """
import os, sys
import transload
job = transload.run(command=["env"], name="inner", **eval(sys.argv[1]))
job.wait()
sys.stdout.writelines(job.logs(follow=False))
"""


@pytest.fixture
def runner(transload_home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    """A runner on a state folder of its own, in a shell that says nothing of Python's output."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with get_runner("test") as made:
        yield made


def python(code: str, *args: str, **role: Any) -> AppDef:
    """A job of one role that runs Python code."""
    role = {"entrypoint": sys.executable, "args": ["-c", code, *args], **role}
    return AppDef("job", [Role("main", "", **role)])


def lines_of(job: Any) -> list[str]:
    """Return the lines that a job has written so far."""
    return [line.rstrip("\n") for line in job.logs(follow=False)]


def variables_of(job: Any) -> dict[str, str]:
    """Return the variables of a job that ran ``env``, once it has ended."""
    assert job.wait().state is AppState.SUCCEEDED
    return dict(line.split("=", 1) for line in lines_of(job) if "=" in line)


def test_what_python_prints_is_seen_at_once(runner: Runner, eventually: Any) -> None:
    """Lines that a program prints without a flush are in the log, and are signs of life."""
    app = python(PRINTS, stall_after=2.5)
    job = transload.run(app, runner=runner)
    eventually(lambda: lines_of(job).count("again") >= 4, 20)
    status = job.status()
    job.cancel()
    assert job.wait().state is AppState.CANCELLED
    assert not status.is_stalled


def test_the_lines_of_a_killed_program_are_kept(runner: Runner) -> None:
    """What a program printed before it was killed is in its log."""
    code = "import os, signal\nprint('here')\nos.kill(os.getpid(), signal.SIGKILL)"
    job = transload.run(python(code), runner=runner)
    assert job.wait().state is AppState.FAILED
    assert lines_of(job) == ["here"]


@pytest.mark.parametrize("said", ["", "0"])
def test_a_job_may_keep_its_output_back(runner: Runner, said: str) -> None:
    """What a job, or who submits it, says of Python's output holds."""
    job = transload.run(command=["env"], env={"PYTHONUNBUFFERED": said}, runner=runner)
    assert variables_of(job)["PYTHONUNBUFFERED"] == said


def test_the_submitters_word_on_pythons_output_holds(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell that sets the variable decides for its jobs."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    assert variables_of(transload.run(command=["env"], runner=runner))["PYTHONUNBUFFERED"] == ""


@pytest.mark.parametrize("more", ["{}", "{'pass_env': ['*']}"], ids=["plain", "all passed on"])
def test_a_job_takes_over_nothing_that_is_anothers_alone(runner: Runner, more: str) -> None:
    """A job that a job submits has none of the variables that say who the outer one is."""
    app = python(SUBMITS, more, env=OF_ONE_JOB)
    outer = transload.run(app, runner=runner)
    inner = variables_of(outer)
    assert set(OF_ONE_JOB) & set(inner) == set()
    assert inner["TRANSLOAD_PARENT_RUN_ID"] == outer.handle
    assert inner["TRANSLOAD_JOB_ID"] != outer.handle
    assert outer.app_id not in inner["TRANSLOAD_TRACKER_BASE"]


def test_a_variable_that_is_named_reaches_an_inner_job(runner: Runner) -> None:
    """Whoever names a variable of the outer job passes it on."""
    app = python(SUBMITS, "{'pass_env': ['WANDB_RUN_ID'], 'env': {'RANK': '7'}}", env=OF_ONE_JOB)
    inner = variables_of(transload.run(app, runner=runner))
    assert (inner["WANDB_RUN_ID"], inner["RANK"]) == ("outer", "7")
    assert "WORLD_SIZE" not in inner


def test_outside_of_a_job_such_variables_are_the_users(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shell of the user's, these variables are settings like others."""
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    assert variables_of(transload.run(command=["env"], runner=runner))["WANDB_RUN_ID"] == "mine"
