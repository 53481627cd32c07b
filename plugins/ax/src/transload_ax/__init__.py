"""Trials of Ax experiments as transload apps. Importing this imports no Ax: that costs seconds, and is put off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload._lazy import lazy_names

if TYPE_CHECKING:
    from transload_ax.client import TransloadClientMetric, TransloadClientRunner
    from transload_ax.experiment import Outcome, make_experiment, run_experiment
    from transload_ax.metric import MetricMissing, TransloadCurveMetric, TransloadMetric
    from transload_ax.orchestrator import TransloadOrchestrator
    from transload_ax.runner import (
        APP_STATE_TO_TRIAL_STATUS,
        TRANSLOAD_APP_HANDLE,
        TRANSLOAD_TRACKER_BASE,
        TransloadRunner,
    )
    from transload_ax.snapshot import Snapshot
    from transload_ax.states import STATES
    from transload_ax.storage import register, registry_bundle
    from transload_ax.suggester import AxQualitySuggester, AxSobolSuggester, AxSuggester

__version__: Final = "0.1.0"

__all__ = [
    "APP_STATE_TO_TRIAL_STATUS",
    "STATES",
    "TRANSLOAD_APP_HANDLE",
    "TRANSLOAD_TRACKER_BASE",
    "AxQualitySuggester",
    "AxSobolSuggester",
    "AxSuggester",
    "MetricMissing",
    "Outcome",
    "Snapshot",
    "TransloadClientMetric",
    "TransloadClientRunner",
    "TransloadCurveMetric",
    "TransloadMetric",
    "TransloadOrchestrator",
    "TransloadRunner",
    "__version__",
    "make_experiment",
    "register",
    "registry_bundle",
    "run_experiment",
]

_HOMES: Final = {
    "client": "TransloadClientMetric TransloadClientRunner",
    "experiment": "Outcome make_experiment run_experiment",
    "metric": "MetricMissing TransloadCurveMetric TransloadMetric",
    "orchestrator": "TransloadOrchestrator",
    "runner": "APP_STATE_TO_TRIAL_STATUS TRANSLOAD_APP_HANDLE TRANSLOAD_TRACKER_BASE TransloadRunner",
    "snapshot": "Snapshot",
    "states": "STATES",
    "storage": "register registry_bundle",
    "suggester": "AxQualitySuggester AxSobolSuggester AxSuggester",
}

__getattr__, __dir__, _ = lazy_names(__name__, _HOMES)
