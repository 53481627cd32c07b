"""Tests of ids, which reattach, refuse and stay known, and of descriptions."""

from __future__ import annotations

import os
import time
from typing import get_args

import pytest

from transload.errors import AppExists, AppNotFound, SchedulerUnavailable
from transload.runner import Job
from transload.schedulers import Changes
from transload.schedulers.asked import host_words
from transload.specs import AppState
from transload_testing.scheduler_stage import (
    Damage,
    Program,
    SchedulerStage,
    SchedulerSuite,
    fresh_id,
    submits_once,
)


class IdentityTests(SchedulerSuite):
    """Tests of unknown jobs, reattaching, deletion, lists and watches."""

    def test_unknown_app(self, stage: SchedulerStage) -> None:
        """A job that never existed is None, not UNKNOWN, and cannot be cancelled."""
        job = stage.job("suite-never-was")
        assert job.status() is None
        assert job.description() is None
        assert not stage.scheduler.existed(job.app_id)
        with pytest.raises(AppNotFound):
            job.cancel()
        if stage.offers("delete"):
            job.delete()

    @submits_once
    def test_same_id_same_app_is_adopted(self, stage: SchedulerStage) -> None:
        """A second submit of the same job under the same id starts nothing.

        This holds while it runs and after its end.
        """
        app = stage.app(Program(out=("once",), seconds=0.2))
        first = stage.plan(app, "suite-once")
        job = stage.start(first)
        while_it_runs = stage.plan(app, job.app_id)
        stage.start(while_it_runs)
        assert stage.ended(job).state is AppState.SUCCEEDED
        after_its_end = stage.plan(app, job.app_id)
        stage.start(after_its_end)
        plans = (first, while_it_runs, after_its_end)
        assert [each.reattached for each in plans] == [False, True, True]
        assert stage.everything(job) == ["once\n"]
        assert job.app_id in stage.listed()

    @submits_once
    def test_same_id_other_app_is_refused(self, stage: SchedulerStage) -> None:
        """The id of another job is refused, and that job goes on."""
        job = stage.submit(stage.app(Program(out=("first",), seconds=0.2)))
        with pytest.raises(AppExists):
            stage.submit(stage.app(Program(out=("second",))), job.app_id)
        assert stage.ended(job).state is AppState.SUCCEEDED
        assert stage.everything(job) == ["first\n"]

    def test_delete_forgets_the_app_and_keeps_the_record(self, stage: SchedulerStage) -> None:
        """A deleted job is gone, but the scheduler remembers that its given id was used.

        Deleting it again does nothing.
        """
        job = stage.submit(stage.app(Program()))
        assert stage.scheduler.existed(job.app_id)
        stage.ended(job)
        _must_delete(stage)
        job.delete()
        job.delete()
        assert job.status() is None
        assert stage.scheduler.existed(job.app_id)
        assert job.app_id not in stage.listed()

    def test_chain(self, stage: SchedulerStage) -> None:
        """The jobs of a chain are found by one question, in their order, and no others.

        The words of whoever asked are kept with each of them.
        """
        chain = fresh_id()
        assert list(stage.scheduler.chain(chain)) == []
        app = stage.app(Program())
        asked = {"try": 1, "start": "2026-11-28T07:00:00+00:00", "none": None, "more": {"a": [1.5]}}
        stage.submit(app, f"{chain}-0", asked={"host": asked})
        stage.submit(app, f"{chain}-1")
        stage.submit(app, f"{chain}-2", asked={"host": {"try": 3}})
        for other in (f"{chain}x-2", f"x-{chain}-2", f"{chain}-a", f"{chain}-2-2", f"{chain}-02"):
            stage.submit(app, other)
        found = list(stage.scheduler.chain(chain))
        assert [number for number, _ in found] == [0, 1, 2]
        assert [host_words(each.asked, "host") for _, each in found if each] == [
            asked,
            {},
            {"try": 3},
        ]
        described = stage.job(f"{chain}-0").description()
        assert described is not None and host_words(described.asked, "host") == asked

    def test_who_asked(self, stage: SchedulerStage) -> None:
        """A description says which user asked for a job, on which machine and from which folder."""
        description = stage.submit(stage.app(Program())).description()
        assert description is not None
        assert description.asked["machine"] == os.uname().nodename
        assert description.asked["folder"] == os.getcwd()
        assert description.asked["user"]

    @submits_once
    def test_who_asked_is_no_part_of_a_definition(self, stage: SchedulerStage) -> None:
        """A later try that submits the same job under its id finds it, and the first words stay."""
        app = stage.app(Program(out=("once",)))
        job = stage.submit(app, asked={"host": {"try": 1}})
        later = stage.plan(app, job.app_id, asked={"host": {"try": 2}})
        stage.start(later)
        assert later.reattached
        description = job.description()
        assert description is not None
        assert host_words(description.asked, "host") == {"try": 1}

    def test_chain_knows_deleted_jobs(self, stage: SchedulerStage) -> None:
        """A job of a chain that was deleted keeps its number."""
        _must_delete(stage)
        chain = fresh_id()
        app = stage.app(Program())
        jobs = [stage.submit(app, f"{chain}-{number}") for number in range(3)]
        for job in jobs:
            stage.ended(job)
        for job in (jobs[0], jobs[2]):
            job.delete()
        with stage.another() as other:
            found = list(other.scheduler.chain(chain))
        assert [(number, each is None) for number, each in found] == [
            (0, True),
            (1, False),
            (2, True),
        ]

    def test_delete_ends_a_running_app(self, stage: SchedulerStage) -> None:
        """Deleting a running job ends it first."""
        job = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(job, said="up")
        _must_delete(stage)
        job.delete()
        stage.until(lambda: job.status() is None, "the job is gone")

    def test_description(self, stage: SchedulerStage) -> None:
        """A job is described as it was submitted.

        The description has its definition, digest, session, parent run, options and time.
        """
        before = time.time()
        app = stage.app(Program(), env={"API_TOKEN": "hunter2-value", "PLAIN": "shown"})
        app.arguments = {"lr": 0.1}
        with stage.another("mine") as other:
            job = other.submit(app, parent_run_id="search/a")
        found = job.description()
        assert found is not None
        assert found.app_id == job.app_id
        assert (found.session, found.parent_run_id) == ("mine", "search/a")
        assert found.digest in (app.digest(), None)
        assert found.created is None or before - 60 < found.created < time.time() + 60
        if found.app is not None:
            assert found.app.name == app.name
            assert found.app.arguments == {"lr": 0.1}
            assert found.app.roles[0].env["PLAIN"] == "shown"
            assert "hunter2-value" not in found.app.to_json()

    def test_many_are_asked_at_once(self, stage: SchedulerStage) -> None:
        """One question for many jobs gives the same as a question for each of them."""
        good = stage.submit(stage.app(Program()))
        bad = stage.submit(stage.app(Program(exit_code=2)))
        unknown = stage.job("suite-never-was")
        stage.ended(good)
        stage.ended(bad)
        found = stage.runner.status_many([good.handle, bad.handle, unknown.handle])
        states = {handle: status and status.state for handle, status in found.items()}
        assert states == {
            good.handle: AppState.SUCCEEDED,
            bad.handle: AppState.FAILED,
            unknown.handle: None,
        }
        assert stage.runner.status_many([]) == {}

    def test_list(self, stage: SchedulerStage) -> None:
        """Jobs are listed with id, state, and the handle of their submit, whoever lists them."""
        job = stage.submit(stage.app(Program()))
        stage.ended(job)
        assert stage.listed()[job.app_id].state is AppState.SUCCEEDED
        with stage.another("another") as other:
            assert other.listed()[job.app_id].app_handle == job.handle

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
        with stage.another() as other:
            assert {good.app_id, bad.app_id} <= other.listed().keys()
            found = other.runner.status_many([good.handle, bad.handle])
            assert found[good.handle] is not None
            damaged = other.job(bad.app_id)
            for shown in (found[bad.handle], damaged.status()):
                assert shown is not None
                assert "is damaged" in shown.msg
                assert "`transload delete --force`" in shown.msg
            assert other.scheduler.existed(bad.app_id)
            with pytest.raises(AppExists, match="is damaged"):
                other.submit(other.app(Program()), bad.app_id)
            with pytest.raises(SchedulerUnavailable, match="is damaged"):
                other.page(damaged)
            damaged.delete()
            assert damaged.status() is None
            damaged.delete()
            assert list(other.listed()) == [good.app_id]

    def test_damaged_record_of_a_running_app(self, stage: SchedulerStage) -> None:
        """A running job with a damaged record is ended before it is deleted."""
        job = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(job, said="up")
        self._damage(stage, job, "truncated")
        with stage.another() as other:
            other.job(job.app_id).delete()
            assert other.job(job.app_id).status() is None

    def _damage(self, stage: SchedulerStage, job: Job, damage: Damage) -> None:
        if not stage.offers("delete"):
            pytest.skip("this scheduler cannot delete jobs")
        if not self.damage_record(stage.folder, job.app_id, damage):
            pytest.skip(f"what this scheduler keeps does not become so: {damage}")

    def test_another_process_sees_and_cancels(self, stage: SchedulerStage) -> None:
        """Another process of the same user sees the job, reads its log, cancels it."""
        if stage.scheduler.reach == "process":
            pytest.skip("jobs can be seen by the submitting process only")
        job = stage.submit(stage.app(Program(out=("up",), hold=True)))
        stage.running(job, said="up")
        with stage.another() as other:
            seen = other.job(job.app_id)
            assert other.status(seen).state is AppState.RUNNING
            assert other.lines(seen) == ["up\n"]
            seen.cancel()
        assert stage.ended(job).state is AppState.CANCELLED

    def test_app_goes_on_when_the_runner_is_closed(self, stage: SchedulerStage) -> None:
        """Closing a runner, even twice, does not end the job."""
        if stage.scheduler.reach == "process":
            pytest.skip("jobs end with the submitting process")
        with stage.another() as other:
            job = other.submit(other.app(Program(seconds=0.2, out=("done",))))
            other.runner.close()
        assert stage.ended(stage.job(job.app_id)).state is AppState.SUCCEEDED

    def test_watch(self, stage: SchedulerStage) -> None:
        """A watch reports that a job may have changed."""
        changes = Changes()
        watch = stage.scheduler.watch(changes.add)
        if watch is None:
            pytest.skip("this scheduler can only be asked")
        try:
            job = stage.submit(stage.app(Program(seconds=0.1)))
            watch.update([job.app_id])
            end = time.monotonic() + self.timeout
            while not stage.status(job).is_terminal():
                assert time.monotonic() < end, "the watch did not tell of the end"
                changes.wait(5.0)
            watch.update([])
        finally:
            watch.close()


def _must_delete(stage: SchedulerStage) -> None:
    if not stage.offers("delete"):
        pytest.skip("this scheduler cannot delete jobs")
