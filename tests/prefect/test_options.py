"""What makes tasks declares its options for editors and type checkers."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from prefect import Task

from transload.errors import ConfigError, SpecError
from transload.pipelines import JOB_SETTINGS, ExecutionOptions, Launch
from transload.specs import Notice
from transload_prefect import app_task
from transload_prefect.options import PrefectOptions, TaskOptions
from transload_prefect.settings import OWN

pytestmark = pytest.mark.unit


def test_options_of_prefect_s_task_are_declared() -> None:
    """No argument of Prefect's own task is missing. A newer version may have had others."""
    theirs = set(inspect.signature(Task.__init__).parameters)
    assert theirs - {"self", "fn", "name"} <= set(PrefectOptions.__annotations__)


def test_options_of_a_job_are_declared() -> None:
    """Each argument of a launch, of the options and of the adapter is declared, and nothing
    else.
    """
    launch = {each.name for each in fields(Launch)} - {"app", "component", "command", "args"}
    options = {each.name for each in fields(ExecutionOptions)}
    own = {"asynchronous", "component_args", "name", *OWN, *JOB_SETTINGS}
    declared = set(TaskOptions.__annotations__) - set(PrefectOptions.__annotations__)
    assert declared == launch | options | own


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retires": 2}, r"retires=2: .* did you mean 'retries'"),
        ({"gpus": 1}, "gpus=1: .* did you mean 'gpu'"),
        ({"imaeg": "img"}, "imaeg='img': .* did you mean 'image'"),
        ({"args": {}}, "component_args"),
        ({"checkpoints": "kep"}, "'keep' or 'new'"),
        (
            {"checkpoints": "local://prefect/train-1"},
            r"launch=\{'checkpoints': 'local://prefect/train-1'\}",
        ),
    ],
)
def test_a_wrong_option_is_refused(settings: dict[str, object], words: str) -> None:
    """The error says what is allowed, and the nearest name."""
    with pytest.raises(ConfigError, match=words):
        app_task("utils.echo", **settings)  # type: ignore[arg-type]


def test_settings_of_the_job() -> None:
    """What a command needs is said beside it."""
    task = app_task(
        command=["train"],
        image="img",
        gpu=1,
        mem="8G",
        notice="5m",
        overrides={"retries": 4},
        retries=2,
    )
    role = task.spec.launch.build().roles[0]
    assert (role.resource.gpu, role.resource.memMB, role.max_retries) == (1, 8192, 4)
    assert (role.image, role.notice) == ("img", Notice(300.0))
    assert task.retries == 2
    assert app_task(command=["train"]).spec.digest != task.spec.digest


def test_a_source_and_a_command_are_refused() -> None:
    """A command in place of a source does not silently win over one."""
    with pytest.raises(SpecError, match=r"command=\['true'\]: cannot be given beside"):
        app_task("utils.echo", command=["true"])


@pytest.mark.parametrize(
    "name", ["scheduler", "workspace", "tracker_base", "parent_run_id", "environment", "key"]
)
def test_an_empty_text_is_not_taken_as_left_out(name: str) -> None:
    """What a variable that is not set makes of a keyword is refused where the task is made."""
    with pytest.raises(SpecError, match=f"{name}='': must not be empty"):
        app_task(command=["true"], **{name: ""})
