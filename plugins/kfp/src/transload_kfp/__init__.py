"""Run transload apps as components of Kubeflow Pipelines (v2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transload_kfp.component import AppComponent
    from transload_kfp.convert import (
        KfpAdapter,
        component_from_app,
        component_spec_from_app,
        container_from_app,
    )
    from transload_kfp.launcher_component import dry_run_launcher, launcher_from_app
    from transload_kfp.pipeline import pipeline_from_component, pipeline_text
    from transload_kfp.runs import RunDescription, cancel_run, describe_run, wait_for_run
    from transload_kfp.search import search_component, search_pipeline
    from transload_kfp.settings import TaskSettings
    from transload_kfp.states import EXIT_CANCELLED, EXIT_UNKNOWN, FINAL_STATES, STATES

__version__: Final = "0.1.0"

_HOMES: Final = {
    "component": ("AppComponent",),
    "convert": ("KfpAdapter", "component_from_app", "component_spec_from_app", "container_from_app"),
    "launcher_component": ("dry_run_launcher", "launcher_from_app"),
    "pipeline": ("pipeline_from_component", "pipeline_text"),
    "runs": ("RunDescription", "cancel_run", "describe_run", "wait_for_run"),
    "search": ("search_component", "search_pipeline"),
    "settings": ("TaskSettings",),
    "states": ("EXIT_CANCELLED", "EXIT_UNKNOWN", "FINAL_STATES", "STATES"),
}
_MODULE_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "EXIT_CANCELLED",
    "EXIT_UNKNOWN",
    "FINAL_STATES",
    "STATES",
    "AppComponent",
    "KfpAdapter",
    "RunDescription",
    "TaskSettings",
    "__version__",
    "cancel_run",
    "component_from_app",
    "component_spec_from_app",
    "container_from_app",
    "describe_run",
    "dry_run_launcher",
    "launcher_from_app",
    "pipeline_from_component",
    "pipeline_text",
    "search_component",
    "search_pipeline",
    "wait_for_run",
]


def __getattr__(name: str) -> Any:
    # lazy: KFP takes seconds to import, and neither the state table nor the launcher in its pod needs it
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
