"""Whose job a task's is, and whether a try of the task was asked for by a person.

A task keeps its words (`identity_of`) while its run exists. Whether somebody has cleared it since a
job was submitted is decided by comparing what Airflow said of two tries (`asked_anew`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from transload.errors import SpecError
from transload.pipelines import Again, Identity
from transload_airflow.adapter import HOST
from transload_airflow.settings import setting
from transload_airflow.task_instance import map_index_of

_NO_REGION: Final = "00000000-0000-0000-0000-000000000000"
"""The region of a task that is neither mapped nor looped, from Airflow 3.4 on."""


def identity_of(context: Mapping[str, Any], key: str | None = None) -> Identity:
    """Return whose job a task's is, in words that no retry, deferral or clear changes.

    Args:
        context: of the task.
        key: which of the task's jobs it is, if it has several.
    """
    ti = context["ti"]
    path = [str(map_index_of(ti)), ti.task_id]
    region = str(getattr(ti, "region_id", None) or _NO_REGION)
    if region != _NO_REGION:
        path = [region, str(ti.region_index), *path]
    if key is not None:
        path.append(key)
    run = (setting("deployment_id", ""), ti.dag_id, ti.run_id)
    return Identity(HOST, run, tuple(path))


def words_of(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Airflow says of this try, as JSON values. They are kept with the job."""
    ti = context["ti"]
    run = context.get("dag_run")
    start = getattr(run, "start_date", None)
    return {
        "dag": ti.dag_id,
        "run": ti.run_id,
        "task": ti.task_id,
        "map_index": map_index_of(ti),
        "ti": str(getattr(ti, "id", "")),
        "try": int(ti.try_number or 0),
        "max_tries": int(ti.max_tries or 0),
        "retries": int(getattr(context.get("task"), "retries", 0) or 0),
        "clear_number": int(getattr(run, "clear_number", 0) or 0),
        "start": start.astimezone(UTC).isoformat() if isinstance(start, datetime) else "",
        "url": str(getattr(ti, "log_url", "")),
    }


def retried(context: Mapping[str, Any]) -> int:
    """Return how often Airflow itself has tried again since somebody last cleared the task.

    A clear sets ``max_tries`` to the number of tries so far and ``retries``.
    """
    now = words_of(context)
    tries_before_the_clear = max(0, now["max_tries"] - now["retries"])
    tried: int = now["try"] - 1 - tries_before_the_clear
    return max(0, tried)


def asked_anew(kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
    """Tell how a try asks, compared with the try that submitted the task's newest job.

    What moves, from one to the other, seen in Airflow 3.1.8, 3.3.2 and 3.4.0b2:

    ====================================================  =========  =======  ============  =====
    what happened                                         max_tries  retries  clear_number  start
    ====================================================  =========  =======  ============  =====
    a retry, a killed process, the return of a deferral   stays      stays    stays         stays
    ``retries`` edited in the DAG file                    stays      moves    stays         stays
    another task of the run cleared                       stays      stays    grows         may
    the task cleared                                      moves      stays    grows         may
    the task cleared, ``retries`` edited                  may        moves    grows         may
    the run deleted and made again, another Airflow       may        may      may, never    moves
                                                                              grows
    ====================================================  =========  =======  ============  =====

    A clear sets ``max_tries`` to the number of tries so far and ``retries``. So it stays only if
    ``retries`` has moved. The start of a run moves when a task of a run that has ended is cleared.
    ``airflow dags test`` before 3.4 gives each run of a date the same start. But within a run, a
    higher number of the try has a later id of the task instance, and an equal one the same id.
    (These ids are in the order of time.)

    Args:
        kept: `words_of` the try that submitted the job.
        now: the same of this try.
    """
    if not kept:
        return Again.NO

    def moved(name: str) -> bool:
        return bool(kept.get(name) != now.get(name))

    if now["try"] < kept["try"] and now["ti"] < kept["ti"]:
        return Again.LATER
    out_of_order = now["try"] < kept["try"] or (now["try"] == kept["try"] and moved("ti"))
    if (moved("start") or out_of_order) and now["clear_number"] <= kept["clear_number"]:
        return Again.FOREIGN
    if moved("max_tries") or (moved("clear_number") and moved("retries")):
        return Again.YES
    return Again.NO


# -- the jobs of one try


@dataclass
class _Begun:
    """The jobs that this process has begun for a task instance."""

    ti: Any = None
    paths: set[tuple[str, ...]] = field(default_factory=set)


_lock: Final = threading.Lock()
_begun: Final = _Begun()


def note_job(context: Mapping[str, Any], identity: Identity, *, resumed: bool = False) -> None:
    """Note that this try of a task begins a job, or goes on with the one that it has begun.

    Args:
        context: of the task.
        identity: of the job.
        resumed: the task has come back from a deferral, in which its job went on.

    Raises:
        SpecError: if it has begun one of that identity already, and begins another one.
    """
    with _lock:
        if _begun.ti is not context["ti"]:
            _begun.ti = context["ti"]
            _begun.paths = set()
        if identity.path in _begun.paths and not resumed:
            raise SpecError(
                f"key: task {context['ti'].task_id!r} runs a second job: give each of its jobs a "
                "key of its own, equal in all tries of the task (key='evaluate')"
            )
        _begun.paths.add(identity.path)
