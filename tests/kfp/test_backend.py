"""Runs are tested on a stub of the v2beta1 REST API, for there is no backend here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apps
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_backend import StubBackend, stub_backend, task

from transload.errors import (
    AppNotFound,
    ConfigError,
    SchedulerUnavailable,
    StateUnknown,
    TransloadTimeout,
)
from transload.specs import AppState
from transload_kfp import (
    FINAL_STATES,
    STATES,
    cancel_run,
    component_from_app,
    describe_run,
    pipeline_text,
    wait_for_run,
)
from transload_kfp.component import pipeline_from_component

pytestmark = pytest.mark.filterwarnings(
    "ignore:This client only works with Kubeflow Pipeline:FutureWarning"
)


@pytest.fixture
def backend() -> Iterator[StubBackend]:
    """The stub."""
    with stub_backend() as made:
        yield made


@pytest.fixture
def client(backend: StubBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """KFP's own client on the stub."""
    import kfp

    monkeypatch.setenv("HOME", str(tmp_path))  # it keeps settings there
    made = kfp.Client(host=backend.host)
    yield made
    for api in (made._run_api, made._healthz_api):
        api.api_client.rest_client.pool_manager.clear()


# -- tables


def test_tables_are_total() -> None:
    """Every state of both worlds has a value in the other, and ended states stay ended."""
    from kfp_server_api import V2beta1RuntimeState

    words = V2beta1RuntimeState.allowable_values
    assert set(STATES) == set(AppState)
    assert set(STATES.values()) <= set(words)
    ended = {"SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"}
    for word in words:
        state = STATES.to_app(word)
        assert (state in (AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED)) == (
            word in ended
        ), word
    assert STATES.to_app("CANCELED") is AppState.CANCELLED
    assert STATES.to_app("RUNTIME_STATE_UNSPECIFIED") is AppState.UNKNOWN


@given(st.sampled_from(list(AppState)))
def test_there_and_back(state: AppState) -> None:
    """What has ended, runs, waits or is unknown is the same after a way there and back."""
    waiting = (AppState.UNSUBMITTED, AppState.SUBMITTED, AppState.PENDING)
    assert STATES.to_app(STATES[state]) is (AppState.PENDING if state in waiting else state)


def test_final_status_table() -> None:
    """A task's final status is one of three, each with its AppState."""
    assert set(FINAL_STATES) == set(AppState)
    assert {FINAL_STATES.to_app(word) for word in ("SUCCEEDED", "FAILED", "CANCELLED")} == {
        AppState.SUCCEEDED,
        AppState.FAILED,
        AppState.CANCELLED,
    }
    assert all(
        FINAL_STATES.to_app(FINAL_STATES[s]) is s
        for s in AppState
        if s.name in ("SUCCEEDED", "FAILED", "CANCELLED")
    )


def test_a_word_of_a_later_version(backend: StubBackend, client: Any) -> None:
    """A state that this version has not heard of is UNKNOWN, not an error."""
    backend.put("r", "PONDERING")
    seen = describe_run(client, "r")
    assert (seen.state, seen.runtime_state) == (AppState.UNKNOWN, "PONDERING")


# -- describe


@pytest.mark.parametrize("word", [*STATES._reverse, None])
def test_describe_every_state(backend: StubBackend, client: Any, word: str | None) -> None:
    """Every RuntimeState of a run and of a task is read."""
    backend.put("r", word, [task("a", word or "RUNTIME_STATE_UNSPECIFIED")])
    seen = describe_run(client, "r")
    expected = STATES.to_app(word or "RUNTIME_STATE_UNSPECIFIED")
    assert (seen.state, seen.tasks["a"].state) == (expected, expected)
    assert seen.status.cancel_requested == (word in ("CANCELING", "CANCELED"))
    assert seen.is_terminal() == (word in ("SUCCEEDED", "SKIPPED", "FAILED", "CANCELED"))


def test_describe_tasks(backend: StubBackend, client: Any) -> None:
    """Tasks have paths, messages, times, tries and pods, and equal names are numbered."""
    history = [
        {"state": state, "update_time": "2026-01-02T03:04:05Z"}
        for state in ("RUNNING", "FAILED", "RUNNING")
    ]
    backend.put(
        "r",
        "FAILED",
        [
            task("loop", "FAILED", task_id="1"),
            task(
                "train",
                "FAILED",
                task_id="2",
                parent_task_id="1",
                error={"code": 3, "message": "out of\nmemory"},
            ),
            task(
                "train",
                "RUNNING",
                task_id="3",
                parent_task_id="1",
                state_history=history,
                pod_name="pod-3",
            ),
        ],
        error={"code": 3, "message": "a task failed"},
    )
    seen = describe_run(client, "r")
    assert set(seen.tasks) == {"loop", "loop/train", "loop/train#2"}
    assert (seen.name, seen.msg) == ("a run", "a task failed")
    assert seen.tasks["loop/train"].msg == "out of memory"
    (role,) = seen.tasks["loop/train#2"].roles
    assert (role.replicas[0].restarts, role.replicas[0].hostname, role.replicas[0].end_time) == (
        1,
        "pod-3",
        None,
    )
    assert len(seen.status.roles) == 3


def test_describe_of_nothing(backend: StubBackend, client: Any) -> None:
    """A run that does not exist is said to."""
    with pytest.raises(AppNotFound, match="nobody"):
        describe_run(client, "nobody")
    backend.failures = [500]
    with pytest.raises(SchedulerUnavailable, match="500"):
        describe_run(client, "nobody")


# -- wait


@pytest.mark.parametrize("word", ["SUCCEEDED", "FAILED", "CANCELED", "SKIPPED"])
def test_wait_for_every_end(backend: StubBackend, client: Any, word: str) -> None:
    """A wait ends with the run, cancelled ones too, and tells each change on the way."""
    backend.put("r", "PENDING")
    seen: list[str] = []

    def go_on(run: Any) -> None:
        seen.append(run.runtime_state)
        if run.runtime_state == "PENDING":
            backend.put("r", "RUNNING", [task("a", "RUNNING")])
        elif run.runtime_state == "RUNNING":
            backend.failures = [503, 500]
            backend.put("r", word, [task("a", word)])

    end = wait_for_run(client, "r", 60, poll_interval=0.05, on_change=go_on)
    assert seen == ["PENDING", "RUNNING", word]
    assert end.state is STATES.to_app(word)
    assert end.tasks["a"].state is STATES.to_app(word)


def test_wait_runs_out(backend: StubBackend, client: Any) -> None:
    """A wait that runs out says the state that the run was in, and the run goes on."""
    backend.put("r", "RUNNING")
    with pytest.raises(TransloadTimeout, match=r"RUNNING.*goes on"):
        wait_for_run(client, "r", 0.3, poll_interval=0.05)
    with pytest.raises(ConfigError, match="poll_interval"):
        wait_for_run(client, "r", poll_interval=0)
    assert not any("terminate" in path for _, path in backend.calls)


def test_a_backend_that_does_not_answer(
    backend: StubBackend, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that takes the question and says nothing does not hold a wait up for ever."""
    backend.put("r", "RUNNING")
    answer = backend.answer
    over = threading.Event()

    def silent(*request: Any) -> Any:
        over.wait(60)
        return answer(*request)

    monkeypatch.setattr(backend, "answer", silent)
    monkeypatch.setattr(
        backend._server, "handle_error", lambda *request: None
    )  # nobody is there to take the answer
    monkeypatch.setattr("transload_kfp.backend.ANSWER", 0.2)
    try:
        with pytest.raises(StateUnknown, match="cannot be reached"):
            wait_for_run(client, "r", patience=0.1)
        with pytest.raises(SchedulerUnavailable):
            describe_run(client, "r")
        with pytest.raises(TransloadTimeout, match="not known"):
            wait_for_run(client, "r", 0.01)
    finally:
        over.set()


def test_a_client_of_somebody_s_own(backend: StubBackend, client: Any) -> None:
    """What is no client of KFP's, or does it another way, is asked as it wants to be."""
    backend.put("r", "SUCCEEDED")

    class Mine:
        def get_run(self, run_id: str) -> Any:
            return client.get_run(run_id)

    assert describe_run(Mine(), "r").state is AppState.SUCCEEDED  # type: ignore[arg-type]


def test_patience(backend: StubBackend, client: Any) -> None:
    """A backend that is out of reach, or does not know, for longer than patience is a failure of
    its own.
    """
    backend.put("r", "RUNTIME_STATE_UNSPECIFIED")
    with pytest.raises(StateUnknown, match="unknown"):
        wait_for_run(client, "r", 60, poll_interval=0.05, patience=0.2)
    backend.failures = [503] * 10_000
    with pytest.raises(StateUnknown, match="503"):
        wait_for_run(client, "r", 60, poll_interval=0.05, patience=0.2)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_is_said_at_once(backend: StubBackend, client: Any, status: int) -> None:
    """A question that the backend refuses, of a client with a wrong token say, is asked once and
    never again.
    """
    backend.put("r", "RUNNING")
    for ask in (describe_run, wait_for_run, cancel_run):
        backend.failures = [status]
        before = len(backend.calls)
        with pytest.raises(ConfigError, match=f"run r.*{status}.*credentials"):
            ask(client, "r")
        assert len(backend.calls) == before + 1


def test_a_wrong_moment_is_waited_out(backend: StubBackend, client: Any) -> None:
    """Too many questions, or one that took too long, are an outage like any other."""
    backend.put("r", "SUCCEEDED")
    backend.failures = [429, 408, 503]
    assert wait_for_run(client, "r", 60, poll_interval=0.05).state is AppState.SUCCEEDED


def test_a_run_that_ends_while_it_is_cancelled(backend: StubBackend, client: Any) -> None:
    """A backend that refuses to end a run that has just ended has done it.

    Other refusals are said.
    """
    backend.put("r", "RUNNING")
    terminate = client.terminate_run

    def refused(run_id: str, ends: bool) -> None:
        backend.failures = [400]
        try:
            terminate(run_id)
        finally:
            backend.put("r", "SUCCEEDED" if ends else "RUNNING")

    client.terminate_run = lambda run_id: refused(run_id, False)
    with pytest.raises(ConfigError, match="400"):
        cancel_run(client, "r")
    client.terminate_run = lambda run_id: refused(run_id, True)
    cancel_run(client, "r")


def test_cancel(backend: StubBackend, client: Any) -> None:
    """A run is asked to end, unless it has ended."""
    backend.put("r", "RUNNING")
    cancel_run(client, "r")
    assert describe_run(client, "r").runtime_state == "CANCELING"
    waiter: list[Any] = []
    thread = threading.Thread(
        target=lambda: waiter.append(wait_for_run(client, "r", 60, poll_interval=0.05))
    )
    thread.start()
    backend.put("r", "CANCELED")
    thread.join(60)
    assert waiter[0].state is AppState.CANCELLED
    before = len(backend.calls)
    cancel_run(client, "r")
    assert not any("terminate" in path for _, path in backend.calls[before:])
    with pytest.raises(AppNotFound):
        cancel_run(client, "nobody")


def test_from_app_to_run(backend: StubBackend, client: Any, tmp_path: Path) -> None:
    """KFP's own client submits what was compiled, and the run is found, listed and waited for."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(pipeline_text(pipeline_from_component(component_from_app(apps.train))))
    made = client.create_run_from_pipeline_package(
        str(path), arguments={"lr": 0.5}, experiment_id="e", run_name="mine"
    )
    assert [run.run_id for run in client.list_runs().runs] == [made.run_id]
    assert describe_run(client, made.run_id).state is AppState.PENDING
    assert backend.runs[made.run_id]["runtime_config"]["parameters"] == {"lr": 0.5}
    backend.runs[made.run_id]["state"] = "SUCCEEDED"
    assert wait_for_run(client, made.run_id, 60).state is AppState.SUCCEEDED
