"""Run transload apps as Prefect tasks, jobs and infrastructure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload_prefect.blocks import AppJob, AppJobRun
    from transload_prefect.cluster import TransloadCluster
    from transload_prefect.convert import app_task, run_app, run_app_async
    from transload_prefect.search import search_flow
    from transload_prefect.states import STATES
    from transload_prefect.task import AppTask
    from transload_prefect.task_runner import AppTaskRunner
    from transload_prefect.worker import TransloadWorker

__version__: Final = "0.1.0"

__all__ = [
    "STATES",
    "AppJob",
    "AppJobRun",
    "AppTask",
    "AppTaskRunner",
    "TransloadCluster",
    "TransloadWorker",
    "__version__",
    "app_task",
    "run_app",
    "run_app_async",
    "search_flow",
]

_HOMES: Final = {
    "STATES": "states",
    "AppJob": "blocks",
    "AppJobRun": "blocks",
    "AppTask": "task",
    "AppTaskRunner": "task_runner",
    "TransloadCluster": "cluster",
    "TransloadWorker": "worker",
    "app_task": "convert",
    "run_app": "convert",
    "run_app_async": "convert",
    "search_flow": "search",
}


def __getattr__(name: str) -> Any:
    # lazy: Prefect takes seconds to import, and the state table and the tests of the policy do without it
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
