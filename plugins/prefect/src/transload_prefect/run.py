"""Running an app as one unit of work of Prefect: the policy is core's, here it only meets the host.

Nothing here imports Prefect: `Surroundings` is what a task run (or a block, or a test) knows of its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from transload.errors import StateUnknown, TransloadError
from transload.pipelines import AppCancelled, Detached, Execution, ExecutionOptions, Identity, Launch, host_runner
from transload.specs import AppState
from transload_prefect.states import APP_CANCELLED, APP_CRASHED, APP_DETACHED, STATES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from transload.pipelines import LogSink, Store
    from transload.runner import AppResults
    from transload.specs import AppStatus

HOST: Final = "prefect"


@dataclass(frozen=True, slots=True)
class Ending:
    """An end that Prefect is told by a returned state instead of an exception: it is not retried.

    Args:
        type: name of the state type.
        name: name of the state.
        message: what happened.
    """

    type: str
    name: str
    message: str


@dataclass(kw_only=True)
class Surroundings:
    """What Prefect tells a unit of work of its place, and where the unit leaves traces.

    Args:
        identity: whose app it is.
        store: keeps what re-attaching needs; None: only the id derived from the identity.
        log_store: keeps how far logs were handed on.
        sink: gets the log lines.
        log: takes one line for people.
        on_change: gets each new status of the app.
        watch: for the time of a ``with``, has the execution killed when the host wants its end.
        host_retries: how often Prefect itself retries.
        done: is called once the app's fate is known: with its results, or None.
    """

    identity: Identity
    store: Store | None = None
    log_store: Store | None = None
    sink: LogSink | None = None
    log: Callable[[str], None] | None = None
    on_change: Callable[[Execution, AppStatus], None] | None = None
    watch: Callable[[Execution], AbstractContextManager[object]] = nullcontext
    host_retries: int | None = None
    done: Callable[[Execution, AppResults | None], None] | None = None


def make_execution(
    launch: Launch,
    options: ExecutionOptions,
    around: Surroundings,
    *,
    inherit_env: bool = False,
    known: Mapping[str, Any] | None = None,
) -> Execution:
    """Return the execution of an app in these surroundings; ``known``: arguments that a component may declare."""
    execution = Execution(
        host_runner(HOST, inherit_env=inherit_env),
        launch,
        around.identity,
        options,
        store=around.store,
        log_store=around.log_store,
        sink=around.sink,
        log=around.log,
        on_change=lambda status: _changed(around, execution, status),
        host_retries=around.host_retries,
        known=known,
    )
    return execution


def _changed(around: Surroundings, execution: Execution, status: AppStatus) -> None:
    if around.on_change is not None:
        around.on_change(execution, status)


def run_unit(execution: Execution, around: Surroundings) -> AppResults | Ending:
    """Start or attach, wait for the end, return results or an ending; blocks.

    Raises:
        AppFailed: if the app failed; Prefect's retries apply.
        AppLost: if it is gone.
        TransloadTimeout: if a time limit passed.
        SubmitError: if it was not taken.
        SpecError: if the app is wrong.
        ConfigError: for an unknown scheduler or option.
    """
    with _ended(execution, around) as outcome, around.watch(execution):
        outcome.append(execution.run())
    found: AppResults | Ending = outcome[0]
    return found


async def run_unit_async(execution: Execution, around: Surroundings) -> AppResults | Ending:
    """Do what `run_unit` does, without blocking the event loop. Cancelling the coroutine kills the unit."""
    with _ended(execution, around) as outcome, around.watch(execution):
        outcome.append(await execution.run_async())
    found: AppResults | Ending = outcome[0]
    return found


def keep_time_limit(execution: Execution) -> None:
    """Cancel an app whose time is up: that is no kill from outside, and ``on_kill`` does not matter."""
    deadline = execution.options.deadline
    if deadline is not None and time.time() >= deadline:
        execution.cancel()


@contextmanager
def _ended(execution: Execution, around: Surroundings) -> Iterator[list[Any]]:
    """Turn exceptions into an ending where the table says so, and tell the surroundings how it ended."""
    outcome: list[Any] = []
    try:
        yield outcome
    except AppCancelled as exc:
        outcome.append(Ending(STATES[AppState.CANCELLED], APP_CANCELLED, str(exc)))
    except StateUnknown as exc:
        outcome.append(Ending(STATES[AppState.UNKNOWN], APP_CRASHED, str(exc)))
    except Detached as exc:
        outcome.append(Ending(STATES[AppState.CANCELLED], APP_DETACHED, str(exc)))
    except TransloadError:
        raise
    except BaseException:
        # Prefect's own time limit arrives as an exception of one kind or another, depending on who waits
        execution.give_up()
        keep_time_limit(execution)
        raise
    finally:
        if around.done is not None and execution.handle is not None:
            first = outcome[0] if outcome else None
            around.done(execution, None if isinstance(first, Ending) else first)
