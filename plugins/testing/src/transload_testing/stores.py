"""Keep an orchestrator's facts in a file, for tests."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from transload.errors import ConfigError


class JsonFileStore:
    """A store in a file of its own, replaced as a whole.

    Args:
        path: the file, whose folder must exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def get(self) -> dict[str, Any] | None:
        """Return what was last put, or None.

        Raises:
            ConfigError: if the file holds something else.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            record = json.loads(text)
        except ValueError as exc:
            raise ConfigError(f"{self.path}: not a record of a host: {exc}") from exc
        if not isinstance(record, dict):
            raise ConfigError(f"{self.path}: not a record of a host")
        return record

    def put(self, record: dict[str, Any]) -> None:
        """Keep ``record``. A reader sees the old or the new one."""
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with open(aside, "w", encoding="utf-8") as file:
            json.dump(record, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)
