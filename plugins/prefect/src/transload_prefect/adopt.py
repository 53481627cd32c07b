"""Flow runs of a worker that died, whose jobs another worker of the pool looks after.

Prefect's workers keep in memory what they wait for. A flow run reports its own end. Its worker has
to report that its process was killed, that its job never started, or that it was cancelled in a
queue.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from prefect.client.schemas import filters
from prefect.client.schemas.objects import StateType, WorkerStatus
from prefect.client.schemas.sorting import FlowRunSort

from transload.errors import SpecError
from transload.specs import parse_app_handle
from transload_prefect.api import PAGE

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient
    from prefect.client.schemas.objects import FlowRun

    from transload.runner import Runner

T = TypeVar("T")

WORKER: Final = "prefect.worker.name"
"""The label with which Prefect's workers mark the flow runs that they submit."""

_OPEN: Final = [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING]


async def orphans(client: PrefectClient, pool: str, me: str) -> list[FlowRun]:
    """Return the unfinished flow runs of a pool whose worker is gone.

    A worker that had this worker's name before counts as gone.
    """
    chosen = filters.FlowRunFilter(
        state=filters.FlowRunFilterState(type=filters.FlowRunFilterStateType(any_=_OPEN))
    )
    in_pool = filters.WorkPoolFilter(name=filters.WorkPoolFilterName(any_=[pool]))
    sort = FlowRunSort.ID_DESC
    runs = await _all(
        partial(client.read_flow_runs, flow_run_filter=chosen, work_pool_filter=in_pool, sort=sort)
    )
    marked = [(run, str(run.labels[WORKER])) for run in runs if WORKER in run.labels]
    if not any(name != me for _, name in marked):
        return [run for run, _ in marked]
    workers = await _all(partial(client.read_workers_for_work_pool, pool))
    living = {
        each.name for each in workers if each.status is WorkerStatus.ONLINE and each.name != me
    }
    return [run for run, name in marked if name not in living]


async def _all(read: Callable[..., Awaitable[list[T]]]) -> list[T]:
    found: list[T] = []
    while True:
        page = await read(limit=PAGE, offset=len(found))
        found += page
        if len(page) < PAGE:
            return found


def can_be_seen(runner: Runner, handle: str) -> bool:
    """Tell whether a flow run's job, or that it is gone, can be seen from here."""
    try:
        backend = parse_app_handle(handle).scheduler_backend
    except SpecError:
        return False  # infrastructure of another kind
    return (
        runner.status(handle) is not None
        or runner.scheduler(backend).capabilities.reachable_from == "network"
    )


def is_cancelling(flow_run: FlowRun) -> bool:
    """Tell whether somebody asked for a flow run's end."""
    return flow_run.state is not None and flow_run.state.type is StateType.CANCELLING
