"""A simulated cluster has stuck pods, pre-emption, lost Jobs, broken watches, dead submitters."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from transload.errors import (
    AppExists,
    SchedulerUnavailable,
    SpecError,
    SubmitError,
    UnsupportedFeature,
)
from transload.runner import Runner, log_lines
from transload.schedulers import Changes
from transload.schedulers.api import LogQuery, Stream, Submission, reconcile
from transload.specs import AppState, AppStatus, VolumeMount
from transload_kubernetes import logs
from transload_kubernetes.cluster import Cluster


def start(scheduler: Any, app: Any, app_id: str = "trouble", **cfg: Any) -> str:
    """Submit a job as the runner does, and return its id."""
    options = scheduler.options.read({"jobset": "never", **cfg})
    request = scheduler.convert(app, options)
    scheduler.submit(
        request, app_id, Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    )
    return app_id


def status(scheduler: Any, app_id: str = "trouble") -> Any:
    """Return the status of a job that is there. What is due is done, as by its owner."""
    found = scheduler.describe([app_id])[app_id]
    assert found is not None
    reconcile(scheduler, found)
    return found.status


def running(scheduler: Any, eventually: Any, app_id: str = "trouble") -> Any:
    """Wait until an app runs."""
    return eventually(
        lambda: (found := status(scheduler, app_id)).state is AppState.RUNNING and found, 60
    )


def ended(scheduler: Any, eventually: Any, app_id: str = "trouble") -> Any:
    """Wait for the end of an app."""
    return eventually(lambda: (found := status(scheduler, app_id)).is_terminal() and found, 60)


@pytest.mark.parametrize(
    ("image", "selector", "reason"),
    [("missing/image:1", {}, "ImagePullBackOff"), ("a:1", {"unschedulable": "x"}, "Unschedulable")],
)
def test_stuck_pods(
    scheduler: Any, shell: Any, eventually: Any, image: str, selector: dict[str, str], reason: str
) -> None:
    """A pod that cannot start leaves the app PENDING with the reason, for as long as it takes."""
    app_id = start(scheduler, shell("true", image=image), node_selector=selector)
    eventually(lambda: reason in status(scheduler, app_id).msg, 60)
    assert status(scheduler, app_id).state is AppState.PENDING


def test_events_explain(scheduler: Any, shell: Any, eventually: Any) -> None:
    """Where the pod itself says nothing, the cluster's warnings do."""
    start(scheduler, shell("true", mounts=[VolumeMount("nowhere", "/data")]))
    eventually(lambda: "FailedMount" in status(scheduler).msg, 60)
    assert status(scheduler).state is AppState.PENDING


def test_the_last_warning_explains(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """The warning with the latest time explains, though a cluster lists events by name."""
    start(scheduler, shell("true", mounts=[VolumeMount("nowhere", "/data")]))
    pod = eventually(lambda: fake.cluster.items("pods"), 60)[0]
    eventually(lambda: fake.cluster.items("events"), 60)
    late = {"eventTime": "2999-01-01T00:00:02.500000Z", "lastTimestamp": None}
    with fake.cluster.lock:
        for name, times in (
            ("zzz", {"lastTimestamp": "2999-01-01T00:00:01Z"}),
            ("aaa", late),
            ("mmm", {"eventTime": "2999-01-01T00:00:02Z"}),
        ):
            about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            event = {
                "metadata": {"name": name},
                "involvedObject": about,
                "type": "Warning",
                "reason": name,
                **times,
            }
            fake.cluster.create("events", "default", event)
    assert [event["metadata"]["name"] for event in fake.cluster.items("events")][::3] == [
        "aaa",
        "zzz",
    ]
    eventually(lambda: status(scheduler).msg.startswith("aaa"), 60)
    with fake.cluster.lock:
        seen = fake.cluster.get("events", "default", "zzz")
        seen["series"] = {"lastObservedTime": "2999-01-01T00:00:03.5Z"}
        fake.cluster.save("events", seen)
    eventually(lambda: status(scheduler).msg.startswith("zzz"), 60)


def test_preemption_is_no_failure(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """A pre-empted replica is started again though there are no retries, and that is counted as an
    interruption.
    """
    start(scheduler, shell("sleep 300", replicas=2))
    running(scheduler, eventually)
    first = eventually(
        lambda: [p for p in fake.cluster.items("pods") if p["status"]["phase"] == "Running"], 60
    )[0]
    fake.cluster.evict(first)
    eventually(lambda: status(scheduler).interruptions == 1, 60)
    running(scheduler, eventually)
    assert status(scheduler).num_restarts == 0


def test_a_job_deleted_by_somebody_is_lost(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A job whose Job somebody deletes has FAILED, and is never started again."""
    start(scheduler, shell({"one": "sleep 300", "two": "sleep 300"}))
    running(scheduler, eventually)
    with fake.cluster.lock:
        fake.cluster.delete("jobs", "default", "trouble-one")
    found = ended(scheduler, eventually)
    assert found.state is AppState.FAILED and "another user or program deleted" in found.msg
    eventually(lambda: not fake.cluster.processes, 60)


def test_final_state_outlives_the_jobs(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A noted end stays when Jobs and pods are removed later."""
    start(scheduler, shell("exit 4"))
    assert ended(scheduler, eventually).state is AppState.FAILED
    with fake.cluster.lock:
        fake.cluster.delete("jobs", "default", "trouble-main")
    found = status(scheduler)
    assert found.state is AppState.FAILED
    assert found.roles[0].replicas[0].exit_code == 4


def test_nothing_is_left_of_a_refused_submit(fake: Any, scheduler: Any, shell: Any) -> None:
    """A cluster that refuses the Job leaves no record, no Service, no Secret."""
    from fake_api import ApiError  # type: ignore[import-not-found]

    fake.cluster.fail["POST", "jobs"] = ApiError(403, "Forbidden", "exceeded quota")
    with pytest.raises(SubmitError, match="exceeded quota") as caught:
        start(scheduler, shell("true", replicas=2, env={"A_TOKEN": "x"}))
    assert not caught.value.transient
    assert not caught.value.secrets
    assert fake.snapshot() == []
    assert not scheduler.existed("trouble")


def test_a_refused_secret_is_told_apart(fake: Any, scheduler: Any, shell: Any) -> None:
    """Who may make Jobs and no Secrets reads it from the error. A job without secrets is taken."""
    from fake_api import ApiError

    fake.cluster.fail["POST", "secrets"] = ApiError(403, "Forbidden", "no Secrets for you")
    with pytest.raises(SubmitError, match="no Secrets for you") as caught:
        start(scheduler, shell("true", env={"A_TOKEN": "x"}))
    assert caught.value.secrets
    fake.cluster.fail["POST", "secrets"] = ApiError(503, "ServiceUnavailable", "later")
    with pytest.raises(SubmitError, match="later") as caught:
        start(scheduler, shell("true", env={"A_TOKEN": "x"}))
    assert caught.value.transient and not caught.value.secrets


def test_cancel_leaves_nothing_running(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """All Jobs and pods of a cancelled job are gone. Once deleted, it leaves only its id."""
    start(scheduler, shell({"one": "trap '' TERM; sleep 300", "two": "sleep 300"}, replicas=2))
    running(scheduler, eventually)
    scheduler.cancel(["trouble"])
    assert ended(scheduler, eventually).state is AppState.CANCELLED
    assert not fake.cluster.processes
    eventually(lambda: not fake.cluster.items("pods"))
    scheduler.delete("trouble")
    assert [item["kind"] for item in fake.snapshot() if item["kind"] != "Event"] == ["ConfigMap"]


def test_an_interrupted_submit_leaves_nothing(
    fake: Any, scheduler: Any, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C in the middle of a submit leaves nothing of the job."""
    create = Cluster.create

    def interrupted(self: Cluster, item: Any, namespace: str, **options: Any) -> Any:
        if item["kind"] == "Job":
            raise KeyboardInterrupt
        return create(self, item, namespace, **options)

    monkeypatch.setattr(Cluster, "create", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(scheduler, shell("true", replicas=2, env={"A_TOKEN": "x"}))
    assert fake.snapshot() == []


def test_a_failed_submit_is_withdrawn_when_the_cluster_is_back(
    fake: Any, scheduler: Any, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a submit made before its cluster went away is removed as soon as it is back."""
    from fake_api import ApiError

    fake.cluster.fail["POST", "jobs"] = ApiError(422, "Invalid", "not such a Job")
    delete, tries = Cluster.delete, []

    def away(self: Cluster, *args: Any, **options: Any) -> Any:
        tries.append(args)
        if len(tries) < 3:
            raise SchedulerUnavailable("away")
        return delete(self, *args, **options)

    monkeypatch.setattr(Cluster, "delete", away)
    with pytest.raises(SubmitError, match="not such a Job") as caught:
        start(scheduler, shell("true"))
    assert "it may run" not in str(caught.value)
    assert fake.snapshot() == []


def test_a_half_submitted_app_is_completed_by_the_next(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submitter that dies after the record leaves what nobody attaches to, and the same submit
    completes.
    """
    monkeypatch.setattr("transload_kubernetes.submit._WITHDRAW_S", 0.0)
    app = shell("echo once")
    options = scheduler.options.read({"jobset": "never"})
    from fake_api import ApiError

    fake.cluster.fail["POST", "jobs"] = fake.cluster.fail["DELETE", "configmaps"] = ApiError(
        500, "Internal", "down"
    )
    with pytest.raises(
        (SubmitError, SchedulerUnavailable), match="start only if it is submitted again"
    ):
        start(scheduler, app)
    fake.cluster.fail.clear()
    assert (
        scheduler.describe(["trouble"])["trouble"] is None
        and not scheduler.existed("trouble")
        and not scheduler.list()
    )
    request = scheduler.convert(app, options)
    assert (
        scheduler.submit(request, "trouble", Submission(app, app.digest(), "tests", options.cfg()))
        is False
    )
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED


def test_a_submitter_that_fails_late_leaves_what_another_has_completed(
    scheduler: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure of the slower of two equal submits takes nothing away."""
    app, create = shell("echo once"), Cluster.create

    def overtaken(self: Cluster, item: Any, namespace: str, **options: Any) -> Any:
        if item["kind"] == "Job":
            monkeypatch.setattr(Cluster, "create", create)
            start(scheduler, app)
            raise KeyboardInterrupt
        return create(self, item, namespace, **options)

    monkeypatch.setattr(Cluster, "create", overtaken)
    with pytest.raises(KeyboardInterrupt):
        start(scheduler, app)
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED


def test_watch_survives_breaks_and_a_forgotten_past(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A broken watch goes on.

    After 410 all is listed anew, and all watched jobs count as changed.
    """
    start(scheduler, shell("sleep 300"))
    running(scheduler, eventually)
    changes = Changes()
    watch = scheduler.watch(changes.add)
    try:
        watch.update(["trouble"])
        eventually(lambda: any("watch=" in each.lower() for each in fake.cluster.requests), 60)
        while changes.wait(0.3):
            pass
        with fake.cluster.lock:
            fake.break_watches()
            fake.cluster.create("configmaps", "default", {"metadata": {"name": "others"}})
            fake.cluster.compact()
        assert changes.wait(60) == {"trouble"}
        scheduler.cancel(["trouble"])
        deadline = time.monotonic() + 60
        while not status(scheduler).is_terminal():
            assert changes.wait(60) == {"trouble"} and time.monotonic() < deadline
    finally:
        watch.close()


def test_unreachable_is_not_absent(fake: Any, scheduler: Any, shell: Any) -> None:
    """A cluster that does not answer is an error of the query, not the end of an app."""
    start(scheduler, shell("sleep 300"))
    from fake_api import ApiError

    fake.cluster.fail["GET", "configmaps"] = ApiError(503, "ServiceUnavailable", "down")
    with pytest.raises(SchedulerUnavailable, match="down"):
        scheduler.describe(["trouble"])["trouble"]
    fake.cluster.fail.clear()
    assert not status(scheduler).is_terminal()


def test_namespaces(fake: Any, runner: Runner, shell: Any) -> None:
    """The runner's handles carry the namespace, and the app is found by them."""
    handle = runner.run(shell("echo hello"), "kubernetes", {"namespace": "team"})
    assert handle.startswith("kubernetes://tests/team:test-")
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "main")) == ["hello\n"]
    assert [row.app_handle for row in runner.list("kubernetes")] == [handle]
    runner.delete(handle)
    assert runner.status(handle) is None
    assert not [item for item in fake.snapshot() if item["kind"] != "Pod"]


def test_another_namespace_than_the_ids_is_refused(scheduler: Any, shell: Any) -> None:
    """An id of one namespace is not submitted to another."""
    with pytest.raises(SpecError, match="namespace"):
        start(scheduler, shell("true"), "team:x")


def test_many_apps_need_few_queries(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """Asking for ten apps takes three queries, not thirty."""
    ids = [start(scheduler, shell("sleep 300"), f"many-{number}") for number in range(10)]
    before = len(fake.cluster.requests)
    assert set(scheduler.describe(ids)) == set(ids)
    assert len(fake.cluster.requests) - before == 3


@pytest.mark.slow
def test_hundreds_of_watched_apps_take_four_connections(
    fake: Any, scheduler: Any, eventually: Any
) -> None:
    """A watch has a connection for each kind of object. Only the job that changes is reported."""
    ids = [f"many-{number}" for number in range(200)]
    labels = {"app.kubernetes.io/managed-by": "transload"}
    for app_id in ids:
        metadata = {"name": f"{app_id}-main", "labels": {**labels, "transload.io/app": app_id}}
        fake.cluster.create(
            "jobs", "default", {"metadata": metadata, "spec": {"suspend": True, "template": {}}}
        )
    eventually(
        lambda: all(job["status"].get("conditions") for job in fake.cluster.items("jobs")), 30
    )
    changes = Changes()
    watch = scheduler.watch(changes.add)
    try:
        before = len(fake.cluster.requests)
        watch.update(ids)
        told: set[str] = set()
        while (
            told != set(ids)
            or sum("watch=true" in each for each in fake.cluster.requests[before:]) < 4
        ):
            came = changes.wait(30)
            assert came or told == set(ids)
            told |= came
        changes.wait(0.5)
        asked = fake.cluster.requests[before:]
        assert len(asked) <= 9 and not [each for each in asked if "many-" in each], asked
        fake.cluster.patch("jobs", "default", "many-7-main", {"metadata": {"labels": {"x": "y"}}})
        assert changes.wait(30) == {"many-7"}
        assert fake.cluster.requests[before:] == asked
    finally:
        watch.close()


def following(scheduler: Any) -> tuple[threading.Thread, list[str]]:
    """Follow the log of the first replica in a thread.

    Return that, and the lines that have come.
    """
    came: list[str] = []
    thread = threading.Thread(
        target=lambda: came.extend(log_lines(scheduler, "trouble", "main", 0, follow=True)),
        daemon=True,
    )
    thread.start()
    return thread, came


def test_a_tail_outlives_an_outage(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, tmp_path: Path
) -> None:
    """A log goes on after a moment without an answer, without loss or repeat."""
    from fake_api import ApiError

    go = tmp_path / "go"
    start(scheduler, shell(f"echo one; until test -e {go}; do sleep 0.1; done; echo two"))
    running(scheduler, eventually)
    thread, came = following(scheduler)
    eventually(lambda: any("/log?" in each for each in fake.cluster.requests), 30)
    fake.cluster.fail["GET", "configmaps"] = ApiError(503, "ServiceUnavailable", "down")
    before = len(fake.cluster.requests)
    go.touch()
    eventually(lambda: any("/configmaps?" in each for each in fake.cluster.requests[before:]), 30)
    fake.cluster.fail.clear()
    thread.join(60)
    assert not thread.is_alive() and came == ["one\n", "two\n"]


def test_a_tail_of_an_ended_app_waits_for_no_pod(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that has ended has no more lines, though a lost node's pod seems about to start."""
    app = shell("true")
    app.roles[0].image = "missing/image:1"
    start(scheduler, app)
    eventually(lambda: any(item["kind"] == "Pod" for item in fake.snapshot()), 30)
    monkeypatch.setattr(fake.cluster, "end_pod", lambda pod: None)
    failed = AppStatus(AppState.FAILED, roles=status(scheduler).roles)
    fake.cluster.patch("configmaps", "default", "trouble", {"data": {"ended": failed.to_json()}})
    thread, came = following(scheduler)
    thread.join(30)
    assert not thread.is_alive() and came == []


def test_since_until_and_one_stream(scheduler: Any, shell: Any, eventually: Any) -> None:
    """Logs can be read by time. Stdout alone is refused, since a cluster keeps one log for both."""
    start(scheduler, shell("echo a; echo b >&2"))
    ended(scheduler, eventually)
    now = time.time()
    everything = ["a\n", "b\n"]
    assert list(log_lines(scheduler, "trouble", "main", 0, since=now - 3600)) == everything
    assert list(log_lines(scheduler, "trouble", "main", 0, since=now + 3600)) == []
    assert list(log_lines(scheduler, "trouble", "main", 0, until=now - 3600)) == []
    with pytest.raises(UnsupportedFeature, match="does not tell it apart"):
        log_lines(scheduler, "trouble", "main", 0, stream=Stream.STDOUT)


def test_kueue_holds_the_job(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """With a queue the Job is made suspended, and is PENDING until somebody admits it."""
    start(scheduler, shell("true"), queue="gpus")
    eventually(lambda: "waits in queue gpus" in status(scheduler).msg, 60)
    assert status(scheduler).state is AppState.PENDING
    with fake.cluster.lock:
        about = {"kind": "Workload", "name": "job-trouble-main-1a2b3"}
        event = {
            "metadata": {"name": "e"},
            "involvedObject": about,
            "type": "Warning",
            "reason": "Pending",
        }
        fake.cluster.create(
            "events", "default", {**event, "message": "insufficient unused quota for gpu"}
        )
    eventually(lambda: "insufficient unused quota" in status(scheduler).msg, 60)
    with fake.cluster.lock:
        fake.cluster.patch("jobs", "default", "trouble-main", {"spec": {"suspend": False}})
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED


def test_secrets_with_the_replicas_number_arrive(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A secret-looking value with macros is whole in each replica, and in no object but the
    Secret.
    """
    values = {
        "API_TOKEN": "hunter2-${replica_id}/${replica_id}-$(HOME)$$",
        "api_token": "${replica_id}",
        "OTHER_TOKEN": "hunter2$$ ${rank0_env}",
    }
    start(scheduler, shell('echo "$API_TOKEN" "$api_token" "$OTHER_TOKEN"', replicas=2, env=values))
    assert ended(scheduler, eventually).state is AppState.SUCCEEDED
    for number in (0, 1):
        expected = f"hunter2-{number}/{number}-$(HOME)$$ {number} hunter2$$ TRANSLOAD_RANK0_HOST\n"
        assert list(log_lines(scheduler, "trouble", "main", number)) == [expected]
    assert "hunter2" not in str([item for item in fake.snapshot() if item["kind"] != "Secret"])


def test_a_cancel_leaves_what_has_ended(scheduler: Any, shell: Any, eventually: Any) -> None:
    """A replica that had SUCCEEDED before the cancel keeps its state, exit code and log."""
    start(
        scheduler,
        shell('test "$TRANSLOAD_REPLICA_ID" = 0 && echo done && exit 0; sleep 300', replicas=2),
    )

    def first_is_done() -> bool:
        return status(scheduler).roles[0].replicas[0].state is AppState.SUCCEEDED

    eventually(first_is_done, 60)
    scheduler.cancel(["trouble"])
    found = ended(scheduler, eventually)
    first, second = found.roles[0].replicas
    assert (found.state, first.state, first.exit_code) == (
        AppState.CANCELLED,
        AppState.SUCCEEDED,
        0,
    )
    assert second.state is AppState.CANCELLED
    assert list(log_lines(scheduler, "trouble", "main", 0)) == ["done\n"]


def test_a_cancel_in_a_queue_remembers_what_has_ended(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A Job cancelled in a queue is deleted, after the replicas' ends are noted."""
    start(
        scheduler,
        shell('test "$TRANSLOAD_REPLICA_ID" = 0 && exit 0; sleep 300', replicas=2),
        queue="gpus",
    )
    with fake.cluster.lock:
        fake.cluster.patch("jobs", "default", "trouble-main", {"spec": {"suspend": False}})
    eventually(lambda: status(scheduler).roles[0].replicas[0].exit_code == 0, 60)
    scheduler.cancel(["trouble"])
    found = ended(scheduler, eventually)
    assert not fake.cluster.items("jobs")
    first = found.roles[0].replicas[0]
    assert (found.state, first.state, first.exit_code) == (
        AppState.CANCELLED,
        AppState.SUCCEEDED,
        0,
    )


@pytest.mark.parametrize("jobset", ["never", "always"])
@pytest.mark.parametrize("queue", ["gpus", None])
def test_a_cancel_takes_a_job_out_of_its_queue(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    default_queue: None,
    queue: str | None,
    jobset: str,
) -> None:
    """What was cancelled while it waited is not there any more when the queue has room.

    That is the queue that the job names, or the default one of its namespace.
    """
    start(scheduler, shell("true"), queue=queue, jobset=jobset)
    eventually(lambda: f"waits in queue {queue or 'default'}" in status(scheduler).msg, 60)
    assert scheduler.cancel(["trouble"])
    assert ended(scheduler, eventually).state is AppState.CANCELLED
    eventually(lambda: not fake.cluster.items("jobs") + fake.cluster.items("jobsets"), 60)


def test_why_an_app_never_ran_stays(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """What the cluster said while no pod could be made is in the final message too."""
    fake.cluster._start_pod = lambda *args: None
    start(scheduler, shell("true", timeout=2.0))
    with fake.cluster.lock:
        fake.cluster._event(fake.cluster.items("jobs")[0], "FailedCreate", "exceeded quota: pods=2")
    found = ended(scheduler, eventually)
    assert found.state is AppState.FAILED
    assert "timeout" in found.msg and "exceeded quota: pods=2" in found.msg


def test_list_without_the_right_to_list_everywhere(
    fake: Any, scheduler: Any, shell: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The default namespace is listed, and it is said that others may not be."""
    start(scheduler, shell("sleep 300"), "mine")
    start(scheduler, shell("sleep 300"), "team:theirs", namespace="team")
    assert {row.app_id for row in scheduler.list()} == {"mine", "team:theirs"}
    fake.cluster.only = "default"
    assert [row.app_id for row in scheduler.list()] == ["mine"]
    assert "listed are those of default" in caplog.text
    fake.cluster.only = "nowhere"
    with pytest.raises(SchedulerUnavailable, match="forbidden"):
        scheduler.list()


def test_list_where_the_settings_name_a_namespace(
    fake: Any,
    runner: Runner,
    shell: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its jobs alone are listed and pruned, for which no other right is needed."""
    settings = "schedulers.kubernetes.namespace = 'team'\nschedulers.kubernetes.queue = 'gpus'"
    monkeypatch.setenv("TRANSLOAD_SETTINGS", settings)
    handles = [runner.run(shell("true"), "kubernetes", cfg) for cfg in ({}, {"queue": None})]
    runner.wait(handles[1], timeout=30)
    elsewhere = {"namespace": "default", "queue": None}
    runner.wait(runner.run(shell("true"), "kubernetes", elsewhere), timeout=30)
    fake.cluster.only = "team"
    assert {row.app_handle for row in runner.list("kubernetes")} == {*handles}
    assert not caplog.text
    later = time.time() + 7200
    scheduler = runner.scheduler("kubernetes")
    assert [*scheduler.prune(3600, now=later)] == [handles[1].rpartition("/")[2]]
    runner.cancel(handles[0])


def test_a_taken_id_is_named(scheduler: Any, shell: Any) -> None:
    """The error carries the id, and its text the reason."""
    start(scheduler, shell("sleep 300"))
    with pytest.raises(AppExists, match="another job has this id") as caught:
        start(scheduler, shell("sleep 301"))
    assert caught.value.app_id == "trouble"


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ((403, "Forbidden", "exceeded quota: pods"), ""),
        ((401, "Unauthorized", "Unauthorized"), ""),
        (
            (403, "Forbidden", 'User "x" cannot create resource "jobs"'),
            "ask the cluster's administrator for the rights",
        ),
        ((403, "Forbidden", 'violates PodSecurity "restricted:latest"'), "pod_security=restricted"),
    ],
)
def test_a_refusal_tells_what_to_do(
    fake: Any, scheduler: Any, shell: Any, error: tuple[int, str, str], hint: str
) -> None:
    """Only who lacks a right is told to ask for it."""
    from fake_api import ApiError

    fake.cluster.fail["POST", "jobs"] = ApiError(*error)
    with pytest.raises(SubmitError) as caught:
        start(scheduler, shell("true"))
    assert error[2] in str(caught.value)
    assert hint in str(caught.value) if hint else ";" not in str(caught.value)


def test_prune_by_age(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """Jobs that ended long enough ago are deleted.

    Running ones are not, and no size limit applies.
    """
    start(scheduler, shell("true"), "old")
    ended(scheduler, eventually, "old")
    start(scheduler, shell("sleep 300"), "new")
    assert list(scheduler.prune(older_than=3600)) == []
    later = time.time() + 7200
    assert list(scheduler.prune(older_than=3600, now=later, dry_run=True)) == ["old"]
    assert scheduler.describe(["old"])["old"] is not None
    assert list(scheduler.prune(older_than=3600, now=later)) == ["old"]
    assert (
        scheduler.describe(["old"])["old"] is None
        and scheduler.describe(["new"])["new"] is not None
    )
    with pytest.raises(UnsupportedFeature, match="max_size"):
        scheduler.prune(max_size=1)


def test_following_costs_no_request_while_nothing_changes(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, tmp_path: Path
) -> None:
    """Each running replica has one open request, by which new lines come without others."""
    go = tmp_path / "go"
    start(
        scheduler,
        shell(
            f"echo one; until test -e {go}; do sleep 0.05; done; echo two; sleep 300", replicas=4
        ),
    )
    running(scheduler, eventually)
    cursors: dict[int, str | None] = dict.fromkeys(range(4))
    came: dict[int, list[str]] = {k: [] for k in range(4)}

    def look() -> None:
        for k, cursor in cursors.items():
            page = scheduler.log_read("trouble", LogQuery("main", k, Stream.COMBINED, cursor))
            cursors[k] = page.cursor
            came[k] += page.lines

    def followed() -> bool:
        look()
        open_ = [each for each in fake.cluster.requests if "follow=true" in each]
        return len(open_) == 4 and all(came.values())

    eventually(followed, 30)
    before = len(fake.cluster.requests)
    for _ in range(20):
        look()
    assert len(fake.cluster.requests) == before
    go.touch()
    eventually(lambda: look() or all(len(lines) == 2 for lines in came.values()), 30)
    assert set(map(tuple, came.values())) == {("one\n", "two\n")}
    assert len(fake.cluster.requests) == before
    scheduler.close()
    assert not [each for each in threading.enumerate() if "kubernetes-log" in each.name]


def test_what_has_no_stream_is_read_in_turns(
    fake: Any,
    scheduler: Any,
    shell: Any,
    eventually: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond that many streams, replicas are read in turns by few requests, and lose no line."""
    monkeypatch.setattr(logs, "MAX_STREAMS", 2)
    monkeypatch.setattr(logs, "_TURN_S", 0.25)
    go = tmp_path / "go"
    start(
        scheduler,
        shell(
            f"echo one; until test -e {go}; do sleep 0.05; done; echo two; sleep 300", replicas=6
        ),
    )
    running(scheduler, eventually)
    came: dict[int, list[str]] = {k: [] for k in range(6)}
    cursors: dict[int, str | None] = dict.fromkeys(came)

    def look() -> None:
        for k, cursor in cursors.items():
            page = scheduler.log_read("trouble", LogQuery("main", k, Stream.COMBINED, cursor))
            cursors[k] = page.cursor
            came[k] += page.lines

    def asked() -> int:
        return sum("/log?" in each for each in fake.cluster.requests)

    eventually(lambda: look() or (all(came.values()) and asked() >= 12), 30)
    before, began = asked(), time.monotonic()
    looks = 0
    while time.monotonic() - began < 2.0:
        look()
        looks += 1
    turns = (time.monotonic() - began) / 0.25
    assert looks > 2 * turns and 4 <= asked() - before <= turns + 4, (
        looks,
        turns,
        asked() - before,
    )
    go.touch()
    eventually(lambda: look() or all(len(lines) == 2 for lines in came.values()), 30)
    assert set(map(tuple, came.values())) == {("one\n", "two\n")}
    assert sum("follow=true" in each for each in fake.cluster.requests) == 2
