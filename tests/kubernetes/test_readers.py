"""Readers change nothing. Whoever waits for a job as its owner does what is due."""

from __future__ import annotations

from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.schedulers import Changes
from transload.schedulers.api import LogQuery, Stream, Submission, reconcile
from transload.specs import AppState, RetryPolicy, VolumeMount
from transload_kubernetes.diagnose import OBSERVE, SUBMIT

_NEW = {("pods", "watch"), ("events", "watch")}
"""Rights that earlier versions did not ask for."""


def start(scheduler: Any, app: Any, app_id: str = "x", **cfg: Any) -> None:
    """Submit an app as the runner does."""
    options = scheduler.options.read({"jobset": "never", **cfg})
    submission = Submission(app, app.digest(), "tests", options.cfg(), id_given=True)
    scheduler.submit(scheduler.convert(app, options), app_id, submission)


def read_all(scheduler: Any, app_id: str = "x") -> Any:
    """Look at a job in every way there is, and return its description."""
    scheduler.list()
    scheduler.describe([app_id, "other"])
    scheduler.log_read(app_id, LogQuery("bad", 0, Stream.COMBINED))
    scheduler.diagnose()
    return scheduler.describe([app_id])[app_id]


def writes(fake: Any) -> list[str]:
    """Return the requests so far that change something."""
    return [
        each
        for each in fake.cluster.requests
        if not each.startswith("GET ") and "/selfsubject" not in each
    ]


def test_readers_change_nothing(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """All who only look leave a job with a failed Job as it is. Its owner ends it."""
    start(scheduler, shell({"bad": "exit 3", "good": "sleep 300"}))
    before = len(writes(fake))
    found = eventually(lambda: (it := read_all(scheduler)).needs_reconcile and it, 30)
    assert found.status.state is AppState.RUNNING and "bad/0" in found.status.msg
    changes = Changes()
    watch = scheduler.watch(changes.add)
    watch.update(["x"])
    changes.wait(1.0)
    watch.close()
    assert writes(fake)[before:] == []

    def ended() -> Any:
        reconcile(scheduler, it := scheduler.describe(["x"])["x"])
        return it.status if it.status.is_terminal() else None

    assert eventually(ended, 30).state is AppState.FAILED
    assert scheduler.describe(["x"])["x"].needs_reconcile is False
    before = len(writes(fake))
    assert read_all(scheduler).status.state is AppState.FAILED
    assert writes(fake)[before:] == []


def test_who_may_only_read_sees_all_of_it(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """An observer's rights are enough to see a job that needs a step, and what it waits for."""
    start(scheduler, shell({"bad": "exit 3", "good": "sleep 300"}))
    fake.cluster.rights = {(*what, verb) for what, verbs in OBSERVE.items() for verb in verbs}
    found = eventually(lambda: (it := scheduler.describe(["x"])["x"]).needs_reconcile and it, 30)
    reconcile(scheduler, found)
    assert read_all(scheduler).status.state is AppState.RUNNING
    with pytest.raises(SchedulerUnavailable, match="could not be cancelled.*forbidden"):
        scheduler.cancel(["x"])


def test_the_runner_waits_as_the_owner(fake: Any, runner: Runner, shell: Any) -> None:
    """`Runner.wait` does what is due, and `Runner.status` does not."""
    handle = runner.run(
        shell({"bad": "sleep 1; exit 3", "good": "sleep 300"}), "kubernetes", {"jobset": "never"}
    )
    final = runner.wait(handle, timeout=60)
    assert final is not None and final.state is AppState.FAILED
    noted = [item for item in fake.cluster.items("configmaps") if "ended" in item["data"]]
    assert len(noted) == 1
    runner.delete(handle)


def test_results_take_two_looks_at_the_job(fake: Any, runner: Runner, shell: Any) -> None:
    """They are read for its state and for what its pods handed over, whatever it reported."""
    handle = runner.run(shell("true"), "kubernetes")
    runner.wait(handle, timeout=60)
    before = len(fake.cluster.requests)
    assert runner.results(handle).results == {}
    looks = [each for each in fake.cluster.requests[before:] if "/jobs?" in each]
    assert len(looks) == 2


def test_an_app_that_has_run_is_not_ended_for_waiting(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A pre-empted replica may be pending for any time, without a limit of the plugin's own."""
    assert "startup_timeout" not in scheduler.options.table()
    start(scheduler, shell("true", image="missing/image:1"))
    eventually(lambda: "ImagePull" in scheduler.describe(["x"])["x"].status.msg, 30)
    with fake.cluster.lock:
        for item in (*fake.cluster.items("pods"), *fake.cluster.items("jobs")):
            item["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
            if item["kind"] == "Job":
                item["status"]["startTime"] = "2001-01-01T00:00:00Z"
    assert (
        scheduler.describe(["x"])["x"].needs_reconcile is False
        and scheduler.describe(["x"])["x"].status.state is AppState.PENDING
    )


def test_calls_and_rights_are_the_same(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """The rights in the docs are those of the calls that whole lives of apps take, no more and no
    fewer.
    """
    submits = {(*what, verb) for what, verbs in SUBMIT.items() for verb in verbs}
    observes = {(*what, verb) for what, verbs in OBSERVE.items() for verb in verbs}

    def ended(app_id: str) -> Any:
        reconcile(scheduler, it := scheduler.describe([app_id])[app_id])
        return it.status.is_terminal()

    app = shell({"bad": "exit 3", "good": "sleep 300"}, 2, env={"A_TOKEN": "x"})
    app.roles[0].max_retries, app.roles[0].retry_policy = 1, RetryPolicy.APPLICATION
    for app_id, jobset in (("jobs", "never"), ("set", "always")):
        start(scheduler, app, app_id, jobset=jobset)
        start(scheduler, app, app_id, jobset=jobset)
        changes = Changes()
        watch = scheduler.watch(changes.add)
        watch.update([app_id])
        eventually(lambda app_id=app_id: ended(app_id), 60)
        watch.close()
        read_all(scheduler, app_id)
        start(
            scheduler, shell({"bad": "sleep 300", "good": "sleep 300"}), f"{app_id}2", jobset=jobset
        )
        scheduler.cancel([f"{app_id}2"])
        eventually(lambda app_id=app_id: ended(f"{app_id}2"), 60)
        scheduler.delete(app_id)
        scheduler.delete(f"{app_id}2")
    start(scheduler, shell("true", image="missing/image:1"), "stuck")
    eventually(
        lambda: (
            fake.cluster.items("pods")
            and scheduler.describe(["stuck"])["stuck"]
            and ("", "events", "list") in fake.cluster.calls
        ),
        30,
    )
    scheduler.delete("stuck")
    # whose an object is that is there already, and the record of an id that was not given
    rare = {(group, kind, "get") for group, kind, verb in submits if verb == "get"} | {
        ("", "configmaps", "delete")
    }
    assert (submits | observes) - fake.cluster.calls <= rare
    assert fake.cluster.calls <= submits | observes


def test_what_keeps_an_app_waiting_wakes_a_watcher(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """A pod's own word, or a warning about it, wakes a watcher, though no Job or JobSet changes."""
    start(scheduler, shell("true", mounts=[VolumeMount("nowhere", "/data")]))
    start(scheduler, shell("sleep 300"), "y")
    eventually(lambda: scheduler.describe(["y"])["y"].status.state is AppState.RUNNING, 30)
    changes = Changes()
    watch = scheduler.watch(changes.add)
    watch.update(["x", "y"])
    eventually(lambda: sum("watch=true" in each for each in fake.cluster.requests) == 4, 30)
    eventually(lambda: not changes.wait(0.5), 30)
    pods = {
        pod["metadata"]["labels"]["transload.io/app"]: pod for pod in fake.cluster.items("pods")
    }
    fake.cluster._event(pods["x"], "FailedMount", "no such claim")
    assert changes.wait(10) == {"x"}
    fake.cluster._tell(
        pods["y"], {"waiting": {"reason": "CreateContainerConfigError", "message": "no key"}}
    )
    assert changes.wait(10) == {"y"}
    watch.close()


def test_who_may_not_watch_pods_watches_the_rest(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """Rights of before, without pods and events, are enough to see an app end."""
    start(scheduler, shell("sleep 1"))
    fake.cluster.rights = {each for each in fake.cluster.rights if each[1:] not in _NEW}
    changes = Changes()
    watch = scheduler.watch(changes.add)
    watch.update(["x"])
    eventually(
        lambda: changes.wait(1.0) and scheduler.describe(["x"])["x"].status.is_terminal(), 30
    )
    assert sum("watch=true" in each for each in fake.cluster.requests) <= 4
    watch.close()


def test_who_may_not_list_jobsets_sees_jobs(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says so, once. Of a JobSet the Jobs and pods are shown."""
    start(scheduler, shell("true"))
    for name, command, retries in (
        ("runs", "sleep 300", 0),
        ("good", "true", 0),
        ("bad", "exit 3", 0),
    ):
        app = shell(command, max_retries=retries)
        start(scheduler, app, name, jobset="always")
    fake.cluster.rights = {each for each in fake.cluster.rights if each[1] != "jobsets"}
    wanted = {"x": "SUCCEEDED", "runs": "RUNNING", "good": "SUCCEEDED", "bad": "FAILED"}
    names = {each.app_id: each for each in scheduler.list()}
    assert {*names} == {*wanted}
    eventually(lambda: {each.app_id: str(each.state) for each in scheduler.list()} == wanted, 30)
    assert scheduler.describe(["bad"])["bad"].status.msg.startswith("main/0 exit code 3")
    assert len([each for each in caplog.messages if "JobSets" in each]) <= 2


def test_a_job_that_its_ttl_took_away_is_named(
    fake: Any, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """Who looks after that is told of the option, not of somebody who deleted it."""
    start(scheduler, shell("true"), ttl=60)
    job = eventually(lambda: fake.cluster.items("jobs"), 30)[0]
    fake.cluster.delete("jobs", "default", job["metadata"]["name"])
    found = eventually(
        lambda: (it := scheduler.describe(["x"])["x"].status).is_terminal() and it, 30
    )
    assert found.state is AppState.FAILED
    assert "run option ttl=60" in found.msg and "somebody" not in found.msg


def test_an_empty_log_says_why(
    fake: Any, runner: Runner, scheduler: Any, shell: Any, eventually: Any
) -> None:
    """Cancelled, lost and waiting replicas have a reason. One that wrote nothing has none."""
    made = {
        "cancelled": (shell("echo hello; sleep 300"), {}),
        "lost": (shell("sleep 300"), {}),
        "ttl": (shell("sleep 300"), {"ttl": 60}),
        "waits": (shell("true", image="missing/image:1"), {}),
        "quiet": (shell("true"), {}),
    }
    for app_id, (app, cfg) in made.items():
        start(scheduler, app, app_id, **cfg)
    for app_id in ("cancelled", "lost", "ttl"):
        eventually(
            lambda app_id=app_id: (
                scheduler.describe([app_id])[app_id].status.state is AppState.RUNNING
            ),
            30,
        )
    scheduler.cancel(["cancelled"])
    for app_id in ("lost", "ttl"):
        fake.cluster.delete("jobs", "default", f"{app_id}-main")
    eventually(lambda: not [pod for pod in fake.cluster.items("pods") if "waits" not in pod["metadata"]["name"]
                            and "quiet" not in pod["metadata"]["name"]], 30)  # fmt: skip
    eventually(
        lambda: (
            reconcile(scheduler, it := scheduler.describe(["quiet"])["quiet"])
            or it.status.is_terminal()
        ),
        30,
    )
    eventually(lambda: "ImagePull" in scheduler.describe(["waits"])["waits"].status.msg, 30)
    for app_id, words in (
        ("cancelled", "removed when the job was cancelled"),
        ("lost", "another user or program deleted"),
        ("ttl", "run option ttl=60"),
        ("waits", "ImagePull"),
    ):
        assert words in scheduler.why_no_log(app_id, "main", 0), app_id
    assert scheduler.why_no_log("quiet", "main", 0) == ""


def test_what_no_time_mends_says_how_to_end_it(scheduler: Any, shell: Any, eventually: Any) -> None:
    """A missing image is named, and the command that ends the app."""
    start(scheduler, shell("true", image="missing/image:1"))
    msg = eventually(
        lambda: "ImagePull" in (it := scheduler.describe(["x"])["x"].status.msg) and it, 30
    )
    assert msg.endswith("to end it: transload cancel kubernetes://tests/x")
