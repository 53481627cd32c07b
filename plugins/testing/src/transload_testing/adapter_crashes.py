"""Scenarios in which the orchestrator's process dies at some point. There is always one job."""

from __future__ import annotations

from transload.specs import AppState
from transload_testing.adapter_stage import AdapterSuite, Stage, Steps, held


class CrashScenarios(AdapterSuite):
    """Crashes of the orchestrator, failed submits, and what a run after them does."""

    def test_crash_between_submit_and_store(self, stage: Stage) -> None:
        """A run after a process that died between submit and answer reattaches to the job."""
        stage.start(held(crash="after", results={"0": {"x": 1}}))
        stage.dead()
        assert len(stage.started) == 1
        stage.driver.restart()
        stage.watched(stage.started[0])
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"x": 1}}
        assert len(stage.started) == 1

    def test_crash_before_submit(self, stage: Stage) -> None:
        """A run after a process that died before the submit submits the job."""
        stage.start({"crash": "before"})
        stage.dead()
        assert stage.started == []
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_crash_while_polling(self, stage: Stage) -> None:
        """A run after a process that died while it waited reattaches, and delivers the results."""
        stage.start(held(results={"0": {"x": 1}}))
        app_id = stage.running()
        stage.driver.crash()
        stage.driver.restart()
        stage.watched(app_id)
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"x": 1}}
        assert stage.started == [app_id]

    def test_three_crashes_one_job(self, stage: Stage) -> None:
        """However often the process dies, there is one job."""
        stage.start(held())
        app_id = stage.running()
        for _ in range(3):
            stage.driver.crash()
            stage.driver.restart()
            stage.watched(app_id)
        stage.control.open("go")
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert stage.started == [app_id]

    def test_app_succeeds_while_the_host_is_down(self, stage: Stage) -> None:
        """A job that succeeded meanwhile does not run again, and its results are collected."""
        stage.start(held(results={"0": {"x": 1}}))
        app_id = stage.running()
        stage.driver.crash()
        stage.control.open("go")
        stage.driver.restart()
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"x": 1}}
        assert stage.started == [app_id]

    def test_app_fails_while_the_host_is_down(self, stage: Stage) -> None:
        """After a job that failed meanwhile, a new attempt has a new id."""
        stage.start(held("FAILED"))
        app_id = stage.running()
        stage.driver.crash()
        stage.control.open("go")
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.FAILED)
        assert len(stage.started) == 2
        assert stage.started[0] == app_id != stage.started[1]

    def test_retry_is_a_new_attempt(self, stage: Stage) -> None:
        """The orchestrator's retry of a failed job starts a new one."""
        stage.start({"steps": ["FAILED"]})
        self.is_state(stage.ended(), AppState.FAILED)
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.FAILED)
        assert len(set(stage.started)) == 2

    def test_crash_in_a_later_attempt(self, stage: Stage) -> None:
        """After a failed attempt and a crash in the second one, the second one is found."""
        stage.start({"steps": [{"state": "RUNNING", "until": "first"}, {"state": "FAILED"}]})
        first = stage.running()
        stage.control.open("first", first)
        stage.ended()
        stage.driver.restart()
        second = stage.until(
            lambda: len(stage.started) == 2 and stage.started[1], "a second attempt"
        )
        stage.watched(second)
        stage.driver.crash()
        stage.driver.restart()
        stage.watched(second)
        stage.watched(second)  # the first question is answered now: it was running
        stage.control.open("first", second)
        self.is_state(stage.ended(), AppState.FAILED)
        assert len(stage.started) == 2

    def test_run_again_after_success_collects(self, stage: Stage) -> None:
        """The same step, run again by the orchestrator itself, collects what is there."""
        stage.start({"results": {"0": {"x": 1}}})
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        stage.driver.restart()
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"x": 1}}
        assert len(stage.started) == 1

    def test_restart_while_being_cancelled(self, stage: Stage) -> None:
        """A new attempt starts only once the one being cancelled has ended."""
        ending: Steps = [{"state": "RUNNING", "until": "ended"}, "CANCELLED"]
        stage.start(held(on_cancel=ending))
        first = stage.running()
        stage.driver.crash()
        stage.control.folder.mark("cancel", first)
        stage.driver.restart()
        stage.watched(first)
        stage.watched(first)
        assert stage.started == [first]
        stage.control.open("ended")
        stage.control.open("go")
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 2

    def test_logs_go_on_after_a_crash(self, stage: Stage) -> None:
        """After a crash, no line is missing in the log, and at most the last 50 come once more."""
        lines = tuple(f"line {n}." for n in range(80))
        stage.start(
            held(
                {"state": "RUNNING", "lines": ["line 80."], "seconds": 0.1},
                "SUCCEEDED",
                lines=lines,
            )
        )
        app_id = stage.running()
        stage.until(
            lambda: sum("line " in line for line in stage.driver.observe().logs) == 80, "80 lines"
        )
        stage.read_on(app_id)  # the orchestrator has gone on since: how far it came is noted
        stage.driver.crash()
        stage.driver.restart()
        stage.watched(app_id)
        stage.control.open("go")
        seen = stage.ended()
        found = [line[line.index("line ") :] for line in seen.logs if "line " in line]
        again = len(found) - 81
        assert 0 <= again <= 50, found
        assert found == [*lines, *lines[80 - again :], "line 80."]

    def test_transient_submit_error(self, stage: Stage) -> None:
        """A submit that may work later is a failure to retry, and nothing runs."""
        stage.start({"submit_error": "transient"})
        seen = stage.ended()
        self.is_failure(seen, self.submit_failed_state)
        assert seen.retryable is True
        assert stage.started == []
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_permanent_submit_error(self, stage: Stage) -> None:
        """A submit that cannot work is a failure that the orchestrator does not retry."""
        stage.start({"submit_error": "permanent"})
        seen = stage.ended()
        self.is_failure(seen, self.submit_failed_state)
        assert seen.retryable is False
        assert stage.started == []
