"""Tasks that do not end well fail, are killed, or have callbacks that raise."""

from __future__ import annotations

import datetime as dt
import threading
import time
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
)
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import DagRunResult, ErrorResponse, GetDagRun
from contexts import Kept, deferring, execute, make_context, refuse_cancels, scripted

from transload.errors import (
    AppFailed,
    ConfigError,
    SchedulerUnavailable,
    SpecError,
    StateUnknown,
    SubmitError,
    TransloadError,
    TransloadTimeout,
)
from transload.pipelines import AppCancelled, AppLost, Detached, ExecutionOptions
from transload.specs import AppState, AppStatus, ReplicaStatus, RoleStatus
from transload_airflow import AppCallbacks, TransloadOperator, operators, task_instance
from transload_airflow.failures import failure
from transload_testing import ScriptedControl, scripted_app


def failed(exit_code: int) -> AppStatus:
    """Return the status of an app that failed."""
    replica = ReplicaStatus(0, AppState.FAILED, "main", "", exit_code=exit_code)
    return AppStatus(AppState.FAILED, roles=[RoleStatus("main", [replica])])


@pytest.mark.parametrize(
    ("error", "options", "more", "kind"),
    [
        (AppFailed(failed(1), "x"), {}, {}, AirflowException),
        (AppFailed(failed(9), "x"), {}, {"skip_on": (9,)}, AirflowSkipException),
        (AppFailed(failed(1), "x"), {"retries_by": "scheduler"}, {}, AirflowFailException),
        (AppCancelled(AppStatus(AppState.CANCELLED), "x"), {}, {}, AirflowFailException),
        (
            AppCancelled(AppStatus(AppState.CANCELLED), "x"),
            {},
            {"cancelled": "skip"},
            AirflowSkipException,
        ),
        (AppLost("local://x/y"), {}, {}, AirflowException),
        (StateUnknown("local://x/y", 3.0), {}, {}, AirflowException),
        (SchedulerUnavailable("x"), {}, {}, AirflowException),
        (Detached("local://x/y"), {}, {}, AirflowException),
        (SubmitError("x", transient=True), {}, {}, AirflowException),
        (SubmitError("x", transient=False), {}, {}, AirflowFailException),
        (SpecError("x"), {}, {}, AirflowFailException),
        (ConfigError("x"), {}, {}, AirflowFailException),
        (TransloadTimeout("the orchestrator's time limit has passed"), {}, {}, AirflowTaskTimeout),
    ],
)
def test_failures(
    error: TransloadError, options: dict[str, Any], more: dict[str, Any], kind: type
) -> None:
    """Each error makes Airflow skip, fail for good, or fail and perhaps retry, as it should."""
    assert type(failure(error, ExecutionOptions(**options), **more)) is kind


class Raises(AppCallbacks):
    """Callbacks that fail while the app runs."""

    def __init__(self, what: Exception) -> None:
        self.what = what

    def on_status(self, status: Any, context: Any) -> None:
        """Raise."""
        raise self.what


@pytest.mark.parametrize(
    ("what", "options", "retries", "cancels"),
    [
        (ValueError("no"), {}, 0, 1),
        (ValueError("no"), {}, 1, 0),
        (ValueError("no"), {"on_kill": "detach"}, 0, 0),
        (AirflowFailException("no"), {}, 1, 1),
        (AirflowSkipException("no"), {}, 1, 1),
    ],
)
def test_callback_that_raises(
    control: ScriptedControl, what: Exception, options: dict[str, Any], retries: int, cancels: int
) -> None:
    """What a callback raises ends the app with the task, unless a retry will attach to it."""
    script = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"]}
    operator = scripted(script, callbacks=Raises(what), **options)
    with pytest.raises(type(what), match="no"):
        execute(operator, make_context(operator, max_tries=retries))
    assert len(control.calls("cancel")) == cancels
    control.open("go")


def refusal(status_code: int | None) -> AirflowRuntimeError:
    """Return what a task meets if Airflow's API refuses its request, or None if it is silent."""
    detail = {"status_code": status_code, "message": "refused"}
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail=detail))


HELD = {"steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"]}


@pytest.mark.parametrize(
    ("state", "clears", "cancels"),
    [
        ("restarting", 1, 1),
        ("deleted", 0, 1),
        ("cleared", 1, 1),
        ("cleared", 0, 0),
        ("up_for_retry", 0, 0),
        ("queued", 0, 0),
    ],
)
def test_end_of_the_process(
    control: ScriptedControl,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    clears: int,
    cancels: int,
) -> None:
    """Something ends the task's process, as Airflow does where the task has another try by now.

    If somebody has cleared the task, its job is cancelled. If a scheduler began it again, the other
    try reattaches. The answers of Airflow's API are made up here.
    """
    monkeypatch.setattr(task_instance, "task_state", lambda ti, absent=None: state)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(clears), raising=False)

    class Ending(AppCallbacks):
        def on_started(self, handle: str, attached: bool, context: Any) -> None:
            operator.on_kill()

    operator = scripted(HELD, callbacks=Ending())
    context = make_context(operator)
    with pytest.raises(AirflowException):
        execute(operator, context)
    assert len(control.calls("cancel")) == cancels
    if cancels:
        return
    control.open("go")
    assert execute(scripted(HELD), context)["state"] == "SUCCEEDED"
    assert len(control.started()) == 1


class Supervisor:
    """Answers a task as its supervisor does, when it is asked about the run.

    Args:
        clears: how often tasks of the run were cleared.
    """

    def __init__(self, clears: int) -> None:
        self.clears = clears

    def send(self, message: Any) -> Any:
        """Return what there is to know of the run."""
        assert isinstance(message, GetDagRun)
        times = dict.fromkeys(("data_interval_start", "data_interval_end", "start_date"))
        return DagRunResult(
            dag_id=message.dag_id,
            run_id=message.run_id,
            logical_date=None,
            run_after=dt.datetime.now(dt.UTC),
            end_date=None,
            run_type="manual",
            state="running",
            clear_number=self.clears,
            consumed_asset_events=[],
            partition_key=None,
            **times,
        )


@pytest.mark.parametrize("status_code", [500, None])
def test_handle_that_is_refused(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, status_code: int | None
) -> None:
    """Airflow's API takes the job's handle neither into the task's store nor as an XCom.

    That ends neither the job nor the task, whether or not a retry comes. Both are sent again while
    the job runs. The API's refusals are made up here.
    """
    monkeypatch.setattr(operators, "PUSH_S", 0.2)
    refused: list[str] = []

    def refuse_once(key: str) -> None:
        if key not in refused:
            refused.append(key)
            raise refusal(status_code)

    class Store(Kept):
        def set(self, key: str, value: Any, *, retention: Any = None) -> None:
            refuse_once(key)
            super().set(key, value, retention=retention)

    operator = scripted(HELD)
    store = Store()
    context = {**make_context(operator), "task_state_store": store}
    xcoms = context["ti"].xcoms

    def push(key: str, value: Any) -> None:
        refuse_once(key)
        xcoms[key] = value

    def stored() -> bool:
        return {"handle", "look"} <= set(xcoms) and "transload.handles" in store

    def go() -> None:
        end = time.monotonic() + 60
        while not stored() and time.monotonic() < end:
            time.sleep(0.05)
        control.open("go")

    context["ti"].xcom_push = push
    thread = threading.Thread(target=go)
    thread.start()
    assert execute(operator, context)["state"] == "SUCCEEDED"
    thread.join()
    assert stored()
    assert control.calls("cancel") == []
    assert store["transload.handles"][""]["handle"] == xcoms["handle"] == operator.handle
    assert xcoms["look"] == f"transload describe {operator.handle}"


def test_nothing_starts_without_the_store(control: ScriptedControl) -> None:
    """Airflow's API does not answer before the submit, so nothing is started.

    The retry starts one job. The API's refusal is made up here.
    """

    class Store(Kept):
        def get(self, *args: Any) -> Any:
            raise refusal(503)

    operator = scripted()
    context = {**make_context(operator, max_tries=1), "task_state_store": Store()}
    with pytest.raises(AirflowRuntimeError):
        execute(operator, context)
    assert control.started() == []
    context["task_state_store"] = Kept()
    assert execute(scripted(), context)["state"] == "SUCCEEDED"
    assert len(control.started()) == 1


def test_wrong_setting_starts_nothing(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong setting in airflow.cfg is found before anything is submitted."""
    monkeypatch.setenv("AIRFLOW__TRANSLOAD__TRIGGERER_ON_SAME_MACHINE", "perhaps")
    operator = deferring({}, defer_after=0)
    with pytest.raises(AirflowFailException, match="triggerer_on_same_machine='perhaps'"):
        execute(operator, make_context(operator))
    assert control.started() == []


@pytest.mark.parametrize("on_kill", ["cancel", "detach"])
def test_alarm_of_airflow_cancels(
    control: ScriptedControl, on_kill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's own alarm for ``execution_timeout``, if it comes first, ends the app whatever
    ``on_kill`` says.

    A scheduler that cannot be reached just then is asked again.
    """
    refuse_cancels(monkeypatch, 2)

    class Alarm(AppCallbacks):
        def on_status(self, status: Any, context: Any) -> None:
            raise AirflowTaskTimeout("Timeout")

    operator = scripted(
        {"steps": [{"state": "RUNNING", "until": "go"}]}, on_kill=on_kill, callbacks=Alarm()
    )
    with pytest.raises(AirflowTaskTimeout):
        execute(operator, make_context(operator))
    assert [each["app_id"] for each in control.calls("cancel")] == control.started()


def test_failed_trigger_is_no_failed_app(control: ScriptedControl) -> None:
    """After a broken trigger or a lost event a task reattaches to its job, and waits in place."""
    app = scripted_app("a", {"steps": [{"state": "RUNNING", "seconds": 0.5}, "SUCCEEDED"]})
    operator = TransloadOperator(
        task_id="job", app=app, scheduler="scripted", deferrable=True, defer_after=0
    )
    context = make_context(operator)
    with pytest.raises(TaskDeferred):
        execute(operator, context)
    found = operator.resume_execution(
        "__fail__", {"error": "Trigger failure", "traceback": None}, context
    )
    assert found["state"] == "SUCCEEDED"
    assert len(control.started()) == 1
    assert operator.resume(context, None)["state"] == "SUCCEEDED"


@pytest.mark.parametrize("silent", [False, True])
def test_failed_trigger_without_a_store(control: ScriptedControl, silent: bool) -> None:
    """Without a store too a broken trigger costs no second job, by this try's handle."""
    app = scripted_app(
        "a",
        {"steps": [{"state": "RUNNING", "seconds": 0.5}, "SUCCEEDED"], "results": {"0": {"x": 1}}},
    )
    options = {"scheduler": "scripted", "deferrable": True, "defer_after": 0}
    operator = TransloadOperator(task_id="job", app=app, **options)
    context = make_context(operator, with_store=False)
    with pytest.raises(TaskDeferred):
        execute(operator, context)
    again = TransloadOperator(task_id="job", app=app, **options)
    error = {"error": "Trigger failure", "traceback": None}
    found = (
        again.resume(context, None)
        if silent
        else again.resume_execution("__fail__", error, context)
    )
    assert found["results"] == {"0": {"x": 1}}
    assert found["handle"] == again.handle == context["ti"].xcoms["handle"]
    context["ti"].xcoms.clear()
    with pytest.raises(AirflowException, match="no XCom 'handle'"):
        again.resume(context, None)
    assert len(control.started()) == 1


@pytest.mark.parametrize("state", ["failed", "running"])
def test_kill_before_the_submit_starts_nothing(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """A task that is ended before it came to submit does not submit any more, whoever ended it."""
    monkeypatch.setattr(task_instance, "task_state", lambda ti, absent=None: state)
    operator = scripted()
    operator.on_kill()
    with pytest.raises(AirflowException, match="before the job was submitted"):
        execute(operator, make_context(operator))
    assert control.started() == []


def test_loss_is_told_once_without_a_store(control: ScriptedControl) -> None:
    """Without a store a vanished app is a failure first, and the retry starts another."""
    operator = scripted({"steps": [{"state": "RUNNING", "seconds": 0.3}, {"state": "GONE"}]})
    with pytest.raises(AirflowException, match="is lost"):
        execute(operator, make_context(operator, with_store=False))
    control.vanish(control.started()[0])
    with pytest.raises(AirflowException, match="is lost"):
        execute(operator, make_context(operator, with_store=False, try_number=2))
    assert len(control.started()) == 2


@pytest.mark.parametrize(
    ("executor", "max_tries", "is_lost"),
    [("CeleryExecutor", 0, True), ("CeleryExecutor", 1, False), ("LocalExecutor", 0, False)],
)
def test_second_try_that_sees_no_job(
    control: ScriptedControl,
    monkeypatch: pytest.MonkeyPatch,
    executor: str,
    max_tries: int,
    is_lost: bool,
) -> None:
    """A retry that sees nothing on a scheduler of its own machine reports that once.

    The try after a clear does not, nor does one whose worker is on the same machine.
    """
    monkeypatch.setenv("TRANSLOAD_SCRIPTED_REACH", "host")
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    operator = scripted()
    if is_lost:
        context = make_context(operator, try_number=2, max_tries=max_tries)
        with pytest.raises(AirflowException, match="another machine"):
            execute(operator, context)
        assert control.started() == []
        return
    context = make_context(operator, try_number=2, max_tries=max_tries)
    assert execute(operator, context)["state"] == "SUCCEEDED"
