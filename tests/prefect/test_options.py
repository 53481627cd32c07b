"""What makes tasks declares its options for editors and type checkers."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
from prefect import Task

from transload.errors import ConfigError, SpecError
from transload.pipelines import JOB_SETTINGS, ExecutionOptions, Launch
from transload.specs import Notice
from transload_prefect import AppJob, app_task
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
    """What a command needs is said beside it, in a task and in a block, and lasts in a saved
    block.
    """
    task = app_task(command=["train"], gpu=1, mem="8G", overrides={"retries": 4}, retries=2)
    block = AppJob(
        command=["train"], image="img", gpu=0, mem="8G", notice="5m", overrides={"retries": 4}
    )
    again = AppJob.model_validate_json(block.model_dump_json())
    launches = [task.spec.launch, again._launch()]
    roles = [launch.build().roles[0] for launch in launches]
    assert [(role.resource.gpu, role.resource.memMB) for role in roles] == [(1, 8192), (0, 8192)]
    assert [role.max_retries for role in roles] == [4, 4]
    assert task.retries == 2
    assert (roles[1].image, roles[1].notice) == ("img", Notice(300.0))
    assert app_task(command=["train"]).spec.digest != task.spec.digest


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"imaeg": "img"}, "imaeg='img': no setting of an AppJob: did you mean 'image'"),
        ({"mem": "8X"}, "mem='8X': must be a size"),
        ({"overrides": {"retrys": 1}}, "retrys: no setting of a job: did you mean 'retries'"),
    ],
)
def test_a_wrong_setting_of_a_block_is_refused(settings: dict[str, Any], words: str) -> None:
    """It is when the block is made."""
    with pytest.raises(ValueError, match=words):
        AppJob(command=["train"], **settings)


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
