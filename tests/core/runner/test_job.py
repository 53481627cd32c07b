"""`transload.run` and `attach` return a `Job`, with all that it can do."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import AppFailed, AppNotFound, ConfigError, SpecError, TransloadTimeout
from transload.runner import Cluster
from transload.specs import AppDef, AppState, Role

pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")


def _sh(script: str, **more: Any) -> transload.Job:
    return transload.run(command=["sh", "-c", script], **more)


def test_an_app_from_its_submit_to_its_results() -> None:
    """Logs as they come, the end, results, the definition, and nothing more once it is deleted."""
    put = 'echo \'{"schema": 1, "key": "0", "results": {"loss": 1}}\' > $TRANSLOAD_TRACKER_BASE/0.json'
    app = _sh(f"echo one; echo two; mkdir -p $TRANSLOAD_TRACKER_BASE; {put}")
    assert list(app.logs()) == ["one\n", "two\n"]
    assert (
        app.wait(timeout=60).state is AppState.SUCCEEDED and app.check().state is AppState.SUCCEEDED
    )
    assert app.results().value("loss") == 1
    described = app.describe()
    assert described is not None and described.name == "sh"
    assert list(app.logs(tail=1)) == ["two\n"] and list(app.logs(regex="^o")) == ["one\n"]
    assert str(app) == app.handle and "SUCCEEDED" in app._repr_html_()
    app.delete()
    assert app.status() is None and "gone" in app._repr_html_()
    for gone in (app.wait, app.logs, lambda: transload.attach(app.handle)):
        with pytest.raises(AppNotFound):
            gone()


@pytest.mark.slow
def test_a_long_log_takes_constant_memory() -> None:
    """Forty megabytes of lines pass through less than twenty of memory."""
    app = _sh("yes $(printf %099d 7) | head -n 400000")
    app.wait(timeout=60)
    tracemalloc.start()
    try:
        assert sum(1 for _ in app.logs()) == 400_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20


def test_an_app_in_every_form() -> None:
    """A job is an AppDef, a component by name with arguments, or a command, with overrides."""
    role = Role("main", "", entrypoint="sh", args=["-c", "echo $A"])
    assert list(transload.run(AppDef("x", [role]), env={"A": "1"}).logs()) == ["1\n"]
    app = transload.run("utils.echo", {"msg": "hi"}, name="mine", replicas=2)
    assert sorted(app.logs()) == ["echo/0 hi\n", "echo/1 hi\n"]
    assert list(app.logs(replica=1)) == ["hi\n"]
    assert app.handle.startswith("local://transload/mine-")
    for wrong, error in (
        ({}, "exactly one of app and command"),
        ({"app": "utils.echo", "command": ["true"]}, "exactly one of app and command"),
        ({"app": AppDef("x", [role]), "args": ["1"]}, "only a component takes arguments"),
        ({"command": ["true"], "mem": "8X"}, "mem='8X': must be a size"),
    ):
        with pytest.raises(SpecError, match=error):
            transload.run(**wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gpus=: unknown argument: did you mean 'gpu'"):
        _sh("true", gpus=1)
    with pytest.raises(TypeError, match=r"power=: unknown argument: .*goes into args=\{'power'"):
        transload.run("utils.echo", power=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"power=: unknown argument: .*goes into kwargs=\{'power'"):
        transload.submit(pow, 2, power=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"goes into kwargs=\{'power'"):
        list(transload.map(pow, [2], power=3))  # type: ignore[call-arg]
    with pytest.raises(
        SpecError, match=r"replica=7: .* has no such replica \(it has: echo/0, echo/1\)"
    ):
        app.logs(replica=7)


def test_a_failure_raises_only_if_asked() -> None:
    """`wait` returns what became of it, and `check` raises with replica, code and last lines."""
    app = _sh("echo last words; exit 3")
    assert app.wait(timeout=60).state is AppState.FAILED
    with pytest.raises(AppFailed, match=r"(?s)main/0 exit code 3.*last words"):
        app.check()


def test_waiting_and_cancelling() -> None:
    """A time limit leaves the job, and a cancel ends it. ``await`` waits without blocking."""
    app = _sh("sleep 60")
    with pytest.raises(TransloadTimeout):
        app.wait(timeout=0.05)
    app.cancel()

    async def wait() -> AppState:
        return (await app).state

    assert asyncio.run(wait()) is AppState.CANCELLED


def test_an_app_goes_to_another_process(tmp_path: Path) -> None:
    """Pickled, it keeps its handle and its cluster, also where nobody has configured that."""
    from transload.runner import get_runner

    with get_runner(
        "t", clusters=[Cluster("mine", "local", {"state_folder": str(tmp_path)})]
    ) as runner:
        app = transload.run("utils.echo", {"msg": "hi"}, scheduler="mine", runner=runner)
        app.wait(timeout=60)
        data = pickle.dumps(app)
        code = "import pickle, sys; app = pickle.load(sys.stdin.buffer); print(app, app.status().state, *app.logs())"
        done = subprocess.run(
            [sys.executable, "-c", code], input=data, capture_output=True, check=False, timeout=60
        )
        assert done.stdout.decode().split() == [app.handle, "SUCCEEDED", "hi"], done.stderr


def test_importing_transload_stays_cheap() -> None:
    """The names are there, and nothing that submits is imported before one is used."""
    ours = "[m for m in sys.modules if m.startswith('transload.')]"
    code = f"import sys, transload; print('run' in dir(transload), {ours})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True ['transload.plugins.lazy', 'transload.plugins']\n"


def test_bad_handles() -> None:
    """What is no handle, and what leads to a cluster that nobody knows, is said at once."""
    with pytest.raises(ValueError, match="nonsense"):
        transload.attach("nonsense")
    with pytest.raises(ConfigError, match="'nowhere' is not installed or configured"):
        transload.attach("nowhere://transload/x")
