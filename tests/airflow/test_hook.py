"""The hook gives a connection as a cluster, the runner for tasks, and a connection test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from contexts import execute, make_context

from transload.errors import ConfigError, SchedulerUnavailable
from transload.pipelines import host_runner
from transload.runner import Cluster
from transload.specs import AppState
from transload_airflow import AppSensor, AppStateTrigger, TransloadHook, TransloadOperator, hooks
from transload_airflow.hooks import Defaults
from transload_airflow.provider import get_provider_info
from transload_airflow.runner import secret_named
from transload_testing import ScriptedControl, scripted_app

SECRET = "not-to-be-seen-anywhere"

Connect = Callable[..., None]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Makes a connection of type ``transload``."""

    def make(extra: object, conn_id: str = "transload_default", **fields: Any) -> None:
        values = {"conn_type": "transload", "extra": extra, **fields}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(values))

    return make


@pytest.fixture
def elsewhere(control: ScriptedControl, connect: Connect, tmp_path: Path) -> ScriptedControl:
    """A second cluster of scripted apps, which only the connection ``prod`` leads to."""
    where = ScriptedControl(tmp_path / "elsewhere")
    connect({"kind": "scripted", "scripted_dir": str(where.folder.root), "token": SECRET}, "prod")
    return where


def test_status_and_cancel(control: ScriptedControl, connect: Connect) -> None:
    """A task can ask for an app, and for its end, on the runner that all tasks of the process
    share.
    """
    connect({"kind": "scripted"})
    hook = TransloadHook()
    assert hook.get_conn() is host_runner("airflow")
    app = scripted_app("a", {"steps": [{"state": "RUNNING", "until": "go"}]})
    handle = hook.get_conn().run(app, "scripted")
    status = hook.get_conn().status(handle)
    assert status is not None
    assert status.state is AppState.RUNNING
    hook.get_conn().cancel(handle)
    assert len(control.calls("cancel")) == 1


def test_connection_is_a_cluster(
    elsewhere: ScriptedControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of a connection bear its name, and the triggerer and a sensor find them.

    The secret is in nothing that Airflow keeps.
    """
    script = {
        "steps": [{"state": "RUNNING", "until": "go"}, "SUCCEEDED"],
        "results": {"0": {"x": 1}},
    }
    app = scripted_app("a", script)
    task = TransloadOperator(task_id="job", app=app, conn_id="prod", deferrable=True, defer_after=0)
    context = make_context(task)
    with pytest.raises(TaskDeferred) as deferral:
        execute(task, context)
    handle = context["ti"].xcoms["handle"]
    assert handle.startswith("prod://airflow/")
    _, values = deferral.value.trigger.serialize()
    kept = json.dumps(
        [values, context["ti"].xcoms, dict(context["task_state_store"]), task.dry_run()]
    )
    assert SECRET not in kept + caplog.text
    assert "airflow:prod/token" in kept, "where it is found again"

    async def fires() -> Any:
        trigger = AppStateTrigger(**{**json.loads(json.dumps(values)), "left": None})
        return (await anext(trigger.run())).payload

    elsewhere.open("go")
    event = asyncio.run(fires())
    assert (event["kind"], SECRET in json.dumps(event)) == ("ended", False)
    assert task.resume(context, event)["results"] == {"0": {"x": 1}}
    sensor = AppSensor(task_id="wait", handle=handle, conn_id="prod", deferrable=False)
    assert sensor.poke(make_context(sensor)).xcom_value["handle"] == handle
    app = scripted_app("b", {"steps": [{"state": "RUNNING", "until": "never"}]})
    again = TransloadOperator(
        task_id="other", app=app, conn_id="prod", deferrable=True, defer_after=0
    )
    with pytest.raises(TaskDeferred) as deferral:
        execute(again, make_context(again))
    asyncio.run(deferral.value.trigger.on_kill())
    assert len(elsewhere.calls("cancel", None)) == 1, "a person has marked the deferred task"
    backend = TransloadHook("prod").get_conn().scheduler("prod")
    assert backend.connected.token == SECRET, "and the scheduler has it"


def test_connection_holds_defaults(control: ScriptedControl, connect: Connect) -> None:
    """The connection gives run options and tracker base. What the task says goes before them."""
    connect({"kind": "scripted", "cfg": {"a": 1, "b": 2}, "tracker_base": "/tracked"}, "mine")
    task = TransloadOperator(task_id="job", app=scripted_app("a", {}), conn_id="mine", cfg={"b": 3})
    task._defaults = TransloadHook("mine").defaults
    launch = task._launch({})
    assert (launch.scheduler, launch.cfg, launch.tracker_base) == (
        "scripted",
        {"a": 1, "b": 3},
        "/tracked",
    )


@pytest.mark.parametrize(
    ("extra", "fields", "words"),
    [
        ({"kind": "slrum"}, {}, "slrum"),
        (
            {"kind": "scripted", "scripted_dirr": "/x"},
            {},
            r"extra\.scripted_dirr: did you mean 'scripted_dir'",
        ),
        ({"scheduler": "scripted"}, {}, r"scheduler: extra\.kind must say"),
        ({}, {"host": "login"}, r"host: extra\.kind must say"),
        ({"kind": "scripted"}, {"host": "login"}, "'scripted' has no host to connect to"),
        ({"kind": 1}, {}, r"extra\.kind=1: must be a text"),
        ({"cfg": "x"}, {}, r"extra\.cfg='x': must be an object"),
        ("[1]", {}, "extra: must be an object, not list"),
        ("{", {}, "extra is not JSON"),
        ({"kind": "scripted", "scripted_dir": "-x"}, {}, "must not begin with '-'"),
    ],
)
def test_mistakes_in_a_connection(
    control: ScriptedControl, connect: Connect, extra: object, fields: dict[str, str], words: str
) -> None:
    """A mistake is one line with the field and what is allowed. The task fails for good."""
    connect(extra, "wrong", **fields)
    with pytest.raises(ConfigError, match=words) as caught:
        _ = TransloadHook("wrong").defaults
    assert "\n" not in str(caught.value)
    task = TransloadOperator(task_id="job", app=scripted_app("a", {}), conn_id="wrong")
    with pytest.raises(AirflowFailException, match=words):
        execute(task, make_context(task))
    assert control.started() == []


def test_host_of_a_connection(
    control: ScriptedControl, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Host* with its login is the setting that leads to a host. An impossible name is changed."""
    monkeypatch.setattr(hooks, "HOSTS", ("ssh", "scripted_dir"))
    for login, value in ((None, "gpu.example"), ("me", "me@gpu.example")):
        connect({"kind": "scripted"}, "Team.1", host="gpu.example", login=login)
        assert TransloadHook("Team.1").defaults.cluster == Cluster(
            "team-1", "scripted", {"scripted_dir": value}
        )


def test_files_in_a_connection(control: ScriptedControl, connect: Connect) -> None:
    """A handle's record has a file's name, by which its content is read again as text."""
    content = {"clusters": [{"name": "a"}]}
    connect({"kind": "scripted", "scripted_dir": content}, "42")
    cluster = TransloadHook("42").defaults.cluster
    assert cluster == Cluster("c-42", "scripted", {}, {"scripted_dir": "airflow:42/scripted_dir"})
    assert json.loads(secret_named("42/scripted_dir")) == content
    connect({"kind": "scripted"}, "42")
    with pytest.raises(
        ConfigError, match=r"connection '42': extra\.scripted_dir is not there any more"
    ):
        secret_named("42/scripted_dir")


def test_connection_is_tested(
    control: ScriptedControl, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The button *Test* says in the scheduler's own words whether it answers. It lists no jobs."""
    connect({"kind": "scripted"})
    hook = TransloadHook()
    hook.get_conn().run(
        scripted_app("a", {"steps": [{"state": "RUNNING", "until": "go"}]}), "scripted"
    )
    backend = hook.get_conn().scheduler("scripted")
    answers: list[tuple[str, bool, str]] = []
    monkeypatch.setattr(backend, "diagnose", lambda: answers)
    assert hook.test_connection() == (True, "scheduler 'scripted' is there, and has nothing to ask")
    answers += [("server", True, "1.30"), ("queue", False, "no queue 'ml'")]
    assert hook.test_connection() == (False, "queue: no queue 'ml'")
    answers.pop()
    assert hook.test_connection() == (True, "server: 1.30")
    for name in ("list", "describe"):
        assert control.calls(name, None) == []

    def silent() -> list[object]:
        raise SchedulerUnavailable("no answer from there")

    monkeypatch.setattr(backend, "diagnose", silent)
    assert hook.test_connection() == (False, "no answer from there")
    connect({"kind": "slrum"})
    works, message = hook.test_connection()
    assert not works
    assert "slrum" in message


def test_form_of_the_connection(control: ScriptedControl, connect: Connect) -> None:
    """What the form saves, with fields that were left empty, is what is read."""
    (form,) = get_provider_info()["connection-types"]
    assert not {"host", "login"} & set(form["ui-field-behaviour"]["hidden-fields"])
    empty = dict.fromkeys(form["conn-fields"], None)
    connect({**empty, "kind": "scripted", "context": "", "cfg": {"a": 1}}, host="", login="")
    assert TransloadHook().defaults == Defaults(Cluster("scripted"), {"a": 1})
    known = {*hooks.OWN, "context", "kubeconfig"}
    assert set(form["conn-fields"]) == known
