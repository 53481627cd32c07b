"""A damaged or newer record is shown, and nobody ends the job unasked for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from transload.errors import SchedulerUnavailable
from transload.runner import Runner
from transload.specs import AppState
from transload_kubernetes.cluster import Cluster

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
