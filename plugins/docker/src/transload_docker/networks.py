"""Make the networks of jobs, small ones side by side in one address pool of the engine.

By itself an engine gives each network a whole pool, of which it has some thirty.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transload_docker.engine import Engine, EngineError
from transload_docker.home import Home

_SMALLEST: Final = 26  # 61 replicas
_RESERVED: Final = 3  # the network itself, its gateway, broadcast
_TRIES: Final = 16
_REMEMBERED_S: Final = 86400.0

_Network = ipaddress.IPv4Network


def create(engine: Engine, home: Home, name: str, labels: Mapping[str, str], replicas: int) -> None:
    """Make a network with room for so many replicas.

    Raises:
        EngineError: if the engine has no addresses left, or refuses otherwise.
    """
    prefix = min(_SMALLEST, 32 - (replicas + _RESERVED - 1).bit_length())
    for fresh in (False, True):
        pool = _pool(engine, home, name, labels, fresh=fresh)
        for subnet in _free(engine, pool, prefix) if pool is not None else ():
            ipam = {"Driver": "default", "Config": [{"Subnet": str(subnet)}]}
            try:
                _create_in(engine, name, labels, ipam)
                return
            except EngineError as exc:
                if "overlap" not in str(exc):
                    raise
    engine.call(lambda api: api.create_network(name, check_duplicate=True, labels=labels))


def _create_in(engine: Engine, name: str, labels: Mapping[str, str], ipam: dict[str, Any]) -> None:
    """Make a network with these addresses."""
    engine.call(
        lambda api: api.create_network(name, check_duplicate=True, labels=labels, ipam=ipam)
    )


def _pool(
    engine: Engine, home: Home, name: str, labels: Mapping[str, str], *, fresh: bool
) -> _Network | None:
    """Return the pool that networks are made in, which the engine takes if none is asked for.

    It is remembered for a day: the engine has looked which addresses its machine uses otherwise,
    and they may change.
    """
    path = os.path.join(home.folder, "pool")
    with contextlib.suppress(OSError, ValueError):
        if not fresh and time.time() - os.stat(path).st_mtime < _REMEMBERED_S:
            with open(path, encoding="ascii") as file:
                return _Network(file.read())
    engine.call(lambda api: api.create_network(name, check_duplicate=True, labels=labels))
    try:
        config = engine.query(lambda api: api.inspect_network(name))["IPAM"]["Config"]
    finally:
        engine.remove_network(name)
    with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
        pool = _Network(config[0]["Subnet"])
        with open(f"{path}.{os.getpid()}", "w", encoding="ascii") as file:
            file.write(str(pool))
        os.replace(f"{path}.{os.getpid()}", path)
        return pool
    return None  # IPv6 alone: there is room


def _free(engine: Engine, pool: _Network, prefix: int) -> Iterator[_Network]:
    """Yield some parts of a pool that no network has.

    Their order is random, since others look for one too.
    """
    taken = []
    for row in engine.query(lambda api: api.networks()):
        for config in (row.get("IPAM") or {}).get("Config") or ():
            with contextlib.suppress(ValueError, KeyError):
                taken.append(_Network(config["Subnet"]))
    parts = list(pool.subnets(new_prefix=max(prefix, pool.prefixlen)))
    for part in random.sample(parts, len(parts))[: len(taken) + _TRIES]:
        if not any(part.overlaps(each) for each in taken):
            yield part
