"""Run transload jobs in flows and tasks of Prefect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_prefect.cluster import TransloadCluster
    from transload_prefect.convert import dry_run_task
    from transload_prefect.run import run_app, run_app_async
    from transload_prefect.search import dry_run_search, search_flow
    from transload_prefect.states import STATES
    from transload_prefect.task import app_task, may_retry

__version__: Final = "0.1.0"

__all__ = [
    "STATES",
    "TransloadCluster",
    "__version__",
    "app_task",
    "dry_run_search",
    "dry_run_task",
    "may_retry",
    "run_app",
    "run_app_async",
    "search_flow",
]

__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "cluster": "TransloadCluster",
        "convert": "dry_run_task",
        "run": "run_app run_app_async",
        "search": "dry_run_search search_flow",
        "states": "STATES",
        "task": "app_task may_retry",
    },
)
