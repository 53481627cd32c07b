"""Apps that functions and upstream tasks return, and what the log of a task says of its app."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow_server import AirflowServer
from contexts import execute, make_context, scripted

from transload.specs import AppDef, Role
from transload_airflow import TransloadOperator
from transload_airflow.values import app_name
from transload_testing import ScriptedControl, scripted_app

APP = AppDef(
    "app", [Role("main", "", entrypoint="echo", args=["{{ ds }}"], secrets={"TOKEN": "env:TOKEN"})]
)


def test_app_through_an_xcom() -> None:
    """An AppDef that a task returns comes back as it was, from Airflow's own serialization."""
    from airflow.sdk.serde import deserialize, serialize

    sent = json.loads(json.dumps(serialize([APP])))
    (back,) = deserialize(sent)  # type: ignore[misc]
    assert back == APP
    assert AppDef.deserialize(APP.serialize()) == APP


def test_async_function(control: ScriptedControl) -> None:
    """``async def`` says what to run as any other function does, inside a running loop too."""

    async def make(params: dict[str, Any]) -> AppDef:
        await asyncio.sleep(0)
        return scripted_app("app", {"results": {"0": {"word": params["word"]}}})

    def run() -> Any:
        operator = scripted(app=make)
        return execute(operator, make_context(operator))["results"]

    assert run() == {"0": {"word": "there"}}

    async def in_a_notebook() -> Any:
        return run()

    assert asyncio.run(in_a_notebook()) == {"0": {"word": "there"}}


def test_error_of_an_async_function() -> None:
    """What an ``async def`` raises is raised."""

    async def fail() -> AppDef:
        raise LookupError("no such row")

    operator = TransloadOperator(task_id="job", app=fail, deferrable=False)
    with pytest.raises(LookupError, match="no such row"):
        execute(operator, make_context(operator))


@pytest.mark.parametrize(
    ("task_id", "name"),
    [("train", "train"), ("group.train", "group.train"), ("-x", "x"), ("x" * 250, "x" * 200)],
)
def test_command_is_named_by_its_task(task_id: str, name: str) -> None:
    """A command is an app of its task's name, not of its program's."""
    with DAG("dag", schedule=None):
        operator = TransloadOperator(task_id=task_id, command=["python", "-c", "pass"])
    assert operator._launch({}).build().name == name == app_name(task_id)


def test_log_ends_as_the_command_line_does(
    transload_home: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """The log says how the app ended, how long it took, what it used, and its results."""
    report = (
        "import json, os; base = os.environ['TRANSLOAD_TRACKER_BASE']; os.makedirs(base, "
        "exist_ok=True);"
        "json.dump({'schema': 1, 'key': '0', 'results': {'loss': 0.123456789, 'text': 'a\\nb'}},"
        " open(base + '/0.json', 'w')); print('x' * 10)"
    )
    operator = TransloadOperator(
        task_id="train", command=["python3", "-c", report], scheduler="local"
    )
    results = execute(operator, make_context(operator))
    said = capfd.readouterr().out
    assert f"{results['handle']} SUCCEEDED after " in said
    assert " of CPU, " in said
    assert "result 0: loss=0.123457  text=a\\nb" in said
    failing = TransloadOperator(
        task_id="job", command=["false"], scheduler="local", deferrable=False
    )
    with pytest.raises(Exception, match="exit code 1"):
        execute(failing, make_context(failing))
    assert " FAILED after " in capfd.readouterr().out


def test_function_returns_an_app_through_the_decorator() -> None:
    """``@task.transload`` takes ``async def``."""
    with DAG("dag", schedule=None):

        @task.transload
        async def train(lr: float) -> AppDef:
            return AppDef("train", [Role("main", "", entrypoint="echo", args=[str(lr)])])

        made: Any = train(0.5).operator  # type: ignore[attr-defined]
    assert made._launch({}).build().roles[0].args == ["0.5"]


@pytest.mark.slow
def test_on_a_real_airflow(airflow: AirflowServer) -> None:
    """Upstream's jobs run, mapped ones too.

    Their texts are no templates, and no XCom is asked for in vain.
    """
    run = airflow.trigger("upstream_apps")
    run.wait("success")
    assert "main/0 hello {{ ds }}" in run.log()
    for index in (0, 1):
        run.wait("success", task_id="mapped", index=index)
        assert f"main/0 {index} {{{{ ds }}}}" in run.log("mapped", index=index)
    run.wait("success", task_id="async_function")
    assert "main/0 said hello" in run.log("async_function")
    run.wait("success", task_id="deferred")
    log = run.log("deferred")
    assert "SUCCEEDED after" in log
    assert "result 0: word=hello" in log
    lines = (airflow.home / "scheduler.log").read_text(errors="replace").splitlines()
    assert [line for line in lines if "XCom not found" in line and run.run_id in line] == []
