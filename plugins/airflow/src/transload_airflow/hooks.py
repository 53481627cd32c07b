"""The hook and its connection type: defaults for tasks, kept in Airflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseHook

from transload.errors import ConfigError, TransloadError
from transload.specs import CfgVal
from transload_airflow.run import runner_for_tasks

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.specs import AppStatus


@dataclass(frozen=True)
class Defaults:
    """What a connection of type ``transload`` holds, in its *extra* field.

    Args:
        scheduler: where to run apps.
        cfg: run options.
        tracker_base: where apps report results.
    """

    scheduler: str | None = None
    cfg: Mapping[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None

    @staticmethod
    def of(extra: Mapping[str, Any], name: str) -> Defaults:
        """Read the extra field.

        Raises:
            ConfigError: for an unknown name in it, or a value of another type.
        """
        if not isinstance(extra, Mapping):
            raise ConfigError(f"connection {name!r}: extra: must be an object, not {type(extra).__name__}")
        unknown = sorted(set(extra) - {"scheduler", "cfg", "tracker_base"})
        if unknown:
            raise ConfigError(f"connection {name!r}: extra.{unknown[0]}: must be one of scheduler, cfg, tracker_base")
        cfg = extra.get("cfg") or {}
        if isinstance(cfg, str):
            try:
                cfg = json.loads(cfg)
            except ValueError as exc:
                raise ConfigError(f"connection {name!r}: extra.cfg is not JSON: {exc}") from exc
        if not isinstance(cfg, Mapping):
            raise ConfigError(f"connection {name!r}: extra.cfg={cfg!r}: must be an object, option → value")
        for each in ("scheduler", "tracker_base"):
            if not isinstance(extra.get(each), (str, type(None))):
                raise ConfigError(f"connection {name!r}: extra.{each}={extra[each]!r}: must be a text")
        return Defaults(extra.get("scheduler") or None, dict(cfg), extra.get("tracker_base") or None)


class TransloadHook(BaseHook):  # type: ignore[misc]
    """Gives tasks the runner, and the defaults of a connection.

    Args:
        conn_id: a connection of type ``transload``; its *extra* is JSON: ``scheduler``, ``cfg``, ``tracker_base``.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "transload_default"
    conn_type = "transload"
    hook_name = "transload"

    def __init__(self, conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    @staticmethod
    def get_ui_field_behaviour() -> dict[str, Any]:
        """Return how the form of a connection looks."""
        example = {"scheduler": "slurm", "cfg": {"partition": "gpu"}, "tracker_base": "s3://bucket/results"}
        return {
            "hidden_fields": ["host", "schema", "login", "password", "port"],
            "relabeling": {"extra": "Defaults (JSON)"},
            "placeholders": {"extra": json.dumps(example)},
        }

    @property
    def defaults(self) -> Defaults:
        """The defaults that the connection holds.

        Raises:
            ConfigError: if they are wrong.
        """
        extra = self.get_connection(self.conn_id).extra or "{}"
        try:
            values = json.loads(extra)
        except ValueError as exc:  # Airflow itself would go on as if there were none
            raise ConfigError(f"connection {self.conn_id!r}: extra is not JSON: {exc}") from exc
        return Defaults.of(values, self.conn_id)

    def get_conn(self) -> Runner:
        """Return the runner that tasks of this process share; do not close it."""
        return runner_for_tasks()

    def status(self, handle: str) -> AppStatus | None:
        """Return the status of an app; None if there is none."""
        return self.get_conn().status(handle)

    def cancel(self, handle: str) -> None:
        """Ask for the end of an app."""
        self.get_conn().cancel(handle)

    def test_connection(self) -> tuple[bool, str]:
        """Tell whether the scheduler answers."""
        try:
            runner = self.get_conn()
            name = self.defaults.scheduler or runner.settings.scheduler
            count = len(runner.scheduler(name).list())
        except TransloadError as exc:
            return False, str(exc)
        return True, f"scheduler {name!r} answers; it knows {count} apps"


def defaults_of(conn_id: str) -> Defaults:
    """Return the defaults of a connection.

    Raises:
        ConfigError: if they are wrong.
    """
    return TransloadHook(conn_id).defaults
