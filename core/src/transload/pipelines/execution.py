"""A driver with the arguments of an earlier day, for the adapters that are no `Adapter` yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from transload.pipelines.adapter_io import AdapterIO, log_line
from transload.pipelines.drivers import Driver
from transload.pipelines.end_requests import Asked, interrupted
from transload.pipelines.identity import Identity
from transload.pipelines.lifecycle import LifecycleState
from transload.pipelines.logs import LogSink
from transload.pipelines.options import ExecutionOptions

if TYPE_CHECKING:
    from transload.pipelines.attach import AttachStore
    from transload.runner import Launch, Runner
    from transload.specs import AppStatus


class Execution(Driver):
    """A `Driver` that is made without an adapter. Arguments as of `Driver` and `AdapterIO`."""

    def __init__(
        self,
        runner: Runner,
        launch: Launch | None,
        identity: Identity,
        options: ExecutionOptions | None = None,
        *,
        store: AttachStore | None = None,
        log_store: AttachStore | None = None,
        sink: LogSink | None = None,
        log: Callable[[str], None] | None = None,
        on_change: Callable[[AppStatus], None] | None = None,
        context_args: Mapping[str, Any] | None = None,
        host_retries: int | None = None,
        asked: Asked = interrupted,
    ) -> None:
        io = AdapterIO(
            runner=runner,
            store=store,
            log_store=log_store,
            sink=sink,
            log=log or log_line,
            context_args=context_args or {},
            host_retries=host_retries,
            asked=asked,
        )
        if on_change is not None:
            io.on_change = lambda handle, status: on_change(status)
        super().__init__(launch, LifecycleState(identity, options or ExecutionOptions()), io)

    @staticmethod
    def from_state(state: Mapping[str, Any], runner: Runner, **traces: Any) -> Execution:
        """Return an execution that goes on where `Driver.state` was taken, in another process.

        Raises:
            SpecError: if it is not such a state, or of a newer version.
        """
        taken = LifecycleState.from_dict(state, time.monotonic())
        execution = Execution(runner, None, taken.identity, taken.options, **traces)
        execution._lifecycle.state = taken
        execution._effects.restore(taken)
        return execution
