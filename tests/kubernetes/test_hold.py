"""A submit that gave up starts nothing, since Jobs are on hold until all of a job is there."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable, SubmitError
from transload.runner import log_lines
from transload.schedulers.api import Submission, reconcile
from transload.specs import AppState
from transload_kubernetes import decide, hold, names, submit
from transload_kubernetes.cluster import Cluster
from transload_kubernetes.scheduler import create_scheduler

PLURALS = {"never": "jobs", "always": "jobsets"}
JOBSET = pytest.mark.parametrize("jobset", PLURALS)


def start(scheduler: Any, app: Any, **cfg: Any) -> bool:
    """Submit a job under the id ``held``, and return whether this call made it."""
    options = scheduler.options.read(cfg)
    request = scheduler.convert(app, options)
    made: bool = scheduler.submit(
        request, "held", Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    )
    return made


def status(scheduler: Any) -> Any:
    """Return the status as somebody sees it who only looks."""
    found = scheduler.describe(["held"])["held"]
    return found and found.status


def ended(scheduler: Any, eventually: Any) -> Any:
    """Wait for the end as the app's owner, who does what is due."""

    def look() -> Any:
        found = scheduler.describe(["held"])["held"]
        reconcile(scheduler, found)
        return found is not None and found.status.is_terminal() and found.status

    return eventually(look, 60)


def is_suspended(fake: Any, kind: str = "jobs") -> bool:
    """Tell whether the controller has seen that the Job or JobSet is suspended."""
    with fake.cluster.lock:
        found = fake.cluster.items(kind)
        conditions = [each for item in found for each in item["status"].get("conditions", ())]
        return any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)


def lines(scheduler: Any) -> list[str]:
    """Return the log of the only replica, through all its starts."""
    return list(log_lines(scheduler, "held", "main", 0))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives up at once, and an app that is old as soon as it is made."""
    monkeypatch.setattr(submit, "_WITHDRAW_S", 0.0)
    monkeypatch.setattr(submit, "_START_S", 0.0)
    monkeypatch.setattr(hold, "LONG_S", -60.0)


@JOBSET
def test_what_was_made_for_a_submit_that_gave_up_does_not_run(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    impatient: None,
    monkeypatch: Any,
    jobset: str,
) -> None:
    """A Job made for a submit whose answer was lost does not run until it is submitted again."""
    app = shell("echo once")
    fake.cluster.lost, fake.cluster.leaves = ("POST", PLURALS[jobset]), True
    with pytest.raises(SchedulerUnavailable, match="start only if it is submitted again"):
        start(scheduler, app, jobset=jobset)
    fake.cluster.away = False
    eventually(lambda: is_suspended(fake, PLURALS[jobset]), 30)
    assert not fake.cluster.items("pods")
    assert scheduler.describe(["held"])["held"] is None
    monkeypatch.setattr(decide, "HALF_SUBMITTED_S", -60.0)
    assert [each.state for each in scheduler.list()] == [AppState.FAILED]
    assert "submit never finished" in status(scheduler).msg
    assert not start(scheduler, app, jobset=jobset)
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED
    assert lines(scheduler) == ["once\n"]


@JOBSET
def test_what_a_submit_has_left_can_be_deleted(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    impatient: None,
    monkeypatch: Any,
    jobset: str,
) -> None:
    """What stays of a submit that gave up is deleted like any app, and has never run."""
    monkeypatch.setattr(decide, "HALF_SUBMITTED_S", -60.0)
    fake.cluster.lost, fake.cluster.leaves = ("POST", PLURALS[jobset]), True
    with pytest.raises(SchedulerUnavailable):
        start(scheduler, shell("echo once"), jobset=jobset)
    fake.cluster.away = False
    assert scheduler.delete("held")
    eventually(lambda: {each["kind"] for each in fake.snapshot()} <= {"ConfigMap", "Event"}, 30)
    assert not fake.cluster.processes


@JOBSET
@pytest.mark.parametrize("verb_plural", [("POST", ""), ("PATCH", "configmaps"), ("PATCH", "")])
def test_one_lost_answer_loses_and_repeats_nothing(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    jobset: str,
    verb_plural: tuple[str, str],
) -> None:
    """Whatever answer is lost, the submit is refused and all is gone, or the job runs."""
    verb, plural = verb_plural
    fake.cluster.lost = (verb, plural or PLURALS[jobset])
    if verb == "POST":
        with pytest.raises(SchedulerUnavailable):
            start(scheduler, shell("echo once"), jobset=jobset)
        eventually(lambda: not [each for each in fake.snapshot() if each["kind"] != "Event"], 30)
        assert not fake.cluster.processes
    else:
        assert start(scheduler, shell("echo once"), jobset=jobset)
        assert ended(scheduler, eventually).state is AppState.SUCCEEDED
        assert lines(scheduler) == ["once\n"]
    assert fake.cluster.lost is None


@JOBSET
@pytest.mark.parametrize("then", ["wait", "submit", "cancel"])
def test_a_submit_that_gave_up_when_all_was_there(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, impatient: None, jobset: str, then: str
) -> None:
    """Whoever only looks starts nothing and sees why.

    A waiting owner or a second submit starts it once.
    """
    app = shell("echo once")
    fake.cluster.lost, fake.cluster.leaves = ("PATCH", "configmaps"), True
    with pytest.raises(SchedulerUnavailable, match="start only if it is submitted again"):
        start(scheduler, app, jobset=jobset)
    fake.cluster.away = False
    eventually(lambda: is_suspended(fake, PLURALS[jobset]), 30)
    found = status(scheduler)
    assert (found.state, [each.state for each in scheduler.list()]) == (
        AppState.SUBMITTED,
        [AppState.SUBMITTED],
    )
    assert (
        "gave up just before" in found.msg and "transload wait kubernetes://tests/held" in found.msg
    )
    assert not fake.cluster.items("pods")
    if then == "cancel":
        assert scheduler.cancel(["held"])
    if then == "submit":
        assert not start(scheduler, app, jobset=jobset)
        eventually(lambda: status(scheduler).state in (AppState.RUNNING, AppState.SUCCEEDED), 30)
    last = ended(scheduler, eventually)
    assert last.state is (AppState.CANCELLED if then == "cancel" else AppState.SUCCEEDED)
    if then == "cancel":
        assert not fake.cluster.items("pods")
    else:
        assert lines(scheduler) == ["once\n"]


@JOBSET
@pytest.mark.parametrize("arrives", [True, False])
def test_a_cluster_that_goes_away_at_the_start(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, impatient: None, caplog: Any, jobset: str, arrives: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The submit of a complete job holds, with a warning.

    Its owner starts it when the cluster is back.
    """
    change_if = Cluster.change_if

    def gone(self: Cluster, *args: Any) -> Any:
        fake.cluster.away = True
        return change_if(self, *args)

    if arrives:
        fake.cluster.lost, fake.cluster.leaves = ("PATCH", PLURALS[jobset]), True
    else:
        monkeypatch.setattr(Cluster, "change_if", gone)
    with caplog.at_level(logging.WARNING):
        assert start(scheduler, shell("echo once"), jobset=jobset)
    assert "may not start before a process waits for it" in caplog.text
    monkeypatch.setattr(Cluster, "change_if", change_if)
    fake.cluster.away = False
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED
    assert lines(scheduler) == ["once\n"]


def test_a_cluster_that_refuses_the_start(
    fake: Any, scheduler: Any, shell: Any, impatient: None
) -> None:
    """A user who may make Jobs and not change them gets an error, and nothing stays."""
    fake.cluster.rights -= {("batch", "jobs", "patch")}
    with pytest.raises(
        SubmitError, match=r"cannot patch.*the rights in docs/schedulers/kubernetes.md#rights"
    ):
        start(scheduler, shell("true"))
    assert [each for each in fake.snapshot() if each["kind"] != "Event"] == []
    assert not fake.cluster.processes


@JOBSET
def test_a_cancel_just_before_the_start(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    jobset: str,
) -> None:
    """What another process has cancelled is not started by its submit any more."""
    change_if = Cluster.change_if
    other = create_scheduler("others")

    def cancelled(self: Cluster, *args: Any) -> Any:
        monkeypatch.setattr(Cluster, "change_if", change_if)
        assert other.cancel(["held"])
        return change_if(self, *args)

    monkeypatch.setattr(Cluster, "change_if", cancelled)
    try:
        assert start(scheduler, shell("echo once"), jobset=jobset)
        assert ended(scheduler, eventually).state is AppState.CANCELLED
    finally:
        other.close()
    assert is_suspended(fake, PLURALS[jobset]) and not fake.cluster.items("pods")


@JOBSET
def test_an_app_that_is_deleted_while_a_second_submit_is_slow(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    monkeypatch: pytest.MonkeyPatch,
    jobset: str,
) -> None:
    """A job that ends and is deleted during a slow second submit is not run by that submit."""
    app, create = shell("echo once"), Cluster.create
    other = create_scheduler("others")

    def overtaken(self: Cluster, item: Any, namespace: str, **options: Any) -> Any:
        if item["kind"] in ("Job", "JobSet"):
            monkeypatch.setattr(Cluster, "create", create)
            start(other, app, jobset=jobset)
            ended(other, eventually)
            assert other.delete("held")
            eventually(lambda: not fake.cluster.items("pods"), 30)
        return create(self, item, namespace, **options)

    monkeypatch.setattr(Cluster, "create", overtaken)
    try:
        with pytest.raises(SubmitError, match="deleted while it was being submitted"):
            start(scheduler, app, jobset=jobset)
    finally:
        other.close()
    eventually(lambda: {each["kind"] for each in fake.snapshot()} <= {"ConfigMap", "Event"}, 30)
    assert not fake.cluster.processes


def test_a_ctrl_c_just_before_the_start(
    fake: Any, scheduler: Any, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody learns the handle, so nothing of the app stays."""

    def interrupted(self: Cluster, *args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Cluster, "change_if", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(scheduler, shell("true", replicas=2, env={"A_TOKEN": "x"}))
    assert [each for each in fake.snapshot() if each["kind"] != "Event"] == []


@JOBSET
def test_what_an_administrator_suspends_stays_so(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, jobset: str
) -> None:
    """PENDING with the reason, whoever waits for it, until it is resumed by who suspended it."""
    start(scheduler, shell("sleep 300"), jobset=jobset)
    eventually(lambda: status(scheduler).state is AppState.RUNNING, 60)
    name = "held" if jobset == "always" else "held-main"
    with fake.cluster.lock:
        fake.cluster.patch(PLURALS[jobset], "default", name, {"spec": {"suspend": True}})

    def waits() -> bool:
        found = scheduler.describe(["held"])["held"]
        reconcile(scheduler, found)
        return found.status.state is AppState.PENDING and "is suspended" in found.status.msg

    eventually(waits, 60)
    eventually(lambda: not fake.cluster.items("pods"), 60)
    assert waits()
    with fake.cluster.lock:
        assert fake.cluster.get(PLURALS[jobset], "default", name)["spec"]["suspend"] is True
        fake.cluster.patch(PLURALS[jobset], "default", name, {"spec": {"suspend": False}})
    eventually(lambda: status(scheduler).state is AppState.RUNNING, 60)


@JOBSET
@pytest.mark.parametrize("by", ["option", "webhook", "both"])
def test_what_a_queue_admits_is_not_started_here(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    request: pytest.FixtureRequest,
    jobset: str,
    by: str,
) -> None:
    """Neither a submit nor an owner starts what Kueue holds.

    Its webhook may have put it into a default queue, from which the option takes it.
    """
    if by != "option":
        request.getfixturevalue("default_queue")
    start(scheduler, shell("true"), jobset=jobset, **({"queue": "gpus"} if by != "webhook" else {}))
    eventually(lambda: is_suspended(fake, PLURALS[jobset]), 30)
    found = scheduler.describe(["held"])["held"]
    reconcile(scheduler, found)
    assert found.status.state is AppState.PENDING and "waits in queue" in found.status.msg
    (item,) = fake.cluster.items(PLURALS[jobset])
    assert item["metadata"]["labels"][names.QUEUE] == ("default" if by == "webhook" else "gpus")
    assert item["spec"]["suspend"] is True
    name = "held" if jobset == "always" else "held-main"
    with fake.cluster.lock:
        fake.cluster.patch(PLURALS[jobset], "default", name, {"spec": {"suspend": False}})
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED


@JOBSET
def test_a_queue_sees_no_job_before_all_of_it_is_there(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, impatient: None, jobset: str
) -> None:
    """What a submit that gave up has left in the cluster is in no queue, until somebody goes on."""
    app = shell("true")
    fake.cluster.lost, fake.cluster.leaves = ("POST", PLURALS[jobset]), True
    with pytest.raises(SchedulerUnavailable, match="start only if it is submitted again"):
        start(scheduler, app, jobset=jobset, queue="gpus")
    fake.cluster.away = False
    (item,) = fake.cluster.items(PLURALS[jobset])
    assert names.QUEUE not in item["metadata"]["labels"] and item["spec"]["suspend"] is True
    start(scheduler, app, jobset=jobset, queue="gpus")
    (item,) = fake.cluster.items(PLURALS[jobset])
    assert item["metadata"]["labels"][names.QUEUE] == "gpus" and item["spec"]["suspend"] is True


def test_a_job_that_its_user_wants_suspended_stays_so(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """An overlay may leave it to somebody else when a Job runs."""
    start(scheduler, shell("true"), overlay="{spec: {suspend: true}}")
    eventually(lambda: is_suspended(fake), 30)
    found = scheduler.describe(["held"])["held"]
    reconcile(scheduler, found)
    assert found.status.state is AppState.PENDING and "is suspended" in found.status.msg
    assert fake.cluster.items("jobs")[0]["spec"]["suspend"] is True
