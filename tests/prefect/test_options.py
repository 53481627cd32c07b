"""What makes tasks declares its options: an editor offers them, a type checker sees a misspelt
one.
"""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest
from prefect import Task

from transload.errors import ConfigError, SpecError
from transload.pipelines import ExecutionOptions, Launch
from transload_prefect import app_task
from transload_prefect.options import PrefectOptions, TaskOptions
from transload_prefect.settings import OWN

pytestmark = pytest.mark.unit


def test_options_of_prefect_s_task_are_declared() -> None:
    """No argument of Prefect's own task is missing; a newer version may have had others."""
    theirs = set(inspect.signature(Task.__init__).parameters)
    assert theirs - {"self", "fn", "name"} <= set(PrefectOptions.__annotations__)


def test_options_of_a_job_are_declared() -> None:
    """Each argument of a launch, of the options and of the adapter is declared, and nothing
    else.
    """
    launch = {each.name for each in fields(Launch)} - {"app", "component", "command", "args"}
    options = {each.name for each in fields(ExecutionOptions)}
    own = {"asynchronous", "component_args", "name", *OWN}
    declared = set(TaskOptions.__annotations__) - set(PrefectOptions.__annotations__)
    assert declared == launch | options | own


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retires": 2}, r"retires=2: .* did you mean 'retries'"),
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


def test_a_source_and_a_command_are_refused() -> None:
    """A command in place of a source does not silently win over one."""
    with pytest.raises(SpecError, match=r"command=\['true'\]: cannot be given beside"):
        app_task("utils.echo", command=["true"])
