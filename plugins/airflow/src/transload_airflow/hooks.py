"""Provide a hook and its connection type, for a cluster with its defaults, kept in Airflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow.providers.common.compat.sdk import BaseHook

from transload.errors import ConfigError, TransloadError
from transload.specs import CfgVal, looks_secret, nearest
from transload_airflow.runner import SECRETS, extra_of, runner_for_tasks

if TYPE_CHECKING:
    from transload.runner import Cluster, Runner

OWN: Final = ("kind", "cfg", "tracker_base")
"""Names in *extra* that every kind has. The others are the kind's own connection settings."""

HOSTS: Final = ("ssh", "docker_host")
"""Connection settings that the field *Host* may fill in.

It fills in the first of these that the kind has.
"""


class Defaults(NamedTuple):
    """The values of a connection of type ``transload``.

    They are the cluster, the run options and the tracker base.
    """

    cluster: Cluster | None = None
    cfg: Mapping[str, CfgVal] = MappingProxyType({})
    tracker_base: str | None = None

    @property
    def scheduler(self) -> str | None:
        """The name of the cluster, as it stands in handles."""
        if self.cluster is None:
            return None
        return self.cluster.name


class TransloadHook(BaseHook):
    """Gives tasks the runner, and what a connection says.

    Args:
        conn_id: a connection of type ``transload``. With the kind of a scheduler, and what leads to
            it, it is a cluster of its name. Its *extra* is JSON: ``kind``, ``cfg``,
            ``tracker_base``, and the kind's connection settings.
        logger_name: of ``BaseHook``.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "transload_default"
    conn_type = "transload"
    hook_name = "transload"

    def __init__(self, conn_id: str = default_conn_name, *, logger_name: str | None = None) -> None:
        super().__init__(logger_name)
        self.conn_id = conn_id

    @property
    def defaults(self) -> Defaults:
        """What the connection says.

        Raises:
            ConfigError: if it is wrong.
        """
        connection = self.get_connection(self.conn_id)
        extra = extra_of(self.conn_id)
        cfg = extra.get("cfg") or {}
        if not isinstance(cfg, Mapping):
            raise ConfigError(f"{self._where}extra.cfg={cfg!r}: must be an object, option → value")
        for name in ("kind", "tracker_base"):
            if not isinstance(extra.get(name), (str, type(None))):
                raise ConfigError(f"{self._where}extra.{name}={extra[name]!r}: must be a text")
        settings = {
            name: value
            for name, value in extra.items()
            if name not in OWN and value not in (None, "")
        }
        return Defaults(
            cluster=self._cluster(extra.get("kind"), settings, connection),
            cfg=dict(cfg),
            tracker_base=extra.get("tracker_base") or None,
        )

    @property
    def _where(self) -> str:
        """How an error about the connection begins."""
        return f"connection {self.conn_id!r}: "

    def _cluster(
        self, kind: str | None, settings: dict[str, Any], connection: Any
    ) -> Cluster | None:
        """Return the cluster that the connection describes, or None if it describes none.

        Args:
            kind: of the scheduler.
            settings: connection settings of that kind, from *extra*.
            connection: has *Host* and *Login*.

        Raises:
            ConfigError: if they do not fit the kind.
        """
        if not kind:
            if connection.host:
                settings = {**settings, "host": connection.host}
            if not settings:
                return None
            raise ConfigError(
                f"{self._where}{next(iter(settings))}: extra.kind must say of which kind of "
                "scheduler it is"
            )
        known = list(runner_for_tasks().scheduler(kind).connection.table())
        if connection.host:
            of_host = next((name for name in HOSTS if name in known), None)
            if of_host is None:
                raise ConfigError(
                    f"{self._where}host: a scheduler of kind {kind!r} has no host to connect to"
                )
            address = connection.host
            if connection.login:
                address = f"{connection.login}@{address}"
            settings = {**settings, of_host: address}
        for name in settings:
            if name not in known:
                raise ConfigError(f"{self._where}extra.{name}: {nearest(name, [*OWN, *known])}")
        return self._described(kind, settings)

    def _described(self, kind: str, settings: Mapping[str, Any]) -> Cluster:
        """Return a cluster whose secrets and whole files stay in the connection.

        They are read there again where they are needed.
        """
        from transload.runner import Cluster

        if not settings:
            return Cluster(kind)
        name = re.sub(r"[^a-z0-9_-]", "-", self.conn_id.lower())
        if not name[:1].isalpha():
            name = f"c-{name}"
        plain = {}
        secret = {}
        for setting, value in settings.items():
            if looks_secret(setting) or _is_file(value):
                secret[setting] = f"{SECRETS}:{self.conn_id}/{setting}"
            else:
                plain[setting] = value
        return Cluster(name, kind, plain, secret)

    def get_conn(self) -> Runner:
        """Return the runner that tasks of this process share, which knows the cluster.

        Do not close it.
        """
        return runner_for_tasks(cluster=self.defaults.cluster)

    def test_connection(self) -> tuple[bool, str]:
        """Tell whether the cluster answers. Its jobs are not looked at."""
        try:
            runner = self.get_conn()
            name = self.defaults.scheduler or runner.settings.scheduler
            checks = runner.scheduler(name).diagnose()
        except TransloadError as exc:
            return False, str(exc)
        if not checks:
            return True, f"scheduler {name!r} is there, and has nothing to ask"
        bad = [check for check in checks if not check[1]]
        shown = [f"{what}: {found}" for what, _, found in bad or checks]
        return not bad, "; ".join(shown)


def _is_file(value: Any) -> bool:
    """Tell whether a value is the content of a file (a kubeconfig, a key).

    Such a value does not belong into the record of a handle.
    """
    if isinstance(value, (Mapping, list)):
        return True
    return isinstance(value, str) and "\n" in value.strip()


def defaults_of(conn_id: str | None) -> Defaults:
    """Return what a connection says, or nothing without one.

    Raises:
        ConfigError: if it is wrong.
    """
    if not conn_id:
        return Defaults()
    return TransloadHook(conn_id).defaults
