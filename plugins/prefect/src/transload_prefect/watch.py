"""Reasons to stop an app that Prefect does not pass on: a flow run cancelled through the API, an ending task runner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled

from transload_prefect import api
from transload_prefect.background import background

if TYPE_CHECKING:
    from transload.pipelines import Execution
    from transload_prefect.run import Context

TICK: Final = 0.25
"""Seconds between two looks at what is watched."""

ASK_INTERVAL: Final = 3.0
"""Seconds between two questions about a flow run's own state, however many apps it has."""

CALLERS_END: Final = 2.0
"""Seconds after the end of a cancelled subflow when those that called it are taken to have ended as well."""

_STOPPING: Final = (StateType.CANCELLING, StateType.CANCELLED)


class FlowRunWatch:
    """Watches one flow run while apps of it run in this process, and kills them once it is being cancelled."""

    def __init__(self, flow_run_id: Any) -> None:
        self.flow_run_id = flow_run_id
        self.cancelled = False
        self.running: Callable[[], bool] = lambda: True  # whether the flow's own code does
        self._lock = threading.Lock()
        self._watched: dict[Execution, Callable[[], bool]] = {}
        self._line: list[Any] | None = None
        self._asked = time.monotonic()
        self._asking = False
        self._looking = False
        self._settled = False

    @contextmanager
    def around(self, execution: Execution, stop: Callable[[], bool]) -> Iterator[None]:
        """Watch for the time of a ``with``; ``stop`` tells whether the task itself was told to stop."""
        with self._lock:
            self._watched[execution] = stop
            if not self._looking:
                self._looking = True
                background("watch").post(self._tick)
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(execution, None)

    def _tick(self) -> None:
        """Look again and again, for the last time when the process ends."""
        watch, again = background("watch"), True
        last = watch.ending
        try:
            again = self._look(last)
        finally:
            if again and not last:
                watch.post(self._tick, after=TICK)

    def _look(self, last: bool) -> bool:
        with self._lock:
            watched = dict(self._watched)
        for execution, stop in watched.items():
            if self.cancelled or stop():
                self._watched.pop(execution, None)  # told once: it asks again by itself, until that came through
                execution.kill()
        due = time.monotonic() - self._asked >= ASK_INTERVAL
        if watched and due and not (self.cancelled or self._asking or last):
            self._asking = True
            background("ask").post(self._ask)
        with self._lock:
            if self._watched or self._asking or (self.cancelled and not self._settle(last)):
                return True
            self._looking = False
            return False

    def _ask(self) -> None:
        try:
            client = api.client()
            for flow_run_id in self._ancestry():
                run = client.read_flow_run(flow_run_id)
                if run.state is not None and run.state.type in _STOPPING:
                    self.cancelled = True
                    return
        except ObjectNotFound:
            self.cancelled = True  # somebody deleted it: nobody waits for its apps any more
        finally:
            self._asked, self._asking = time.monotonic(), False

    def _ancestry(self) -> list[Any]:
        """Return the flow run and those that called it: cancelling a flow cancels what it called."""
        if self._line is None:
            client = api.client()
            line = [self.flow_run_id]
            parent = client.read_flow_run(self.flow_run_id).parent_task_run_id
            while parent is not None and len(line) < 16:
                above = client.read_task_run(parent).flow_run_id
                if above is None:
                    break
                line.append(above)
                parent = client.read_flow_run(above).parent_task_run_id
            self._line = line
        return self._line

    def _settle(self, last: bool) -> bool:
        """Once its code has ended, say what nobody else would say of a plain process: the flow run is cancelled."""
        if not self._settled and (last or not self.running()):
            self._settled = True
            background().post(partial(_mark_cancelled, [self.flow_run_id]))
            if callers := (self._line or [])[1:]:
                background().post(partial(_mark_cancelled, callers), after=CALLERS_END)
        return self._settled


def _mark_cancelled(flow_run_ids: list[Any]) -> None:
    client = api.client()
    for flow_run_id in flow_run_ids:
        run = client.read_flow_run(flow_run_id)
        if run.state is not None and run.state.type is StateType.CANCELLING:
            message = "The flow run was cancelled; its apps were cancelled with it."
            client.set_flow_run_state(flow_run_id, Cancelled(message=message), force=True)


_watches: dict[str, FlowRunWatch] = {}
_watches_lock = threading.Lock()


def watch_of(flow_context: Any) -> FlowRunWatch:
    """Return the watch of the flow run of a context."""
    key, runner = f"{flow_context.flow_run.id}", flow_context.task_runner
    with _watches_lock:
        found = _watches.get(key)
        if found is None or found._settled:
            if len(_watches) > 256:
                _watches.pop(next(iter(_watches)))
            found = _watches[key] = FlowRunWatch(flow_context.flow_run.id)
        found.running = lambda: bool(getattr(runner, "_started", False))
        return found


def watching(context: Context, execution: Execution) -> AbstractContextManager[None]:
    """Have an execution killed, for the time of a ``with``, once its flow run or its task is to end."""
    if context.flow is None:
        return nullcontext()
    return watch_of(context.flow).around(execution, told_to_stop(context.flow))


def told_to_stop(flow_context: Any) -> Callable[[], bool]:
    """Return what tells whether a task runner is ending (SIGTERM and SIGINT reach only the main thread).

    A runner that ends tells all of its tasks, so one that it has not told yet is enough to know: an app inside an
    ordinary task has no event of its own. The runners of the flows that called this one count as well.
    """
    events = [each for each in map(_open_event, _runners(flow_context)) if each is not None]
    return lambda: any(each.is_set() for each in events)


def _open_event(runner: Any) -> Any:
    events = list((getattr(runner, "_cancel_events", None) or {}).values())
    return next((each for each in reversed(events) if not each.is_set()), None)


def _runners(flow_context: Any) -> Iterator[Any]:
    """Yield the task runner of a flow, then those of the flows around it in this process."""
    while isinstance(flow_context, FlowRunContext):
        yield flow_context.task_runner
        token = getattr(flow_context, "_token", None)
        flow_context = token.old_value if token is not None else None
