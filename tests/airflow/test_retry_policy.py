"""The retry policy reschedules a try whose job goes on, and fails what no retry mends.

`orm_airflow.py` plays the scheduler. Airflow's own task runner asks the policy.
"""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Callable
from typing import Any

import pytest
from airflow import sdk
from airflow.providers.common.compat.sdk import AirflowException
from contexts import Kept, execute, make_context, scripted
from orm_airflow import OrmAirflow
from scripts import held

from transload.errors import ConfigError
from transload_airflow import AppCallbacks, TransloadRetryPolicy, task_instance
from transload_testing import ScriptedControl

Eventually = Callable[..., Any]

RESCHEDULES = hasattr(getattr(sdk, "RetryDecision", None), "reschedule")
since_3_4 = pytest.mark.skipif(
    not RESCHEDULES, reason="retry policies reschedule from Airflow 3.4 on"
)


@pytest.mark.skipif(RESCHEDULES, reason="Airflow 3.4 and newer have it")
def test_older_airflow_has_no_such_policy() -> None:
    """Before Airflow 3.4 it is refused when the DAG is read, and the error says what to type."""
    with pytest.raises(ConfigError, match=r"3\.4.*retries="):
        TransloadRetryPolicy()


@since_3_4
@pytest.mark.parametrize(
    "options",
    [
        {"retry_delay": 3},
        {"retry_delay": dt.timedelta(-1)},
        {"reschedule_timeout": None},
        {"reschedule_timeout": dt.timedelta(0)},
        {"max_reschedules": 0},
        {"max_reschedules": "3"},
    ],
    ids=str,
)
def test_wrong_arguments(options: dict[str, Any]) -> None:
    """A wrong argument is refused by its name."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        TransloadRetryPolicy(**options)


class Code:
    """A value that a DAG file computes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        """Return the code."""
        return self.text


def policy(**options: int) -> Code:
    """Return the code of a policy."""
    return Code(f"__import__('transload_airflow').TransloadRetryPolicy(**{options})")


@since_3_4
@pytest.mark.parametrize(
    ("steps", "state"), [(("SUCCEEDED",), "success"), (("FAILED",), "failed")], ids=str
)
def test_unreachable_scheduler(
    host: OrmAirflow,
    control: ScriptedControl,
    eventually: Eventually,
    steps: tuple[str, ...],
    state: str,
) -> None:
    """A try whose scheduler is away is rescheduled, without a retry, and takes its job.

    If that has failed meanwhile, the try has failed. It starts no second job.
    """
    host.define(held(*steps), patience=0.5, retry_policy=policy())
    host.trigger()
    attempt = host.begin_through_api()
    eventually(lambda: host.xcom_keys() >= {"handle"}, 100, "a handle")
    control.outage()
    attempt.wait()
    assert host.state() == "up_for_reschedule"
    control.open("go")
    control.outage(False)
    host.begin_through_api().wait()
    assert host.state() == state
    assert len(control.started()) == 1
    assert control.calls("cancel") == []


@since_3_4
def test_second_try_loses_its_job(
    host: OrmAirflow, control: ScriptedControl, eventually: Eventually
) -> None:
    """A try that was rescheduled and finds its job gone has failed, and starts no other one."""
    host.define({"steps": ["FAILED"]}, patience=0.5, retries=1, retry_policy=policy())
    host.trigger()
    host.begin_through_api().wait()
    assert host.state() == "up_for_retry"
    host.define(held(), patience=0.5, retries=1, retry_policy=policy())
    attempt = host.begin_through_api()
    eventually(lambda: len(control.started()) == 2, 100, "the second job")
    eventually(lambda: host.xcom_keys() >= {"handle"}, 100, "a handle")
    control.outage()
    attempt.wait()
    assert host.state() == "up_for_reschedule"
    control.outage(False)
    control.vanish(control.started()[1])
    host.begin_through_api().wait()
    assert host.state() == "failed"
    assert len(control.started()) == 2


@since_3_4
def test_sigterm(host: OrmAirflow, control: ScriptedControl, eventually: Eventually) -> None:
    """A try whose process gets a SIGTERM is rescheduled, without a retry, and takes its job."""
    host.define(held(), retry_policy=policy())
    host.trigger()
    attempt = host.begin_through_api()
    eventually(lambda: host.xcom_keys() >= {"handle"}, 100, "a handle")
    attempt.end(signal.SIGTERM)
    assert host.state() == "up_for_reschedule"
    control.open("go")
    host.begin_through_api().wait()
    assert host.state() == "success"
    assert len(control.started()) == 1
    assert control.calls("cancel") == []


@since_3_4
def test_bound_of_reschedules(host: OrmAirflow, control: ScriptedControl) -> None:
    """A scheduler that takes no job costs no retry until a bound is reached."""
    script = {"submit_error": "transient", "submit_errors": 2}
    host.define(script, retry_policy=policy(max_reschedules=1))
    host.trigger()
    for state in ("up_for_reschedule", "failed"):
        host.begin_through_api().wait()
        assert host.state() == state
    assert control.started() == []


@since_3_4
@pytest.mark.parametrize(
    ("script", "options", "reason"),
    [
        ({}, {"cfg": {"nonsense": 1}}, "nonsense"),
        ({"steps": ["FAILED"]}, {"retries_by": "scheduler"}, "FAILED"),
    ],
    ids=["option", "failed"],
)
def test_no_retry_mends_it(
    host: OrmAirflow, script: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    """A task that no retry mends fails at once, and Airflow keeps the reason."""
    host.define(script, retries=3, retry_policy=policy(), **options)
    host.trigger()
    host.begin_through_api().wait()
    assert host.state() == "failed"
    assert reason in host.retry_reason()


@since_3_4
@pytest.mark.parametrize(
    ("script", "action"),
    [
        ({"submit_error": "permanent"}, "fail"),
        ({"steps": ["CANCELLED"]}, "fail"),
        ({"steps": ["FAILED"]}, "default"),
        ({"steps": ["RUNNING", "GONE"]}, "default"),
    ],
    ids=["submit", "cancelled", "failed", "lost"],
)
def test_decisions(control: ScriptedControl, script: dict[str, Any], action: str) -> None:
    """What no retry mends fails. A job that failed or is lost uses a retry, as without a policy."""
    rules = TransloadRetryPolicy()
    operator = scripted(script, retry_policy=rules)
    context = make_context(operator)
    with pytest.raises(AirflowException) as caught:
        execute(operator, context)
    assert rules.evaluate(caught.value, 1, 0, context).action.value == action


@since_3_4
@pytest.mark.parametrize("keeps", [True, False])
def test_stopped_worker(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """A try whose process is stopped is rescheduled, if Airflow has kept which job it started.

    Else a retry is used, which looks for the job on other machines too.
    """
    monkeypatch.setattr(task_instance, "task_state", lambda ti, absent=None: "running")

    class Store(Kept):
        def set(self, key: str, value: Any, *, retention: Any = None) -> None:
            if not keeps:
                raise AirflowException("refused")
            super().set(key, value, retention=retention)

    class Stopping(AppCallbacks):
        def on_started(self, handle: str, attached: bool, context: Any) -> None:
            operator.on_kill()

    operator = scripted(held(), callbacks=Stopping())
    context = {**make_context(operator), "task_state_store": Store()}
    with pytest.raises(AirflowException) as caught:
        execute(operator, context)
    decision = TransloadRetryPolicy().evaluate(caught.value, 1, 0, context)
    assert decision.action.value == ("reschedule" if keeps else "default")
    control.open("go")
    again = {**context, "task_reschedule_count": 1}
    assert execute(scripted(held()), again)["state"] == "SUCCEEDED"
    assert len(control.started()) == 1
