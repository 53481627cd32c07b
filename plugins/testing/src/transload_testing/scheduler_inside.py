"""Tests of what reaches into a job that runs: signals, and commands beside a replica."""

from __future__ import annotations

import pytest

from transload.errors import AppNotFound, SpecError, UnsupportedFeature
from transload.runner import Job
from transload.specs import AppState
from transload_testing.scheduler_stage import (
    Program,
    SchedulerStage,
    SchedulerSuite,
    fresh_id,
    needs_programs,
)

_HEEDS = Program(command="trap 'echo got it' USR1; echo up; while :; do sleep 0.1; done")


class InsideTests(SchedulerSuite):
    """Tests of `Job.signal` and `Job.exec`. A scheduler that has neither refuses them by name."""

    def _running(self, stage: SchedulerStage, replicas: int = 1) -> Job:
        job = stage.submit(stage.app(_HEEDS, replicas))
        stage.running(job)
        for k in range(replicas):
            self._await_line(stage, job, k, "up")
        stage.until(lambda: self._count(stage, job) == replicas, "the status has all replicas run")
        return job

    def _count(self, stage: SchedulerStage, job: Job) -> int:
        """Return how many replicas run by the status, which may come after their first lines."""
        states = [each.state for role in stage.status(job).roles for each in role.replicas]
        return states.count(AppState.RUNNING)

    def _await_line(self, stage: SchedulerStage, job: Job, k: int, line: str) -> None:
        stage.until(lambda: f"{line}\n" in stage.lines(job, k=k), f"replica {k} says {line}")

    @needs_programs
    def test_signal_to_one_replica(self, stage: SchedulerStage) -> None:
        """A signal reaches the replica that is named, and no other. The job goes on."""
        if not stage.offers("signal"):
            pytest.skip("no signals")
        count = 2 if stage.offers("num_replicas") else 1
        job = self._running(stage, count)
        assert list(job.signal("SIGUSR1", "main", count - 1)) == [("main", count - 1)]
        self._await_line(stage, job, count - 1, "got it")
        if count > 1:
            assert stage.lines(job, k=0) == ["up\n"]
        assert not stage.status(job).is_terminal()

    @needs_programs
    def test_signal_to_all_replicas(self, stage: SchedulerStage) -> None:
        """Without a name, every replica that runs gets the signal."""
        if not stage.offers("signal") or not stage.offers("num_replicas"):
            pytest.skip("no signals, or one replica only")
        job = self._running(stage, 2)
        assert list(job.signal("USR1")) == [("main", 0), ("main", 1)]
        for k in range(2):
            self._await_line(stage, job, k, "got it")

    @needs_programs
    def test_a_command_beside_a_replica(self, stage: SchedulerStage) -> None:
        """A command has the replica's variables, its own exit code and its own output."""
        if not stage.offers("exec_command"):
            pytest.skip("no commands")
        job = self._running(stage)
        text = 'echo "$TRANSLOAD_ROLE $TRANSLOAD_REPLICA_ID"; echo no >&2; exit 7'
        done = job.exec(["sh", "-c", text], capture=True)
        assert (done.returncode, done.stdout) == (7, b"main 0\n")
        assert b"no\n" in done.stderr
        assert not stage.status(job).is_terminal()

    @needs_programs
    def test_only_into_what_runs(self, stage: SchedulerStage) -> None:
        """A job that is gone or has ended, another replica, an unknown signal: each is refused."""
        with pytest.raises(AppNotFound):
            stage.job(fresh_id()).signal("USR1")
        job = stage.submit(stage.app(Program(out=("done",))))
        stage.ended(job)
        with pytest.raises(SpecError, match="SUCCEEDED"):
            job.signal("USR1")
        with pytest.raises(SpecError, match="SUCCEEDED"):
            job.exec(["true"])
        with pytest.raises(SpecError, match="main/0"):
            job.exec(["true"], "other")
        with pytest.raises(SpecError, match="USR1"):
            job.signal("USR")

    def test_what_it_cannot_do_is_refused(self, stage: SchedulerStage) -> None:
        """A scheduler without signals or commands says so, by the name of the method."""
        lacks = [name for name in ("signal", "exec_command") if not stage.offers(name)]
        if not lacks:
            pytest.skip("it has both")
        with pytest.raises(UnsupportedFeature):
            if "signal" in lacks:
                stage.scheduler.signal(fresh_id(), [("main", 0)], "USR1")
            else:
                stage.scheduler.exec_command(fresh_id(), "main", 0, ["true"], terminal=False)
