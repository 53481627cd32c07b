"""Python functions run in pods without storage."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import AppFailed, SpecError
from transload.runner import Launch, Runner
from transload.specs import Workspace
from transload_kubernetes import names
from transload_kubernetes.states import attempt_of_program

pytest.importorskip("cloudpickle")


@pytest.fixture
def in_pods(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have simulated pods, which have no files of ours, work in the folder of the call."""
    dryrun = Runner.dryrun

    def simulated(self: Runner, launch: Any, *args: Any, **options: Any) -> Any:
        assert isinstance(launch, Launch) and isinstance(launch.app, transload.specs.AppDef)
        role = launch.app.roles[0]
        assert isinstance(role.workspace, Workspace)
        from transload.workspace import copy_workspace

        folder = str(tmp_path / launch.app.name)
        copy_workspace(role.workspace, folder)
        role.entrypoint, role.args, role.workspace = (
            "env",
            ["-C", folder, sys.executable, *role.args],
            None,
        )
        return dryrun(self, launch, *args, **options)

    monkeypatch.setattr(Runner, "dryrun", simulated)


def options_of(runner: Runner, **more: Any) -> Mapping[str, Any]:
    """Return what `transload.submit` takes."""
    return {
        "scheduler": "kubernetes",
        "runner": runner,
        "image": "registry.example/python:3",
        **more,
    }


def squared(n: int) -> list[int]:
    """Return a number and its square."""
    return [n, n * n]


@pytest.mark.usefixtures("in_pods")
def test_a_result_comes_with_the_status(runner: Runner) -> None:
    """A function's value comes back, as JSON, since others can write to a cluster's records."""
    job = transload.submit(squared, 7, name="square", **options_of(runner))
    assert job.result(timeout=60) == [7, 49]
    assert transload.attach(job.handle, runner).result() == [7, 49]
    pair = transload.submit(divmod, 7, 2, name="pair", **options_of(runner))
    with pytest.raises(SpecError, match="trust=True"):
        pair.result(timeout=60)
    assert pair.result(trust=True) == (3, 1)


@pytest.mark.usefixtures("in_pods")
def test_a_result_that_is_too_large(runner: Runner) -> None:
    """The message names the way out, and the job has failed."""
    job = transload.submit(bytes, 5000, name="large", **options_of(runner))
    with pytest.raises(SpecError, match="give tracker_base"):
        job.result(timeout=60)


@pytest.mark.usefixtures("in_pods")
@pytest.mark.parametrize("second", ["returns", "dies"])
def test_only_the_last_attempt_speaks(runner: Runner, second: str) -> None:
    """What a pod raised that was replaced is not the end, whether its successor says something or
    not.
    """

    def fail_first() -> int:
        if os.environ["TRANSLOAD_RETRY"] == "0":
            raise KeyError("first")
        if second == "dies":
            os._exit(7)
        return 3

    app = transload.submit(fail_first, name="retried", retries=1, **options_of(runner))
    if second == "returns":
        assert app.result(timeout=90) == 3
        return
    with pytest.raises(AppFailed, match="exit code 7"):
        app.result(timeout=90)


def test_the_attempt_of_a_program() -> None:
    """The attempt is a number in the pod, or an annotation that is filled in, else unknown."""
    by_engine = {
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{names.INDEX_FAILURES}']"}}
    }
    for found, attempt in (({"value": "2"}, 2), (by_engine, 1), ({"value": ""}, None), ({}, None)):
        pod = {
            "metadata": {"annotations": {names.INDEX_FAILURES: "1", names.INDEX_IGNORED: "5"}},
            "spec": {
                "containers": [{"name": names.MAIN, "env": [{"name": "TRANSLOAD_RETRY", **found}]}]
            },
        }
        assert attempt_of_program(pod) == attempt
    assert attempt_of_program({"metadata": {}, "spec": {}}) is None
