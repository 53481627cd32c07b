"""What looks after one job, made for a test without an adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from transload.pipelines import AdapterIO, Driver, ExecutionOptions, Identity, LifecycleState

if TYPE_CHECKING:
    from transload.pipelines import AttachStore, Launch, LogSink
    from transload.runner import Runner
    from transload.specs import AppStatus


class Surroundings(TypedDict, total=False):
    """Arguments of `AdapterIO` beside the runner, described there."""

    store: AttachStore | None
    log_store: AttachStore | None
    sink: LogSink | None
    log: Callable[[str], None]
    on_change: Callable[[str, AppStatus], None] | None
    context_args: Mapping[str, Any]
    host_retries: int | None
    asked: Callable[[], bool | None]


def driver_of(
    runner: Runner,
    launch: Launch | None,
    identity: Identity,
    options: ExecutionOptions | None = None,
    **io: Unpack[Surroundings],
) -> Driver:
    """Return what looks after a job. Nothing is asked or submitted.

    Args:
        runner: submits and asks.
        launch: what to submit, or None if the job is known by its handle.
        identity: whose job it is.
        options: how it is run.
        io: what surrounds it.
    """
    state = LifecycleState(identity, options or ExecutionOptions())
    return Driver(launch, state, AdapterIO(runner=runner, **io))


def restored_driver(state: Mapping[str, Any], runner: Runner, **io: Unpack[Surroundings]) -> Driver:
    """Return a driver that goes on where another process took `Driver.state`.

    Raises:
        SpecError: if it is not such a state, or of a newer version.
    """
    taken = LifecycleState.from_dict(state)
    return Driver(None, taken, AdapterIO(runner=runner, **io))
