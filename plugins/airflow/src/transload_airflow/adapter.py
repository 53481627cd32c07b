"""What is registered of this plugin. Reading it imports no Airflow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import transload_airflow
from transload.pipelines import Adapter, dry_run
from transload_airflow.sources import is_search, launch_of
from transload_airflow.states import STATES

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskGroup

    from transload_airflow.operators import TransloadOperator
    from transload_search import Search

HOST: Final = "airflow"
"""Session name of all handles."""


def convert(source: Any, **host_options: Any) -> TransloadOperator | TaskGroup:
    """Return an operator, and of a Search a group of tasks.

    See `operator_from_app` and `search_group`.
    """
    if not is_search(source):
        return transload_airflow.operator_from_app(source, **host_options)
    group_id = host_options.pop("task_id", None)
    if group_id is not None:
        host_options["group_id"] = group_id
    return transload_airflow.search_group(source, **host_options)


def show(source: Any, **host_options: Any) -> str:
    """Return what a task would submit, and of a Search what its first round would.

    Options that only an operator has need Airflow.
    """
    if is_search(source):
        return _first_round(source)
    launch, other_options = launch_of(source, host_options)
    if not other_options:
        return dry_run(HOST, launch)
    return transload_airflow.operator_from_app(source, **host_options).dry_run()


def _first_round(search: Search) -> str:
    from transload_search import next_round

    trials, _ = next_round(search, None, {})
    requests = [
        dry_run(HOST, search.launch(trial), context_args={"trial_idx": trial.index})
        for trial in trials
    ]
    return "\n".join(requests)


def advice(schedulers: Collection[str]) -> Iterator[str]:
    """Advise to name the installation, and say what an older Airflow has not."""
    from transload_airflow.settings import setting

    others = sorted(set(schedulers) - {"local"})
    if others and not setting("deployment_id", ""):
        yield (
            f"[transload] deployment_id is not set, and jobs run on {', '.join(others)}: set "
            "it in airflow.cfg, differently for each Airflow that uses them"
        )
    installed = version("apache-airflow")
    if tuple(map(int, installed.split(".")[:2])) < (3, 3):
        yield (
            f"Airflow {installed} is installed, and from 3.3 on a mark or a clear of a deferred "
            "task ends its job at once. An environment with other orchestrators gets an older "
            "Airflow without a word: give Airflow one of its own"
        )


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(HOST, convert=convert, dry_run=show, states=STATES, advice=advice)
