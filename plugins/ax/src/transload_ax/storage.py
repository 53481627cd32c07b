"""Storing experiments: JSON snapshots that another process goes on from, and Ax's SQL storage."""

from __future__ import annotations

import json
import os
from pathlib import Path
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

SCHEMA: Final = 1

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


class Snapshot:
    """One experiment and its generation strategy in one JSON file, replaced as a whole.

    Args:
        path: the file; its folder is made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        """Tell whether there is one."""
        return self.path.is_file()

    def save(self, experiment: Experiment, generation_strategy: GenerationStrategy | None = None, **more: Any) -> None:
        """Store an experiment; a reader, or a process that is killed meanwhile, leaves the old or the new one.

        Args:
            experiment: the experiment, in any state.
            generation_strategy: what proposes its trials.
            more: JSON values to store along.
        """
        body = {
            "schema": SCHEMA,
            **more,
            "experiment": encode(experiment),
            "generation_strategy": None if generation_strategy is None else encode(generation_strategy),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)

    def load(self) -> tuple[Experiment, GenerationStrategy | None, dict[str, Any]]:
        """Return the experiment, its generation strategy, and what was stored along.

        Raises:
            ConfigError: if there is none, or it is not one, or of a newer version.
        """
        register()
        try:
            body = json.loads(self.path.read_text(encoding="utf-8"))
            if body["schema"] > SCHEMA:
                raise ConfigError(f"{self.path}: schema {body['schema']} is newer than this version reads ({SCHEMA})")
            stored, strategy = body.pop("experiment"), body.pop("generation_strategy")
        except FileNotFoundError as exc:
            raise ConfigError(f"{self.path}: there is no experiment") from exc
        except (ValueError, KeyError, TypeError) as exc:
            if isinstance(exc, ConfigError):
                raise
            raise ConfigError(f"{self.path}: not a stored experiment: {exc!r}") from exc
        experiment, made = decode_experiment(stored, strategy)
        return experiment, made, body


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
