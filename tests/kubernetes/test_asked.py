"""A job's objects on the cluster lead to whoever asked for it, such as an orchestrator's task."""

from __future__ import annotations

import os
from typing import Any

import pytest

from transload.runner import Launch, Runner
from transload.specs import AppState, RetryPolicy

WORDS = {
    "dag": "etl",
    "run": "manual__2026-11-28T07:00:00+00:00",
    "task": "load",
    "map_index": -1,
    "try": 2,
    "note": "x" * 100,
    "tries": [0, 1],
    "no/name": "a",
    "empty": "",
}
P = "asked.transload.io/"
SHORT = {
    f"{P}flow.dag": "etl",
    f"{P}flow.run": "manual__2026-11-28T07-00-00-00-00",
    f"{P}flow.task": "load",
    f"{P}flow.try": "2",
    f"{P}flow.no-name": "a",
}
EXACT = {
    **SHORT,
    f"{P}flow.run": WORDS["run"],
    f"{P}flow.map_index": "-1",
    f"{P}flow.note": "x" * 100,
    f"{P}flow.tries": "[0, 1]",
}


def of_flow(marks: dict[str, str]) -> dict[str, str]:
    """Return what of an object's labels or annotations is a word of the orchestrator."""
    return {name: text for name, text in marks.items() if name.startswith(f"{P}flow")}


@pytest.mark.parametrize(
    ("jobset", "kinds"), [("never", ["jobs"]), ("always", ["jobsets", "jobs"])]
)
def test_who_asked(fake: Any, runner: Runner, shell: Any, jobset: str, kinds: list[str]) -> None:
    """Jobs, a JobSet and pods have the words, those of later attempts as well."""
    again = 'test "$TRANSLOAD_RETRY" = 1'
    app = shell(again, max_retries=1, retry_policy=RetryPolicy.APPLICATION)
    launch = Launch(app=app, scheduler="kubernetes", cfg={"jobset": jobset})
    job = launch.plan(runner, asked={"flow": WORDS}).submit()
    status = runner.wait(job.handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    for kind in [*kinds, "pods"]:
        found = [item["metadata"] for _, _, plural, item in fake.cluster.history if plural == kind]
        assert found
        for metadata in found:
            assert of_flow(metadata["annotations"]) == EXACT
            assert of_flow(metadata["labels"]) == SHORT


def test_a_user_asked(fake: Any, runner: Runner, shell: Any) -> None:
    """The objects of any job name the user, the machine and the folder that it comes from."""
    runner.wait(runner.run(shell("true"), "kubernetes"), timeout=60)
    for item in [*fake.cluster.items("jobs"), *fake.cluster.items("pods")]:
        annotations, labels = item["metadata"]["annotations"], item["metadata"]["labels"]
        assert annotations[f"{P}user"] == labels[f"{P}user"] != ""
        assert annotations[f"{P}machine"] == os.uname().nodename
        assert annotations[f"{P}folder"] == os.getcwd()
        assert not of_flow(annotations)


def test_its_objects_are_named(fake: Any, runner: Runner, shell: Any) -> None:
    """The status has the names under which kubectl finds a job, also after its end."""
    handle = runner.run(shell("true"), "kubernetes")
    status = runner.wait(handle, timeout=60)
    (job,) = (item["metadata"] for item in fake.cluster.items("jobs"))
    (pod,) = (item["metadata"] for item in fake.cluster.items("pods"))
    assert status is not None
    assert status.engine == {
        "namespace": job["namespace"],
        "jobs": job["name"],
        "pods": pod["name"],
    }
