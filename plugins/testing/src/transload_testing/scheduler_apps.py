"""Tests of the states, exit codes, retries and limits of jobs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SpecError, SubmitError, UnsupportedFeature
from transload.runner import tail
from transload.schedulers.cancelling import cancelling_for
from transload.specs import AppState, Resource, RetryPolicy, macros
from transload_testing.packages import package_index
from transload_testing.scheduler_stage import (
    Program,
    SchedulerStage,
    SchedulerSuite,
    needs_programs,
)


class AppTests(SchedulerSuite):
    """Ends, roles and replicas, cancel, retries, timeouts."""

    def test_success(self, stage: SchedulerStage) -> None:
        """A job whose program succeeds is SUCCEEDED, and its replica has exit code 0 and times."""
        before = time.time()
        status = stage.ended(stage.submit(stage.app(Program(seconds=0.05))))
        assert status.state is AppState.SUCCEEDED, status
        (replica,) = stage.replicas(status)
        assert (replica.role, replica.id, replica.exit_code) == ("main", 0, 0)
        assert replica.state is AppState.SUCCEEDED
        assert replica.start_time is not None
        assert replica.end_time is not None
        assert before - 60 < replica.start_time <= replica.end_time < time.time() + 60
        assert not status.cancel_requested

    def test_exit_code(self, stage: SchedulerStage) -> None:
        """The exit code of a failed replica is kept."""
        status = stage.ended(stage.submit(stage.app(Program(exit_code=7))))
        assert status.state is AppState.FAILED
        assert [replica.exit_code for replica in stage.replicas(status)] == [7]

    def test_death_by_signal(self, stage: SchedulerStage) -> None:
        """The exit code of a replica that a signal ended is the negative number of the signal."""
        status = stage.ended(stage.submit(stage.app(Program(exit_code=-9))))
        assert status.state is AppState.FAILED
        assert [replica.exit_code for replica in stage.replicas(status)] == [-9]

    def test_roles_and_replicas(self, stage: SchedulerStage) -> None:
        """Every replica of every role has a status, in order."""
        if not (stage.offers("roles") and stage.offers("num_replicas")):
            pytest.skip("one role or one replica only")
        app = stage.app({"one": Program(out=("a",)), "two": Program(out=("b",))}, replicas=3)
        status = stage.ended(stage.submit(app))
        assert status.state is AppState.SUCCEEDED, status
        assert [role.role for role in status.roles] == ["one", "two"]
        assert [[replica.id for replica in role.replicas] for role in status.roles] == [
            [0, 1, 2]
        ] * 2

    def test_one_replica_fails_all_end(self, stage: SchedulerStage) -> None:
        """In a gang, the final failure of one replica ends the others."""
        if not stage.offers("roles"):
            pytest.skip("one role only")
        app = stage.app({"bad": Program(seconds=0.2, exit_code=4), "good": Program(hold=True)})
        status = stage.ended(stage.submit(app))
        assert status.state is AppState.FAILED
        states = {replica.role: replica for replica in stage.replicas(status)}
        assert states["bad"].exit_code == 4
        assert states["good"].state is not AppState.RUNNING

    def test_min_replicas(self, stage: SchedulerStage) -> None:
        """A job goes on and succeeds if enough replicas of a role succeed."""
        if not (
            stage.offers("min_replicas") and stage.offers("num_replicas") and self.runs_programs
        ):
            pytest.skip("min_replicas is not offered")
        app = stage.app(Program(only=(0,), exit_code=5), replicas=3, min_replicas=2)
        status = stage.ended(stage.submit(app))
        assert status.state is AppState.SUCCEEDED, status

    @needs_programs
    def test_macros(self, stage: SchedulerStage) -> None:
        """The scheduler replaces its macros in arguments and variables, and no other ``$``."""
        command = (
            f'x=kept; echo "{macros.replica_id} $x ${{x}}"; '
            f"printenv {macros.rank0_env} > /dev/null && echo rank0; "
            f'echo "$MINE"; test "$ROOT" = "{macros.img_root}/bin" && echo root'
        )
        env = {
            "MINE": f"{macros.replica_id} ${{x}} $x",
            "ROOT": f"{macros.img_root}/bin",
        }
        replicas = 2 if stage.offers("num_replicas") else 1
        job = stage.submit(stage.app(Program(command=command), replicas=replicas, env=env))
        assert stage.ended(job).state is AppState.SUCCEEDED
        for k in range(replicas):
            said = [f"{k} kept kept\n", "rank0\n", f"{k} ${{x}} $x\n", "root\n"]
            assert stage.everything(job, k=k) == said

    def test_cancel(self, stage: SchedulerStage) -> None:
        """A cancel does not wait. The job ends CANCELLED, and its status says who asked."""
        job = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(job, said="up")
        with cancelling_for("host: here/train"):
            job.cancel()
        status = stage.ended(job)
        assert status.state is AppState.CANCELLED, status
        assert status.cancel_requested
        if self.runs_programs:
            assert "on request of host: here/train" in status.msg
        job.cancel()
        assert stage.status(job).state is AppState.CANCELLED

    def test_cancel_before_it_runs(self, stage: SchedulerStage) -> None:
        """A cancel right after the submit ends the job in any state."""
        job = stage.submit(stage.app(Program(hold=True)))
        job.cancel()
        assert stage.ended(job).state is AppState.CANCELLED

    def test_cancel_after_the_end(self, stage: SchedulerStage) -> None:
        """A cancel of an ended job changes nothing."""
        job = stage.submit(stage.app(Program()))
        assert stage.ended(job).state is AppState.SUCCEEDED
        job.cancel()
        assert stage.status(job).state is AppState.SUCCEEDED

    @pytest.mark.parametrize(
        "policy", [RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION]
    )
    def test_retries(self, stage: SchedulerStage, policy: RetryPolicy) -> None:
        """A failed replica is restarted up to ``max_retries`` times."""
        if policy not in stage.scheduler.retries or not self.runs_programs:
            pytest.skip(f"retry policy {policy.value} is not offered")
        app = stage.app(
            Program(failures=2), max_retries=2, retry_policy=policy, **self._soon(stage)
        )
        status = stage.ended(stage.submit(app))
        assert status.state is AppState.SUCCEEDED, status
        assert (
            max([status.num_restarts, *(replica.restarts for replica in stage.replicas(status))])
            == 2
        )

    @staticmethod
    def _soon(stage: SchedulerStage) -> dict[str, Any]:
        return {"retry_delay": 0.0} if stage.offers("retry_delay") else {}

    @needs_programs
    def test_retry_delay(self, stage: SchedulerStage) -> None:
        """The delay before a retry is respected, or refused by name."""
        if RetryPolicy.REPLICA not in stage.scheduler.retries:
            pytest.skip("no retries")
        app = stage.app(
            Program(failures=1), max_retries=1, retry_policy=RetryPolicy.REPLICA, retry_delay=2.0
        )
        if not stage.offers("retry_delay"):
            with pytest.raises(UnsupportedFeature, match="retry_delay"):
                stage.plan(app)
            return
        (replica,) = stage.replicas(stage.ended(stage.submit(app)))
        assert replica.state is AppState.SUCCEEDED
        if replica.earlier:  # where it is kept
            assert replica.start_time is not None
            assert replica.earlier[0].end_time is not None
            assert replica.start_time - replica.earlier[0].end_time > 1.9

    @pytest.mark.parametrize(
        "policy", [RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION]
    )
    def test_retries_used_up(self, stage: SchedulerStage, policy: RetryPolicy) -> None:
        """One failure more than ``max_retries`` is final."""
        if policy not in stage.scheduler.retries or not self.runs_programs:
            pytest.skip(f"retry policy {policy.value} is not offered")
        app = stage.app(
            Program(failures=2), max_retries=1, retry_policy=policy, **self._soon(stage)
        )
        status = stage.ended(stage.submit(app))
        assert status.state is AppState.FAILED, status
        assert [replica.exit_code for replica in stage.replicas(status)] == [9]

    def test_timeout(self, stage: SchedulerStage) -> None:
        """A job that takes longer than its timeout is ended and fails."""
        if not stage.offers("timeout") or not self.runs_programs:
            pytest.skip("no limit of time can be set")
        status = stage.ended(stage.submit(stage.app(Program(hold=True), timeout=0.5)))
        assert status.state is AppState.FAILED, status
        assert status.msg

    @needs_programs
    def test_program_that_does_not_exist(self, stage: SchedulerStage) -> None:
        """An entrypoint that cannot be started is refused, or fails the job.

        No other role is left running.
        """
        roles = {"main": Program()}
        if stage.offers("roles"):
            roles["other"] = Program(hold=True)
        app = stage.app(roles, entrypoint="/no/such/program")
        try:
            job = stage.submit(app)
        except (SpecError, SubmitError):
            assert stage.listed() == {}
            return
        status = stage.ended(job)
        assert status.state is AppState.FAILED, status
        assert all(replica.state is not AppState.RUNNING for replica in stage.replicas(status))

    @needs_programs
    def test_environment(self, stage: SchedulerStage) -> None:
        """``Role.env`` reaches the job byte for byte.

        The submitter's own environment does so only if that was asked for.
        """
        os.environ["SUITE_OUTSIDE"] = "outside"
        try:
            command = 'printf "%s|%s\\n" "$SUITE_INSIDE" "${SUITE_OUTSIDE-none}"'
            app = stage.app(Program(command=command), env={"SUITE_INSIDE": "ä $x `y` '\""})
            with stage.another(inherit_env=False) as other:
                bare = other.submit(app)
                assert other.ended(bare).state is AppState.SUCCEEDED
                assert other.everything(bare) == ["ä $x `y` '\"|none\n"]
            if self.inherits_environment:
                full = stage.submit(app)
                assert stage.ended(full).state is AppState.SUCCEEDED
                assert stage.everything(full) == ["ä $x `y` '\"|outside\n"]
        finally:
            del os.environ["SUITE_OUTSIDE"]

    @needs_programs
    def test_secrets_reach_the_job_and_nothing_else(
        self, stage: SchedulerStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A resolved secret is only in the job's environment, not in any output or file."""
        monkeypatch.setenv("SUITE_SECRET", "hunter2-value")
        app = stage.app(
            Program(command='test "${PASSWORD#hunter2-}" = value && echo same'),
            secrets={"PASSWORD": "env:SUITE_SECRET"},
        )
        job = stage.submit(app)
        assert stage.ended(job).state is AppState.SUCCEEDED
        assert stage.everything(job) == ["same\n"]
        found = job.description()
        assert "hunter2-value" not in repr(found)
        for path in (
            path for folder in self.state_folders(stage.folder) for path in folder.rglob("*")
        ):
            assert not path.is_file() or b"hunter2-value" not in path.read_bytes(), path

    @needs_programs
    def test_variables_are_passed_by_pattern(
        self, stage: SchedulerStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``pass_env`` brings variables of the submitter to the job.

        A secret one is passed too, and shown nowhere.
        """
        monkeypatch.setenv("SUITE_PLAIN", "plain value")
        monkeypatch.setenv("SUITE_TOKEN", "hunter3-value")
        app = stage.app(Program(command='echo "$SUITE_PLAIN ${SUITE_TOKEN#hunter3-}"'))
        job = stage.submit(app, cfg={"pass_env": ["SUITE_*"]})
        assert stage.ended(job).state is AppState.SUCCEEDED
        assert stage.everything(job) == ["plain value value\n"]
        assert "hunter3-value" not in repr(job.description())

    @needs_programs
    def test_packages_of_a_file(
        self, stage: SchedulerStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program finds the packages that a file names, from the index that the file names."""
        if not stage.offers("with_packages"):
            pytest.skip("not offered: environments")
        folder = stage.folder / "index"
        folder.mkdir()
        with package_index(folder) as index:
            index.add("tiny", "1.5")
            index.be_the_only_one(monkeypatch)
            file = stage.folder / "packages.txt"
            file.write_text(f"--index-url {index.url}\ntiny==1.5\n")
            command = "python3 -c 'import tiny; print(tiny.VERSION)'"
            job = stage.submit(stage.app(Program(command=command)), environment=str(file))
            status = stage.ended(job)
        assert status.state is AppState.SUCCEEDED, status
        assert stage.everything(job)[-1] == "1.5\n"

    @needs_programs
    def test_results_are_read_from_outside(self, stage: SchedulerStage) -> None:
        """What a program writes into its folder of results, or into its one file, is its result."""
        body = '{"schema": 1, "key": "0", "results": {"x": 1}}'
        in_folder = "${TRANSLOAD_TRACKER_BASE:+$TRANSLOAD_TRACKER_BASE/0.json}"
        command = (
            f'file=${{TRANSLOAD_RESULT_FILE:-{in_folder}}}; test -n "$file" || exit 99; '
            f'mkdir -p "$(dirname $file)" && printf %s \'{body}\' > "$file"'
        )
        job = stage.submit(stage.app(Program(command=command)))
        status = stage.ended(job)
        if stage.replicas(status)[0].exit_code == 99:
            pytest.skip("this scheduler has no place for results")
        assert status.state is AppState.SUCCEEDED
        assert job.results().results == {"0": {"x": 1}}

    @needs_programs
    def test_what_a_program_says_of_its_failure(self, stage: SchedulerStage) -> None:
        """The content of a replica's error file is the reason of the job's failure.

        torchrun may write its own file anew, as it does by itself.
        """
        said = """'{"message": {"message": "ValueError: no such thing"}}'"""
        torch = 'echo x > "$TORCHELASTIC_ERROR_FILE" && rm "$TORCHELASTIC_ERROR_FILE"'
        command = f'test -s "$TRANSLOAD_ERROR_FILE" || {{ {torch} && echo {said} > "$TRANSLOAD_ERROR_FILE"; }}; exit 3'
        job = stage.submit(stage.app(Program(command=command)))
        status = stage.ended(job)
        assert status.state is AppState.FAILED
        assert "exit code 3" in status.msg and "ValueError: no such thing" in status.msg
        found = status.roles[0].replicas[0].structured_error_msg
        assert json.loads(found) == {"message": {"message": "ValueError: no such thing"}}
        assert json.loads(status.structured_error_msg) == json.loads(found)

    @needs_programs
    def test_exception_of_a_program(self, stage: SchedulerStage) -> None:
        """The exception that a Python program ends with is why the job failed.

        Nobody has to write it to a file.
        """
        text = 'Traceback (most recent call last):\\n  File "x.py", line 3, in main\\n    f()\\nKeyError: 7\\n'
        job = stage.submit(stage.app(Program(command=f"printf '{text}' >&2; exit 1")))
        status = stage.ended(job)
        assert "exit code 1" in status.msg
        assert "KeyError: 7" in status.msg
        found = json.loads(status.roles[0].replicas[0].structured_error_msg)["message"]
        assert found["message"] == "KeyError: 7"
        assert 'File "x.py", line 3' in found["extraInfo"]["py_callstack"]

    @needs_programs
    def test_reason_of_the_last_attempt(self, stage: SchedulerStage) -> None:
        """An attempt that ends without a word is not explained by the one before.

        Neither the exception nor the lines of that attempt count.
        """
        if RetryPolicy.REPLICA not in stage.scheduler.retries:
            pytest.skip("no retries")
        raising = "exec python3 -c 'raise ValueError(\"no such thing\")'"
        command = f'command -v python3 || exit 0; test "$TRANSLOAD_RETRY" != 0 || {raising}; echo again; exit 1'
        fields = {"max_retries": 1, "retry_policy": RetryPolicy.REPLICA, **self._soon(stage)}
        status = stage.ended(job := stage.submit(stage.app(Program(command=command), **fields)))
        if status.state is AppState.SUCCEEDED:
            pytest.skip("there is no python3 where its programs run")
        assert stage.replicas(status)[0].latest_attempt == 1
        assert "no such thing" not in status.msg + status.structured_error_msg
        if stage.scheduler.since_until:
            words = list(tail(stage.scheduler, job.app_id, "main", 0, 20, status))
            assert words[-1:] == ["again\n"]
            assert "no such thing" not in "".join(words)

    @needs_programs
    def test_usage(self, stage: SchedulerStage) -> None:
        """A replica's usage includes its earlier attempts. Unknown usage is missing, never 0."""
        retried = RetryPolicy.REPLICA in stage.scheduler.retries
        used = "dd if=/dev/zero of=/dev/null bs=64M count=20; sleep 5"
        command = f'test "$TRANSLOAD_RETRY" != 0 || {{ {used}; exit {int(retried)}; }}'
        fields = (
            {"max_retries": 1, "retry_policy": RetryPolicy.REPLICA, **self._soon(stage)}
            if retried
            else {}
        )
        job = stage.submit(stage.app(Program(command=command), **fields))
        status = stage.ended(job)
        assert status.state is AppState.SUCCEEDED, status
        usage = status.roles[0].replicas[0].usage
        if usage is None:
            pytest.skip("this scheduler does not tell what was used")
        assert usage.peak_memory is not None
        assert 60 << 20 < usage.peak_memory < 4 << 30
        assert usage.cpu_seconds is not None
        assert 0.01 < usage.cpu_seconds < 60
        assert status.usage() == usage

    @needs_programs
    def test_out_of_memory_is_named(self, stage: SchedulerStage) -> None:
        """A program that takes far more memory than asked for is ended, with that reason."""
        program = Program(command="exec dd if=/dev/zero of=/dev/null bs=400M count=40")
        status = stage.ended(
            stage.submit(stage.app(program, resource=Resource(cpu=1, gpu=0, memMB=64)))
        )
        if status.state is AppState.SUCCEEDED:
            pytest.skip("this scheduler sets no limit of memory")
        assert status.state is AppState.FAILED and "memory" in status.msg

    @needs_programs
    def test_each_apps_results_are_its_own(self, stage: SchedulerStage) -> None:
        """Jobs that share a tracker base do not see each other's results, steps and files.

        Replicas overwrite none.
        """
        body = '{"schema": 1, "key": "%s", "results": {"x": %s}}'
        command = (
            'mkdir -p "$TRANSLOAD_OUTPUT_DIR" && cd "$TRANSLOAD_TRACKER_BASE" && test '
            "$TRANSLOAD_ROLES = main && "
            f'echo $X > "$TRANSLOAD_OUTPUT_DIR/{macros.replica_id}.txt" && '
            f"printf '{body}' {macros.replica_id} $X > {macros.replica_id}.json && "
            'echo "{\\"schema\\": 1, \\"step\\": 3, \\"results\\": {\\"x\\": $X}}" >> '
            f"{macros.replica_id}.steps.jsonl"
        )
        base = str(stage.folder / "shared")
        replicas = 2 if stage.offers("num_replicas") else 1
        jobs = [
            stage.submit(
                stage.app(Program(command=command), replicas, env={"X": x}), tracker_base=base
            )
            for x in ("1", "2")
        ]
        for number, job in enumerate(jobs, 1):
            assert stage.ended(job).state is AppState.SUCCEEDED
            results = job.results()
            assert results.results == {str(k): {"x": number} for k in range(replicas)}
            assert results.key_of("x") == "0"
            assert sorted(results.artifacts) == [f"{k}.txt" for k in range(replicas)]
            copies = job.fetch("0.*", str(stage.folder / f"copies-{number}"))
            assert [Path(each).read_text() for each in copies] == [f"{number}\n"]
            assert job.steps() == {str(k): {"x": {3: number}} for k in range(replicas)}
