"""Jobs of an earlier version are read, waited for and cancelled by this one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from transload.pipelines import ExecutionOptions, Identity, Launch
from transload.runner import Runner, get_runner
from transload.specs import AppDef, AppState, Role
from transload_testing.drivers import driver_of, restored_driver

START = """
import json, sys
from transload.pipelines import Execution, ExecutionOptions, Identity, Launch
from transload.runner import get_runner
from transload.specs import AppDef, Role

gate = sys.argv[1]
python = f"import time, os; from transload.runtime import report; report(loss=0.5); print('begun', flush=True)"
python += f"\\nwhile not os.path.exists({gate!r}): time.sleep(0.05)"
role = Role("r", "", entrypoint=sys.executable, args=["-c", python])
runner = get_runner("upgrade")
names = ("waited", "cancelled", "attached")
made = {name: runner.run(AppDef(name, [role]), "local") for name in names[:2]}
bad = AppDef("ended", [Role("r", "", entrypoint="sh", args=["-c", "exit 3"], max_retries=1)])
made["ended"] = runner.run(bad, "local")
runner.wait(made["ended"])
options = ExecutionOptions(on_kill="detach")
execution = Execution(
    runner, Launch(app=AppDef("a", [role]), scheduler="local"), Identity("upgrade", ("n",), ("t",)), options
)
execution.start()
made["attached"] = execution.handle
print(json.dumps([made, execution.state()]))
"""


@pytest.mark.slow
@pytest.mark.leaves_processes  # the earlier version's own helpers end when they have been idle
def test_local_jobs_of_an_earlier_version(
    tmp_path: Path,
    transload_home: Path,
    earlier: ModuleType,
    eventually: Callable[..., Any],
) -> None:
    """Of jobs that an earlier version started, one is waited for, one cancelled, one attached to."""
    python, _ = earlier.install(tmp_path, "core")
    gate = tmp_path / "gate"
    written = earlier.run(python, START, str(gate))
    made, state = json.loads(written.splitlines()[-1])
    with get_runner("upgrade") as runner:
        _check(runner, made, state, gate, eventually)


def _check(
    runner: Runner, made: dict[str, str], state: Any, gate: Path, eventually: Callable[..., Any]
) -> None:
    ended = runner.status(made["ended"])
    assert ended is not None
    assert ended.state is AppState.FAILED
    assert ended.first_failure().exit_code == 3
    eventually(
        lambda: "begun" in [line.strip() for line in runner.log_lines(made["waited"], "r", 0)], 30
    )
    for name in ("waited", "cancelled", "attached"):
        assert runner.status(made[name]).state is AppState.RUNNING, name
    assert {made[name] for name in made} == {each.app_handle for each in runner.list("local")}

    runner.cancel(made["cancelled"])
    assert runner.wait(made["cancelled"], timeout=60).state is AppState.CANCELLED

    launch = Launch(app=AppDef("a", [Role("r", "", entrypoint="true")]), scheduler="local")
    again = driver_of(
        runner, launch, Identity("upgrade", ("n",), ("t",)), ExecutionOptions(on_kill="detach")
    )
    again.start()
    assert again.handle == made["attached"], "a second job in place of the one that runs"
    taken_up = restored_driver(state, runner)
    gate.touch()
    assert runner.wait(made["waited"], timeout=60).state is AppState.SUCCEEDED
    assert runner.results(made["waited"]).results["0"]["loss"] == 0.5
    assert taken_up.follow().state is AppState.SUCCEEDED
    assert taken_up.collect().results["0"]["loss"] == 0.5

    new = runner.run(AppDef("new", [Role("r", "", entrypoint="true")]), "local")
    assert runner.wait(new, timeout=60).state is AppState.SUCCEEDED
    for handle in made.values():
        runner.delete(handle)
    assert [each.app_handle for each in runner.list("local")] == [new]
