"""Run transload apps as components of Kubeflow Pipelines (v2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload_kfp.backend import RunDescription, cancel_run, describe_run, wait_for_run
    from transload_kfp.component import AppComponent
    from transload_kfp.convert import KfpAdapter, component_from_app, component_spec_from_app
    from transload_kfp.launcher import dry_run_launcher, launcher_from_app
    from transload_kfp.pipeline import pipeline_from_component, pipeline_text
    from transload_kfp.search import search_component, search_pipeline
    from transload_kfp.settings import TaskSettings
    from transload_kfp.states import EXIT_CANCELLED, EXIT_UNKNOWN, FINAL_STATES, STATES

__version__: Final = "0.1.0"

_HOMES: Final = {
    "backend": "RunDescription cancel_run describe_run wait_for_run",
    "component": "AppComponent",
    "convert": "KfpAdapter component_from_app component_spec_from_app",
    "launcher": "dry_run_launcher launcher_from_app",
    "pipeline": "pipeline_from_component pipeline_text",
    "search": "search_component search_pipeline",
    "settings": "TaskSettings",
    "states": "EXIT_CANCELLED EXIT_UNKNOWN FINAL_STATES STATES",
}

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
    "describe_run",
    "dry_run_launcher",
    "launcher_from_app",
    "pipeline_from_component",
    "pipeline_text",
    "search_component",
    "search_pipeline",
    "wait_for_run",
]

# lazy: KFP takes seconds to import, and neither the state table nor the launcher in its pod needs it
__getattr__, __dir__, _ = lazy_names(__name__, _HOMES)
