"""What makes operators declares its options, so that a type checker sees a misspelt one."""

from __future__ import annotations

import inspect

import pytest
from airflow.sdk import BaseOperator

from transload.errors import SpecError
from transload_airflow import TransloadOperator
from transload_airflow.options import (
    BaseOptions,
    JobOptions,
    OperatorOptions,
    TrialOptions,
)


def arguments(made: type) -> set[str]:
    """Return the names of what a class takes by name."""
    parameters = inspect.signature(made.__init__).parameters.values()  # type: ignore[misc]
    return {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}


def test_the_options_of_every_operator_are_airflow_s() -> None:
    """No argument of Airflow's own operators is missing. A newer version may have had others."""
    assert arguments(BaseOperator) <= set(BaseOptions.__annotations__)


@pytest.mark.parametrize(
    ("options", "apart"),
    [
        (OperatorOptions, set()),
        (
            TrialOptions,
            {"app", "cfg", "command", "component", "component_args", "scheduler"},
        ),
        (
            JobOptions,
            {
                *("app", "cfg", "command", "component", "component_args", "scheduler"),
                *("conn_id", "tracker_base"),
            },
        ),
    ],
)
def test_the_options_of_a_job_are_those_of_its_operator(options: type, apart: set[str]) -> None:
    """Each argument of the operator is declared, but for what is said elsewhere."""
    own = set(options.__annotations__) - set(BaseOptions.__annotations__)
    assert own == arguments(TransloadOperator) - apart


@pytest.mark.parametrize(
    "name", ["scheduler", "workspace", "tracker_base", "parent_run_id", "environment", "image"]
)
def test_an_empty_text_is_not_taken_as_left_out(name: str) -> None:
    """What a variable that is not set makes of a keyword is refused where the task is made."""
    with pytest.raises(SpecError, match=f"{name}='': must not be empty"):
        TransloadOperator(task_id="t", command=["true"], **{name: ""})
