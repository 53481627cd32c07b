"""A damaged or newer record is shown, and nobody ends the job unasked for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from transload.errors import AppExists, SchedulerUnavailable
from transload.runner import Runner
from transload.specs import AppState
from transload_kubernetes.cluster import Cluster
from transload_kubernetes.plan import Facts, Plan, RolePlan, record

Change = Callable[[str, str], str]


@pytest.fixture
def rewrite(fake: Any) -> Change:
    """Return ``rewrite(name, text)``, which replaces the plan of a job and returns the old one."""

    def replace(name: str, text: str) -> str:
        cluster = Cluster()
        found = cluster.get("ConfigMap", "default", name)
        assert found is not None
        cluster.patch("ConfigMap", "default", name, {"data": {"plan": text}})
        cluster.close()
        before: str = found["data"]["plan"]
        return before

    return replace


def _kinds(fake: Any, name: str) -> list[str]:
    """Return the kinds of which there still is something of an app."""

    def has(item: dict[str, Any]) -> bool:
        return (item["metadata"].get("labels") or {}).get("transload.io/app") == name

    kinds = ("jobs", "pods", "services", "secrets")
    return [kind for kind in kinds if any(map(has, fake.cluster.items(kind, "default")))]


def test_job_is_ended_first(
    fake: Any, runner: Runner, shell: Any, rewrite: Change, eventually: Any
) -> None:
    """Deleting a damaged job ends its pods and removes all of it, but its id stays taken."""
    handle = runner.run(
        shell("sleep 300", replicas=2), "kubernetes", {"jobset": "never"}, app_id="broken"
    )
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, timeout=60)  # type: ignore[union-attr]
    before = rewrite("broken", "{")
    assert "ConfigMap broken of namespace default, is damaged" in runner.status(handle).msg  # type: ignore[union-attr]
    rewrite("broken", before)
    assert runner.status(handle).state is AppState.RUNNING  # type: ignore[union-attr]
    rewrite("broken", "{")
    assert {"jobs", "pods"} <= {*_kinds(fake, "broken")}
    runner.delete(handle)
    assert _kinds(fake, "broken") == []
    assert runner.status(handle) is None
    with pytest.raises(AppExists, match="has been deleted"):
        runner.run(shell("true"), "kubernetes", app_id="broken")


def test_cancel(fake: Any, runner: Runner, shell: Any, rewrite: Change, eventually: Any) -> None:
    """Such a job can be cancelled by suspending its Jobs, which ends their pods."""
    handle = runner.run(shell("sleep 300"), "kubernetes", app_id="stopped")
    eventually(lambda: runner.status(handle).state is AppState.RUNNING, timeout=60)  # type: ignore[union-attr]
    rewrite("stopped", "5")
    runner.cancel(handle)
    eventually(lambda: "pods" not in _kinds(fake, "stopped"), timeout=30)
    runner.delete(handle)
    assert _kinds(fake, "stopped") == []


def test_newer_record_is_left_alone(runner: Runner, shell: Any, rewrite: Change) -> None:
    """A newer version's record is shown as UNKNOWN, and neither cancelled nor deleted."""
    handle = runner.run(shell("true"), "kubernetes", app_id="newer")
    assert runner.wait(handle, timeout=60) is not None
    before = rewrite("newer", json.dumps({"schema": 99}))
    assert [row.state for row in runner.list("kubernetes")] == [AppState.UNKNOWN]
    assert "written by a newer version of transload (schema 99" in runner.status(handle).msg  # type: ignore[union-attr]
    for act in (runner.delete, runner.cancel):
        with pytest.raises(SchedulerUnavailable, match="newer version"):
            act(handle)
    rewrite("newer", before)
    assert runner.status(handle).state is AppState.SUCCEEDED  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("created", "yesterday"),
        ("app_id", 5),
        ("cfg", []),
        ("jobs", ["x"]),
        ("roles", [{"name": 1}]),
        ("digest", None),
    ],
)
def test_fields_of_another_type(field: str, value: Any) -> None:
    """A plan with a field of the wrong type is damaged, not one to reckon with."""
    plan = Plan("default:a", "a", "sha256:0", "s", 1.0, [RolePlan("main", 1, 1)])
    good = record("a", "default", plan, "{}")
    assert Facts(good).plan is not None
    good["data"]["plan"] = json.dumps({**json.loads(good["data"]["plan"]), field: value})
    found = Facts(good)
    assert found.plan is None and "is damaged" in found.unreadable
    assert found.app_id == "default:a"
