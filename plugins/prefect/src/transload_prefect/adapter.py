"""Register the adapter. This imports Prefect where it is asked for more than its table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

import transload_prefect
from transload.pipelines import Adapter
from transload_prefect.states import HOST, STATES

if TYPE_CHECKING:
    from transload_search import Search


def convert(source: Any, **host_options: Any) -> Any:
    """Return a task, or for a `transload_search.Search` a flow.

    Args:
        source: as of `app_task`, or a search.
        host_options: arguments of `app_task`, or of `search_flow`.

    Raises:
        SpecError: if the source is wrong.
        ConfigError: for a wrong or unknown setting.
    """
    if _is_search(source):
        return transload_prefect.search_flow(source, **host_options)
    return transload_prefect.app_task(source, **host_options)


def show(source: Any, **host_options: Any) -> str:
    """Return what the task, or the first trial of a search, would submit.

    Arguments and errors as of `convert`.
    """
    if _is_search(source):
        return transload_prefect.dry_run_search(source, **host_options)
    task = transload_prefect.app_task(source, **host_options)
    return transload_prefect.dry_run_task(task, context_args={})


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Without the extra transload-search nothing is."""
    return type(source).__module__.startswith("transload_search.")


def adapter() -> Adapter:
    """Return what is registered of this plugin."""
    return Adapter(HOST, convert=convert, dry_run=show, states=STATES)
