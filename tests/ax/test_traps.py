"""What was seen to go wrong between Ax and jobs, one test for each."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import ax_components
import pytest

from transload.errors import ConfigError, SchedulerUnavailable, SpecError, SubmitError
from transload.pipelines import host_runner
from transload.runtime.tracking import FsspecResultTracker
from transload.specs import AppState


def statuses(experiment: Any) -> dict[int, str]:
    """Return index → name of the status."""
    return {trial.index: trial.status.name for trial in experiment.trials.values()}


def handle_of(experiment: Any, index: int = 0) -> str:
    """Return the handle of a trial."""
    return str(experiment.trials[index].run_metadata["transload_app_handle"])


def forget(runner: Any) -> None:
    """Make a runner as it is in a new process. Its jobs go on."""
    runner.close(cancel=False)
    del runner._trials


def is_alive(pid: int) -> bool:
    """Tell whether a process runs, which one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def new_trial(experiment: Any, x: float = 1.0, **more: Any) -> Any:
    """Add a trial of one arm."""
    from ax.core.arm import Arm

    trial = experiment.new_trial(**more)
    trial.add_arm(Arm(parameters={"x": x}))
    return trial


def test_table_is_the_designs_one() -> None:
    """The public table is total, and exactly what the documentation says."""
    from ax.core.trial_status import TrialStatus

    from transload_ax import APP_STATE_TO_TRIAL_STATUS, STATES

    assert {state.name: status.name for state, status in APP_STATE_TO_TRIAL_STATUS.items()} == {
        "UNSUBMITTED": "CANDIDATE",
        "SUBMITTED": "STAGED",
        "PENDING": "STAGED",
        "RUNNING": "RUNNING",
        "SUCCEEDED": "COMPLETED",
        "FAILED": "FAILED",
        "CANCELLED": "ABANDONED",
        "UNKNOWN": "FAILED",
    }
    assert set(STATES.values()) <= set(TrialStatus.__members__)


class TestPreemption:
    """STAGED makes Ax believe that nothing runs (trap 1)."""

    @pytest.fixture
    def scripted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Play the scripts of this test's folder."""
        from transload_testing.scripted import ScriptedControl

        control = ScriptedControl(tmp_path / "scripted")
        for name, value in control.environment().items():
            monkeypatch.setenv(name, value)
        return control

    def test_a_running_trial_is_never_staged_again(
        self, scripted: Any, experiment: Callable[..., Any], orchestrate: Callable[..., Any]
    ) -> None:
        """An app that waits again after it ran leaves its trial RUNNING, and run_n_trials waits for
        its end.
        """
        made = experiment("ax_components:preempted", scheduler="scripted")
        orchestrate(made).run_n_trials(1)
        assert statuses(made) == {0: "COMPLETED"}

    def test_an_app_that_waits_for_resources_is_waited_for(
        self, scripted: Any, experiment: Callable[..., Any], orchestrate: Callable[..., Any]
    ) -> None:
        """Apps that stay PENDING for a while do not let run_n_trials return early."""
        made = experiment("ax_components:queued", scheduler="scripted")
        orchestrate(made, parallel=2).run_n_trials(3)
        assert set(statuses(made).values()) == {"COMPLETED"}

    def test_run_then_mark_completed(
        self, scripted: Any, experiment: Callable[..., Any], eventually: Any
    ) -> None:
        """Ax's plain loop works (trap 9), as run() makes a trial RUNNING, though its job waits."""
        made = experiment("ax_components:gated", scheduler="scripted")
        trial = new_trial(made).run()
        assert (trial.status.name, made.runner.staging_required) == ("RUNNING", False)
        polled = made.runner.poll_trial_status([trial])
        assert {status.name: found for status, found in polled.items()} == {"RUNNING": {0}}
        scripted.open("start")
        app_id = scripted.started()[0]
        eventually(
            lambda: host_runner("ax").status(f"scripted://ax/{app_id}").state is AppState.RUNNING
        )  # type: ignore[union-attr]
        scripted.open("wait")
        eventually(
            lambda: host_runner("ax").status(f"scripted://ax/{app_id}").state is AppState.PENDING
        )  # type: ignore[union-attr]
        assert {s.name for s in made.runner.poll_trial_status([trial])} == {"RUNNING"}
        trial.mark_completed()


class TestIdempotence:
    """run() is called up to three times (trap 2)."""

    def test_run_multiple_finds_what_was_submitted(
        self, experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A trial that cannot be submitted stops the rest. Called again, each is submitted once."""
        made = experiment()
        trials = [new_trial(made, x) for x in (0.0, 1.0, 2.0)]
        runner = host_runner("ax")
        schedule, calls = runner.schedule, [0]

        def fails_once(info: Any) -> Any:
            calls[0] += 1
            if calls[0] == 2:
                raise SubmitError("full", transient=True)
            return schedule(info)

        monkeypatch.setattr(runner, "schedule", fails_once)
        with pytest.raises(SubmitError):
            made.runner.run_multiple(trials)
        found = made.runner.run_multiple(trials)
        assert sorted(found) == [0, 1, 2]
        assert len({each["transload_app_handle"] for each in found.values()}) == 3
        assert len(runner.list("local")) == 3

    def test_failure_that_was_never_stored(
        self, experiment: Callable[..., Any], eventually: Any
    ) -> None:
        """A job that failed after its optimiser died is not started again by whoever runs the trial
        next.
        """
        made = experiment("ax_components:ends", constants={"how": "fail"})
        trial = new_trial(made)
        first = made.runner.run(trial)
        eventually(lambda: host_runner("ax").status(first["transload_app_handle"]).is_terminal())  # type: ignore[union-attr]
        forget(made.runner)
        trial.run_metadata.pop("transload_app_handle", None)
        assert made.runner.run(trial) == first
        trial.update_run_metadata(first)
        trial.mark_staged()
        assert {status.name for status in made.runner.poll_trial_status([trial])} == {"FAILED"}
        assert "exit code 3" in made.runner.poll_exception(trial)
        assert len(host_runner("ax").list("local")) == 1

    def test_same_number_other_parameters(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """An optimiser that died unsaved may reuse a number: the newest job of that trial counts.

        One of other parameters is ended, and not used.
        """
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        old = made.runner.run(new_trial(made, 1.0))["transload_app_handle"]
        fresh = experiment(
            "ax_components:waits", constants={"gate": str(gate)}, namespace=made.runner.namespace
        )
        new = fresh.runner.run(new_trial(fresh, 2.0))["transload_app_handle"]
        assert old.endswith("-0") and new == f"{old.removesuffix('-0')}-1"
        assert host_runner("ax").status(old).state is AppState.CANCELLED  # type: ignore[union-attr]
        resumed = experiment(
            "ax_components:waits", constants={"gate": str(gate)}, namespace=made.runner.namespace
        )
        assert resumed.runner.run(new_trial(resumed, 2.0))["transload_app_handle"] == new
        third = experiment(
            "ax_components:waits", constants={"gate": str(gate)}, namespace=made.runner.namespace
        )
        assert third.runner.run(new_trial(third, 1.0))["transload_app_handle"].endswith("-2")
        states = [row.state for row in host_runner("ax").list("local")]
        assert states[1:] == [AppState.CANCELLED, AppState.CANCELLED]
        assert states[0] in (AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING)

    def test_other_parameters_clear_what_the_job_before_reported(
        self, experiment: Callable[..., Any], tmp_path: Path
    ) -> None:
        """What a job of other parameters reported is not taken for the next one's."""
        base = str(tmp_path / "results")
        first = experiment("ax_components:ends", tracker_base=base)
        handle = first.runner.run(new_trial(first, 1.0))["transload_app_handle"]
        assert host_runner("ax").wait(handle).state is AppState.SUCCEEDED  # type: ignore[union-attr]
        again = experiment(
            "ax_components:ends",
            constants={"how": "nothing"},
            tracker_base=base,
            namespace=first.runner.namespace,
        )
        second = again.runner.run(new_trial(again, 2.0))["transload_app_handle"]
        assert second != handle
        assert host_runner("ax").wait(second).state is AppState.SUCCEEDED  # type: ignore[union-attr]
        assert FsspecResultTracker(base)[0] == {}

    def test_two_experiments_of_one_name(
        self, experiment: Callable[..., Any], tmp_path: Path
    ) -> None:
        """Without a namespace, equal names would share jobs. By default each gets a uuid."""
        one, two = experiment(), experiment(tracker_base=str(tmp_path / "other"))
        handles = {made.runner.run(new_trial(made))["transload_app_handle"] for made in (one, two)}
        assert len(handles) == 2


class TestPolling:
    """A look never raises, and never gives up a job that lives (traps 3 and 4)."""

    def test_a_defect_leaves_the_status(
        self, experiment: Callable[..., Any], gate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A look never raises, since Ax would abandon the trial, and its job would go on."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made).run()
        trial.mark_running()

        def broken(units: Any) -> Any:
            raise RuntimeError("bug")

        with monkeypatch.context() as patch:
            patch.setattr(made.runner.trials.jobs, "poll", broken)
            found = made.runner.poll_trial_status([trial])
        assert {status.name for status in found} == {"RUNNING"}

    @pytest.mark.parametrize("tolerated", [0.6, 0.4])
    def test_an_outage_is_not_learned_from(
        self,
        tolerated: float,
        experiment: Callable[..., Any],
        gate: Path,
        monkeypatch: pytest.MonkeyPatch,
        orchestrate: Callable[..., Any],
    ) -> None:
        """An outage longer than patience leaves no data, and its arm may be suggested again.

        It counts as a failure.
        """
        from ax.orchestration.orchestrator import FailureRateExceededError

        made = experiment("ax_components:waits", constants={"gate": str(gate)}, patience=0.2)
        backend = host_runner("ax").scheduler("local")

        def away(ids: Any) -> Any:
            raise SchedulerUnavailable("the network is down")

        orchestrator = orchestrate(made, tolerated_trial_failure_rate=tolerated)
        run, first = made.runner.run, new_trial(made, 0.5)
        with monkeypatch.context() as patch:

            def run_and_back(trial: Any) -> Any:
                if trial.index == 0:
                    submitted = run(trial)
                    patch.setattr(backend, "describe", away)
                    return submitted
                patch.undo()
                gate.touch()
                return run(trial)

            monkeypatch.setattr(made.runner, "run", run_and_back, raising=False)
            with nullcontext() if tolerated > 0.5 else pytest.raises(FailureRateExceededError):
                orchestrator.run_n_trials(2)
        assert statuses(made) == {0: "FAILED", 1: "COMPLETED"}
        assert set(made.lookup_data().df["trial_index"]) == {1}
        again = made.arms_by_signature_for_deduplication
        assert first.arm.signature not in again
        assert made.trials[1].arm.signature in again

    def test_an_outage_is_told_once(
        self,
        experiment: Callable[..., Any],
        gate: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: Any,
    ) -> None:
        """With Python's default logging there is one line when an engine is away, one when it is
        back.
        """
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trials = [new_trial(made, x).run() for x in (0.0, 1.0, 2.0)]
        backend = host_runner("ax").scheduler("local")

        def lines() -> list[str]:
            return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

        def away(ids: Any) -> Any:
            raise SchedulerUnavailable("the network is down")

        assert {status.name for status in made.runner.poll_trial_status(trials)} == {"RUNNING"}
        with monkeypatch.context() as patch:
            patch.setattr(backend, "describe", away)
            for _ in range(3):
                made.runner.poll_trial_status(trials)
        assert lines() == ["jobs on local out of reach, waiting: 3 (the network is down)"]
        made.runner.poll_trial_status(trials)
        made.runner.poll_trial_status(trials)
        assert lines()[1:] == ["jobs on local can be reached again"]

    @pytest.mark.parametrize(
        "handle", ["", "nonsense", "nowhere://ax/x", "local://ax/never-was", None, 7]
    )
    def test_unknown_handles(self, handle: object, experiment: Callable[..., Any]) -> None:
        """A handle that is none, or of nothing, is a FAILED trial with a reason, never a crash."""
        made = experiment()
        trial = new_trial(made)
        trial.update_run_metadata({"transload_app_handle": handle})
        trial.mark_running(no_runner_required=True, unsafe=True)
        found = made.runner.poll_trial_status([trial])
        assert {status.name: indices for status, indices in found.items()} == {"FAILED": {0}}
        assert made.runner.poll_exception(trial) != ""
        assert made.runner.stop(trial) == {}

    def test_lost_metadata_is_found_by_identity(
        self, experiment: Callable[..., Any], gate: Path
    ) -> None:
        """A running trial whose metadata was lost is found by its id."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made).run()
        trial.mark_running()
        trial.run_metadata.clear()
        forget(made.runner)
        found = made.runner.poll_trial_status([trial])
        assert {status.name for status in found} == {"RUNNING"}

    def test_a_loop_without_pause_asks_seldom(
        self, experiment: Callable[..., Any], gate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Looks are a tenth of a second apart, whatever the loop asks for."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made).run()
        trial.mark_running()
        made.runner.poll_trial_status([trial])
        began, looks = time.monotonic(), 0
        while time.monotonic() - began < 1.0:
            made.runner.poll_trial_status([trial])
            looks += 1
        assert looks <= 20
        gate.touch()
        began = time.monotonic()
        while "COMPLETED" not in {s.name for s in made.runner.poll_trial_status([trial])}:
            assert time.monotonic() - began < 10


class TestNumbers:
    """Ax wants floats (trap 5)."""

    def test_fetch_returns_a_float(
        self, experiment: Callable[..., Any], orchestrate: Callable[..., Any]
    ) -> None:
        """An int that a trial reported comes as a float, in both APIs."""
        from transload_ax import TransloadClientMetric

        made = experiment("ax_components:ends", constants={"how": "whole"})
        orchestrate(made).run_n_trials(1)
        frame = made.lookup_data().df
        assert frame["mean"].tolist() == [3.0]
        progression, value = TransloadClientMetric("loss").fetch(0, made.trials[0].run_metadata)
        assert (progression, value) == (0, 3.0)
        assert type(progression) is int
        assert type(value) is float


class TestEndings:
    """Trials end with statuses and reasons (traps 6, 7, 10, 12)."""

    @pytest.mark.parametrize(
        ("how", "word"),
        [
            ("nothing", "reported nothing"),
            ("nan", "is nan"),
            ("infinite", "is inf"),
            ("text", "must be a number"),
        ],
    )
    def test_metric_missing_or_senseless(
        self,
        how: str,
        word: str,
        experiment: Callable[..., Any],
        orchestrate: Callable[..., Any],
        base: str,
    ) -> None:
        """A trial without a usable objective is ABANDONED, and the reason says what was there."""
        from ax.exceptions.core import AxError

        made = experiment("ax_components:ends", constants={"how": how})
        with pytest.raises(AxError):
            orchestrate(made).run_n_trials(1)
        trial = made.trials[0]
        assert trial.status.name == "ABANDONED"
        assert word in trial.status_reason
        assert base in trial.status_reason

    def test_mean_and_sem(
        self, experiment: Callable[..., Any], orchestrate: Callable[..., Any]
    ) -> None:
        """``loss/mean`` and ``loss/sem`` are the metric ``loss`` with its error."""
        made = experiment("ax_components:ends", constants={"how": "mean"})
        orchestrate(made).run_n_trials(1)
        frame = made.lookup_data().df
        assert frame["mean"].tolist() == [made.trials[0].arm.parameters["x"]]
        assert frame["sem"].tolist() == [0.5]

    def test_cancelled_elsewhere(
        self,
        experiment: Callable[..., Any],
        orchestrate: Callable[..., Any],
        gate: Path,
        eventually: Any,
    ) -> None:
        """A trial whose job somebody cancels is ABANDONED and says so, and the search goes on."""
        import threading

        made = experiment("ax_components:waits", constants={"gate": str(gate)})

        def cancel() -> None:
            try:
                eventually(lambda: 1 in made.trials and made.trials[1].status.is_running, 60)
                host_runner("ax").cancel(handle_of(made, 1))
                eventually(lambda: made.trials[1].status.is_abandoned, 60)
            finally:
                gate.touch()

        thread = threading.Thread(target=cancel)
        thread.start()
        orchestrate(made, parallel=2).run_n_trials(3)
        thread.join()
        assert statuses(made) == {0: "COMPLETED", 1: "ABANDONED", 2: "COMPLETED"}
        assert "CANCELLED" in made.trials[1].status_reason
        assert handle_of(made, 1) in made.trials[1].status_reason

    def test_too_many_failures_leave_no_job(
        self, experiment: Callable[..., Any], orchestrate: Callable[..., Any], eventually: Any
    ) -> None:
        """Ax gives up and leaves jobs running (trap 6), which close() ends."""
        from ax.core.arm import Arm
        from ax.orchestration.orchestrator import FailureRateExceededError

        made = experiment("ax_components:ends_by_sign")
        orchestrator = orchestrate(
            made,
            parallel=2,
            tolerated_trial_failure_rate=0.1,
            min_failed_trials_for_failure_rate_check=1,
        )
        for x in (1.0, -1.0):
            made.new_trial().add_arm(Arm(parameters={"x": x}))
        with pytest.raises(FailureRateExceededError):
            orchestrator.run_n_trials(2)
        assert statuses(made)[1] == "FAILED"
        assert host_runner("ax").status(handle_of(made, 0)).state is AppState.RUNNING  # type: ignore[union-attr]
        made.runner.close()
        assert host_runner("ax").status(handle_of(made, 0)).state is AppState.CANCELLED  # type: ignore[union-attr]

    def test_close_tries_again(
        self,
        experiment: Callable[..., Any],
        gate: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: Any,
    ) -> None:
        """close() leaves no job because a scheduler was away for a moment, and says once which
        could not be ended.
        """
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        handles = [
            new_trial(made, x).run().run_metadata["transload_app_handle"] for x in (0.0, 1.0, 2.0)
        ]
        runner = host_runner("ax")
        cancel, troubles = runner.cancel, [*[RuntimeError("bug")] * 3, SchedulerUnavailable("away")]

        def troubled(handle: str) -> None:
            if troubles and handle == handles[0]:
                raise troubles.pop()
            cancel(handle)

        with monkeypatch.context() as patch:
            patch.setattr(runner, "cancel", troubled)
            made.runner.close()
        assert troubles == []
        assert {runner.status(handle).state for handle in handles} == {AppState.CANCELLED}  # type: ignore[union-attr]
        lines = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert lines == [
            f"trial search/0: {handles[0]} could not be cancelled: {why}" for why in ("away", "bug")
        ]

    def test_stop_cancels(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """stop() ends the job and keeps the reason. Stopping again, or too late, is no error."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made).run()
        assert made.runner.stop(trial, "dull") == {"reason": "dull"}
        eventually(lambda: host_runner("ax").status(handle_of(made)).state is AppState.CANCELLED)  # type: ignore[union-attr]
        assert made.runner.stop(trial) == {}

    def test_stop_without_metadata_cancels(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """stop() of a trial whose handle was lost, in a process that knows nothing yet, finds its
        job by its id.
        """
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made).run()
        handle = handle_of(made)
        forget(made.runner)
        trial.run_metadata.clear()
        made.runner.stop(trial)
        eventually(lambda: host_runner("ax").status(handle).state is AppState.CANCELLED)  # type: ignore[union-attr]

    def test_time_to_live_ends_the_job(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """Ax's time to live ends no job (trap 12).

        Here it is the job's time limit, kept without a poll.
        """
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made, ttl_seconds=1).run()
        trial.mark_running()
        eventually(lambda: host_runner("ax").status(handle_of(made)).state is AppState.FAILED)  # type: ignore[union-attr]
        assert {status.name for status in made.runner.poll_trial_status([trial])} == {"FAILED"}
        assert made.runner.poll_exception(trial) != ""

    def test_trial_given_up_by_hand(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """A trial that somebody marks ABANDONED loses its job at the next look at any other."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        first, second = new_trial(made).run(), new_trial(made, 2.0).run()
        first.mark_abandoned(unsafe=True)
        made.runner.poll_trial_status([second])
        eventually(lambda: host_runner("ax").status(handle_of(made, 0)).state is AppState.CANCELLED)  # type: ignore[union-attr]

    def test_capacity(self, experiment: Callable[..., Any], gate: Path) -> None:
        """A runner without a limit of its own says so. With one it counts what runs."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)}, max_running=2)
        assert experiment().runner.poll_available_capacity() == -1
        assert made.runner.poll_available_capacity() == 2
        new_trial(made).run()
        assert made.runner.poll_available_capacity() == 1


class TestEarlyStopping:
    """Early stopping works with the orchestrator, and ends processes (trap 7)."""

    def test_early_stopping_ends_the_process(
        self,
        experiment: Callable[..., Any],
        orchestrate: Callable[..., Any],
        gate: Path,
        tmp_path: Path,
        eventually: Any,
    ) -> None:
        """A bad trial is EARLY_STOPPED while it runs, and its process is gone before the search
        ends.
        """
        import threading

        from ax.core.arm import Arm
        from ax.early_stopping.strategies import ThresholdEarlyStoppingStrategy

        marks = tmp_path / "marks"
        marks.mkdir()
        made = experiment(
            "ax_components:curve", constants={"gate": str(gate), "marks": str(marks)}, curve=True
        )
        for x in (3.0, 0.0):
            made.new_trial().add_arm(Arm(parameters={"x": x}))
        stopping = ThresholdEarlyStoppingStrategy(
            metric_threshold=1.5, min_progression=2, min_curves=0
        )
        gone: list[bool] = []

        def watch() -> None:
            # the good trial waits for the gate, so that the search is under way for as long as this
            # looks
            try:
                eventually(lambda: made.trials[0].status.is_early_stopped, 60)
                pid = next(
                    int(name.partition("-")[2])
                    for name in os.listdir(marks)
                    if name.startswith("0-")
                )
                eventually(lambda: not is_alive(pid), 60)
                gone.append(not made.trials[1].status.is_terminal)
            finally:
                gate.touch()

        thread = threading.Thread(target=watch)
        thread.start()
        orchestrate(made, parallel=2, early_stopping_strategy=stopping).run_n_trials(2)
        thread.join()
        assert gone == [True]
        assert statuses(made) == {0: "EARLY_STOPPED", 1: "COMPLETED"}
        assert host_runner("ax").status(handle_of(made, 0)).state is AppState.CANCELLED  # type: ignore[union-attr]
        assert made.metrics["loss"].lower_is_better is True

    def test_curve_points(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """A curve has a row for each step, in order."""
        made = experiment(
            "ax_components:curve", constants={"gate": str(gate), "steps": 3}, curve=True
        )
        trial = new_trial(made, 1.0).run()
        metric = made.metrics["loss"]
        assert metric.is_available_while_running()
        eventually(lambda: metric.fetch_trial_data(trial).is_ok())
        frame = metric.fetch_trial_data(trial).unwrap().full_df
        assert frame["step"].tolist() == [0.0, 1.0, 2.0]
        assert frame["mean"].tolist() == pytest.approx([2.0, 1.5, 1 + 1 / 3])
        gate.touch()

    def test_curve_of_what_the_job_reports(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """Steps of the job's own results are points too, while it runs."""
        made = experiment("ax_components:reports_steps", constants={"gate": str(gate)}, curve=True)
        trial = new_trial(made, 1.0).run()
        metric = made.metrics["loss"]

        def both() -> Any:
            found = metric.fetch_trial_data(trial)
            return found.is_ok() and len(found.unwrap().full_df) == 2

        eventually(both)
        frame = metric.fetch_trial_data(trial).unwrap().full_df
        assert frame["step"].tolist() == [100.0, 1000001.0]
        assert frame["mean"].tolist() == pytest.approx([1.01, 1.0], abs=1e-5)
        gate.touch()

    def test_progress_is_kept_and_says_the_step(
        self, experiment: Callable[..., Any], gate: Path, eventually: Any
    ) -> None:
        """A trial's run metadata has its job's progress. A latest value is a point at its step."""
        made = experiment("ax_components:reaches", constants={"gate": str(gate)}, curve=True)
        trial = new_trial(made, 1.0).run()

        def said() -> Any:
            made.runner.poll_trial_status([trial])
            return trial.run_metadata.get("transload_progress")

        found = eventually(said)
        assert (found["step"], found["total"], found["fraction"]) == (40, 100, 0.4)
        metric = made.metrics["loss"]
        eventually(lambda: metric.fetch_trial_data(trial).is_ok())
        frame = metric.fetch_trial_data(trial).unwrap().full_df
        assert frame["step"].tolist() == [40.0]
        gate.touch()


class TestMetadata:
    """Metadata have JSON and public attributes only, and a component by its name (trap 8)."""

    def test_metadata_is_json(self, experiment: Callable[..., Any]) -> None:
        """All of a trial's run metadata survives a trip through JSON, and there is no live object
        in it.
        """
        made = experiment()
        trial = new_trial(made).run()
        assert json.loads(json.dumps(trial.run_metadata)) == trial.run_metadata
        assert {"transload_app_handle", "transload_tracker_base"} <= set(trial.run_metadata)

    def test_constructor_arguments_are_attributes(self) -> None:
        """Each constructor argument is a public attribute, and the runner's clone is equal to
        it.
        """
        import inspect

        from transload_ax import TransloadRunner

        runner = TransloadRunner(
            "/tmp/base", ax_components.square, {"y": 2.0}, cfg={"log_dir": "/x", "api_key": "s"}
        )
        for name in inspect.signature(TransloadRunner.__init__).parameters:
            assert name == "self" or hasattr(runner, name)
        stored = TransloadRunner.serialize_init_args(runner)
        assert stored["component"] == "ax_components:square"
        assert stored["cfg"] == {"log_dir": "/x"}
        assert json.loads(json.dumps(stored)) == stored
        assert runner.clone() == runner
        assert runner.clone().namespace == runner.namespace
        with pytest.raises(ConfigError, match="'patiense' does not exist.*patience"):
            TransloadRunner("/tmp/base", "utils.booth", patiense=3)

    def test_a_copy_takes_nothing_away(
        self, experiment: Callable[..., Any], tmp_path: Path
    ) -> None:
        """A clone, and a stored experiment loaded in this process, leave secret options in
        place.
        """
        from ax.storage.json_store.load import load_experiment
        from ax.storage.json_store.save import save_experiment

        from transload_ax import register

        register()
        made = experiment(ax_components.square, cfg={"log_dir": "/x", "api_key": "s"})
        runner, kept = made.runner, tmp_path / "kept.json"
        save_experiment(made, str(kept))
        for copied in (runner.clone(), load_experiment(str(kept)).runner):
            assert copied.cfg == {"log_dir": "/x"}
            assert (
                runner.trials.jobs.cfg
                == copied.trials.jobs.cfg
                == {"log_dir": "/x", "api_key": "s"}
            )
        assert "api_key" not in kept.read_text()

    def test_orchestrator_is_another_name(self) -> None:
        """``orchestrator`` is accepted for ``scheduler``."""
        from transload_ax import TransloadRunner

        runner = TransloadRunner("/tmp/base", "utils.booth", orchestrator="scripted")
        assert (runner.scheduler, runner.orchestrator) == ("scripted", "scripted")
        with pytest.raises(ConfigError, match="two names of one thing"):
            TransloadRunner(
                "/tmp/base", "utils.booth", scheduler="local_cwd", orchestrator="scripted"
            )

    def test_function_that_cannot_be_found_again(self) -> None:
        """A closure can be run, and is refused where it would be stored."""
        from transload_ax import TransloadRunner

        def local(x: float) -> Any:
            """Nothing.

            Args:
                x: x
            """

        local.__annotations__["return"] = __import__("transload.specs", fromlist=["AppDef"]).AppDef
        runner = TransloadRunner("/tmp/base", local)
        with pytest.raises(SpecError, match="so that other processes can import it"):
            TransloadRunner.serialize_init_args(runner)

    def test_a_program_that_knows_nothing_of_trials(
        self, experiment: Callable[..., Any], orchestrate: Callable[..., Any], base: str
    ) -> None:
        """Each trial has its own job's results, whatever their key.

        If there is none, the keys are named.
        """
        made = experiment("ax_components:plain", parameters=["x:float:0:4"])
        orchestrate(made).run_n_trials(3)
        values = {index: float(trial.arm.parameters["x"]) for index, trial in made.trials.items()}
        found = made.fetch_data().df
        assert dict(zip(found["trial_index"], found["mean"], strict=True)) == pytest.approx(values)
        for index, trial in made.trials.items():
            handle = trial.run_metadata["transload_app_handle"]
            assert host_runner("ax").results(handle).value("loss") == pytest.approx(values[index])
        other = experiment("ax_components:plain", name="other", constants={"name": "other"})
        trial = new_trial(other)
        trial.update_run_metadata(other.runner.run(trial))
        host_runner("ax").wait(trial.run_metadata["transload_app_handle"], timeout=60)
        assert "reported final: other" in str(
            other.metrics["loss"].fetch_trial_data(trial).err.message
        )

    def test_old_results_are_warned_of(self, experiment: Callable[..., Any], base: str) -> None:
        """A key that is in the tracker base before its trial is submitted is warned of."""
        from transload.runtime.tracking import FsspecResultTracker

        FsspecResultTracker(base)[0] = {"loss": 7.0}
        made = experiment()
        with pytest.warns(RuntimeWarning, match="key '0' is there before trial 0"):
            made.runner.run(new_trial(made))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.runner.run(new_trial(made, 2.0))


class TestBatches:
    """Batch trials work (trap 11)."""

    @staticmethod
    def batch(made: Any, *values: float) -> Any:
        """Add a batch trial."""
        from ax.core.arm import Arm

        return made.new_batch_trial().add_arms_and_weights(
            [Arm(parameters={"x": value}) for value in values]
        )

    def test_refused_by_default(self, experiment: Callable[..., Any]) -> None:
        """A batch trial is a ValueError, and nothing is started."""
        made = experiment()
        with pytest.raises(ValueError, match="BatchTrial"):
            made.runner.run(self.batch(made, 0.0, 1.0))
        assert host_runner("ax").list("local") == []

    def test_an_app_for_each_arm(
        self, experiment: Callable[..., Any], eventually: Any, base: str
    ) -> None:
        """With the option, each arm is an app with a base of its own, and a row of data."""
        made = experiment(arms_as_apps=True)
        trial = self.batch(made, 0.0, 2.0, 3.0)
        trial.run()
        eventually(lambda: "COMPLETED" in {s.name for s in made.runner.poll_trial_status([trial])})
        trial.mark_running(unsafe=True)
        trial.mark_completed()
        frame = made.fetch_data().df.sort_values("arm_name")
        assert frame["mean"].tolist() == [1.0, 1.0, 4.0]
        assert sorted(os.listdir(base)) == ["0_0", "0_1", "0_2"]

    def test_an_arm_that_fails_is_abandoned(
        self, experiment: Callable[..., Any], eventually: Any
    ) -> None:
        """A batch completes without the arm that failed."""
        made = experiment("ax_components:fails_below_zero", arms_as_apps=True)
        trial = self.batch(made, -1.0, 2.0)
        trial.run()
        eventually(lambda: "COMPLETED" in {s.name for s in made.runner.poll_trial_status([trial])})
        assert [arm.name for arm in trial.abandoned_arms] == ["0_0"]
        trial.mark_running(unsafe=True)
        trial.mark_completed()
        assert made.fetch_data().df["arm_name"].tolist() == ["0_1"]


class TestArguments:
    """The search space and the component must match, or are refused by name before a start."""

    @pytest.mark.parametrize(
        ("more", "words"),
        [
            ({"parameters": ["z:float:0:1"]}, ["search space", "'z'"]),
            ({"parameters": ["y:float:0:1"]}, ["'x'"]),
            ({"constants": {"x": 1.0}}, ["'x'", "component_const_params"]),
            ({"parameters": ["x:float:0:1", "trial_idx:int:0:5"]}, ["search space", "'trial_idx'", "automatically"]),
            ({"constants": {"trial_idx": 3}}, ["component_const_params", "'trial_idx'"]),
            ({"constants": {"yy": 1.0}}, ["component_const_params", "'yy'"]),
            ({"constants": {"y": "many"}}, ["y", "many"]),
            ({"component": "ax_components:ends", "parameters": ["x:float:0:1", "how:int:1:5"]}, ["'how'", "int"]),
            ({"component": "ax_components:curve", "parameters": ["x:float:0:1", "steps:float:1:5"],
              "constants": {"gate": "/x"}}, ["'steps'", "float"]),
            ({"component": "ax_components:nothing"}, ["nothing"]),
        ],
    )  # fmt: skip
    def test_refused_by_name(
        self, more: dict[str, Any], words: list[str], experiment: Callable[..., Any]
    ) -> None:
        """Unknown, missing and doubly given names and wrong types are named."""
        made = experiment(**more)
        with pytest.raises(SpecError) as caught:
            made.runner.check(made)
        for word in words:
            assert word in str(caught.value)

    @pytest.mark.parametrize(
        ("more", "error", "word"),
        [
            ({"parameters": ["z:float:0:1"]}, SpecError, "'z'"),
            ({"scheduler": "nowhere"}, ConfigError, "'nowhere'"),
            ({"cfg": {"log_dri": "/x"}}, ConfigError, "'log_dri'"),
        ],
    )
    def test_checked_at_the_first_run(
        self,
        more: dict[str, Any],
        error: type[Exception],
        word: str,
        experiment: Callable[..., Any],
        orchestrate: Callable[..., Any],
    ) -> None:
        """An experiment that nobody checked is checked before its first trial is submitted."""
        with pytest.raises(error, match=word):
            orchestrate(experiment(**more)).run_n_trials(1)
        assert host_runner("ax").list("local") == []

    def test_automatic_arguments_keyword_only_too(
        self, experiment: Callable[..., Any], orchestrate: Callable[..., Any], base: str
    ) -> None:
        """trial_idx, experiment_name and tracker_base reach keyword-only arguments."""
        made = experiment("ax_components:keyword_only", name="my.search")
        orchestrate(made).run_n_trials(1)
        handle = made.trials[0].run_metadata["transload_app_handle"]
        results = host_runner("ax").results(handle).results["0"]
        assert (results["name"], results["base"]) == ("my.search", base)

    def test_a_component_that_refuses(self, experiment: Callable[..., Any]) -> None:
        """What a component raises is the message, and nothing is started."""
        made = experiment("ax_components:refuses")
        with pytest.raises(SpecError, match="is not for me"):
            made.runner.run(new_trial(made))
        assert host_runner("ax").list("local") == []

    def test_logs_reach_a_logger(
        self,
        experiment: Callable[..., Any],
        caplog: pytest.LogCaptureFixture,
        eventually: Any,
        gate: Path,
    ) -> None:
        """Lines of a trial's replicas are in the logger of its experiment and number."""
        caplog.set_level(logging.INFO, logger="transload_ax.search.0")
        gate.touch()
        made = experiment("ax_components:waits", constants={"gate": str(gate)})
        trial = new_trial(made).run()
        eventually(lambda: "COMPLETED" in {s.name for s in made.runner.poll_trial_status([trial])})
        lines = [
            record.getMessage()
            for record in caplog.records
            if record.name == "transload_ax.search.0"
        ]
        assert lines == ["trial/0 waiting"]


def test_eight_in_parallel(
    experiment: Callable[..., Any], orchestrate: Callable[..., Any], tmp_path: Path, gate: Path
) -> None:
    """Eight trials run at once, each as one process of its own."""
    import threading

    marks = tmp_path / "marks"
    marks.mkdir()
    made = experiment("ax_components:waits", constants={"gate": str(gate), "marks": str(marks)})

    def opener() -> None:
        deadline = time.monotonic() + 60
        while len(os.listdir(marks)) < 8 and time.monotonic() < deadline:
            time.sleep(0.01)
        gate.touch()

    thread = threading.Thread(target=opener)
    thread.start()
    orchestrate(made, parallel=8).run_n_trials(8)
    thread.join()
    assert len(os.listdir(marks)) == 8
    assert set(statuses(made).values()) == {"COMPLETED"}
    found = made.lookup_data().df
    assert list(found["mean"]) == [
        made.trials[index].arm.parameters["x"] for index in found["trial_index"]
    ]


def test_interpreter_is_the_one_of_the_tests() -> None:
    """The trials' interpreter is that of this environment."""
    assert ax_components.square(1.0, 0).roles[0].entrypoint == sys.executable
