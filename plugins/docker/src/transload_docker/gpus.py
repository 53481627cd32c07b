"""Choose the GPUs of a job, among those that no unfinished job holds, whoever submitted it.

On an engine of this machine, the table of `transload.keeper.gpus` is shared with local jobs. What
other users and machines hold is what their containers say that have not ended.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any, Final

from transload.errors import UnsupportedFeature
from transload.keeper import gpus
from transload.keeper.creation import Refused
from transload.schedulers.local.convert import gpu_table, machine_gpus
from transload_docker import names, states

if TYPE_CHECKING:
    from transload_docker.convert import DockerRequest
    from transload_docker.engine import Engine

_PATIENCE_S: Final = 120.0


def table_of(engine: Engine, home: str) -> str:
    """Return the folder of the table, which is one of its own for an engine of another machine."""
    if engine.reach == "host":
        return gpu_table()
    return home


def known_gpus(engine: Engine, request: DockerRequest) -> list[str] | None:
    """Return the ids to choose from, [] for any, or None for a job that wants none.

    Raises:
        UnsupportedFeature: if it wants more than there are.
    """
    wanted = sum(wanted_by(container.body) for container in request.containers)
    if not wanted:
        return None
    known = request.gpus
    has = f"gpu_ids names {len(known)}"
    if not known and engine.reach == "host":
        known = machine_gpus()
        has = f"this machine has {len(known)}"
    if known and wanted > len(known):
        role = next(each.role for each in request.containers if wanted_by(each.body))
        path = f"roles[{[each['name'] for each in request.roles].index(role)}].resource.gpu"
        raise UnsupportedFeature(f"{path}: the job wants {wanted} GPUs in all, {has}", path)
    return known


def wanted_by(body: dict[str, Any]) -> int:
    """Return how many GPUs a container wants."""
    ids = body.get("Labels", {}).get(names.LABEL_GPUS)
    return len(ids.split(",")) if ids else 0


def assign(engine: Engine, folder: str, job: str, request: dict[str, Any]) -> None:
    """Put free GPUs into the bodies of a request, and note whose they are.

    Args:
        engine: where the job is to run.
        folder: that of the table.
        job: the job's folder.
        request: the request, with what there is to choose from in ``gpus``.

    Raises:
        Refused: if too few are free now.
    """
    bodies = [container["body"] for container in request["containers"]]
    wanted = sum(map(wanted_by, bodies))
    known: list[str] = request["gpus"]
    try:
        table = gpus.Table(folder, _PATIENCE_S)
    except TimeoutError as exc:
        raise _busy(f"{folder}/gpus.lock is held by another process") from exc
    with table:
        table.forget_dead()
        held = {**_held(engine), **table.holders()}
        # nobody here may know how many there are: the engine refuses one that is not there
        every = known or (str(number) for number in itertools.count())
        free = list(itertools.islice((each for each in every if each not in held), wanted))
        if len(free) < wanted:
            holders = sorted({os.path.basename(held[each]) for each in known if each in held})
            raise _busy(
                f"it wants {wanted} GPUs, and {len(free)} of {len(known)} are free; the others are "
                f"held by {', '.join(holders)}"
            )
        table.engines[job] = list(free)
        table.write()
    for body in bodies:
        count = wanted_by(body)
        _put(body, free[:count])
        del free[:count]


def _busy(message: str) -> Refused:
    return Refused({"error": "submit", "transient": True, "message": message})


def _put(body: dict[str, Any], ids: list[str]) -> None:
    if not ids:
        return
    before = body["Labels"][names.LABEL_GPUS].split(",")
    body["Labels"][names.LABEL_GPUS] = ",".join(ids)
    for device in body["HostConfig"].get("DeviceRequests") or ():
        if device.get("DeviceIDs") == before:
            device["DeviceIDs"] = ids


def _held(engine: Engine) -> dict[str, str]:
    """Return the GPUs of containers that have not ended, each with the id of its job."""
    held: dict[str, str] = {}
    for box in engine.boxes():
        if box.status in states.ALIVE or box.status == "created":
            ids = box.labels.get(names.LABEL_GPUS, "")
            held.update(dict.fromkeys(filter(None, ids.split(",")), box.app_id))
    return held
