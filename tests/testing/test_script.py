"""Scripts show the right thing at each time, for any course of events."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import SchedulerUnavailable, SpecError, SubmitError
from transload.runner import Runner
from transload.specs import AppDef, AppState
from transload_testing.scripted import Script, ScriptedControl, ScriptedScheduler, scripted_app

STATES = ["PENDING", "RUNNING", "UNKNOWN", "UNAVAILABLE", "SUBMITTED"]
STEPS = st.lists(
    st.fixed_dictionaries({"state": st.sampled_from(STATES), "seconds": st.floats(0, 10)}),
    min_size=1,
    max_size=6,
)


@given(STEPS, st.floats(0, 70), st.one_of(st.none(), st.floats(0, 70)))
def test_time_only_moves_a_script_on(
    steps: list[dict[str, Any]], now: float, cancelled: float | None
) -> None:
    """What was reached stays reached. Only a cancel changes what follows."""
    script = Script.from_dict({"steps": [*steps, "SUCCEEDED"]})
    early, late = script.at(now, 0.0, cancelled, {}), script.at(now + 1, 0.0, cancelled, {})
    assert late.reached[: len(early.reached)] == early.reached
    total = sum(step["seconds"] for step in steps)
    if cancelled is None or cancelled >= total:
        assert not late.cancel_requested
        assert early.ended == (now >= total) or abs(now - total) < 1e-6
    elif now > cancelled:
        assert early.cancel_requested
        assert early.step.state == "CANCELLED"


def test_gates() -> None:
    """A step with a gate lasts until it is opened, and at least its seconds."""
    script = Script.from_dict(
        {"steps": [{"state": "RUNNING", "until": "go", "seconds": 5}, "SUCCEEDED"]}
    )
    assert script.at(1e9, 0.0, None, {}).step.state == "RUNNING"
    assert script.at(4, 0.0, None, {"go": 1.0}).step.state == "RUNNING"
    assert script.at(5, 0.0, None, {"go": 1.0}).step.state == "SUCCEEDED"
    assert script.at(8, 0.0, None, {"go": 7.0}).since == 7.0


def test_a_cancel_after_the_end_is_too_late() -> None:
    """An ended app stays as it is."""
    script = Script.from_dict({"steps": [{"state": "SUCCEEDED", "seconds": 1}, "GONE"]})
    assert script.at(0.9, 0.0, 0.5, {}).step.state == "SUCCEEDED"
    assert script.at(2, 0.0, 0.5, {}).step.state == "GONE"


@pytest.mark.parametrize(
    "wrong",
    [
        {"stepz": []},
        {"steps": []},
        {"steps": ["RUNING"]},
        {"steps": [{"state": "RUNNING", "second": 1}]},
        {"steps": [{"state": "RUNNING", "lines": [{"txt": "a"}]}]},
        {"steps": [7]},
        {"crash": "sometimes"},
        {"submit_error": "maybe"},
    ],
)
def test_wrong_scripts_are_refused(wrong: dict[str, Any]) -> None:
    """What is misspelt is refused by name."""
    with pytest.raises(SpecError, match="script"):
        Script.from_dict(wrong)


def test_round_trip() -> None:
    """A script survives JSON."""
    script = Script.from_dict(
        {"steps": [{"state": "RUNNING", "lines": ["a", {"text": "b", "replica": -1}]}, "FAILED"]}
    )
    assert Script.from_dict(json.loads(json.dumps(script.to_dict()))) == script


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedControl:
    """Directs the scripted scheduler of this test."""
    made = ScriptedControl(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def test_outage(control: ScriptedControl) -> None:
    """Every question fails, and every submit, until it is over."""
    with Runner("t") as runner:
        handle = runner.run(scripted_app("a"), "scripted")
        control.outage()
        assert runner.status(handle).state is AppState.UNKNOWN  # type: ignore[union-attr]
        job = runner.job(handle)
        for question in (job.description, job.cancel):
            with pytest.raises(SchedulerUnavailable):
                question()
        with pytest.raises(SubmitError) as caught:
            runner.run(scripted_app("b"), "scripted")
        assert caught.value.transient
        control.outage(False)
        assert runner.status(handle).state is AppState.SUCCEEDED  # type: ignore[union-attr]


@pytest.mark.parametrize(("point", "started"), [("before", 0), ("after", 1)])
def test_crash_points(control: ScriptedControl, point: str, started: int) -> None:
    """The submitting process dies there, once."""
    app = scripted_app("a", {"crash": point}).to_json()
    code = (
        "import sys; from transload.runner import Runner; from transload.specs import AppDef\n"
        "print(Runner('t').run(AppDef.from_json(sys.argv[1]), 'scripted', app_id='mine'))"
    )
    first = subprocess.run([sys.executable, "-c", code, app], capture_output=True, check=False)
    assert first.returncode == -signal.SIGKILL
    assert len(control.started()) == started
    second = subprocess.run(
        [sys.executable, "-c", code, app], capture_output=True, check=False, text=True
    )
    assert second.stdout == "scripted://t/mine\n"
    assert control.started() == ["mine"]


def test_large_repeated_log(control: ScriptedControl) -> None:
    """A log of many equal lines is read page by page without being held."""
    lines = [{"text": "x" * 99, "repeat": 100_000}, "end"]
    with Runner("t") as runner:
        handle = runner.run(
            scripted_app("a", {"steps": [{"state": "SUCCEEDED", "lines": lines}]}), "scripted"
        )
        count = sum(1 for _ in runner.log_lines(handle, "main"))
    assert count == 100_001


def _submit(folder: str, barrier: Any) -> None:
    scheduler = ScriptedScheduler("t", folder)
    from transload.schedulers import Submission

    app = scripted_app("a")
    barrier.wait()
    scheduler.submit(
        scheduler.convert(app, scheduler.options()),
        "same",
        Submission(app, app.digest(), "t", id_given=True),
    )


def test_racing_submits_start_one_app(control: ScriptedControl) -> None:
    """Of many processes that submit one id at once, one starts it."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(6)
    children = [
        context.Process(target=_submit, args=(str(control.folder.root), barrier)) for _ in range(6)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    assert control.started() == ["same"]
    assert len(control.calls("submit")) == 6


def test_inputs_are_recorded(control: ScriptedControl) -> None:
    """A submit is recorded with converted job, options without secrets, environment rule."""
    with Runner("t", inherit_env=False) as runner:
        app = scripted_app("a")
        app.roles[0].args = ["${app_id}"]
        runner.run(app, "scripted", {"api_key": "hunter2"}, app_id="mine")
    record = control.folder.record("mine")
    assert record is not None
    assert record["inherit_env"] is False
    assert AppDef.from_json(record["converted"]).roles[0].args == ["mine"]
    assert "hunter2" not in json.dumps(record)
    assert os.stat(control.folder.root).st_mode & 0o777 == 0o700


def test_pytest_is_imported_by_the_suites_only() -> None:
    """A program that uses the scripted scheduler needs no pytest."""
    names = "transload_testing, transload_testing.scripted, transload_testing.adapter_driver"
    code = f"import sys, {names}\nprint('pytest' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
