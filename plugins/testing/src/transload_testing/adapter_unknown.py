"""Scenarios in which the scheduler does not answer, or has lost the job."""

from __future__ import annotations

from transload.specs import AppState
from transload_testing.adapter_stage import AdapterSuite, Stage, held


class UnknownScenarios(AdapterSuite):
    """UNKNOWN, outages, vanished jobs."""

    def test_unknown_shorter_than_patience(self, stage: Stage) -> None:
        """UNKNOWN for a while changes nothing."""
        steps = [{"state": "RUNNING", "seconds": 0.1}, {"state": "UNKNOWN", "seconds": 0.3}]
        stage.start({"steps": [*steps, {"state": "RUNNING", "seconds": 0.1}, "SUCCEEDED"]})
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1
        assert stage.cancelled == []

    def test_query_errors_shorter_than_patience(self, stage: Stage) -> None:
        """Queries that fail for a while change nothing."""
        steps = [{"state": "RUNNING", "seconds": 0.1}, {"state": "UNAVAILABLE", "seconds": 0.3}]
        stage.start({"steps": [*steps, "SUCCEEDED"]})
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_unknown_longer_than_patience(self, stage: Stage) -> None:
        """A longer UNKNOWN is a failure, and the job is neither cancelled nor started again."""
        stage.start({"steps": [{"state": "RUNNING"}, {"state": "UNKNOWN"}]}, patience=0.3)
        seen = stage.ended()
        self.is_failure(seen, self.unknown_state)
        assert seen.retryable is not False
        assert stage.cancelled == []
        assert len(stage.started) == 1

    def test_unknown_bursts_do_not_add_up(self, stage: Stage) -> None:
        """Only UNKNOWN in a row counts."""
        burst = [{"state": "UNKNOWN", "seconds": 0.45}, {"state": "RUNNING", "seconds": 0.45}]
        stage.start({"steps": [*burst, *burst, *burst, "SUCCEEDED"]}, patience=1.2)
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_attach_after_patience_was_exhausted(self, stage: Stage) -> None:
        """The orchestrator's retry after UNKNOWN reattaches to the same job."""
        stage.start({"steps": [{"state": "UNKNOWN", "until": "known"}, "SUCCEEDED"]}, patience=0.3)
        self.is_failure(stage.ended(), self.unknown_state)
        stage.control.open("known")
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 1

    def test_outage_while_attaching(self, stage: Stage) -> None:
        """A restart that meets an outage waits, and never submits on a guess."""
        stage.start(held())
        app_id = stage.running()
        stage.driver.crash()
        stage.control.outage()
        stage.driver.restart()
        stage.watched(app_id)
        stage.watched(app_id)
        stage.control.outage(False)
        stage.control.open("go")
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert stage.started == [app_id]

    def test_outage_while_attaching_outlasts_patience(self, stage: Stage) -> None:
        """A restart during a long outage is a failure, not a second job."""
        stage.start(held(), patience=0.5)
        app_id = stage.running()
        stage.driver.crash()
        stage.control.outage()
        stage.driver.restart()
        self.is_failure(stage.ended(), self.unknown_state)
        stage.control.outage(False)
        assert stage.started == [app_id]
        assert stage.cancelled == []

    def test_outage_right_after_the_end(self, stage: Stage) -> None:
        """Results and last lines come through an outage that begins when the end was seen."""
        end = {"state": "SUCCEEDED", "lines": ["the last line"]}
        stage.start(held(end, results={"0": {"loss": 0.5}}, outage_at_end=1.0))
        stage.running()
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.SUCCEEDED)
        assert seen.results is not None
        assert seen.results["results"] == {"0": {"loss": 0.5}}
        assert "the last line" in "\n".join(seen.logs)
        assert len(stage.started) == 1

    def test_outage_after_the_end_of_a_failed_app(self, stage: Stage) -> None:
        """The message of a failure has the last lines, which came through an outage."""
        end = {"state": "FAILED", "lines": ["the reason"]}
        stage.start(held(end, outage_at_end=1.0))
        stage.running()
        stage.control.open("go")
        seen = stage.ended()
        self.is_state(seen, AppState.FAILED)
        assert "the reason" in seen.error
        assert len(stage.started) == 1

    def test_app_vanishes_while_polling(self, stage: Stage) -> None:
        """A job that is provably gone is lost, which is a failure without a silent resubmit."""
        stage.start(held())
        app_id = stage.running()
        stage.control.vanish(app_id)
        seen = stage.ended()
        self.is_failure(seen, self.lost_state)
        assert "lost" in seen.error
        assert stage.started == [app_id]

    def test_app_vanishes_without_a_record_while_polling(self, stage: Stage) -> None:
        """The same where the scheduler keeps no records of what it ran."""
        stage.start(held(forget=True))
        app_id = stage.running()
        stage.control.vanish(app_id, forget=True)
        self.is_failure(stage.ended(), self.lost_state)
        assert stage.started == [app_id]

    def test_app_vanishes_while_the_host_is_down(self, stage: Stage) -> None:
        """A restart reports a job that is gone as lost, and submits nothing."""
        stage.start(held())
        app_id = stage.running()
        stage.driver.crash()
        stage.control.vanish(app_id)
        stage.driver.restart()
        self.is_failure(stage.ended(), self.lost_state)
        assert stage.started == [app_id]

    def test_app_vanishes_without_a_record_while_the_host_is_down(self, stage: Stage) -> None:
        """A stored handle tells of a loss even where the scheduler keeps no records."""
        stage.start(held(forget=True))
        app_id = stage.running()
        stage.driver.crash()
        stage.control.vanish(app_id, forget=True)
        stage.driver.restart()
        self.is_failure(stage.ended(), self.lost_state)
        assert stage.started == [app_id]

    def test_retry_after_a_loss_is_a_new_attempt(self, stage: Stage) -> None:
        """Once the loss was reported, the orchestrator's retry starts a new attempt."""
        stage.start(held())
        first = stage.running()
        stage.control.vanish(first)
        self.is_failure(stage.ended(), self.lost_state)
        stage.control.open("go")
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 2
        assert stage.started[1] != first
