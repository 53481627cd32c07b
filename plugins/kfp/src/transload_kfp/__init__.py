"""Run transload jobs as components of Kubeflow Pipelines (v2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_kfp.component import *
    from transload_kfp.convert import *
    from transload_kfp.launcher import *
    from transload_kfp.search import *
    from transload_kfp.states import *

__version__: Final = "0.1.0"

# lazy: KFP takes seconds to import, and neither the state table nor the launcher in its pod needs
# it
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "component": "AppComponent pipeline_text",
        "convert": "component_from_app",
        "launcher": "launcher_from_app",
        "search": "search_component search_pipeline",
        "states": "EXIT_CANCELLED EXIT_UNKNOWN STATES",
    },
)
