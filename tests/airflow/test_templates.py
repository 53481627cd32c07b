"""Airflow's templates look into what a DAG's author wrote as one, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.helpers import serialize_template_field
from airflow_server import AirflowServer
from contexts import execute, make_context

from transload.specs import AppDef, Role
from transload_airflow import AppSensor, TransloadOperator

WORDS = ("1.10", '{"lr": 0.1}', "", "[1, 2]", "None", "007", "line\r\nline\n")


def hello(times: int = 1) -> AppDef:
    """Say hello."""
    return AppDef("hello", [Role("main", "", entrypoint="echo", args=["hello"] * times)])


def rendered(
    native: bool = True, params: dict[str, Any] | None = None, **arguments: Any
) -> TransloadOperator:
    """Return an operator with its templates rendered."""
    with DAG("dag", schedule=None, render_template_as_native_obj=native):
        operator = TransloadOperator(task_id="job", **arguments)
    operator.render_template_fields({"params": params or {}})
    return operator


def app(**more: Any) -> AppDef:
    """Return an app."""
    return AppDef("app", [Role("main", **{"image": "", "entrypoint": "true", **more})])


@pytest.mark.parametrize("native", [True, False])
def test_words_stay_as_written(native: bool) -> None:
    """A text without a template is not looked at, in any field, whatever Airflow makes of
    templates.
    """
    command = rendered(native, command=["echo", *WORDS])
    assert command._launch({}).command == ["echo", *WORDS]
    whole = app(image="", args=list(WORDS), env={"A": "1.10", "B": ""})
    assert rendered(native, app=whole)._launch({}).build().digest() == whole.digest()
    assert rendered(native, app=whole.to_json())._launch({}).build().digest() == whole.digest()
    component = rendered(
        native, component="a.py", component_args={"x": "1.10", "y": ["", "{}"]}, cfg={"o": "1"}
    )
    assert (component.component_args, component.cfg) == ({"x": "1.10", "y": ["", "{}"]}, {"o": "1"})
    assert rendered(native, command=["x"], scheduler="7", workspace="1.10").workspace == "1.10"


def test_native_templates_make_texts_where_texts_are_wanted() -> None:
    """A template's ``1.10`` is no number in a command, a job or a name. A list may be a command."""
    params = {"version": "1.10", "number": 3, "words": ["echo", "1.10"], "where": "007"}
    made = rendered(
        params=params, command=["echo", "{{ params.version }}", "{{ params.number }}{{ 0 }}"]
    )
    assert made._launch({}).command == ["echo", "1.10", "30"]
    assert rendered(params=params, command="{{ params.words }}")._launch({}).command == [
        "echo",
        "1.10",
    ]
    role = (
        rendered(params=params, app=app(args=["{{ params.version }}", "{{ params.number }}"]))
        ._launch({})
        .build()
    )
    assert role.roles[0].args == ["1.10", "3"]
    assert rendered(params=params, command=["x"], scheduler="{{ params.where }}").scheduler == "007"


def test_native_templates_keep_types_where_values_are_wanted() -> None:
    """Arguments, run options and a job's JSON keep a template's type. Their texts stay texts."""
    params = {"version": "1.10", "number": 3, "all": {"lr": 0.1}}
    given = {
        "version": "{{ params.version }}",
        "n": "{{ params.number }}",
        "tag": "v{{ params.number }}",
    }
    made = rendered(params=params, component="a.py", component_args=given)
    assert made.component_args == {"version": "1.10", "n": 3, "tag": "v3"}
    assert rendered(
        params=params, component="a.py", component_args="{{ params.all }}"
    ).component_args == {"lr": 0.1}
    values = json.loads(app(args=["1.10"]).to_json())
    values["roles"][0]["num_replicas"] = "{{ params.number }}"
    assert rendered(params=params, app=values)._launch({}).build().roles[0].num_replicas == 3


def test_unknown_name_in_a_template() -> None:
    """A template that names what is not there fails, in each kind of field."""
    for arguments in (
        {"command": ["{{ nothing }}"]},
        {"component": "{{ nothing }}"},
        {"component": "a.py", "component_args": {"x": "{{ nothing }}"}},
    ):
        with pytest.raises(Exception, match="'nothing' is undefined"):
            rendered(**arguments)


def test_sensor_keeps_a_text() -> None:
    """The handle that a sensor waits for is a text."""
    with DAG("dag", schedule=None, render_template_as_native_obj=True):
        sensor = AppSensor(task_id="wait", handle="{{ params.handle }}")
    sensor.render_template_fields({"params": {"handle": "12"}})
    assert sensor.handle == "12"


def test_function_as_component(transload_home: Any) -> None:
    """Airflow, which calls functions in template fields, cannot reach a component.

    It is shown by its name.
    """
    with DAG("dag", schedule=None):
        operator = TransloadOperator(
            task_id="job", component=hello, component_args={"times": "{{ params.times }}"}
        )
    operator.render_template_fields({"params": {"times": 2}})
    assert operator._launch({}).component is hello
    assert "hello" in serialize_template_field(operator.component, "component")
    operator = TransloadOperator(
        task_id="job", component=hello, scheduler="local", deferrable=False
    )
    assert execute(operator, make_context(operator))["state"] == "SUCCEEDED"


def test_on_a_real_airflow(airflow: AirflowServer) -> None:
    """Functions run as components however they are given, and upstream's data is no template."""
    functions, native, data = (
        airflow.trigger(name) for name in ("functions", "native", "upstream_data")
    )
    for task_id, index, said in (
        ("direct", -1, "functions"),
        ("partial", 0, "one one"),
        ("expanded", 0, "two"),
        ("converted", -1, "three"),
        ("decorated_function", -1, "four"),
    ):
        functions.wait("success", task_id=task_id, index=index)
        assert f"main/0 said {said}" in functions.log(task_id, index=index)
    for task_id, said in (
        ("command", 'main/0 1.10 {"lr": 0.1}  2.50 3'),
        ("app", "main/0 args ['1.10'] 07"),
        ("component", "main/0 said 1.10 1.10"),
    ):
        native.wait("success", task_id=task_id)
        assert said in native.log(task_id)
    data.wait("success", index=0)
    assert "main/0 said {{ dag.dag_id }}" in data.log(index=0)
    data.wait("success", task_id="decorated_rows", index=0)
    assert "main/0 said {{ dag.dag_id }} 42" in data.log("decorated_rows", index=0)
