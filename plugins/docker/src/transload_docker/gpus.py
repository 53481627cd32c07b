"""Choose the GPUs of a job, among those that no unfinished job holds, whoever submitted it.

On an engine of this machine, the table of `transload.keeper.gpus` is shared with local jobs. What
holds for jobs of the engine is what the engine says. The table repeats it for those who cannot ask.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from transload.errors import SchedulerUnavailable, SubmitError, UnsupportedFeature
from transload.keeper import gpus
from transload.schedulers.local.convert import gpu_table, machine_gpus
from transload_docker import names
from transload_docker.decide import decide
from transload_docker.plan import Facts

if TYPE_CHECKING:
    from transload_docker.convert import ContainerRequest, DockerRequest
    from transload_docker.engine import Engine
    from transload_docker.home import Home

_PATIENCE_S: Final = 120.0


@contextlib.contextmanager
def assigned(engine: Engine, home: Home, request: DockerRequest) -> Iterator[None]:
    """Put free GPUs into a request. Its containers must be made before this context ends.

    Raises:
        UnsupportedFeature: if it wants more than there are.
        SubmitError: if too few are free now.
        SchedulerUnavailable: if other submits take too long.
    """
    wanting = [container for container in request.containers if _wanted(container)]
    if not wanting:
        yield
        return
    home.ensure()
    with _table(engine, home) as table:
        _take_over(table, engine, home)
        free = _free(table, engine, home, request, sum(map(_wanted, wanting)))
        given = []
        for container in wanting:
            ids = [free.pop(0) for _ in range(_wanted(container))]
            _assign(container, ids)
            given += ids
        yield
        table.engines[f"{home.folder}/{request.app_id}"] = given
        table.write()


def settle(engine: Engine, home: Home) -> None:
    """Give back what jobs had that have ended, so that others on this machine may have it."""
    if not os.path.exists(f"{_folder(engine, home)}/gpus.json"):
        return  # no job has asked for any yet
    with _table(engine, home) as table:
        if any(job.startswith(f"{home.folder}/") for job in table.engines):
            _take_over(table, engine, home)
            table.write()
            table.wake()


def _folder(engine: Engine, home: Home) -> str:
    """Return the folder of the table, which is one of its own for an engine of another machine."""
    if engine.reach == "host":
        return gpu_table()
    return home.folder


def _table(engine: Engine, home: Home) -> gpus.Table:
    folder = _folder(engine, home)
    try:
        return gpus.Table(folder, _PATIENCE_S)
    except TimeoutError as exc:
        raise SchedulerUnavailable(f"{folder}/gpus.lock is held by another process") from exc


def _take_over(table: gpus.Table, engine: Engine, home: Home) -> None:
    """Note in the table what the engine says of its unfinished jobs."""
    others = {
        job: ids for job, ids in table.engines.items() if not job.startswith(f"{home.folder}/")
    }
    mine: dict[str, list[str]] = {}
    for gpu, app_id in _held(engine).items():
        mine.setdefault(f"{home.folder}/{app_id}", []).append(gpu)
    table.engines = {**others, **mine}
    table.forget_dead()


def _wanted(container: ContainerRequest) -> int:
    ids = container.body.get("Labels", {}).get(names.LABEL_GPUS)
    return len(ids.split(",")) if ids else 0


def _assign(container: ContainerRequest, ids: list[str]) -> None:
    labels = container.body["Labels"]
    before = labels[names.LABEL_GPUS].split(",")
    labels[names.LABEL_GPUS] = ",".join(ids)
    for device in container.body["HostConfig"].get("DeviceRequests") or ():
        if device.get("DeviceIDs") == before:
            device["DeviceIDs"] = ids


def _free(
    table: gpus.Table, engine: Engine, home: Home, request: DockerRequest, wanted: int
) -> list[str]:
    """Return so many GPUs that nobody holds, those of low numbers first."""
    held = table.holders()
    known = request.gpus or _of_this_machine(engine)
    if not known:  # nobody here knows how many there are: the engine refuses one that is not there
        numbers = (str(number) for number in itertools.count())
        return list(itertools.islice((each for each in numbers if each not in held), wanted))
    if wanted > len(known):
        role = next(container.role for container in request.containers if _wanted(container))
        path = f"roles[{[each.name for each in request.roles].index(role)}].resource.gpu"
        has = f"this machine has {len(known)}"
        if request.gpus:
            has = f"gpu_ids names {len(known)}"
        raise UnsupportedFeature(f"{path}: the job wants {wanted} GPUs in all, {has}", path)
    free = [each for each in known if each not in held]
    if wanted > len(free):
        home.ensure_supervisor()  # it clears what a submit that was killed still holds
        holders = sorted({os.path.basename(held[each]) for each in known if each in held})
        raise SubmitError(
            f"job {request.app_id} was not started: it wants {wanted} GPUs, and {len(free)} of "
            f"{len(known)} are free; the others are held by {', '.join(holders)}",
            transient=True,
        )
    return free


def _of_this_machine(engine: Engine) -> list[str]:
    if engine.reach != "host":
        return []
    return machine_gpus()


def _held(engine: Engine) -> dict[str, str]:
    """Return the GPUs of unfinished jobs, each with the id of its job.

    Jobs that are being submitted count, too.
    """
    rows = engine.query(lambda api: api.containers(all=True, filters={"label": [names.LABEL_GPUS]}))
    apps: dict[str, set[str]] = {}
    for row in rows:
        labels = row["Labels"]
        apps.setdefault(labels.get(names.LABEL_APP, ""), set()).update(
            labels[names.LABEL_GPUS].split(",")
        )
    notes = engine.notes() if apps else {}
    return {
        each: app_id
        for app_id, ids in apps.items()
        if not _has_ended(engine, notes.get(app_id), app_id)
        for each in ids
    }


def _has_ended(engine: Engine, noted: Facts | None, app_id: str) -> bool:
    if noted is not None and noted.ended is not None:
        return True
    facts = engine.facts(app_id).get(app_id, Facts())
    return facts.plan is not None and decide(facts, time.time()).status.is_terminal()
