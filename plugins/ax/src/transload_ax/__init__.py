"""Trials of Ax experiments as jobs. Importing this imports no Ax, which costs seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_ax.client import *
    from transload_ax.convert import *
    from transload_ax.metric import *
    from transload_ax.runner import *
    from transload_ax.states import *
    from transload_ax.storage import *
    from transload_ax.suggester import *

__version__: Final = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "client": "TransloadClientMetric TransloadClientRunner",
        "convert": "dry_run_trial trial_runner",
        "metric": "MetricMissing TransloadCurveMetric TransloadMetric",
        "runner": "APP_STATE_TO_TRIAL_STATUS TRANSLOAD_APP_HANDLE TRANSLOAD_TRACKER_BASE TransloadRunner",
        "states": "STATES",
        "storage": "register registry_bundle",
        "suggester": "AxQualitySuggester AxSobolSuggester AxSuggester",
    },
)
