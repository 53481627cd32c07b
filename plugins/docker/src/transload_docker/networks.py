"""Make the network of all jobs of several replicas, one for each state folder on an engine."""

from __future__ import annotations

from typing import Any

from transload.keeper import layout
from transload_docker import names
from transload_docker.engine import Engine


def ensure(engine: Engine, home: str, owner: str) -> str:
    """Return the name of the network, which is made if it is not there.

    Older engines let two at once make networks of one name, and know neither of them by it any
    more. So each folder has one of its own, which is made under a lock.

    Raises:
        EngineError: if the engine has no addresses left, or refuses otherwise.
    """
    name = names.network_name(owner)
    with layout.locked(f"{home}/network.lock"):
        rows = engine.query(lambda api: api.networks(names=[name]))
        if not any(row["Name"] == name for row in rows):
            engine.call(lambda api: api.create_network(name, check_duplicate=True))
    return name


def connect(body: dict[str, Any], network: str, host: str) -> None:
    """Put a container that is to be made into a network, under a host name."""
    body["HostConfig"] = {**body["HostConfig"], "NetworkMode": network}
    body["NetworkingConfig"] = {"EndpointsConfig": {network: {"Aliases": [host]}}}
