"""The fake cluster against the recordings of a real one, field by field, as far as those were
kept.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, RetryPolicy
from transload_kubernetes.names import ANNOTATION_HELD

KINDS = ("Job", "JobSet", "Pod")
WORDS = ("phase", "reason")
PULLING = "Pod.status.containerStatuses[].state.waiting.reason="

NOT_KEPT = {
    *(f"{PULLING}ErrImagePull", f"{PULLING}ImagePullBackOff"),
    *(
        f"{kind}.metadata.annotations.{ANNOTATION_HELD}" for kind in ("Job", "JobSet")
    ),  # ours, and newer than they
}
"""What the fake makes, and none of the lives kept here had."""
NOT_MADE = {
    # what ends a pod from outside: the fake has one way, which is pre-emption
    "Pod.status.conditions[DisruptionTarget=True:DeletionByPodGC]",
    "Pod.status.conditions[DisruptionTarget=True:DeletionByTaintManager]",
    "Pod.status.conditions[DisruptionTarget=True:EvictionByEvictionAPI]",
    "Pod.status.conditions[Ready=False]",  # a node that does not answer
    # names of images are not read, nor is memory measured
    f"{PULLING}InvalidImageName",
    "Pod.status.containerStatuses[].state.terminated.message",
    "Pod.status.containerStatuses[].state.terminated.reason=ContainerStatusUnknown",
    "Pod.status.containerStatuses[].state.terminated.reason=OOMKilled",
}
"""What was recorded, and the fake has not."""


def fields(value: Any, path: str) -> Iterator[str]:
    """Yield the path of every field, with conditions by their type, status and reason.

    Words have their value in the path.
    """
    if isinstance(value, dict):
        if not value:
            yield f"{path}{{}}"
        for name, each in value.items():
            yield from (
                [f"{path}.{name}={each}"] if name in WORDS else fields(each, f"{path}.{name}")
            )
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, dict) and {"type", "status"} <= each.keys():
                reason = f":{each['reason']}" if each.get("reason") else ""
                yield f"{path}[{each['type']}={each['status']}{reason}]"
                each = {
                    name: other
                    for name, other in each.items()
                    if name not in ("type", "status", "reason")
                }
            yield from fields(each, f"{path}[]")
    else:
        yield path


@functools.cache
def recorded() -> tuple[set[str], set[str]]:
    """Return the fields of all recorded objects, and which of their specs were kept."""
    data = lzma.decompress(Path(__file__).with_name("lives").joinpath("lives.json.xz").read_bytes())
    objects = [change["object"] for life in json.loads(data).values() for change in life]
    found = {
        path for item in objects if item["kind"] in KINDS for path in fields(item, item["kind"])
    }
    return found, {
        ".".join(path.split("[")[0].split(".")[:3]) for path in found if ".spec." in path
    }


def apps(shell: Any) -> dict[str, tuple[AppDef, dict[str, Any]]]:
    """Return apps that live as those recorded did, with their options."""
    again = {"max_retries": 1, "retry_policy": RetryPolicy.APPLICATION}
    no_program = shell("true")
    no_program.roles[0].entrypoint = "/no/such/program"
    return {
        "good": (shell("true"), {}),
        "bad": (shell('exit "$TRANSLOAD_REPLICA_ID"', replicas=3), {}),
        "enough": (shell('exit "$TRANSLOAD_REPLICA_ID"', replicas=2, min_replicas=1), {}),
        "late": (shell("sleep 300", timeout=1.0), {}),
        "noprogram": (no_program, {}),
        "cancelled": (shell("sleep 300", replicas=2), {}),
        "noroom": (shell("true"), {"node_selector": {"unschedulable": "x"}}),
        "noimage": (shell("true", image="missing/image:1"), {}),
        "queued": (shell("true"), {"queue": "q"}),
        "set": (shell({"one": "exit 3", "two": "true"}, replicas=2, **again), {"jobset": "always"}),
        "others": (shell({"one": "true", "two": "true"}, **again), {"jobset": "always"}),
        "setcancelled": (shell("sleep 300"), {"jobset": "always", "queue": "q"}),
        "setqueued": (shell({"one": "true", "two": "true"}), {"jobset": "always", "queue": "q"}),
        "preempted": (shell("sleep 3"), {}),
    }


def test_every_field_is_as_recorded(
    fake: Any, runner: Runner, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs, JobSets and pods of the fake have the fields of real ones, no more and, but for a list,
    no fewer.
    """
    monkeypatch.setenv("TRANSLOAD_SETTINGS", "job.provenance = false")  # as when they were recorded
    handles = {
        name: runner.run(app, "kubernetes", {"jobset": "never", **cfg})
        for name, (app, cfg) in apps(shell).items()
    }

    def state(name: str) -> AppState:
        return runner.status(handles[name]).state

    def pod(name: str) -> dict[str, Any]:
        label = handles[name].rpartition("/")[2].rpartition(":")[2]
        return next(
            pod
            for pod in fake.cluster.items("pods")
            if pod["metadata"]["labels"]["transload.io/app"] == label
        )

    for name in ("preempted", "cancelled"):
        eventually(lambda name=name: state(name) is AppState.RUNNING, 30)
    fake.cluster.evict(pod("preempted"))
    for name in ("setqueued", "setcancelled"):
        eventually(lambda name=name: "waits in queue q" in runner.status(handles[name]).msg, 30)
    for plural in ("jobs", "jobsets"):
        for item in fake.cluster.items(plural):
            if item["spec"].get("suspend") and not item["metadata"]["ownerReferences"][0].get(
                "controller"
            ):
                fake.cluster.patch(
                    plural, "default", item["metadata"]["name"], {"spec": {"suspend": False}}
                )
    eventually(lambda: "ImagePullBackOff" in runner.status(handles["noimage"]).msg, 30)
    eventually(lambda: state("setcancelled") is AppState.RUNNING, 30)
    for name in ("cancelled", "noroom", "noimage", "setcancelled"):
        runner.cancel(handles[name])
    for name, handle in handles.items():
        assert runner.wait(handle, timeout=60) is not None, name
        runner.delete(handle)
    eventually(lambda: not fake.cluster.items("pods") and not fake.cluster.items("jobs"), 30)

    real, specs = recorded()
    made = set()
    for _, _, _, item in fake.cluster.history:
        if item["kind"] in KINDS:
            for path in fields(item, item["kind"]):
                if ".spec." not in path or ".".join(path.split("[")[0].split(".")[:3]) in specs:
                    made.add(path)
    assert (sorted(made - real - NOT_KEPT), sorted(NOT_KEPT - made)) == ([], [])
    assert (sorted(real - made - NOT_MADE), sorted(NOT_MADE & made)) == ([], [])
