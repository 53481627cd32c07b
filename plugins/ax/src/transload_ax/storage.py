"""Letting Ax's own storage, JSON and SQL, store what is of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ax.core.experiment import Experiment
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.storage.json_store.decoder import generation_strategy_from_json, object_from_json
from ax.storage.json_store.encoder import object_to_json
from ax.storage.json_store.encoders import metric_to_dict, runner_to_dict
from ax.storage.json_store.registry import (
    CORE_CLASS_DECODER_REGISTRY,
    CORE_CLASS_ENCODER_REGISTRY,
    CORE_DECODER_REGISTRY,
    CORE_ENCODER_REGISTRY,
)
from ax.storage.metric_registry import CORE_METRIC_REGISTRY
from ax.storage.runner_registry import CORE_RUNNER_REGISTRY

from transload.errors import ConfigError
from transload_ax.client import TransloadClientMetric, TransloadClientRunner
from transload_ax.metric import TransloadCurveMetric, TransloadMetric
from transload_ax.runner import TransloadRunner

if TYPE_CHECKING:
    from ax.storage.registry_bundle import RegistryBundle
    from ax.storage.sqa_store.structs import DBSettings

_RUNNERS: Final[dict[type, int]] = {TransloadRunner: 7401, TransloadClientRunner: 7402}
_METRICS: Final[dict[type, int]] = {TransloadMetric: 7411, TransloadCurveMetric: 7412, TransloadClientMetric: 7413}


def register() -> None:
    """Let Ax's own JSON functions (``Client.save_to_json_file``, ``save_experiment`` …) store these classes."""
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
        raise ConfigError(f"Ax's SQL storage cannot be used: {exc}: install transload-ax[sql]") from exc


def is_stored(name: str, settings: DBSettings) -> bool:
    """Tell whether Ax's SQL storage has an experiment of that name."""
    from ax.exceptions.core import ExperimentNotFoundError
    from ax.storage.sqa_store.db import init_engine_and_session_factory
    from ax.storage.sqa_store.load import load_experiment

    # as Ax's own orchestrator does, later
    init_engine_and_session_factory(creator=settings.creator, url=settings.url)
    try:
        load_experiment(name, config=settings.decoder.config, reduced_state=True, skip_runners_and_metrics=True)
    except ExperimentNotFoundError:
        return False
    return True


def decode_experiment(stored: Any, strategy: Any) -> tuple[Experiment, GenerationStrategy | None]:
    """Return an experiment and its generation strategy from their JSON values, which are used up."""
    register()
    registries: dict[str, Any] = {
        "decoder_registry": CORE_DECODER_REGISTRY,
        "class_decoder_registry": CORE_CLASS_DECODER_REGISTRY,
    }
    experiment: Experiment = object_from_json(stored, **registries)
    if strategy is None:
        return experiment, None
    return experiment, generation_strategy_from_json(strategy, experiment=experiment, **registries)


def encode(thing: Any) -> Any:
    """Return an experiment or a generation strategy as JSON values."""
    register()
    return object_to_json(
        thing, encoder_registry=CORE_ENCODER_REGISTRY, class_encoder_registry=CORE_CLASS_ENCODER_REGISTRY
    )
