"""Reasons to stop a job that Prefect does not pass on.

They are a flow run cancelled or suspended through the API, and an ending task runner. A signal does
not say who sent it, so Prefect's API is asked whether somebody asked for the end.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from prefect.client.schemas.objects import StateType
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled

from transload.pipelines import interrupted
from transload_prefect import api
from transload_prefect.background import background
from transload_prefect.runs import around

if TYPE_CHECKING:
    from transload.pipelines import Step
    from transload_prefect.runs import RunContext

TICK: Final = 0.25
"""Seconds between two looks at what is watched."""

ASK_INTERVAL: Final = 3.0
"""Seconds between two questions about a flow run's own state, however many jobs it has."""

CALLERS_END: Final = 2.0
"""Seconds after the end of a cancelled subflow until its callers are taken to have ended."""

FRESH: Final = 1.0
"""Seconds for which an answer about a flow run's own state serves all of its jobs that ask."""

_STARTED_BY_PREFECT: Final = "PREFECT__FLOW_RUN_ID"
"""Variable of a process that a worker or a runner of Prefect's started for a flow run."""

_STOPPING: Final = (StateType.CANCELLING, StateType.CANCELLED)


class FlowRunWatch:
    """Watches one flow run while jobs of it run in this process.

    It kills them once the flow run is being cancelled.
    """

    def __init__(self, flow_run_id: Any) -> None:
        self.flow_run_id = flow_run_id
        self.cancelled = False
        self.running: Callable[[], bool] = lambda: True  # whether the flow's own code does
        self._lock = threading.Lock()
        self._watched: dict[Step, Callable[[], bool]] = {}
        self._line: list[Any] | None = None
        self._asked = time.monotonic()
        self._asking = False
        self._looking = False
        self._reported = False
        self._answering = threading.Lock()
        self._answered = float("-inf")
        self._answer: bool | None = None

    def asked(self) -> bool | None:
        """Tell whether the flow run is being cancelled, asking Prefect now.

        Returns:
            None if Prefect does not answer.
        """
        with self._answering:
            if self.cancelled:
                return True
            if time.monotonic() - self._answered > FRESH:
                try:
                    self._look_up()
                    self._answer = self.cancelled
                except Exception:  # whatever keeps it from answering
                    self._answer = None
                self._answered = time.monotonic()
            return self._answer

    @contextmanager
    def around(self, step: Step, stop: Callable[[], bool]) -> Iterator[None]:
        """Watch for the time of a ``with``. ``stop`` says whether the task itself must stop."""
        if self.cancelled:  # a task goes on with its retries, and a flow with its code
            step.kill(asked=True)
            yield
            return
        with self._lock:
            self._watched[step] = stop
            if not self._looking:
                self._looking = True
                background("watch").post(self._tick)
        try:
            yield
        finally:
            with self._lock:
                self._watched.pop(step, None)

    def _tick(self) -> None:
        """Look now and then, for the last time when the process ends."""
        watch = background("watch")
        again = True
        last = watch.ending
        try:
            again = self._look(last)
        finally:
            if again and not last:
                watch.post(self._tick, after=TICK)

    def _look(self, last: bool) -> bool:
        with self._lock:
            watched = dict(self._watched)
        for step, stop in watched.items():
            if self.cancelled or stop():
                self._watched.pop(step, None)  # one call is enough: the step repeats the cancel
                step.kill(asked=True if self.cancelled else None)
        due = time.monotonic() - self._asked >= ASK_INTERVAL
        if watched and due and not (self.cancelled or self._asking or last):
            self._asking = True
            background("ask").post(self._ask)
        with self._lock:
            if self._watched or self._asking:
                return True
            if self.cancelled and not self._report_end(last):
                return True
            self._looking = False
            return False

    def _ask(self) -> None:
        try:
            self._look_up()
        finally:
            self._asked = time.monotonic()
            self._asking = False

    def _look_up(self) -> None:
        """Note whether the flow run, or one that called it, is being cancelled."""
        try:
            client = api.client()
            for flow_run_id in self._ancestry():
                run = client.read_flow_run(flow_run_id)
                if run.state is not None and run.state.type in _STOPPING:
                    self.cancelled = True
                    return
        except ObjectNotFound:
            self.cancelled = True  # it was deleted, so its jobs are not waited for

    def _ancestry(self) -> list[Any]:
        """Return the flow run and those that called it, whose cancels hold for it too."""
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

    def _report_end(self, last: bool) -> bool:
        """Report a flow run as cancelled once its code has ended. A plain process would not."""
        if not self._reported and (last or not self.running()):
            self._reported = True
            background().post(partial(_mark_cancelled, [self.flow_run_id]))
            if callers := (self._line or [])[1:]:
                background().post(partial(_mark_cancelled, callers), after=CALLERS_END)
        return self._reported


def _mark_cancelled(flow_run_ids: list[Any]) -> None:
    client = api.client()
    for flow_run_id in flow_run_ids:
        run = client.read_flow_run(flow_run_id)
        if run.state is not None and run.state.type is StateType.CANCELLING:
            message = "The flow run was cancelled; its jobs were cancelled with it."
            client.set_flow_run_state(flow_run_id, Cancelled(message=message), force=True)


_watches: dict[str, FlowRunWatch] = {}
_watches_lock = threading.Lock()


def watch_of(flow_context: Any) -> FlowRunWatch:
    """Return the watch of the flow run of a context."""
    key = str(flow_context.flow_run.id)
    runner = flow_context.task_runner
    with _watches_lock:
        found = _watches.get(key)
        if found is None or found._reported:
            if len(_watches) > 256:
                _watches.pop(next(iter(_watches)))
            found = _watches[key] = FlowRunWatch(flow_context.flow_run.id)
        found.running = lambda: bool(getattr(runner, "_started", False))
        return found


def end_asked_for(context: RunContext) -> bool | None:
    """Tell whether somebody asked for the end of a run, or None if Prefect does not answer.

    A person may cancel the flow run, or one that called it. Its time limit may pass. A person may
    press Ctrl-C where the flow was started by hand. In a process that Prefect started, a signal is
    Prefect's own, or its machine's.
    """
    if _STARTED_BY_PREFECT not in os.environ and interrupted():
        return True
    if context.flow is None:
        if context.flow_run_id is None:
            return False
        return FlowRunWatch(context.flow_run_id).asked()
    if any(map(_time_is_up, _flow_contexts(context.flow))):
        return True
    return watch_of(context.flow).asked()


def _time_is_up(flow_context: Any) -> bool:
    limit = flow_context.flow.timeout_seconds if flow_context.flow is not None else None
    if not limit:
        return False
    return bool((datetime.now(UTC) - flow_context.start_time).total_seconds() >= limit)


def watching(context: RunContext, step: Step) -> AbstractContextManager[None]:
    """Have a step killed once its flow run or its task is to end, for the time of a ``with``."""
    if context.flow is None:
        return nullcontext()
    return watch_of(context.flow).around(step, told_to_stop(context.flow))


def told_to_stop(flow_context: Any) -> Callable[[], bool]:
    """Return a function that says whether a task runner is ending, or the flow run is suspended.

    SIGTERM and SIGINT reach only the main thread. A runner that ends notifies all of its tasks. So
    one that was not notified yet is enough to know, since a job inside an ordinary task has no
    event. The runners of the flows that called this one count as well.
    """
    runners = [each.task_runner for each in _flow_contexts(flow_context)]
    events = [each for each in map(_open_event, runners) if each is not None]
    return lambda: _is_suspended(flow_context) or any(each.is_set() for each in events)


def _is_suspended(flow_context: Any) -> bool:
    request = getattr(flow_context, "flow_run_suspension_request", None)  # from Prefect 3.9
    return request is not None and bool(request.is_requested())


def raise_if_suspended(context: RunContext) -> None:
    """Raise what ends the process of a flow run that is suspended, as Prefect's own calls do."""
    if context.flow is not None and _is_suspended(context.flow):
        context.flow.flow_run_suspension_request.raise_if_requested()


def _open_event(runner: Any) -> Any:
    events = list((getattr(runner, "_cancel_events", None) or {}).values())
    return next((each for each in reversed(events) if not each.is_set()), None)


def _flow_contexts(flow_context: Any) -> Iterator[FlowRunContext]:
    """Yield the context of a flow, then those of the flows around it in this process."""
    while isinstance(flow_context, FlowRunContext):
        yield flow_context
        flow_context = around(flow_context)
