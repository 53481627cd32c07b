"""Have Ax's own storage, JSON and SQL, store runners and metrics of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ax.storage.json_store.encoders import metric_to_dict, runner_to_dict
from ax.storage.json_store.registry import CORE_DECODER_REGISTRY, CORE_ENCODER_REGISTRY
from ax.storage.metric_registry import CORE_METRIC_REGISTRY
from ax.storage.runner_registry import CORE_RUNNER_REGISTRY

from transload.errors import ConfigError
from transload_ax.client import TransloadClientMetric, TransloadClientRunner
from transload_ax.metric import TransloadCurveMetric, TransloadMetric
from transload_ax.runner import TransloadRunner

if TYPE_CHECKING:
    from ax.storage.registry_bundle import RegistryBundle

_RUNNERS: Final[dict[type, int]] = {TransloadRunner: 7401, TransloadClientRunner: 7402}
_METRICS: Final[dict[type, int]] = {
    TransloadMetric: 7411,
    TransloadCurveMetric: 7412,
    TransloadClientMetric: 7413,
}
"""Class → the number by which Ax's SQL storage knows it."""


def register() -> None:
    """Have Ax's own JSON functions store these classes, and read them.

    Such functions are ``Client.save_to_json_file``, ``save_experiment`` and ``load_experiment``.
    """
    for kind in _RUNNERS:
        CORE_ENCODER_REGISTRY[kind] = runner_to_dict
        CORE_DECODER_REGISTRY[kind.__name__] = kind
    for kind in _METRICS:
        CORE_ENCODER_REGISTRY[kind] = metric_to_dict
        CORE_DECODER_REGISTRY[kind.__name__] = kind


def registry_bundle() -> RegistryBundle:
    """Return what Ax's SQL storage needs to store what is of this package, besides all of its own.

    Raises:
        ConfigError: if SQLAlchemy is not installed in the version that Ax wants.
    """
    try:
        from ax.storage.registry_bundle import RegistryBundle

        return RegistryBundle(
            metric_clss={**CORE_METRIC_REGISTRY, **_METRICS},
            runner_clss={**CORE_RUNNER_REGISTRY, **_RUNNERS},
        )
    except (ImportError, TypeError) as exc:
        raise ConfigError(
            f"Ax's SQL storage cannot be used: {exc}: install transload-ax[sql]"
        ) from exc
