"""Let Ax's own storage, JSON and SQL, store what is of this package.

Experiments become JSON values.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ax.core.data import Data
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
from ax.storage.utils import data_to_data_by_trial

from transload.errors import ConfigError
from transload_ax.client import TransloadClientMetric, TransloadClientRunner
from transload_ax.metric import TransloadCurveMetric, TransloadMetric
from transload_ax.runner import TransloadRunner

if TYPE_CHECKING:
    from ax.storage.registry_bundle import RegistryBundle
    from ax.storage.sqa_store.structs import DBSettings

_RUNNERS: Final[dict[type, int]] = {TransloadRunner: 7401, TransloadClientRunner: 7402}
_METRICS: Final[dict[type, int]] = {
    TransloadMetric: 7411,
    TransloadCurveMetric: 7412,
    TransloadClientMetric: 7413,
}

_COLUMNS: Final = {
    name: name
    for name in ("trial_index", "arm_name", "metric_name", "metric_signature", "mean", "step")
} | {"sem": "se"}
"""Column of Ax's table of data → attribute of its rows."""
_SPECIAL: Final = ("start_time", "end_time", "n")


def register() -> None:
    """Let Ax's own JSON functions store these classes.

    These are ``Client.save_to_json_file``, ``save_experiment`` and such.
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


def is_stored(name: str, settings: DBSettings) -> bool:
    """Tell whether Ax's SQL storage has an experiment of that name."""
    from ax.exceptions.core import ExperimentNotFoundError
    from ax.storage.sqa_store.db import init_engine_and_session_factory
    from ax.storage.sqa_store.load import load_experiment

    # as Ax's own orchestrator does, later
    init_engine_and_session_factory(creator=settings.creator, url=settings.url)
    try:
        load_experiment(
            name, config=settings.decoder.config, reduced_state=True, skip_runners_and_metrics=True
        )
    except ExperimentNotFoundError:
        return False
    return True


def decode_experiment(stored: Any, strategy: Any) -> tuple[Experiment, GenerationStrategy | None]:
    """Return an experiment and its generation strategy from JSON values, which are used up."""
    register()
    registries: dict[str, Any] = {"decoder_registry": CORE_DECODER_REGISTRY}
    registries["class_decoder_registry"] = CORE_CLASS_DECODER_REGISTRY
    experiment: Experiment = object_from_json(stored, **registries)
    if strategy is None:
        return experiment, None
    return experiment, generation_strategy_from_json(strategy, experiment=experiment, **registries)


def encode(thing: Any) -> Any:
    """Return what Ax can store as JSON values."""
    register()
    return object_to_json(
        thing,
        encoder_registry=CORE_ENCODER_REGISTRY,
        class_encoder_registry=CORE_CLASS_ENCODER_REGISTRY,
    )


def encode_experiment(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as the JSON values that Ax's decoder reads.

    Ax itself takes 80 ms a trial for data.
    """
    light = copy.copy(experiment)
    light.data = Data()
    return {**encode(light), "data_by_trial": _data_by_trial(experiment.data)}


def encode_strategy(strategy: GenerationStrategy, runs_from: int = 0) -> dict[str, Any]:
    """Return a generation strategy as JSON values.

    Its experiment is left out, and so are its first generator runs.
    """
    light = copy.copy(strategy)
    light._experiment, light._generator_runs = None, strategy._generator_runs[runs_from:]
    values: dict[str, Any] = encode(light)
    return values


def _data_by_trial(data: Data) -> Any:
    """Return the data as Ax stores it, with a table for each trial, as JSON inside of JSON."""
    rows = getattr(data, "_data_rows", None)
    # what our own metrics never report is left to Ax
    if rows is None or any(
        getattr(row, name, None) is not None for row in rows for name in _SPECIAL
    ):
        return encode(data_to_data_by_trial(data))
    by_trial: dict[str, list[Any]] = {}
    for row in rows:
        by_trial.setdefault(str(int(row.trial_index)), []).append(row)
    return {index: _table(each) for index, each in by_trial.items()}


def _table(rows: Sequence[Any]) -> dict[str, Any]:
    columns = [
        name for name in _COLUMNS if name != "step" or any(row.step is not None for row in rows)
    ]
    table = {
        name: {str(place): _cell(getattr(row, _COLUMNS[name])) for place, row in enumerate(rows)}
        for name in columns
    }
    frame = {"__type": "DataFrame", "value": json.dumps(table)}
    return {"__type": "OrderedDict", "value": [[0, {"df": frame, "__type": "Data"}]]}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, int) or math.isfinite(number) else None
