"""Scenarios about the identity of steps, and when a new run means a new job."""

from __future__ import annotations

import re

from transload.specs import AppState
from transload_testing.adapter_driver import HostJob
from transload_testing.adapter_stage import AdapterSuite, Stage, held
from transload_testing.scripted import scripted_app

_APP_ID = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")


class IdentityScenarios(AdapterSuite):
    """Names, namespaces, runs on purpose."""

    def _runs(self, stage: Stage, *jobs: HostJob) -> list[str]:
        for job in jobs:
            stage.start({}, job)
            self.is_state(stage.ended(), AppState.SUCCEEDED)
        return stage.started

    def test_running_again_on_purpose_runs_again(self, stage: Stage) -> None:
        """A run on purpose is a new job, also after success."""
        assert (
            len(set(self._runs(stage, HostJob(), HostJob(generation="1"), HostJob(generation="2"))))
            == 3
        )

    def test_equal_identities_in_two_namespaces_stay_apart(self, stage: Stage) -> None:
        """The same step in two runs or installations is two jobs."""
        assert len(set(self._runs(stage, HostJob(namespace="one"), HostJob(namespace="two")))) == 2

    def test_two_units_of_one_run_stay_apart(self, stage: Stage) -> None:
        """Two steps of one run are two jobs."""
        assert len(set(self._runs(stage, HostJob(name="one"), HostJob(name="two")))) == 2

    def test_names_that_look_alike_stay_apart(self, stage: Stage) -> None:
        """Names that differ only in what an id cannot hold are two jobs."""
        assert (
            len(
                set(
                    self._runs(stage, HostJob(name="a-b"), HostJob(name="a b"), HostJob(name="A_B"))
                )
            )
            == 3
        )

    def test_unicode_and_long_names(self, stage: Stage) -> None:
        """Any name gives a valid id, and no two the same."""
        names = ["日本語", "ü" * 300, "x" * 250, "x" * 251]
        found = self._runs(stage, *(HostJob(name=name, namespace="räum/✓") for name in names))
        assert len(set(found)) == len(names)
        for app_id in found:
            assert _APP_ID.match(app_id), app_id

    def test_new_generation_waits_for_the_old_app(self, stage: Stage) -> None:
        """A new run on purpose first cancels a dead orchestrator's job and waits for its end."""
        stage.start(held(on_cancel=[{"state": "RUNNING", "until": "ended"}, "CANCELLED"]))
        first = stage.running()
        stage.driver.crash()
        stage.start({}, HostJob(generation="1"))
        stage.until(lambda: stage.control.calls("cancel", first), "the old job is cancelled")
        stage.watched(first)
        stage.watched(first)
        assert stage.started == [first]
        stage.control.open("ended")
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 2

    def test_again_while_the_old_app_does_not_end(self, stage: Stage) -> None:
        """After the patience the run fails with the old job's name. A retry waits for it again."""
        stage.start(held(on_cancel=[{"state": "RUNNING", "until": "ended"}, "CANCELLED"]))
        first = stage.running()
        stage.driver.crash()
        stage.start({}, HostJob(generation="1"), patience=1.0)
        seen = stage.ended()
        self.is_failure(seen, self.unknown_state)
        assert first in seen.error
        assert seen.retryable is not False
        assert (stage.started, set(stage.cancelled)) == ([first], {first})
        stage.control.open("ended")
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 2

    def test_again_with_detach_waits_for_the_old_app(self, stage: Stage) -> None:
        """A new run on purpose only waits for the end of a job that is to be left alone."""
        stage.start(held(), on_kill="detach")
        first = stage.running()
        stage.driver.crash()
        stage.start({}, HostJob(generation="1"), on_kill="detach")
        stage.reported("waiting for its end")
        stage.watched(first)
        assert stage.started == [first]
        stage.control.open("go")
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 2
        assert stage.cancelled == []

    def test_again_after_its_apps_were_deleted(self, stage: Stage) -> None:
        """A new run on purpose is a new job, and no id of an earlier one is used once more."""
        earlier = self._runs(stage, HostJob(), HostJob(generation="1"))
        for app_id in earlier:
            stage.control.vanish(app_id)
        stage.start({}, HostJob(generation="2"))
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(set(stage.started)) == 3

    def test_a_try_that_is_over_touches_nothing(self, stage: Stage) -> None:
        """A try of before somebody ran the step again leaves the job of the later one alone."""
        stage.start(held(), HostJob(generation="1"))
        first = stage.running()
        stage.driver.crash()
        stage.start({}, HostJob(generation="0"))
        seen = stage.ended()
        assert seen.results is None
        assert "later try" in seen.error
        assert (stage.started, stage.cancelled) == ([first], [])

    def test_an_app_of_another_installation_is_refused_while_it_runs(self, stage: Stage) -> None:
        """It is neither taken over nor ended. After its end the step has a job of its own."""
        stage.start(held())
        first = stage.running()
        stage.driver.crash()
        stage.start({}, HostJob(began="tuesday"))
        seen = stage.ended()
        self.is_failure(seen, self.refused_state)
        assert seen.retryable is False
        assert "transload cancel scripted://" in seen.error and first in seen.error
        assert (stage.started, stage.cancelled) == ([first], [])
        stage.control.open("go")
        stage.driver.restart()
        self.is_state(stage.ended(), AppState.SUCCEEDED)
        assert len(stage.started) == 2

    def test_two_hosts_at_once_share_one_job(self, stage: Stage) -> None:
        """An old process that seemed dead and the new one have the same job."""
        stage.start(held())
        app_id = stage.running()
        twin = stage.another_driver()
        try:
            twin.start(scripted_app("app", held()).to_json(), stage.job)
            stage.watched(app_id)
            stage.control.open("go")
            self.is_state(stage.ended(), AppState.SUCCEEDED)
            stage.until(lambda: twin.observe().state is not None, "the twin ends as well")
            self.is_state(twin.observe(), AppState.SUCCEEDED)
        finally:
            twin.close()
        assert stage.started == [app_id]
