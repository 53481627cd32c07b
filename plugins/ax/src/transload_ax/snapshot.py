"""Storing experiments in a file that another process goes on from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from ax.core.experiment import Experiment
from ax.generation_strategy.generation_strategy import GenerationStrategy

from transload.errors import ConfigError
from transload_ax.encoding import Encoder, json_object
from transload_ax.storage import decode_experiment, register

SCHEMA: Final = 1


class Snapshot:
    """One experiment and its generation strategy in one JSON file, replaced as a whole.

    Saving again costs what has changed since the last time, and writing the file.

    Args:
        path: the file; its folder is made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._encoder = Encoder()

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
        text = json_object(
            {"schema": SCHEMA, **more},
            experiment=self._encoder.experiment(experiment),
            generation_strategy="null" if generation_strategy is None else self._encoder.strategy(generation_strategy),
        )
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
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
