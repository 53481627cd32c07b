"""A person's "again" is one job, the right one, on every Airflow that is supported.

No server is started. `orm_airflow.py` plays the scheduler and the people on Airflow's own database.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.execution_time import context as sdk_context
from orm_airflow import OrmAirflow
from scripts import held

from transload.pipelines import host_runner
from transload.runner import Cluster
from transload.schedulers import AppDescription
from transload.specs import AppStatus
from transload_testing import ScriptedControl

Eventually = Callable[..., Any]

SLOW_END = {"on_cancel": [{"state": "RUNNING", "until": "ended"}, "CANCELLED"]}
"""Of a job that takes its time to end once it is cancelled."""


@pytest.fixture
def jobs(control: ScriptedControl, eventually: Eventually) -> Jobs:
    """The jobs that were submitted."""
    return Jobs(control, eventually)


class Jobs:
    """The jobs that were submitted, oldest first."""

    def __init__(self, control: ScriptedControl, eventually: Eventually) -> None:
        self.control = control
        self._eventually = eventually

    def __len__(self) -> int:
        return len(self.control.started())

    def __getitem__(self, index: int) -> str:
        return self.control.started()[index]

    def status(self, index: int) -> AppStatus:
        """Return how a job is."""
        return self._described(index).status

    def asked(self, index: int) -> dict[str, Any]:
        """Return Airflow's words of the try that asked for a job."""
        return dict(self._described(index).asked["airflow"])

    def _described(self, index: int) -> AppDescription:
        folder = str(self.control.folder.root)
        place = Cluster("scripted", "scripted", {"scripted_dir": folder})
        runner = host_runner("test", clusters=[place])
        described = runner.job(f"scripted://test/{self[index]}").description()
        assert described is not None
        return described

    def running(self) -> int:
        """Return how many jobs have not ended."""
        return sum(not self.status(index).is_terminal() for index in range(len(self)))

    def cancelled(self, index: int) -> bool:
        """Tell whether a job's end was asked for."""
        return bool(self.control.calls("cancel", self[index]))

    def wait(self, count: int) -> None:
        """Wait until so many jobs were submitted."""
        self._eventually(lambda: len(self) >= count, 100, f"{count} jobs")
        assert len(self) == count

    def wait_until_cancelled(self, index: int) -> None:
        """Wait until a job's end was asked for."""
        self._eventually(lambda: self.cancelled(index), 100, f"a cancel of job {index}")

    def wait_until_asked(self, index: int, times: int = 2) -> None:
        """Wait until the scheduler was asked about a job so many times more."""

        def count() -> int:
            return len(self.control.calls("describe"))

        before = count()
        self._eventually(lambda: count() >= before + times, 100, f"questions about job {index}")

    def go(self, index: int = -1, gate: str = "go") -> None:
        """Open the gate of a job."""
        self.control.open(gate, self[index])

    def numbers(self) -> list[str]:
        """Return the last part of each id."""
        return [each.rpartition("-")[2] for each in self.control.started()]


def lose_worker(host: OrmAirflow, jobs: Jobs, index: int = -1) -> None:
    """Run a try until it has a job, and kill it. Airflow then waits for a retry."""
    count = len(jobs)
    attempt = host.begin(index)
    jobs.wait(count + 1)
    attempt.end(signal.SIGKILL)
    host.report_end(failed=True, index=index)


def succeed(host: OrmAirflow, index: int = -1) -> None:
    """Run a try, which succeeds."""
    host.begin(index).wait()
    assert host.state(index) == "success"


# -- Airflow comes back by itself


def test_retry_of_a_failed_job(host: OrmAirflow, jobs: Jobs) -> None:
    """A job that failed is followed by a second one."""
    host.define({"steps": ["FAILED"]}, retries=1)
    host.trigger()
    host.begin().wait()
    assert host.state() == "up_for_retry"
    host.begin().wait()
    assert host.state() == "failed"
    assert len(jobs) == 2


def test_retry_of_a_lost_worker(host: OrmAirflow, jobs: Jobs) -> None:
    """A job whose worker died is found by the retry, also if ``retries`` was edited meanwhile."""
    host.define(held(), retries=2)
    host.trigger()
    lose_worker(host, jobs)
    host.define(retries=5)
    attempt = host.begin()
    jobs.wait_until_asked(0)
    jobs.go()
    attempt.wait()
    assert host.state() == "success"
    assert len(jobs) == 1
    assert not jobs.cancelled(0)


def test_more_memory_for_the_retry(host: OrmAirflow, jobs: Jobs) -> None:
    """A job whose worker died is found by a retry that would ask for more memory."""
    host.define(held(), retries=1, mem="1 GiB")
    host.trigger()
    lose_worker(host, jobs)
    host.define(mem="2 GiB")
    attempt = host.begin()
    jobs.wait_until_asked(0)
    jobs.go()
    attempt.wait()
    assert host.state() == "success"
    assert len(jobs) == 1


@pytest.mark.skipif(
    not hasattr(sdk_context, "NEVER_EXPIRE"),
    reason="Airflow keeps the handle from 3.3 on",
)
def test_another_scheduler_for_the_retry(host: OrmAirflow, jobs: Jobs, tmp_path: Path) -> None:
    """A job whose worker died is found by a retry whose settings name another place."""
    other = ScriptedControl(tmp_path / "other")
    table = f"schedulers.other = {{ kind = 'scripted', scripted_dir = '{other.folder.root}' }}"
    host.environment["TRANSLOAD_SETTINGS"] = table
    host.define(held(), retries=1)
    host.trigger()
    attempt = host.begin()
    jobs.wait(1)
    jobs.wait_until_asked(0)  # the handle was kept before
    attempt.end(signal.SIGKILL)
    host.report_end(failed=True)
    host.define(scheduler="other")
    attempt = host.begin()
    jobs.wait_until_asked(0)
    jobs.go()
    attempt.wait()
    assert host.state() == "success"
    assert len(jobs) == 1
    assert other.started() == []


def test_who_asked(host: OrmAirflow, jobs: Jobs) -> None:
    """A job leads to the run and the task that it was submitted for."""
    host.define({"steps": ["SUCCEEDED"]})
    host.trigger()
    succeed(host)
    asked = jobs.asked(0)
    assert (asked["task"], asked["try"], asked["map_index"]) == ("job", 1, -1)
    assert asked["dag"] and asked["run"]


def test_deferral(host: OrmAirflow, jobs: Jobs) -> None:
    """A deferred task collects the job that its trigger has waited for."""
    host.define(held(), deferrable=True)
    host.trigger()
    host.begin().wait()
    assert host.state() == "deferred"
    jobs.go()
    host.fire()
    host.resume().wait()
    assert host.state() == "success"
    assert len(jobs) == 1


def test_deferral_of_a_job_that_fails(host: OrmAirflow, jobs: Jobs) -> None:
    """A job that failed while its task was deferred is not started again by the same try."""
    host.define(held("FAILED"), deferrable=True, retries=1)
    host.trigger()
    host.begin().wait()
    jobs.go()
    host.fire()
    host.resume().wait()
    assert host.state() == "up_for_retry"
    assert len(jobs) == 1
    host.begin().wait()
    assert host.state() == "deferred"
    assert len(jobs) == 2


def test_deferral_of_a_job_that_is_gone(host: OrmAirflow, jobs: Jobs) -> None:
    """A job that vanished while its task was deferred is not started again by the same try."""
    host.define(held("GONE"), deferrable=True)
    host.trigger()
    host.begin().wait()
    jobs.go()
    host.fire()
    host.resume().wait()
    assert host.state() == "failed"
    assert len(jobs) == 1


def test_trigger_that_breaks(host: OrmAirflow, jobs: Jobs) -> None:
    """A trigger that failed is no failure of the job: the task waits in place."""
    host.define(held(), deferrable=True)
    host.trigger()
    host.begin().wait()
    host.break_trigger()
    attempt = host.resume()
    jobs.wait_until_asked(0)
    jobs.go()
    attempt.wait()
    assert host.state() == "success"
    assert len(jobs) == 1


# -- somebody clears the task


def test_clear_after_success(host: OrmAirflow, jobs: Jobs) -> None:
    """A task that succeeded runs a second job."""
    host.define({}, retries=1)
    host.trigger()
    succeed(host)
    host.clear()
    succeed(host)
    assert len(jobs) == 2
    assert not jobs.cancelled(0)
    host.finish_run()
    host.clear()
    succeed(host)
    assert len(jobs) == 3


def test_clear_after_failure(host: OrmAirflow, jobs: Jobs) -> None:
    """A task that failed runs a second job."""
    host.define({"steps": ["FAILED"]})
    host.trigger()
    host.begin().wait()
    assert host.state() == "failed"
    host.clear()
    host.begin().wait()
    assert len(jobs) == 2


def test_clear_while_it_waits_for_a_retry(host: OrmAirflow, jobs: Jobs) -> None:
    """The job of a dead worker is cancelled, and has ended before the second one starts."""
    host.define(held(**SLOW_END), retries=1)
    host.trigger()
    lose_worker(host, jobs)
    assert host.state() == "up_for_retry"
    host.clear()
    attempt = host.begin()
    jobs.wait_until_cancelled(0)
    jobs.wait_until_asked(0)
    assert len(jobs) == 1
    jobs.go(0, "ended")
    jobs.wait(2)
    assert jobs.running() == 1
    jobs.go()
    attempt.wait()
    assert host.state() == "success"


@pytest.mark.parametrize("on_kill", ["cancel", "detach"])
def test_clear_while_deferred(host: OrmAirflow, jobs: Jobs, on_kill: str) -> None:
    """The job of a deferred task ends before the second one starts, also with no triggerer."""
    host.define(held(**SLOW_END), deferrable=True, on_kill=on_kill)
    host.trigger()
    host.begin().wait()
    assert host.state() == "deferred"
    host.clear()
    attempt = host.begin()
    if on_kill == "cancel":
        jobs.wait_until_cancelled(0)
    jobs.wait_until_asked(0)
    assert len(jobs) == 1
    jobs.go(0, "ended" if on_kill == "cancel" else "go")
    jobs.wait(2)
    assert jobs.cancelled(0) is (on_kill == "cancel")
    attempt.wait()
    assert host.state() == "deferred"
    assert len(jobs) == 2


def test_clear_while_running(host: OrmAirflow, jobs: Jobs) -> None:
    """The task's process is ended and cancels the job, and the next try starts the second one."""
    host.define(held())
    host.trigger()
    attempt = host.begin()
    jobs.wait(1)
    host.clear()
    assert host.state() == "restarting"
    attempt.end(signal.SIGTERM)
    assert jobs.cancelled(0)
    host.report_end(failed=False)
    again = host.begin()
    jobs.wait(2)
    assert jobs.running() == 1
    jobs.go()
    again.wait()
    assert host.state() == "success"


def test_clear_while_running_and_lose_the_worker(host: OrmAirflow, jobs: Jobs) -> None:
    """If the process of a cleared task dies before it has cancelled, no second job runs beside."""
    host.define(held(), retries=1)
    host.trigger()
    attempt = host.begin()
    jobs.wait(1)
    host.clear()
    attempt.end(signal.SIGKILL)
    host.report_end(failed=True)
    again = host.begin()
    jobs.wait_until_asked(0, 4)
    assert jobs.running() == 1
    jobs.go()
    again.wait()
    assert host.state() == "success"


@pytest.mark.parametrize("retries", [(1, 4), (3, 2), (5, 0), (0, 3)])
def test_clear_with_other_retries(host: OrmAirflow, jobs: Jobs, retries: tuple[int, int]) -> None:
    """An edit of ``retries`` does not hide that somebody has cleared the task."""
    host.define({}, retries=retries[0])
    host.trigger()
    succeed(host)
    host.define(retries=retries[1])
    host.clear()
    succeed(host)
    assert len(jobs) == 2


def test_clear_with_retries_that_were_used_before(host: OrmAirflow, jobs: Jobs) -> None:
    """Each clear has its own job, when the numbers come back to what they were."""
    host.define({}, retries=3)
    host.trigger()
    for number, retries in enumerate([3, 2, 1, 0, 3], start=1):
        host.define(retries=retries)
        succeed(host)
        assert len(jobs) == number
        host.clear()


def test_clear_of_a_running_job_with_other_retries(host: OrmAirflow, jobs: Jobs) -> None:
    """The job of a dead worker ends before the second one starts, whatever ``retries`` became."""
    host.define(held(**SLOW_END), retries=2)
    host.trigger()
    lose_worker(host, jobs)
    host.define(retries=1)
    host.clear()
    host.begin()
    jobs.wait_until_cancelled(0)
    jobs.go(0, "ended")
    jobs.wait(2)
    assert jobs.running() == 1


def test_clear_of_another_task(host: OrmAirflow, jobs: Jobs) -> None:
    """What somebody does to a neighbour changes nothing for the job of a dead worker."""
    host.define(held(), retries=1)
    host.trigger()
    lose_worker(host, jobs)
    host.clear("other")
    attempt = host.begin()
    jobs.wait_until_asked(0)
    jobs.go()
    attempt.wait()
    assert host.state() == "success"
    assert len(jobs) == 1
    assert not jobs.cancelled(0)


def test_clear_of_the_run(host: OrmAirflow, jobs: Jobs) -> None:
    """A run that is cleared as a whole runs a second job, which a lost worker's retry finds."""
    host.define(held(), retries=2)
    host.trigger()
    attempt = host.begin()
    jobs.wait(1)
    jobs.go()
    attempt.wait()
    assert host.finish_run() == "success"
    host.clear_run()
    lose_worker(host, jobs)
    assert len(jobs) == 2
    again = host.begin()
    jobs.wait_until_asked(1)
    jobs.go()
    again.wait()
    assert host.state() == "success"
    assert len(jobs) == 2


def test_clear_of_a_map_index(host: OrmAirflow, jobs: Jobs) -> None:
    """Only the index that somebody clears runs a second job. Index 0 is an index like others."""
    host.define(held(), mapped=2, retries=1)
    host.trigger()
    lose_worker(host, jobs, 0)
    attempts = [host.begin(1)]
    jobs.wait(2)
    attempts.append(host.begin(0))
    jobs.wait_until_asked(0)
    assert len(jobs) == 2
    for index in (0, 1):
        jobs.go(index)
    for each in attempts:
        each.wait()
    assert [host.state(index) for index in (0, 1)] == ["success", "success"]
    host.clear(index=0)
    again = host.begin(0)
    jobs.wait(3)
    jobs.go()
    again.wait()
    assert len(jobs) == 3
    names = [json.loads(jobs.control.folder.record(each)["app"])["name"] for each in jobs]
    assert names == ["app-0", "app-1", "app-0"]


# -- a run that is made again


def test_run_made_again(host: OrmAirflow, jobs: Jobs) -> None:
    """A run that is deleted and made again runs a second job."""
    host.define({})
    host.trigger()
    succeed(host)
    host.delete_run()
    host.trigger()
    succeed(host)
    assert len(jobs) == 2


def test_run_made_again_while_its_job_runs(host: OrmAirflow, jobs: Jobs) -> None:
    """A job that may be another Airflow's is neither taken nor cancelled, and a person decides."""
    host.define(held(), retries=1)
    host.trigger()
    host.begin()
    jobs.wait(1)
    host.delete_run()
    host.trigger()
    host.begin().wait()
    assert host.state() == "failed"
    assert len(jobs) == 1
    assert jobs.running() == 1
    assert not jobs.cancelled(0)
    jobs.go()
    host.clear()
    again = host.begin()
    jobs.wait(2)
    jobs.go()
    again.wait()
    assert host.state() == "success"


def test_backfill_that_runs_a_date_again(host: OrmAirflow, jobs: Jobs) -> None:
    """A backfill that runs a date again runs a second job."""
    date = datetime(2026, 1, 2, tzinfo=UTC)
    host.define({}, schedule="@daily")
    host.trigger(logical_date=date)
    succeed(host)
    host.finish_run()
    host.backfill_again(date)
    succeed(host)
    assert len(jobs) == 2


def test_dags_test_twice(host: OrmAirflow, jobs: Jobs) -> None:
    """Each ``airflow dags test`` of one date runs a job."""
    host.define({})
    for number in (1, 2):
        attempt = host.dag_test(datetime(2026, 1, 2, tzinfo=UTC))
        attempt.wait()
        assert attempt.process.exitcode == 0
        assert len(jobs) == number


def test_two_installations(host: OrmAirflow, jobs: Jobs) -> None:
    """Two Airflows on one account, which have names, have a job each for one DAG and run."""
    host.define(held())
    for number, name in enumerate(["one", "two"], start=1):
        host.environment["AIRFLOW__TRANSLOAD__DEPLOYMENT_ID"] = name
        host.trigger()
        host.begin()
        jobs.wait(number)
        host.delete_run()  # the other one has another database
    assert jobs.running() == 2
    assert not any(jobs.cancelled(index) for index in (0, 1))
