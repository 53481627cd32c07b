"""A job block is saved, loaded, triggered, awaited and cancelled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from transload.errors import AppFailed
from transload.pipelines import AppCancelled


def test_save_load_run(host: Any) -> None:
    """A block is saved, found in the server, loaded, triggered, awaited, and gives results."""
    from transload_prefect import AppJob

    name = f"job-{uuid4().hex[:8]}"
    AppJob(
        component="jobs:job",
        component_args={"value": 4},
        scheduler="local",
        options={"patience": 60},
    ).save(name)
    found = host.get(f"/block_types/slug/transload-app/block_documents/name/{name}")
    assert found["data"]["component"] == "jobs:job"
    job = AppJob.load(name)
    run = job.trigger()
    run.wait_for_completion()
    results = run.fetch_result()
    assert results.value("value") == 4.0
    assert job.trigger().handle != run.handle


def test_in_an_async_flow(host: Any) -> None:
    """Where an event loop runs, every method is awaited."""
    from prefect import flow

    from transload_prefect import AppJob

    @flow
    async def work() -> Any:
        run = await AppJob(component="jobs:job", component_args={"value": 4}).trigger()
        await run.wait_for_completion()
        return await run.fetch_result()

    assert asyncio.run(work()).value("value") == 4.0


def test_logs_of_a_flows_own_app(host: Any, eventually: Any) -> None:
    """An app that the flow's own code started, in no task run, has its lines in the flow run's log,
    each once.
    """
    from prefect import flow

    from transload_prefect import AppJob

    seen: list[Any] = []

    @flow
    def work() -> None:
        from prefect.runtime import flow_run

        seen.append(flow_run.id)
        run = AppJob(component="jobs:job", component_args={"lines": 3}).trigger()
        run.wait_for_completion()

    work()

    def lines() -> list[dict[str, Any]]:
        return [line for line in host.logs(seen[0]) if line["message"].startswith("main/0 ")]

    eventually(lambda: len(lines()) >= 5, 30)
    assert sorted(line["message"] for line in lines()) == sorted(
        [*(f"main/0 line {n}." for n in range(4)), "main/0 to stderr"]
    )
    assert {line["task_run_id"] for line in lines()} == {None}


def test_results_are_shown(host: Any, transload_home: Path, eventually: Any) -> None:
    """What an app reported is a table of the flow run, as with an app task."""
    from prefect import flow

    from transload_prefect import AppJob

    @flow
    def work() -> Any:
        from prefect.runtime import flow_run

        run = AppJob(component="jobs:job", component_args={"value": 4}).trigger()
        run.wait_for_completion()
        return flow_run.id

    flow_run_id = work()

    def tables() -> list[str]:
        found = host.artifacts(flow_run_id)
        return [each["data"] for each in found if each["key"].endswith("-results")]

    (table,) = eventually(tables, 30)
    assert [(row["name"], row["value"]) for row in json.loads(table)] == [("value", 4.0)]


@pytest.mark.parametrize("submitted", [True, False])
def test_a_time_limit_of_its_task(host: Any, gate: Path, submitted: bool, eventually: Any) -> None:
    """In a task with a time limit the app is cancelled when that passes, also where a kill would
    let it go.
    """
    from prefect import flow, task

    from transload.pipelines import host_runner
    from transload_prefect import AppJob

    @task(timeout_seconds=2)
    def limited() -> None:
        block = AppJob(
            component="jobs:job", component_args={"gate": str(gate)}, options={"on_kill": "detach"}
        )
        block.trigger().wait_for_completion()

    @flow
    def work() -> Any:
        return (limited.submit if submitted else limited)(return_state=True).type.name

    assert work() == "FAILED"
    runner = host_runner("prefect")
    eventually(lambda: [each.state.name for each in runner.list("local")] == ["CANCELLED"], 30)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_signal_while_it_starts(
    host: Any, gate: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, eventually: Any
) -> None:
    """What ends the flow's process when ``trigger`` has just submitted the app ends the app too."""
    from prefect import flow

    from transload.pipelines import host_runner
    from transload_prefect import AppJob
    from transload_prefect.notes import Notes

    put = Notes.put

    def interrupted(self: Notes, record: dict[str, Any]) -> None:
        put(self, record)
        if record.get("handle"):
            raise KeyboardInterrupt

    monkeypatch.setattr(Notes, "put", interrupted)

    def block() -> Any:
        return AppJob(component="jobs:job", component_args={"gate": str(gate)}).trigger()

    @flow
    def work() -> None:
        block()

    @flow
    async def work_async() -> None:
        await block()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work_async()) if asynchronous else work()
    runner = host_runner("prefect")
    eventually(lambda: [each.state.name for each in runner.list("local")] == ["CANCELLED"], 30)


def test_failure_and_cancel(host: Any, gate: Path) -> None:
    """A failed run raises when it is awaited, and so does one that was cancelled on request."""
    from transload_prefect import AppJob

    run = AppJob(component="jobs:job", component_args={"code": 3}).trigger()
    with pytest.raises(AppFailed, match="exit code 3"):
        run.wait_for_completion()
    with pytest.raises(AppFailed):
        run.fetch_result()
    run = AppJob(component="jobs:job", component_args={"gate": str(gate)}).trigger()
    assert not run.status().is_terminal()
    run.cancel()
    with pytest.raises(AppCancelled):
        run.wait_for_completion()


@pytest.mark.parametrize(
    "values", [{}, {"component": "a", "app": {}}, {"component": "a", "options": {"patience": -1}}]
)
def test_wrong_blocks_are_refused(values: dict[str, Any]) -> None:
    """A block that cannot work is refused when it is made."""
    from transload_prefect import AppJob

    with pytest.raises(ValueError, match=r"exactly one|patience|options"):
        AppJob(**values)


def test_collection_is_registered() -> None:
    """Prefect finds the block type and the worker type by the entry point."""
    from prefect.plugins import load_prefect_collections
    from prefect.workers.base import BaseWorker

    assert "transload_prefect" in load_prefect_collections()
    assert BaseWorker.get_worker_class_from_type("transload") is not None
