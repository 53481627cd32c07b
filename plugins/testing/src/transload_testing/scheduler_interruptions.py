"""Notices, segments, interruptions, checkpoints, progress and stalls.

Each test asks for what the scheduler's class says. What it does not offer is skipped here and
refused by name (see `RefusalTests`).
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from transload.errors import AppNotFound
from transload.runner import Job
from transload.specs import AppState, AppStatus, Notice, RetryPolicy
from transload_testing.scheduler_stage import (
    Program,
    SchedulerStage,
    SchedulerSuite,
    needs_programs,
)

_WAIT = "while :; do sleep 0.1; done"
_STEP = """echo '{{"step": {}}}' > "$TRANSLOAD_PROGRESS_FILE\""""


def _needs(stage: SchedulerStage, *names: str) -> None:
    """Skip a test if the scheduler does not have all these fields and methods."""
    missing = [name for name in names if not stage.offers(name)]
    if missing:
        pytest.skip(f"not offered: {', '.join(missing)}")


class InterruptionTests(SchedulerSuite):
    """Tests of jobs that finish despite interruptions.

    A program gets a signal before its end, keeps its work in a folder, and reports its progress.
    """

    def _notice(self, stage: SchedulerStage) -> Notice:
        """Return a notice that the scheduler supports, by TERM or by another signal."""
        offered = stage.scheduler.notice_signals
        if not offered:
            pytest.skip("no notices")
        signal = "TERM" if "TERM" in offered else min(offered)
        return Notice(self.notice_seconds, signal)

    def _again(self, stage: SchedulerStage) -> dict[str, Any]:
        """Return fields that let a role be tried again once, at once if that can be said."""
        if not stage.scheduler.retries:
            pytest.skip("no retries")
        policy = RetryPolicy.REPLICA
        if policy not in stage.scheduler.retries:
            policy = sorted(stage.scheduler.retries)[0]
        delay = {"retry_delay": 0.0} if stage.offers("retry_delay") else {}
        return {"max_retries": 1, "retry_policy": policy, **delay}

    @needs_programs
    def test_notice_of_a_cancel(self, stage: SchedulerStage) -> None:
        """A cancel sends the signal of the notice, and gives the program the time to save."""
        notice = self._notice(stage)
        command = f"trap 'echo saved; exit 0' {notice.signal}; echo up; {_WAIT}"
        job = stage.submit(stage.app(Program(command=command), notice=notice))
        stage.running(job, said="up")
        job.cancel()
        assert stage.ended(job).state is AppState.CANCELLED
        assert "saved\n" in stage.everything(job)

    @needs_programs
    def test_what_does_not_heed_its_notice_is_killed(self, stage: SchedulerStage) -> None:
        """A program that ignores its notice is killed after the time of the notice."""
        notice = self._notice(stage)
        command = f"trap 'echo noticed' {notice.signal}; echo up; {_WAIT}"
        job = stage.submit(stage.app(Program(command=command), notice=notice))
        stage.running(job, said="up")
        job.cancel()
        assert stage.ended(job).state is AppState.CANCELLED
        assert "noticed\n" in stage.everything(job)

    @needs_programs
    def test_notice_before_the_time_limit(self, stage: SchedulerStage) -> None:
        """A program has its notice before the time limit, and what ends well in time has."""
        _needs(stage, "timeout")
        notice = replace(self._notice(stage), seconds=self.notice_seconds + 10)
        command = f"trap 'echo saved; exit 0' {notice.signal}; echo up; {_WAIT}"
        app = stage.app(Program(command=command), notice=notice, timeout=notice.seconds + 1)
        job = stage.submit(app)
        status = stage.ended(job)
        assert status.state is AppState.SUCCEEDED, status
        assert stage.everything(job) == ["up\n", "saved\n"]

    @needs_programs
    def test_75_without_a_notice_is_a_failure(self, stage: SchedulerStage) -> None:
        """Exit code 75 leads to another start only after a delivered notice."""
        _needs(stage, "max_interruptions")
        app = stage.app(
            Program(exit_code=75), notice=self._notice(stage), max_interruptions=3, max_retries=0
        )
        status = stage.ended(stage.submit(app))
        assert status.state is AppState.FAILED, status
        (replica,) = stage.replicas(status)
        assert (replica.exit_code, replica.interruptions) == (75, 0)

    @needs_programs
    def test_environment_counts_failures_and_interruptions_apart(
        self, stage: SchedulerStage
    ) -> None:
        """After a failure ``TRANSLOAD_RETRY`` is 1, and ``TRANSLOAD_INTERRUPTIONS`` is still 0."""
        _needs(stage, "max_interruptions")
        command = (
            'echo "$TRANSLOAD_RETRY $TRANSLOAD_INTERRUPTIONS"; exit "$((1 - TRANSLOAD_RETRY))"'
        )
        again = self._again(stage)
        app = stage.app(Program(command=command), max_interruptions=2, **again)
        job = stage.submit(app)
        assert stage.ended(job).state is AppState.SUCCEEDED
        assert stage.everything(job)[-1] == "1 0\n"

    @needs_programs
    def test_what_is_a_jobs_own_is_not_inherited(
        self, stage: SchedulerStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A job that another one submits does not find the other's checkpoints, nor its signal."""
        _needs(stage, "checkpoint_folder")
        names = (
            "TRANSLOAD_CHECKPOINT_DIR",
            "TRANSLOAD_CHECKPOINT_NAME",
            "TRANSLOAD_NOTICE_SIGNAL",
            "TRANSLOAD_PROGRESS_FILE",
        )
        for name in names:
            monkeypatch.setenv(name, "/of-the-submitter")
        job = stage.submit(stage.app(Program(command="env")))
        assert stage.ended(job).state is AppState.SUCCEEDED
        assert "/of-the-submitter" not in "".join(stage.everything(job))

    @needs_programs
    def test_segment(self, stage: SchedulerStage) -> None:
        """At the end of a segment the job gets its notice, and goes on in the next one.

        No retry is spent, and the step at which it was interrupted is known.
        """
        _needs(stage, "segment", "max_interruptions", "checkpoint_folder")
        notice = self._notice(stage)
        command = (
            'if [ "$TRANSLOAD_INTERRUPTIONS" -ge 1 ]; then cat "$TRANSLOAD_CHECKPOINT_DIR/at"; '
            f"exit 0; fi; trap 'echo noticed; echo saved > $TRANSLOAD_CHECKPOINT_DIR/at; exit 75' "
            f"{notice.signal}; {_STEP.format(4200)}; echo up; {_WAIT}"
        )
        app = stage.app(Program(command=command), notice=notice, checkpoints=True)
        app = replace(app, segment=self.segment_seconds, timeout=20 * self.segment_seconds)
        job = stage.submit(app, checkpoints=self._name())
        status = stage.ended(job)
        assert status.state is AppState.SUCCEEDED, status
        assert status.num_restarts == 0
        (replica,) = stage.replicas(status)
        assert replica.interruptions == 1
        (before,) = replica.earlier
        assert before.cause == "segment"
        assert before.step == 4200
        assert status.progress is not None
        assert status.progress.step == 4200
        assert stage.everything(job) == ["up\n", "noticed\n", "saved\n"]

    @needs_programs
    def test_attempts_share_their_checkpoints(self, stage: SchedulerStage) -> None:
        """The next attempt, and a reader from outside, find the checkpoints of an attempt."""
        _needs(stage, "checkpoint_folder")
        command = (
            'cd "$TRANSLOAD_CHECKPOINT_DIR" || exit 4; [ -e kept ] && exit 0; echo x > kept; exit 1'
        )
        app = stage.app(Program(command=command), checkpoints=True, **self._again(stage))
        name = self._name()
        job = stage.submit(app, checkpoints=name)
        assert stage.ended(job).state is AppState.SUCCEEDED
        description = job.description()
        assert description is not None
        assert description.checkpoints == name
        (folder,) = stage.scheduler.checkpoints(job.app_id)
        assert folder.role == "main"
        assert folder.path
        store = stage.scheduler.checkpoint_store(job.app_id, "main")
        if store is not None:
            assert store.read("kept") == b"x\n"

    @needs_programs
    def test_checkpoints_go_with_the_last_job(self, stage: SchedulerStage) -> None:
        """Two jobs of one name share a folder, which is there until the second one is deleted."""
        _needs(stage, "checkpoint_folder", "delete")
        name = self._name()
        write = Program(command='echo x > "$TRANSLOAD_CHECKPOINT_DIR/kept"')
        read = Program(command='[ -e "$TRANSLOAD_CHECKPOINT_DIR/kept" ]')
        first = stage.submit(stage.app(write, checkpoints=True), checkpoints=name)
        assert stage.ended(first).state is AppState.SUCCEEDED
        second = stage.submit(stage.app(read, checkpoints=True), checkpoints=name)
        assert stage.ended(second).state is AppState.SUCCEEDED
        first.delete()
        assert self._kept(stage, read, name, second) is AppState.SUCCEEDED
        second.delete()
        with pytest.raises(AppNotFound):
            stage.scheduler.checkpoints(second.app_id)
        assert self._kept(stage, read, name) is AppState.FAILED

    def _kept(
        self, stage: SchedulerStage, program: Program, name: str, other: Job | None = None
    ) -> AppState:
        """Return how a job ends that looks for checkpoints, and delete it."""
        job = stage.submit(stage.app(program, checkpoints=True), checkpoints=name)
        state = stage.ended(job).state
        job.delete()
        assert other is None or other.description() is not None
        return state

    @needs_programs
    def test_progress(self, stage: SchedulerStage) -> None:
        """The status, and the list of jobs, have the progress that a program writes to its file."""
        command = (
            """echo '{"step": 710, "total": 1000, "text": "epoch 7"}' > "$TRANSLOAD_PROGRESS_FILE";"""
            f" {_WAIT}"
        )
        job = stage.submit(stage.app(Program(command=command)))
        status = stage.until(lambda: self._with_progress(stage, job), "there is progress")
        progress = status.progress
        assert progress is not None
        assert (progress.step, progress.total, progress.fraction) == (710, 1000, 0.71)
        assert progress.text == "epoch 7"
        assert progress.at is not None
        listed = stage.listed()[job.app_id].progress
        assert listed is not None
        assert listed.step == 710

    @staticmethod
    def _with_progress(stage: SchedulerStage, job: Job) -> AppStatus | None:
        status = stage.status(job)
        assert not status.is_terminal(), status
        return status if status.progress is not None else None

    @needs_programs
    def test_progress_that_makes_no_sense(self, stage: SchedulerStage) -> None:
        """NaN and a total of 0 are ignored, and the job goes on."""
        command = (
            """echo '{"fraction": NaN, "step": 3, "total": 0}' > "$TRANSLOAD_PROGRESS_FILE";"""
            " sleep 0.2"
        )
        status = stage.ended(stage.submit(stage.app(Program(command=command))))
        assert status.state is AppState.SUCCEEDED
        assert status.progress is not None
        assert (status.progress.step, status.progress.total) == (3, None)
        assert status.progress.fraction is None

    @needs_programs
    def test_what_is_no_progress(self, stage: SchedulerStage) -> None:
        """Nonsense, a FIFO or a link in the place of the file is no progress, and stops nothing."""
        commands = (
            'echo nonsense > "$TRANSLOAD_PROGRESS_FILE"',
            'mkfifo "$TRANSLOAD_PROGRESS_FILE"',
            'ln -s /etc/passwd "$TRANSLOAD_PROGRESS_FILE"',
        )
        apps = [stage.app(Program(command=f"{command}; sleep 0.2")) for command in commands]
        for job in [stage.submit(app) for app in apps]:
            status = stage.ended(job)
            assert (status.state, status.progress) == (AppState.SUCCEEDED, None), status

    @needs_programs
    def test_stalled(self, stage: SchedulerStage) -> None:
        """The status names a stalled replica, and the replica goes on."""
        _needs(stage, "stall_after")
        app = stage.app(Program(out=("up",), hold=True), stall_after=self.stall_seconds)
        job = stage.submit(app)
        status = stage.until(lambda: self._stalled(stage, job), "it has stalled")
        assert status.state is AppState.RUNNING
        assert "main" in status.msg

    @staticmethod
    def _stalled(stage: SchedulerStage, job: Job) -> AppStatus | None:
        status = stage.status(job)
        assert not status.is_terminal(), status
        return status if status.is_stalled else None

    @staticmethod
    def _name() -> str:
        return f"suite-{uuid.uuid4().hex[:12]}"
