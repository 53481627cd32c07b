"""The runner that all tasks of a process share, and the secrets of connections, which it reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import BaseHook

from transload import pipelines
from transload.errors import ConfigError
from transload_airflow.adapter import HOST

if TYPE_CHECKING:
    from transload.runner import Cluster, Runner

SECRETS: Final = "airflow"
"""Kind of the references to secrets in connections, as in ``airflow:CONN_ID/NAME``."""


def runner_for_tasks(inherit_env: bool = False, cluster: Cluster | None = None) -> Runner:
    """Return the runner that all tasks and triggers of this process share.

    It knows the cluster of a connection.
    """
    clusters = []
    if cluster is not None:
        clusters.append(cluster)
    return pipelines.host_runner(
        HOST,
        inherit_env=inherit_env,
        clusters=clusters,
        secret_sources={SECRETS: secret_named},
    )


def secret_named(reference: str) -> str:
    """Return what a reference, ``CONN_ID/NAME``, leads to. Errors as in `secret_of`."""
    conn_id, _, name = reference.rpartition("/")
    return secret_of(conn_id, name)


def extra_of(conn_id: str) -> Mapping[str, Any]:
    """Return a connection's *extra*.

    Raises:
        ConfigError: if it is not a JSON object.
    """
    try:
        values = json.loads(BaseHook.get_connection(conn_id).extra or "{}")
    except ValueError as exc:  # Airflow itself would go on as if there were none
        raise ConfigError(f"connection {conn_id!r}: extra is not JSON: {exc}") from exc
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"connection {conn_id!r}: extra: must be an object, not {type(values).__name__}"
        )
    return values


def secret_of(conn_id: str, name: str) -> str:
    """Return a secret of a connection's cluster.

    Raises:
        ConfigError: if it is not there any more.
    """
    value = extra_of(conn_id).get(name)
    if not value:
        raise ConfigError(f"connection {conn_id!r}: extra.{name} is not there any more")
    if isinstance(value, str):
        return value
    return json.dumps(value)
