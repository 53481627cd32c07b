"""Clusters, which are schedulers with a name and connection settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload.errors import ConfigError
from transload.specs import CfgVal, SpecError, looks_secret
from transload.specs.checks import shorten
from transload.specs.secrets import check_source

_NAME: Final = r"[a-z][a-z0-9_-]{0,62}"
_CONTROL: Final = r"[\x00-\x1f\x7f]"


@dataclass
class Cluster:
    """A scheduler with its own name.

    Orchestrators keep one with each handle, so that any process finds the same cluster.

    Args:
        name: its name in handles.
        kind: the installed scheduler. The default is the scheduler with its name.
        connection: the settings that select the cluster, without secrets.
        secrets: setting → source of its value, which is ``env:NAME``, ``file:PATH``, or a source
            that the orchestrator resolves (``secret_sources`` of a runner).

    Raises:
        ConfigError: if a value is not valid.
    """

    name: str
    kind: str = ""
    connection: Mapping[str, CfgVal] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):
            raise ConfigError(f"cluster {self.name!r}: kind={shorten(self.kind)}: must be a str")
        self.kind = self.kind or self.name
        if not isinstance(self.name, str) or (
            self.kind != self.name and not re.fullmatch(_NAME, self.name)
        ):
            rule = "a letter a-z, then up to 62 of a-z, 0-9, _ and -"
            raise ConfigError(f"{self.name!r}: the name of a cluster must be {rule}")
        for table in ("connection", "secrets"):
            if not isinstance(getattr(self, table), Mapping):
                raise ConfigError(
                    f"cluster {self.name!r}: {table}={shorten(getattr(self, table))}: must be a "
                    "mapping"
                )
        for key, value in self.connection.items():
            if looks_secret(key):
                raise ConfigError(
                    f"cluster {self.name!r}: {key}: is a secret: name where it is found in secrets"
                )
            # some of these become part of a command line or a URL
            if isinstance(value, str) and (value.startswith("-") or re.search(_CONTROL, value)):
                rule = "must not begin with '-' or hold control characters"
                raise ConfigError(f"cluster {self.name!r}: {key}={shorten(value)}: {rule}")
        for key, source in self.secrets.items():
            try:
                check_source(source, f"cluster {self.name!r}: secrets[{key!r}]")
            except SpecError as exc:
                raise ConfigError(str(exc)) from exc

    def to_dict(self) -> dict[str, Any]:
        """Return the cluster as JSON values, with the sources of secrets, but not their values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "connection": dict(self.connection),
            "secrets": dict(self.secrets),
        }

    def to_json(self) -> str:
        """Return `to_dict` as text, which is the same for equal clusters."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Cluster:
        """Create a cluster from the values of `to_dict`, and ignore unknown fields.

        Raises:
            ConfigError: if it is not such a mapping.
        """
        if not isinstance(data, Mapping) or "name" not in data:
            raise ConfigError(
                f"cluster: {shorten(data)}: must be an object with name, kind, connection, secrets"
            )
        return Cluster(
            data["name"],
            data.get("kind") or "",
            data.get("connection") or {},
            data.get("secrets") or {},
        )
