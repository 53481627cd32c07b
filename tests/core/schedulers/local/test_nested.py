"""Jobs that a job submits live on their own, though their keepers descend from its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.specs import AppState, Role

SUBMIT = """
import json, os, sys, time
from transload.schedulers import Submission
from transload.schedulers.local import LocalScheduler
from transload.specs import AppDef, Role
app_id, leave, args, env = json.loads(sys.argv[1])
scheduler = LocalScheduler("nested")
app = AppDef("demo", [Role("main", "", entrypoint=sys.executable, args=args, env=env)])
cfg = scheduler.options.read({})
scheduler.submit(scheduler.convert(app, cfg), app_id, Submission(app, app.digest(), "nested", cfg.cfg(), id_given=True))
print("submitted", flush=True)
while not os.path.exists(leave):
    time.sleep(0.01)
"""
"""Submits an app that runs another Python program, then stays until a file is there."""

UNTIL = "import os, sys, time\nprint('up', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
"""Ends well once a file is there."""


@pytest.fixture
def inner(local, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Return a second state folder, to which a job submits."""
    home = local.home / "inner"
    home.mkdir(mode=0o700)
    before = os.environ["TRANSLOAD_HOME"]
    os.environ["TRANSLOAD_HOME"] = str(home)
    try:
        other = type(local)(home)
    finally:
        os.environ["TRANSLOAD_HOME"] = before
    yield other
    for row in other.scheduler.list():
        other.scheduler.cancel([row.app_id])
        other.wait(row.app_id)
    other.scheduler.close()


def until(go: Path) -> Role:
    """Return a job that ends well at the file ``go``."""
    return Role("main", "", entrypoint=sys.executable, args=["-c", UNTIL, str(go)])


def submitter(app_id: str, job: Role, leave: Path, **env: str) -> Role:
    """Return a job that submits ``job`` as ``app_id``, and itself ends well at the file
    ``leave``.
    """
    told = json.dumps([app_id, str(leave), job.args, job.env])
    return Role("main", "", entrypoint=sys.executable, args=["-c", SUBMIT, told], env=env)


def in_other_home(inner) -> dict[str, str]:
    """Return the variable that sends a job's submits to the second state folder."""
    return {"TRANSLOAD_HOME": str(inner.home)}


@pytest.mark.parametrize("end", ["success", "cancel", "keeper killed"])
def test_job_that_submits_a_job(local, inner, eventually, end: str) -> None:
    """What a job submits to another state folder goes on, however that job ends."""
    go, leave = local.home / "go", local.home / "leave"
    outer = local.run(submitter("b", until(go), leave, **in_other_home(inner)))
    local.line(outer, "submitted")
    inner.line("b", "up")
    if end == "success":
        leave.touch()
    elif end == "cancel":
        local.scheduler.cancel([outer])
    else:
        os.kill(local.keeper(outer), signal.SIGKILL)
    expected = {"success": AppState.SUCCEEDED, "cancel": AppState.CANCELLED}.get(
        end, AppState.FAILED
    )
    assert local.wait(outer).state is expected
    assert inner.status("b").state is AppState.RUNNING
    go.touch()
    assert inner.wait("b").state is AppState.SUCCEEDED


def test_job_in_a_job_in_a_job(local, inner, eventually) -> None:
    """Of three nested jobs in two state folders the middle one is killed, the others go on."""
    go, leave = local.home / "go", local.home / "leave"
    b = submitter("c", until(go), leave, TRANSLOAD_HOME=str(local.home))
    outer = local.run(submitter("b", b, leave, **in_other_home(inner)))
    local.line(outer, "submitted")
    inner.line("b", "submitted")
    local.line("c", "up")
    os.kill(inner.keeper("b"), signal.SIGKILL)
    assert inner.wait("b").state is AppState.FAILED
    assert local.status("c").state is AppState.RUNNING
    leave.touch()
    assert local.wait(outer).state is AppState.SUCCEEDED
    assert local.status("c").state is AppState.RUNNING
    go.touch()
    assert local.wait("c").state is AppState.SUCCEEDED


PRETENDER = """
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"tl-keeper", 0, 0, 0)
os.chdir(os.environ["TRANSLOAD_HOME"] + "/local")
print("pretender", os.getpid(), flush=True)
time.sleep(300)
"""


def test_what_only_looks_like_a_keeper_ends_with_its_job(local) -> None:
    """A job's own process in a session of its own is ended, also with a keeper's name and folder."""
    role = local.sh(f"setsid {sys.executable} -c '{PRETENDER}' & wait")
    app_id = local.run(role)
    pid = int(local.line(app_id, "pretender").split()[1])
    local.scheduler.cancel([app_id])
    assert local.wait(app_id).state is AppState.CANCELLED
    assert not local.alive(pid)
