"""An orchestrator's own display of a running job, blocking, asynchronously and by polling."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from transload.pipelines import ExecutionOptions, Identity, Launch
from transload.runner import Runner
from transload.specs import AppStatus
from transload_testing.scripted import ScriptedControl, scripted_app
from transload_testing.steps import PlainStep

STEPS = [
    {"state": "RUNNING", "until": "go", "progress": {"fraction": 0.25}},
    {"state": "SUCCEEDED", "progress": {"fraction": 1.0}},
]


def step_of(runner: Runner, **more: Any) -> PlainStep:
    """Return the step of a job that says how far it is."""
    launch = Launch(app=scripted_app("a", {"steps": STEPS}), scheduler="scripted")
    options = ExecutionOptions(poll_interval=0.05, logging_interval=0.05)
    who = Identity("host", ("here",), ("step",))
    return PlainStep(runner, launch, who, options, **more)


class Display:
    """Keeps what it is to show, and ends the job at the first call."""

    def __init__(self, control: ScriptedControl, error: Exception | None = None) -> None:
        self.control = control
        self.error = error
        self.shown: list[float | None] = []
        self.threads: list[threading.Thread] = []

    def show(self, status: AppStatus) -> None:
        """Note a status."""
        assert status.progress is not None
        self.shown.append(status.progress.fraction)
        self.threads.append(threading.current_thread())
        self.control.open("go")
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("form", ["blocking", "async", "poll"])
def test_a_display(control: ScriptedControl, runner: Runner, form: str) -> None:
    """A display gets a new percent, and the end, and does not block an event loop."""
    display = Display(control)
    looked_after = step_of(runner, changed=display.show)
    if form == "async":
        asyncio.run(looked_after.run_async())
        assert threading.current_thread() not in display.threads
    elif form == "poll":
        looked_after.start()
        while not looked_after.look().is_terminal():
            pass
        looked_after.collect()
    else:
        looked_after.run()
    assert display.shown == [0.25, 1.0]


def test_a_broken_display(control: ScriptedControl, runner: Runner) -> None:
    """It costs one line of the log, and never the job."""
    lines: list[str] = []
    display = Display(control, OSError("no such server"))
    results = step_of(runner, changed=display.show, said=lines.append).run()
    assert results is not None
    assert display.shown == [0.25, 1.0]
    said = [line for line in lines if "displayed" in line]
    assert said == ["warning: the status cannot be displayed: OSError: no such server"]
