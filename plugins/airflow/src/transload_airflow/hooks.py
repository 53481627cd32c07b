"""The hook and its connection type: a cluster with its defaults, kept in Airflow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow.providers.common.compat.sdk import BaseHook

from transload.errors import ConfigError, TransloadError
from transload.specs import CfgVal, looks_secret, nearest
from transload_airflow.runner import SECRETS, extra_of, runner_for_tasks, secret_of

if TYPE_CHECKING:
    from transload.runner import Cluster, Runner

OWN: Final = ("kind", "cfg", "tracker_base")
"""Names in *extra* that every kind has; the others are the kind's own connection settings."""

HOSTS: Final = ("ssh", "docker_host")
"""The connection settings that the field *Host* fills in: the first of these that the kind has."""


class Defaults(NamedTuple):
    """What a connection of type ``transload`` says: where apps run, their run options, where they
    report results.
    """

    cluster: Cluster | None = None
    cfg: Mapping[str, CfgVal] = MappingProxyType({})
    tracker_base: str | None = None

    @property
    def scheduler(self) -> str | None:
        """The name of the cluster, as it stands in handles."""
        return None if self.cluster is None else self.cluster.name


class TransloadHook(BaseHook):
    """Gives tasks the runner, and what a connection says.

    Args:
        conn_id: a connection of type ``transload``: with the kind of a scheduler, and what leads to
            it, it is a cluster of its name. Its *extra* is JSON: ``kind``, ``cfg``,
            ``tracker_base``, and the kind's connection settings.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "transload_default"
    conn_type = "transload"
    hook_name = "transload"

    def __init__(self, conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    @property
    def defaults(self) -> Defaults:
        """What the connection says.

        Raises:
            ConfigError: if it is wrong.
        """
        connection = self.get_connection(self.conn_id)
        extra, where = extra_of(self.conn_id), f"connection {self.conn_id!r}: "
        cfg = extra.get("cfg") or {}
        if not isinstance(cfg, Mapping):
            raise ConfigError(f"{where}extra.cfg={cfg!r}: must be an object, option → value")
        for each in ("kind", "tracker_base"):
            if not isinstance(extra.get(each), (str, type(None))):
                raise ConfigError(f"{where}extra.{each}={extra[each]!r}: must be a text")
        given = {
            name: value
            for name, value in extra.items()
            if name not in OWN and value not in (None, "")
        }
        kind, tracker_base = extra.get("kind"), extra.get("tracker_base") or None
        if not kind:
            for name in (*given, *(["host"] if connection.host else [])):
                raise ConfigError(
                    f"{where}{name}: extra.kind must say of which kind of scheduler it is"
                )
            return Defaults(None, dict(cfg), tracker_base)
        known = [name for name, _ in runner_for_tasks().scheduler(kind).connection_opts()]
        if connection.host:
            setting = next((name for name in HOSTS if name in known), None)
            if setting is None:
                raise ConfigError(
                    f"{where}host: a scheduler of kind {kind!r} is not led to by a host"
                )
            given[setting] = (
                f"{connection.login}@{connection.host}" if connection.login else connection.host
            )
        for name in given:
            if name not in known:
                raise ConfigError(f"{where}extra.{name}: {nearest(name, [*OWN, *known])}")
        return Defaults(self._cluster(kind, given), dict(cfg), tracker_base)

    def _cluster(self, kind: str, given: Mapping[str, Any]) -> Cluster:
        """Return the cluster; what is secret, or a whole file, stays in the connection, and is read
        there again.
        """
        from transload.runner import Cluster

        if not given:
            return Cluster(kind)
        kept = [name for name, value in given.items() if looks_secret(name) or _is_file(value)]
        name = re.sub(r"[^a-z0-9_-]", "-", self.conn_id.lower())
        return Cluster(
            name if name[:1].isalpha() else f"c-{name}",
            kind,
            {name: value for name, value in given.items() if name not in kept},
            {name: f"{SECRETS}:{self.conn_id}/{name}" for name in kept},
        )

    def secret(self, name: str) -> str:
        """Return a secret of the connection's cluster.

        Raises:
            ConfigError: if it is not there any more.
        """
        return secret_of(self.conn_id, name)

    def get_conn(self) -> Runner:
        """Return the runner that tasks of this process share, which knows the cluster; do not close
        it.
        """
        return runner_for_tasks(cluster=self.defaults.cluster)

    def test_connection(self) -> tuple[bool, str]:
        """Tell whether the cluster answers; its apps are not looked at."""
        try:
            runner = self.get_conn()
            name = self.defaults.scheduler or runner.settings.scheduler
            checks = runner.scheduler(name).diagnose()
        except TransloadError as exc:
            return False, str(exc)
        shown = [check for check in checks if not check[1]] or checks
        return all(well for _, well, _ in checks), "; ".join(
            f"{what}: {found}" for what, _, found in shown
        ) or (f"scheduler {name!r} is there, and has nothing to ask")


def _is_file(value: Any) -> bool:
    """Tell whether a value is the content of a file (a kubeconfig, a key), which belongs into no
    handle's record.
    """
    return isinstance(value, (Mapping, list)) or (isinstance(value, str) and "\n" in value.strip())


def defaults_of(conn_id: str | None) -> Defaults:
    """Return what a connection says; nothing without one.

    Raises:
        ConfigError: if it is wrong.
    """
    return TransloadHook(conn_id).defaults if conn_id else Defaults()
