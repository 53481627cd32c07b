"""The shared policy works with real processes of the local scheduler, which pushes changes."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
import threading
import time
from typing import Any

import pytest

from transload.errors import AppFailed, TransloadTimeout
from transload.pipelines import (
    AppCancelled,
    ExecutionOptions,
    Identity,
    Launch,
    chain_of,
)
from transload.runner import Runner
from transload.schedulers.api import Stream
from transload.specs import AppDef, AppState, Role
from transload_testing.scripted import ScriptedControl
from transload_testing.steps import PlainStep

pytestmark = pytest.mark.usefixtures("transload_home")

REPORT = """
import json, os, pathlib, sys
base = pathlib.Path(os.environ["TRANSLOAD_TRACKER_BASE"]); base.mkdir(parents=True, exist_ok=True)
(base / "0.json").write_text(json.dumps({"schema": 1, "key": "0", "results": {"x": int(sys.argv[1])}}))
print("reported", sys.argv[1])
"""


class LinesStep(PlainStep):
    """A step that keeps the lines of its job."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.lines: list[str] = []

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Keep a line."""
        self.lines.append(f"{role}/{replica} {line}")


def execution(runner: Runner, role: Role, name: str = "step", **options: Any) -> LinesStep:
    """Return an execution of one role on the local scheduler."""
    return LinesStep(
        runner,
        Launch(app=AppDef("a", [role]), scheduler="local"),
        Identity("host", ("here",), (name,)),
        ExecutionOptions(**options),
    )


def role(*args: str, **fields: object) -> Role:
    """Return a role that runs Python."""
    return Role("main", "/tmp", entrypoint=sys.executable, args=list(args), **fields)  # type: ignore[arg-type]


def test_a_cancelled_job_says_who_asked(control: ScriptedControl) -> None:
    """The message names the orchestrator and its step, or the user who cancelled it."""
    with Runner("host", inherit_env=False) as runner:
        one = execution(runner, role("-c", "import time; time.sleep(60)"), "train")
        one.start()
        one.cancel()
        status = runner.wait(one.handle, timeout=30)
        assert status is not None
        assert (status.state, status.cancel_requested) == (AppState.CANCELLED, True)
        assert status.msg == "cancelled on request of host: here/train"

        other = execution(runner, role("-c", "import time; time.sleep(60)"), "other")
        other.start()
        runner.cancel(other.handle)
        status = runner.wait(other.handle, timeout=30)
        assert status is not None
        assert status.msg == f"cancelled on request of {getpass.getuser()} on {os.uname().nodename}"


async def test_many_at_once(control: ScriptedControl) -> None:
    """Ten jobs in one loop each have their result and log, and add no threads of ours."""
    with Runner("host", inherit_env=False) as runner:
        runs = [execution(runner, role("-c", REPORT, str(n)), str(n)) for n in range(10)]
        task = asyncio.gather(*(each.run_async() for each in runs))
        before, most = set(threading.enumerate()), 0
        # the second while a plugin is called, the third while a keeper starts
        others = ("asyncio_", "transload-events", "transload-start")
        while not task.done():
            fresh = [each.name for each in threading.enumerate() if each not in before]
            most = max(most, sum(not name.startswith(others) for name in fresh))
            await asyncio.sleep(0.005)
        assert [each.value("x") for each in await task] == list(range(10))
        assert 1 <= most <= 3  # for states, for logs, and for the watch of this machine's jobs
    assert [each.lines for each in runs] == [[f"main/0 reported {n}\n"] for n in range(10)]


def test_the_last_words_of_a_long_log(control: ScriptedControl) -> None:
    """The end of a long log is read from its end, also where nobody read along."""
    script = (
        "import sys; sys.stderr.write(('x' * 1023 + '\\n') * 70 * 1024); sys.exit('that was it')"
    )
    with Runner("host") as runner:
        launch = Launch(app=AppDef("a", [role("-c", script)]), scheduler="local")
        one = PlainStep(runner, launch, Identity("host", ("here",), ("long",)))
        with pytest.raises(AppFailed, match="that was it"):
            one.run()


@pytest.mark.parametrize("limit", ["deadline", "kill"])
def test_poll_ends_what_is_to_end(control: ScriptedControl, eventually: Any, limit: str) -> None:
    """An orchestrator that only asks has its job cancelled at a limit or a kill, not before."""
    app = role("-c", "import os, time; print(os.getpid(), flush=True); time.sleep(300)")
    with Runner("host") as runner:
        one = execution(runner, app, deadline=time.time() + (3600 if limit == "kill" else 5))
        one.start()
        eventually(lambda: one.look() and one.lines)
        assert one.look().state is AppState.RUNNING
        if limit == "kill":
            one.kill(asked=True)
            eventually(lambda: one.look().is_terminal(), timeout=30)
            with pytest.raises(AppCancelled, match="CANCELLED"):
                one.collect()
        else:
            with pytest.raises(TransloadTimeout, match="the orchestrator's time limit"):
                eventually(lambda: one.look().is_terminal(), timeout=30)
            runner.wait(str(one.handle), timeout=30)
    (line,) = one.lines
    with pytest.raises(ProcessLookupError):
        os.kill(int(line.split()[1]), 0)


def test_checkpoints_of_what_a_person_asks_anew(control: ScriptedControl) -> None:
    """A retry goes on with the checkpoints of the job before it. A run on purpose begins afresh."""
    names, asked, numbers = [], [], []
    with Runner("host") as runner:
        launch = Launch(
            app=AppDef("a", [role("-c", "raise SystemExit(3)", checkpoints=True)]),
            scheduler="local",
        )
        for words in (1, 1, 2, 2, 2, 3):
            one = PlainStep(runner, launch, Identity("host", ("here",), ("anew",)), round=words)
            with pytest.raises(AppFailed):
                one.run()
            description = runner.job(str(one.handle)).description()
            assert description is not None
            names.append(description.checkpoints)
            asked.append(description.asked["host"])
            numbers.append(int(str(one.handle).rpartition("-")[2]))
    assert numbers == [0, 1, 2, 3, 4, 5]
    assert asked == [{"round": words} for words in (1, 1, 2, 2, 2, 3)]
    chain = chain_of(Identity("host", ("here",), ("anew",)))
    assert names == [f"{chain}-{first}" for first in (0, 0, 2, 2, 2, 5)]


def test_checkpoints_after_a_job_that_is_gone(control: ScriptedControl) -> None:
    """What a person asked anew goes on with its own checkpoints, also if the job that began it is
    known to nobody but the host.
    """
    who = Identity("host", ("here",), ("anew",))
    app = AppDef("a", [role("-c", "raise SystemExit(3)", checkpoints=True)])
    launch = Launch(app=app, scheduler="local")
    with Runner("host") as runner:
        for number in (0, 1):
            begun = PlainStep(runner, launch, who, round=number)
            with pytest.raises(AppFailed):
                begun.run()
        runner.delete(str(begun.handle))
        hint = {"hint": begun.handle, "hint_words": {"round": 1}}
        again = PlainStep(runner, launch, who, round=1, tried=1, **hint)
        with pytest.raises(AppFailed):
            again.run()
        description = runner.job(str(again.handle)).description()
        assert description is not None
        assert description.checkpoints == f"{chain_of(who)}-1"
