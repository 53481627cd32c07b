"""The operator alone has arguments and failures, and asks and tells Airflow what it should."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    TaskDeferred,
)
from airflow.sdk import DAG
from airflow.serialization.helpers import serialize_template_field
from airflow.serialization.serialized_objects import DagSerialization
from contexts import deferring, execute, make_context, scripted

import transload
import transload_airflow
from transload.errors import (
    ConfigError,
    SpecError,
)
from transload.pipelines import (
    JOB_SETTINGS,
    Launch,
    get_adapter,
    host_runner,
)
from transload.specs import AppDef, BindMount, Notice, Role
from transload_airflow import (
    AppCallbacks,
    TransloadOperator,
    operator_from_app,
    task_instance,
)
from transload_testing import ScriptedControl, scripted_app

APP = AppDef("app", [Role("main", "none", entrypoint="none")])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"on_kill": "leave"}, "on_kill='leave'"),
        ({"cancelled": "ignore"}, "cancelled='ignore'"),
        ({"retries_by": "nobody"}, "retries_by='nobody'"),
        ({"patience": -1}, "patience=-1"),
        ({"defer_after": -1}, "defer_after=-1"),
        ({"defer_after": "soon"}, "defer_after='soon'"),
        ({"skip_on_exit_code": "9"}, "skip_on_exit_code='9'"),
        ({"tail_lines": -1}, "tail_lines=-1"),
        ({"app": None}, "exactly one of app, component and command"),
        ({"component": "utils.echo"}, "exactly one of app, component and command"),
        ({"command": ["true"]}, "exactly one of app, component and command"),
        ({"component_args": {"msg": "x"}}, "only a component takes arguments"),
    ],
)
def test_wrong_arguments_fail_when_the_dag_is_read(arguments: dict[str, Any], words: str) -> None:
    """What is not allowed is an import error of the DAG, with name, value and what is allowed."""
    with pytest.raises((ConfigError, SpecError), match=words.replace("(", r"\(")):
        TransloadOperator(task_id="job", **{"app": APP, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"component": "utils.echo", "component_args": "{'msg': 'x'}"}, "component_args="),
        ({"command": "python train.py"}, "command='python train.py': must be a list"),
        ({"app": APP, "cfg": "{'x': 1}"}, "cfg="),
        ({"app": APP, "cfg": {"max_log_size": "soon"}}, "max_log_size='soon'"),
        ({"app": APP, "cfg": {"max_log_sise": "1"}}, "max_log_sise"),
    ],
)
def test_what_templates_made_is_checked(arguments: dict[str, Any], words: str) -> None:
    """A template that became something else than wanted fails the task for good, with name and
    value.
    """
    operator = TransloadOperator(task_id="job", scheduler="local", deferrable=False, **arguments)
    with pytest.raises(AirflowFailException, match=words):
        execute(operator, make_context(operator))


def test_app_becomes_values() -> None:
    """An AppDef is kept as JSON values, for templates to reach into, and comes back the same."""
    operator = TransloadOperator(task_id="job", app=APP)
    assert operator.app["roles"][0]["image"] == "none"
    assert AppDef.from_json(json.dumps(operator.app)).digest() == APP.digest()


@pytest.mark.parametrize("as_text", [False, True])
def test_literal_app(as_text: bool) -> None:
    """With ``template_app=False`` templates leave the app alone, and only the app."""
    app = AppDef("app", [Role("main", "none", entrypoint="none", args=["{{ params.word }}"])])
    given = app.to_json() if as_text else app
    operator = TransloadOperator(
        task_id="job", app=given, template_app=False, scheduler="{{ params.word }}"
    )
    operator.render_template_fields({"params": {"word": "there"}})
    launch = operator._launch({})
    assert launch.build().digest() == app.digest()
    assert launch.scheduler == "there"
    assert "{{ params.word }}" in json.dumps(serialize_template_field(operator.app, "app"))


def test_run_options_have_their_types() -> None:
    """Rendered run options are read as on the command line, by the types that the scheduler
    wants.
    """
    operator = TransloadOperator(
        task_id="job", app=APP, scheduler="local", cfg={"max_log_size": "{{ params.word }}"}
    )
    operator.render_template_fields({"params": {"word": "7"}})
    context = make_context(operator)
    with host_runner("airflow") as runner:
        plan = operator._launch(context).plan(runner)
    assert plan.cfg["max_log_size"] == 7


def test_templates_reach_everywhere() -> None:
    """Templates reach into args, env, image, component_args, cfg, and where to run and report."""
    word = "{{ params.word }}"
    role = Role("main", image=f"img-{word}", entrypoint="x", args=[word], env={"WORD": word})
    operator = TransloadOperator(
        task_id="job",
        app=AppDef("app", [role]),
        scheduler=word,
        cfg={"deep": [{"option": word}]},
        tracker_base=f"/base/{word}",
    )
    operator.render_template_fields({"params": {"word": "there"}})
    launch = operator._launch({})
    made = launch.build().roles[0]
    assert (made.image, made.args, made.env) == ("img-there", ["there"], {"WORD": "there"})
    assert (launch.scheduler, launch.tracker_base) == ("there", "/base/there")
    assert launch.cfg == {"deep": [{"option": "there"}]}
    operator = TransloadOperator(
        task_id="other",
        component=f"{word}.py",
        component_args={"msg": [word]},
        conn_id=f"c-{word}",
        parent_run_id=f"local://airflow/{word}",
        workspace=f"/code/{word}",
    )
    operator.render_template_fields({"params": {"word": "there"}})
    assert (operator.component, operator.component_args) == ("there.py", {"msg": ["there"]})
    assert (operator.conn_id, operator.parent_run_id) == ("c-there", "local://airflow/there")
    assert operator.workspace == "/code/there"
    operator = TransloadOperator(task_id="command", command=["echo", word])
    operator.render_template_fields({"params": {"word": "there"}})
    assert operator.command == ["echo", "there"]
    fields = ("app", "component_args", "command", "cfg", "env", "secrets", "mounts", "overrides")
    shown = dict.fromkeys(fields, "json")
    assert operator.template_fields_renderers == shown and shown.keys() <= set(
        operator.template_fields
    )


def test_each_setting_of_a_job_is_an_argument_and_a_template() -> None:
    """The operator takes the settings of the core by name, and none is left out."""
    settings = set(JOB_SETTINGS)
    assert settings <= set(inspect.signature(TransloadOperator).parameters)
    assert settings <= set(TransloadOperator.template_fields)


def test_callable_gets_what_it_asks_for(control: ScriptedControl) -> None:
    """A callable takes any names of the context, and its app is run."""
    seen = []

    def make(params: dict[str, Any], ti: Any) -> AppDef:
        seen.append((params["word"], ti.run_id))
        return scripted_app("app", {"results": {"0": {"x": 1}}})

    operator = scripted(app=make)
    assert execute(operator, make_context(operator))["results"] == {"0": {"x": 1}}
    assert seen == [("there", "run")]
    wrong = scripted(app=lambda parms: make(parms, None))
    with pytest.raises(
        AirflowFailException, match=r"missing a required argument: 'parms' .*\(.*params"
    ):
        execute(wrong, make_context(wrong, run_id="wrong"))
    nothing = scripted(app=lambda: 5)
    with pytest.raises(AirflowFailException, match="app=5: must be an AppDef"):
        execute(nothing, make_context(nothing, run_id="nothing"))


def test_results_that_json_has_not(control: ScriptedControl) -> None:
    """NaN and infinities reach Airflow as texts, which its API can take."""
    results = {"0": {"nan": math.nan, "inf": math.inf, "minus": -math.inf, "x": 1.5}}
    operator = scripted({"results": results}, push_results=True)
    context = make_context(operator)
    found = execute(operator, context)
    assert found["results"] == {
        "0": {"nan": "NaN", "inf": "Infinity", "minus": "-Infinity", "x": 1.5}
    }
    assert context["ti"].xcoms["results.0"]["nan"] == "NaN"
    json.dumps(found, allow_nan=False)


def test_files_are_values(transload_home: Path) -> None:
    """A file that the job leaves in its output folder is an XCom with its path."""
    script = 'echo weights > "$TRANSLOAD_OUTPUT_DIR/model.txt"'
    operator = TransloadOperator(
        task_id="job", command=["sh", "-c", script], scheduler="local", push_results=True
    )
    context = make_context(operator)
    execute(operator, context)
    assert Path(context["ti"].xcoms["artifacts.model.txt"]).read_text() == "weights\n"


def test_callbacks(control: ScriptedControl) -> None:
    """A DAG's author is told of the start, of each status, and of the results."""
    seen: list[str] = []

    class Mine(AppCallbacks):
        def on_started(self, handle: str, attached: bool, context: Any) -> None:
            seen.append(f"attached={attached}")

        def on_status(self, status: Any, context: Any) -> None:
            seen.append(status.state.name)

        def on_results(self, results: Any, context: Any) -> None:
            seen.append(str(results.value("x")))

    steps = [{"state": "RUNNING", "seconds": 0.2}, "SUCCEEDED"]
    operator = scripted({"steps": steps, "results": {"0": {"x": 1}}}, callbacks=Mine())
    execute(operator, make_context(operator))
    assert seen == ["attached=False", "RUNNING", "SUCCEEDED", "1"]


def test_callbacks_and_waiting_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``on_status`` a task is never deferred, since the triggerer has no callbacks."""

    class Watching(AppCallbacks):
        def on_status(self, status: Any, context: Any) -> None:
            """Nothing."""

    class Starting(AppCallbacks):
        def on_started(self, handle: str, attached: bool, context: Any) -> None:
            """Nothing."""

    with pytest.raises(ConfigError, match="deferrable=True: callbacks with on_status"):
        TransloadOperator(task_id="job", app=APP, deferrable=True, callbacks=Watching())
    assert TransloadOperator(
        task_id="job", app=APP, deferrable=True, callbacks=Starting()
    ).deferrable
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert not TransloadOperator(task_id="job", app=APP, callbacks=Watching()).deferrable
    assert TransloadOperator(task_id="job", app=APP, callbacks=Starting()).deferrable


def test_callbacks_look_the_same_in_each_process() -> None:
    """Callbacks have no address in a mapped task's stored form, which would change the DAG."""

    class Mine(AppCallbacks):
        pass

    with DAG("mapped", schedule=None) as dag:
        TransloadOperator.partial(task_id="job", callbacks=Mine(), app=APP).expand(
            scheduler=["local"]
        )
    task = DagSerialization.to_dict(dag)["dag"]["tasks"][0]
    stored = task["__var"]["partial_kwargs"]["callbacks"]
    assert stored == repr(Mine())
    assert "Mine()" in stored


def test_app_that_ends_soon_is_not_deferred(control: ScriptedControl) -> None:
    """A task whose app has ended, or ends within ``defer_after``, does not take the way through the
    triggerer.
    """
    for steps in (["SUCCEEDED"], [{"state": "RUNNING", "seconds": 0.7}, "SUCCEEDED"]):
        operator = deferring({"steps": steps}, defer_after=60)
        context = make_context(operator, run_id=str(len(steps)))
        assert execute(operator, context)["state"] == "SUCCEEDED"
    operator = deferring(
        {"steps": [{"state": "RUNNING", "seconds": 0.2}, "FAILED"]}, defer_after=60
    )
    with pytest.raises(AirflowException, match="exit code"):
        execute(operator, make_context(operator))


@pytest.mark.parametrize(
    ("state", "defer_after"), [("RUNNING", 0), ("RUNNING", 0.8), ("PENDING", 3600)]
)
def test_app_that_goes_on_is_deferred(
    control: ScriptedControl, state: str, defer_after: float
) -> None:
    """A job that still runs after that while is deferred, with its handle as XCom.

    A job that waits in a queue is deferred at once.
    """
    script = {"steps": [{"state": state, "until": "go"}, "SUCCEEDED"]}
    operator = deferring(script, defer_after=defer_after, patience=math.inf)  # which JSON has not
    context = make_context(operator)
    with pytest.raises(TaskDeferred) as deferral:
        execute(operator, context)
    assert context["ti"].xcoms["handle"] == deferral.value.trigger.state["handle"]
    json.dumps(deferral.value.trigger.serialize(), allow_nan=False)


def test_kill_while_looking_is_no_deferral(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is marked while it first waits in place does not defer, but waits on."""
    monkeypatch.setattr(task_instance, "task_state", lambda ti, absent=None: "failed")

    class Ending(AppCallbacks):
        def on_started(self, handle: str, attached: bool, context: Any) -> None:
            operator.on_kill()

    slow_end = [{"state": "RUNNING", "seconds": 1.0}, "CANCELLED"]
    script = {"steps": [{"state": "RUNNING", "until": "go"}], "on_cancel": slow_end}
    operator = deferring(script, defer_after=0.1, callbacks=Ending())
    with pytest.raises(AirflowException, match="asked to end"):
        execute(operator, make_context(operator))


def test_without_a_task_state_store(
    control: ScriptedControl, caplog: pytest.LogCaptureFixture
) -> None:
    """Before Airflow 3.3 the id alone reattaches, and a cleared task is a new job.

    A missing name is a warning.
    """
    operator = scripted()
    for max_tries in (0, 0, 1):
        execute(operator, make_context(operator, with_store=False, max_tries=max_tries))
    assert len(control.started()) == 2


def test_dry_run_touches_nothing(control: ScriptedControl) -> None:
    """A dry run shows what would be submitted, and submits nothing."""
    operator = TransloadOperator(
        task_id="job", component="utils.echo", component_args={"msg": "hello"}
    )
    assert "hello" in operator.dry_run()
    assert "hello" in get_adapter("airflow").dry_run("utils.echo", component_args={"msg": "hello"})
    asks = TransloadOperator(
        task_id="job", app=lambda params: APP, scheduler="scripted", params={"word": "x"}
    )
    assert "main" in asks.dry_run()
    with pytest.raises(SpecError, match="missing a required argument: 'ti'"):
        TransloadOperator(task_id="job", app=lambda ti: APP, scheduler="scripted").dry_run()
    with DAG("upstream", schedule=None):
        upstream = TransloadOperator(task_id="before", app=APP)
        after = TransloadOperator(
            task_id="after", component="utils.echo", component_args=upstream.output
        )
    with pytest.raises(SpecError, match="known only once that has run"):
        after.dry_run()
    assert control.started() == []


def test_command(control: ScriptedControl) -> None:
    """A command is run as it is, its words rendered, with numbers as texts."""
    command = ["python", "train.py", "--lr", "{{ params.lr }}", 3]
    operator = TransloadOperator(
        task_id="job", command=command, scheduler="scripted", params={"lr": 0.1}
    )
    operator.render_template_fields({"params": {"lr": 0.1}})
    launch = operator._launch({})
    assert launch.command == ["python", "train.py", "--lr", "0.1", "3"]
    role = launch.build().roles[0]
    assert [role.entrypoint, *role.args][-3:] == ["--lr", "0.1", "3"]
    assert "train.py" in operator.dry_run()


def test_settings_of_a_command(control: ScriptedControl) -> None:
    """What a command needs is said beside it, also by templates, and set over any job."""
    settings: dict[str, Any] = {
        "image": "img-{{ params.n }}",
        "gpu": "{{ params.n }}",
        "mem": "8G",
        "notice": "5m",
        "time_limit": "2h",
        "env": {"N": "{{ params.n }}"},
        "mounts": ["type=bind,src=/data/{{ params.n }},dst=/data"],
        "overrides": {"retries": 4, "gpu": 7},
    }
    for native in (False, True):
        with DAG("dag", schedule=None, render_template_as_native_obj=native):
            operator = TransloadOperator(task_id="job", command=["python", "train.py"], **settings)
        operator.render_template_fields({"params": {"n": 2}})
        app = operator._launch({}).build()
        role = app.roles[0]
        assert (role.image, role.resource.gpu, role.resource.memMB) == ("img-2", 2, 8192)
        assert (role.notice, app.timeout, role.env) == (Notice(300.0), 7200.0, {"N": "2"})
        assert role.mounts == [BindMount("/data/2", "/data")]
        assert role.max_retries == 4
    launch = scripted(app=APP, replicas=3)._launch({})
    assert launch.build().roles[0].num_replicas == 3
    assert control.started() == []


def test_settings_of_mapped_tasks() -> None:
    """Settings may be fixed or mapped over, as any argument of Airflow's."""
    with DAG("dag", schedule=None):
        mapped = TransloadOperator.partial(task_id="job", command=["true"], gpu=1).expand(
            mem=["1G", "2G"]
        )
    operator = mapped.unmap({"mem": "2G"})
    assert operator._launch({}).overrides == {"gpu": 1, "mem": "2G"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gpus": 1}, "gpus=1: no argument of TransloadOperator: did you mean 'gpu'?"),
        ({"overrides": {"retrys": 1}}, "retrys: no setting of a job: did you mean 'retries'?"),
    ],
)
def test_a_misspelt_setting_is_refused(arguments: dict[str, Any], words: str) -> None:
    """A misspelt setting is refused when the DAG is read. A wrong value fails the task for good."""
    with pytest.raises((ConfigError, SpecError), match=re.escape(words)):
        TransloadOperator(task_id="job", command=["true"], **arguments)
    operator = scripted(app=APP, mem="8X")
    with pytest.raises(AirflowFailException, match="mem='8X': must be a size"):
        execute(operator, make_context(operator))


def test_paths_and_variables(
    control: ScriptedControl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are relative to the DAG's file, and ``pass_env`` names the worker's variables."""
    (tmp_path / "jobs.py").write_text(
        "from transload.specs import AppDef, Role\n\n\ndef train() -> AppDef:\n"
        "    return AppDef('train', [Role('main', '', entrypoint='true')])\n"
    )
    monkeypatch.setenv("HF_HOME", "/models")
    with DAG("d", schedule=None) as dag:
        operator = TransloadOperator(
            task_id="job", component="jobs.py:train", scheduler="scripted", pass_env=["HF_*"]
        )
    dag.fileloc = str(tmp_path / "dag.py")
    assert "HF_HOME" in operator.dry_run()
    assert "HF_HOME" in get_adapter("airflow").dry_run(
        "utils.echo", component_args=["--msg=x"], pass_env=["HF_*"]
    )
    with pytest.raises(ConfigError, match="on_kill='ask'"):
        get_adapter("airflow").dry_run("utils.echo", component_args=["--msg=x"], on_kill="ask")
    context = {**make_context(operator), "dag": dag}
    assert execute(operator, context)["state"] == "SUCCEEDED"
    operator = TransloadOperator(task_id="other", component="jobs.py:train", scheduler="scripted")
    with pytest.raises(AirflowFailException, match=r"jobs\.py"):
        execute(operator, make_context(operator))


def test_adapter_makes_the_same_operators() -> None:
    """``convert`` takes every kind of source, and comes to the operator that users write."""
    adapter = get_adapter("airflow")
    made = [
        adapter.convert(APP, deferrable=True),
        adapter.convert(APP.to_json(), task_id="app"),
        adapter.convert("utils.echo", component_args={"msg": "x"}, scheduler="local"),
        adapter.convert(Launch(component="utils.echo", args={"msg": "x"}), cfg={"log_dir": "/x"}),
    ]
    assert [operator.task_id for operator in made] == ["app", "app", "utils.echo", "utils.echo"]
    assert made[0].deferrable is True
    assert made[2].component_args == {"msg": "x"}
    assert made[3].cfg == {"log_dir": "/x"}
    assert type(operator_from_app(APP)) is TransloadOperator
    asked = Launch(app=APP, environment="requirements.txt", pass_env=["HF_*"])
    made = adapter.convert(asked)
    assert made.environment == "requirements.txt"
    assert made.pass_env == ["HF_*"]


@pytest.mark.parametrize("inherit", [False, True])
def test_environment_of_the_worker(
    control: ScriptedControl, monkeypatch: pytest.MonkeyPatch, inherit: bool
) -> None:
    """A job gets a worker's own variables only with ``inherit_env``."""
    monkeypatch.setenv("KEY_OF_THE_WORKER", "hidden")
    app = AppDef(
        "env", [Role("main", "", entrypoint="sh", args=["-c", 'test -n "$KEY_OF_THE_WORKER"'])]
    )
    operator = TransloadOperator(
        task_id="job", app=app, scheduler="local", deferrable=False, inherit_env=inherit
    )
    context = make_context(operator)
    with host_runner(
        "airflow", inherit_env=inherit
    ):  # the one that the task takes: it must be closed
        if inherit:
            assert execute(operator, context)["state"] == "SUCCEEDED"
        else:
            with pytest.raises(AirflowException, match="exit code 1"):
                execute(operator, context)


@pytest.mark.parametrize("method", ["execute", "resume"])
def test_a_failure_is_told_without_a_page_of_frames(control: ScriptedControl, method: str) -> None:
    """What Airflow logs of a failed app is its message and the frame that it called, not the way
    there inside.
    """
    import traceback

    app = scripted_app("a", {"steps": [{"state": "FAILED", "lines": ["it broke"]}]})
    operator = TransloadOperator(task_id="job", app=app, scheduler="scripted")
    context = make_context(operator)
    call = operator.execute
    if method == "resume":
        with pytest.raises(AirflowException):
            execute(operator, context)
        call = functools.partial(operator.resume, event=None)
    with pytest.raises(Exception, match="it broke") as caught:
        call(context)
    shown = traceback.format_exception(caught.value)
    ours = [Path(module.__file__).parent for module in (transload, transload_airflow)]
    frames = [line for line in shown if any(f'"{folder}/' in line for folder in ours)]
    assert len(frames) == 1, "".join(shown)
    assert "AppFailed" not in "".join(shown)
