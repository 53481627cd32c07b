"""Names that two apps would share: the second is refused before anything of it stays, the first goes on."""

from __future__ import annotations

from typing import Any

import pytest

from transload.errors import SubmitError
from transload.schedulers.api import Submission
from transload.specs import AppState, RetryPolicy


def start(scheduler: Any, app: Any, app_id: str, **cfg: Any) -> None:
    """Submit an app as the runner does."""
    options = scheduler.run_opts().resolve(cfg)
    submission = Submission(app, app.digest(), "tests", options, id_given=True)
    scheduler.submit(scheduler.convert(app, options), app_id, submission)


def reaches(scheduler: Any, eventually: Any, app_id: str, state: AppState) -> Any:
    """Wait until an app is in a state; return its status."""
    return eventually(lambda: (found := scheduler.describe(app_id).status).state is state and found, 60)


def held(fake: Any) -> dict[tuple[str, str], str]:
    """Return the uid of every object by kind and name, pods and events aside."""
    return {
        (item["kind"], item["metadata"]["name"]): item["metadata"]["uid"]
        for item in fake.snapshot()
        if item["kind"] not in ("Pod", "Event")
    }


@pytest.mark.parametrize("first_set", [False, True], ids=["job", "jobset"])
@pytest.mark.parametrize("second_set", [False, True], ids=["job", "jobset"])
def test_a_job_of_another_app_is_not_taken_for_its_own(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, first_set: bool, second_set: bool
) -> None:
    """Role ``x-worker`` of app ``train`` and role ``worker`` of app ``train-x`` would have one Job."""
    role = "x-worker-0" if second_set and not first_set else "x-worker"
    start(scheduler, shell({role: "sleep 300"}), "train", jobset=first_set)
    reaches(scheduler, eventually, "train", AppState.RUNNING)
    before = held(fake)
    other = shell({"reader": "sleep 300", "worker-0" if first_set and not second_set else "worker": "true"}, replicas=2)
    other.roles[0].env["A_TOKEN"] = "hunter2"
    name = "train-x-worker-0" if first_set or second_set else "train-x-worker"
    with pytest.raises(SubmitError, match=rf"Job {name} .* of app train,.*choose another") as caught:
        start(scheduler, other, "train-x", jobset=second_set)
    assert not caught.value.transient
    eventually(lambda: held(fake) == before, 30)
    assert not scheduler.existed("train-x")
    assert scheduler.describe("train").status.state is AppState.RUNNING


def test_no_role_runs_for_a_submit_that_is_refused_at_another(fake: Any, scheduler: Any, shell: Any) -> None:
    """Neither a name that is taken, nor what the cluster says of a later role, starts the first for a moment."""
    from fake_api import ApiError  # type: ignore[import-not-found]

    start(scheduler, shell({"x-worker": "sleep 300"}), "train")
    seen = fake.cluster.version
    with pytest.raises(SubmitError, match="Job train-x-worker .* of app train,"):
        start(scheduler, shell({"reader": "true", "worker": "true"}), "train-x")
    create = fake.cluster.create

    def refusing(plural: str, namespace: str, item: dict[str, Any], **options: Any) -> Any:
        if plural == "jobs" and item["metadata"]["name"] == "big-writer":
            raise ApiError(403, "Forbidden", "exceeded quota")
        return create(plural, namespace, item, **options)

    fake.cluster.create = refusing
    with pytest.raises(SubmitError, match="exceeded quota"):
        start(scheduler, shell({"reader": "true", "writer": "true"}), "big")
    later = [(kind, item) for version, _, kind, item in fake.cluster.history if version > seen]
    assert {item["metadata"]["name"] for kind, item in later if kind == "jobs"} <= {"train-x-worker"}


def test_a_cluster_that_cannot_try_is_no_hindrance(
    fake: Any, scheduler: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a webhook refuses whatever is only to be tried, all is made without."""
    from fake_api import ApiError

    create = fake.cluster.create

    def webhook(*args: Any, only_try: bool = False) -> Any:
        if only_try:
            raise ApiError(400, "BadRequest", 'admission webhook "old.example" does not support dry run')
        return create(*args)

    monkeypatch.setattr(fake.cluster, "create", webhook)
    start(scheduler, shell({"reader": "true", "writer": "true"}), "x")
    reaches(scheduler, eventually, "x", AppState.SUCCEEDED)


def test_a_service_of_another_app_is_not_taken_for_its_own(fake: Any, scheduler: Any, shell: Any) -> None:
    """The Service that leads to rank 0 of app ``x`` has the name of that of app ``x-rank0``."""
    start(scheduler, shell("sleep 300", replicas=2), "x")
    before = held(fake)
    with pytest.raises(SubmitError, match="Service x-rank0 .* of app x,"):
        start(scheduler, shell("sleep 300", replicas=2), "x-rank0")
    with pytest.raises(SubmitError, match="Service x-rank0 .* of app x,"):
        start(scheduler, shell("sleep 300", replicas=2), "x-rank0", jobset=True)
    assert held(fake) == before


def test_somebody_elses_jobset_is_left_alone(fake: Any, scheduler: Any, shell: Any) -> None:
    """A JobSet that no app has made is neither adopted nor deleted when the submit is undone."""
    network = {"enableDNSHostnames": False}
    fake.cluster.create(
        "jobsets", "default", {"metadata": {"name": "x"}, "spec": {"network": network, "replicatedJobs": []}}
    )
    before = held(fake)
    with pytest.raises(SubmitError, match="JobSet x .* somebody else's"):
        start(scheduler, shell("sleep 300"), "x", jobset=True)
    assert held(fake) == before


def test_a_restart_whose_name_is_taken_says_so(fake: Any, scheduler: Any, shell: Any, eventually: Any) -> None:
    """The Job of a later attempt may have the name of another app's: FAILED by that name, not "deleted"."""
    app = shell("exit 3", replicas=2, max_retries=1, retry_policy=RetryPolicy.ROLE)
    start(scheduler, shell({"a0r1": "sleep 300"}), "train-main")
    start(scheduler, app, "train")
    found = reaches(scheduler, eventually, "train", AppState.FAILED)
    assert "Job train-main-a0r1" in found.msg and "app train-main" in found.msg
    assert scheduler.describe("train-main").status.state is AppState.RUNNING


def test_a_conflict_about_something_else_is_no_adoption(fake: Any, scheduler: Any, shell: Any) -> None:
    """A 409 of a quota's count left the app without its Job: it is an error that may be tried again."""
    from fake_api import ApiError  # type: ignore[import-not-found]

    text = "Operation cannot be fulfilled on resourcequotas"
    fake.cluster.fail["POST", "jobs"] = ApiError(409, "Conflict", text)
    with pytest.raises(SubmitError, match=text) as caught:
        start(scheduler, shell("true"), "x")
    assert caught.value.transient
    assert held(fake) == {}
