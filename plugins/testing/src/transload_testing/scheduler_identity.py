"""Tests of ids, which reattach, refuse and stay known, and of descriptions."""

from __future__ import annotations

import time
import uuid
from typing import get_args

import pytest

from transload.errors import AppExists, SchedulerUnavailable
from transload.runner import log_lines
from transload.schedulers.api import LogQuery
from transload.specs import AppState
from transload_testing.scheduler_stage import (
    Damage,
    Program,
    SchedulerStage,
    SchedulerSuite,
    submits_once,
)


class IdentityTests(SchedulerSuite):
    """Tests of unknown jobs, reattaching, deletion, lists and watches."""

    def test_unknown_app(self, stage: SchedulerStage) -> None:
        """A job that never existed is None, not UNKNOWN."""
        assert stage.scheduler.describe("suite-never-was") is None
        assert not stage.scheduler.existed("suite-never-was")
        assert stage.scheduler.describe_many(["suite-never-was"]) == {"suite-never-was": None}
        assert stage.scheduler.cancel("suite-never-was") is False
        if stage.scheduler.capabilities.delete:
            assert stage.scheduler.delete("suite-never-was") is False

    @submits_once
    def test_same_id_same_app_is_adopted(self, stage: SchedulerStage) -> None:
        """A second submit of the same job under the same id starts nothing.

        This holds while it runs and after its end.
        """
        app = stage.app(Program(out=("once",), seconds=0.2))
        app_id = stage.submit(app)
        assert stage.start(app, app_id) is False
        assert stage.ended(app_id).state is AppState.SUCCEEDED
        assert stage.start(app, app_id) is False
        assert stage.everything(app_id) == ["once\n"]
        assert [row.app_id for row in stage.scheduler.list()].count(app_id) == 1

    @submits_once
    def test_same_id_other_app_is_refused(self, stage: SchedulerStage) -> None:
        """The id of another job is refused, and that job goes on."""
        app_id = stage.submit(stage.app(Program(out=("first",), seconds=0.2)))
        with pytest.raises(AppExists):
            stage.start(stage.app(Program(out=("second",))), app_id)
        assert stage.ended(app_id).state is AppState.SUCCEEDED
        assert stage.everything(app_id) == ["first\n"]

    @submits_once
    def test_submit_says_that_it_started(self, stage: SchedulerStage) -> None:
        """The first submit of an id returns True."""
        assert stage.start(stage.app(Program()), "suite-first") is True

    def test_delete_forgets_the_app_and_keeps_the_record(self, stage: SchedulerStage) -> None:
        """A deleted job is gone, but the scheduler remembers that its given id was used.

        Deleting it again does nothing.
        """
        app_id = stage.submit(stage.app(Program()), id_given=True)
        assert stage.scheduler.existed(app_id)
        stage.ended(app_id)
        _must_delete(stage)
        assert stage.scheduler.delete(app_id) is True
        assert stage.scheduler.delete(app_id) is False
        assert stage.scheduler.describe(app_id) is None
        assert stage.scheduler.existed(app_id)
        assert app_id not in [row.app_id for row in stage.scheduler.list()]

    def test_chain(self, stage: SchedulerStage) -> None:
        """The jobs of a chain are found by one question, in their order, and no others.

        The words of whoever asked are kept with each of them.
        """
        chain = f"suite-{uuid.uuid4().hex[:8]}"
        assert list(stage.scheduler.chain(chain)) == []
        app = stage.app(Program())
        asked = {"try": 1, "start": "2026-11-28T07:00:00+00:00", "none": None, "more": {"a": [1.5]}}
        stage.submit(app, f"{chain}-0", asked=asked)
        stage.submit(app, f"{chain}-1")
        stage.submit(app, f"{chain}-10", asked={"try": 11})
        for other in (f"{chain}x-2", f"x-{chain}-2", f"{chain}-a", f"{chain}-2-2", f"{chain}-02"):
            stage.submit(app, other)
        found = list(stage.scheduler.chain(chain))
        assert [number for number, _ in found] == [0, 1, 10]
        assert [each and each.asked for _, each in found] == [asked, {}, {"try": 11}]
        described = stage.scheduler.describe(f"{chain}-0")
        assert described is not None and described.asked == asked

    @submits_once
    def test_who_asked_is_no_part_of_a_definition(self, stage: SchedulerStage) -> None:
        """A later try that submits the same job under its id finds it, and the first words stay."""
        app = stage.app(Program(out=("once",)))
        app_id = stage.submit(app, asked={"try": 1})
        assert stage.start(app, app_id, asked={"try": 2}) is False
        description = stage.scheduler.describe(app_id)
        assert description is not None and description.asked == {"try": 1}

    def test_chain_knows_deleted_jobs(self, stage: SchedulerStage) -> None:
        """A job of a chain that was deleted keeps its number."""
        _must_delete(stage)
        chain = f"suite-{uuid.uuid4().hex[:8]}"
        app = stage.app(Program())
        for number in range(3):
            stage.submit(app, f"{chain}-{number}")
            stage.ended(f"{chain}-{number}")
        for number in (0, 2):
            assert stage.scheduler.delete(f"{chain}-{number}") is True
        other = self.make_scheduler(stage.folder)
        try:
            found = list(other.chain(chain))
        finally:
            other.close()
        assert [(number, each is None) for number, each in found] == [
            (0, True),
            (1, False),
            (2, True),
        ]

    def test_delete_ends_a_running_app(self, stage: SchedulerStage) -> None:
        """Deleting a running job ends it first."""
        app_id = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(app_id, said="up")
        _must_delete(stage)
        assert stage.scheduler.delete(app_id) is True
        stage.until(lambda: stage.scheduler.describe(app_id) is None, "the job is gone")

    def test_description(self, stage: SchedulerStage) -> None:
        """A job is described as it was submitted.

        The description has its definition, digest, session, parent run, options and time.
        """
        before = time.time()
        app = stage.app(Program(), env={"API_TOKEN": "hunter2-value", "PLAIN": "shown"})
        app.arguments = {"lr": 0.1}
        app_id = stage.submit(app, session="mine", parent_run_id="search/a")
        found = stage.scheduler.describe(app_id)
        assert found is not None
        assert found.app_id == app_id
        assert (found.session, found.parent_run_id) == ("mine", "search/a")
        assert found.digest in (app.digest(), None)
        assert found.created is None or before - 60 < found.created < time.time() + 60
        if found.app is not None:
            assert found.app.name == app.name
            assert found.app.arguments == {"lr": 0.1}
            assert found.app.roles[0].env["PLAIN"] == "shown"
            assert "hunter2-value" not in found.app.to_json()

    def test_describe_many_is_describe_for_each(self, stage: SchedulerStage) -> None:
        """One query for many jobs gives the same as a query for each of them."""
        good = stage.submit(stage.app(Program()))
        bad = stage.submit(stage.app(Program(exit_code=2)))
        stage.ended(good)
        stage.ended(bad)
        found = stage.scheduler.describe_many([good, bad, "suite-never-was"])
        states = {app_id: each and each.status.state for app_id, each in found.items()}
        assert states == {good: AppState.SUCCEEDED, bad: AppState.FAILED, "suite-never-was": None}
        assert stage.scheduler.describe_many([]) == {}

    def test_list(self, stage: SchedulerStage) -> None:
        """Jobs are listed with id and state."""
        app_id = stage.submit(stage.app(Program()))
        stage.ended(app_id)
        (row,) = [row for row in stage.scheduler.list() if row.app_id == app_id]
        assert row.state is AppState.SUCCEEDED

    @pytest.mark.parametrize("damage", get_args(Damage))
    def test_damaged_record(self, stage: SchedulerStage, damage: Damage) -> None:
        """A job whose record is damaged hides no other, and can be deleted.

        It is listed, and says what to type.
        """
        good = stage.submit(stage.app(Program()))
        bad = stage.submit(stage.app(Program()))
        stage.ended(good)
        stage.ended(bad)
        self._damage(stage, bad, damage)
        other = self.make_scheduler(stage.folder)
        try:
            assert {good, bad} <= {row.app_id for row in other.list()}
            found = other.describe_many([good, bad, "suite-never-was"])
            assert found[good] is not None and found["suite-never-was"] is None
            for shown in (found[bad], other.describe(bad)):
                assert shown is not None
                assert (
                    "is damaged" in shown.status.msg
                    and "`transload delete --force`" in shown.status.msg
                )
            assert other.existed(bad)
            with pytest.raises(AppExists, match="is damaged"):
                stage.start(stage.app(Program()), bad)
            with pytest.raises(SchedulerUnavailable, match="is damaged"):
                other.log_read(bad, LogQuery("main", 0, stage.stream))
            assert other.delete(bad) is True
            assert other.describe(bad) is None
            assert other.delete(bad) is False
            assert [row.app_id for row in other.list()] == [good]
        finally:
            other.close()

    def test_damaged_record_of_a_running_app(self, stage: SchedulerStage) -> None:
        """A running job with a damaged record is ended before it is deleted."""
        app_id = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(app_id, said="up")
        self._damage(stage, app_id, "truncated")
        other = self.make_scheduler(stage.folder)
        try:
            assert other.delete(app_id) is True
            assert other.describe(app_id) is None
        finally:
            other.close()

    def _damage(self, stage: SchedulerStage, app_id: str, damage: Damage) -> None:
        if not stage.scheduler.capabilities.delete:
            pytest.skip("this scheduler cannot delete jobs")
        if not self.damage_record(stage.folder, app_id, damage):
            pytest.skip(f"what this scheduler keeps does not become so: {damage}")

    def test_another_process_sees_and_cancels(self, stage: SchedulerStage) -> None:
        """Another scheduler object of the same user sees the job, reads its log, cancels it."""
        if stage.scheduler.capabilities.reachable_from == "process":
            pytest.skip("jobs can be seen by the submitting process only")
        app_id = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(app_id, said="up")
        other = self.make_scheduler(stage.folder)
        try:
            found = other.describe(app_id)
            assert found is not None
            assert found.status.state is AppState.RUNNING
            assert other.existed(app_id)
            assert list(log_lines(other, app_id, "main", 0)) == ["up\n"]
            other.cancel(app_id)
        finally:
            other.close()
        assert stage.ended(app_id).state is AppState.CANCELLED

    def test_app_goes_on_when_the_scheduler_object_is_closed(self, stage: SchedulerStage) -> None:
        """Closing the scheduler object, even twice, does not end the job."""
        if stage.scheduler.capabilities.reachable_from == "process":
            pytest.skip("jobs end with the submitting process")
        app_id = stage.submit(stage.app(Program(seconds=0.2, out=("done",))))
        first, stage.scheduler = stage.scheduler, self.make_scheduler(stage.folder)
        first.close()
        first.close()
        try:
            assert stage.ended(app_id).state is AppState.SUCCEEDED
        finally:
            if stage.scheduler.capabilities.delete:
                stage.scheduler.delete(app_id)
            stage.scheduler.close()
            stage.scheduler = first

    def test_watch(self, stage: SchedulerStage) -> None:
        """A watch reports that a job may have changed, and can be woken."""
        watch = stage.scheduler.watch()
        if watch is None:
            pytest.skip("this scheduler can only be asked")
        try:
            app_id = stage.submit(stage.app(Program(seconds=0.1)))
            watch.update([app_id])
            end = time.monotonic() + self.timeout
            while not stage.status(app_id).is_terminal():
                assert time.monotonic() < end, "the watch did not tell of the end"
                watch.wait(5.0)
            watch.update([])
            watch.wake()
            assert watch.wait(self.timeout) <= {app_id}
        finally:
            watch.close()


def _must_delete(stage: SchedulerStage) -> None:
    if not stage.scheduler.capabilities.delete:
        pytest.skip("this scheduler cannot delete jobs")
