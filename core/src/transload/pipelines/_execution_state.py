"""An execution and its outcome as JSON values, and back: how waiting for an app moves from one process to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from transload.errors import SpecError, TransloadError, TransloadTimeout
from transload.pipelines._errors import AppLost, Detached, StateUnknown
from transload.pipelines._execution import SCHEMA, Execution
from transload.pipelines._identity import Identity
from transload.pipelines._options import ExecutionOptions
from transload.pipelines._patience import Patience
from transload.pipelines._reach import is_here
from transload.pipelines._waiting import KillOnExit
from transload.specs import AppStatus, parse_app_handle

if TYPE_CHECKING:
    from transload.pipelines._logs import LogSink
    from transload.pipelines._poller import Poller
    from transload.pipelines._stores import Store
    from transload.runner import AppResults, Runner


def state_of(execution: Execution) -> dict[str, Any]:
    """Return JSON values from which `execution_from_state` goes on in another process. No secrets are in them."""
    identity = execution.identity
    return {
        "schema": SCHEMA,
        "handle": execution.handle,
        "attempt": execution.attempt,
        "identity": [identity.host, identity.namespace, list(identity.key), identity.generation],
        "options": execution.options.to_dict(),
        "status": None if execution.status is None else execution.status.to_json(),
        "cursor": execution._logs.cursor,
        "deadlines": execution._deadlines.state(),
        "unknown_for": execution._patience.elapsed,
        "place": execution._place,
    }


def restore(execution: Execution, state: Mapping[str, Any]) -> None:
    """Put an execution where another one was when `state_of` was taken.

    Raises:
        SpecError: if it is not such a state, or of a newer version.
    """
    try:
        if state.get("schema", SCHEMA) > SCHEMA:
            raise SpecError(f"state of an execution: schema {state['schema']!r} is newer than {SCHEMA}: upgrade")
        execution.handle, execution.attempt = state["handle"], state["attempt"]
        execution._logs.resume(execution.handle, state.get("cursor"))
        execution._deadlines.restore(state.get("deadlines") or {})
        execution._place = state.get("place") or execution._place
        execution._patience = Patience(execution.options.patience, elapsed=state.get("unknown_for"))
        if state.get("status"):
            execution.status = AppStatus.from_json(state["status"])
    except (KeyError, TypeError, AttributeError) as exc:
        raise SpecError(f"state of an execution: not one of ours: {exc!r}") from exc


def execution_from_state(
    state: Mapping[str, Any],
    runner: Runner,
    *,
    sink: LogSink | None = None,
    log_store: Store | None = None,
    log: Callable[[str], None] | None = None,
    on_change: Callable[[AppStatus], None] | None = None,
    poller: Poller | None = None,
) -> Execution:
    """Return an execution that goes on where `Execution.state` was taken; it can follow, collect and kill, not start.

    Args:
        state: from `Execution.state`, after any trip through JSON.
        runner: of the same session name.
        sink: see `Execution`.
        log_store: see `Execution`.
        log: see `Execution`.
        on_change: see `Execution`.
        poller: see `Execution`.

    Raises:
        SpecError: if it is not such a state, or of a newer version.
    """
    try:
        host, namespace, key, generation = state["identity"]
        options = ExecutionOptions.from_dict(state["options"])
        identity = Identity(host, namespace, tuple(key), generation)
    except (KeyError, TypeError, ValueError) as exc:
        raise SpecError(f"state of an execution: not one of ours: {exc!r}") from exc
    execution = Execution(
        runner, None, identity, options, sink=sink, log_store=log_store, log=log, on_change=on_change, poller=poller
    )
    restore(execution, state)
    return execution


async def outcome_of(execution: Execution) -> dict[str, Any]:
    """Follow an execution to the end and return what happened; see `Execution.outcome_async`."""
    handle = execution._need_handle()
    kind, message = "ended", ""
    try:
        scheduler = execution.runner.scheduler(parse_app_handle(handle).scheduler_backend)
        reach = scheduler.capabilities.reachable_from
        if reach == "process" or (reach == "host" and not is_here(execution._place)):
            kind, message = "elsewhere", f"{handle} can only be watched from where it was submitted"
        else:
            await execution.follow_async()
    except StateUnknown as exc:
        kind, message = "unknown", exc.why
    except AppLost as exc:
        kind, message = "lost", str(exc)
    except TransloadTimeout as exc:
        kind, message = "timeout", str(exc)
    except Detached as exc:
        kind, message = "detached", str(exc)
    except Exception as exc:
        kind, message = "error", f"{type(exc).__name__}: {exc}"
    return {"schema": SCHEMA, "kind": kind, "message": message, "state": execution.state()}


def settle(execution: Execution, outcome: Mapping[str, Any]) -> AppResults:
    """Return the results, or raise, as the outcome from elsewhere says; see `Execution.settle`."""
    restore(execution, outcome["state"])
    kind, message = outcome["kind"], str(outcome.get("message", ""))
    handle = execution._need_handle()
    if kind == "unknown":
        raise StateUnknown(handle, outcome["state"].get("unknown_for") or execution.options.patience, message)
    if kind == "lost":
        if execution._attacher is not None:
            execution._attacher.mark_lost(execution.attempt)
        raise AppLost(handle)
    if kind == "timeout":
        raise TransloadTimeout(message)
    if kind == "detached":
        raise Detached(handle)
    if kind == "error":
        raise TransloadError(f"waiting for {handle} failed: {message}")
    if kind == "elsewhere":
        execution._log(f"{message}: waiting in place, which holds this slot")
        with KillOnExit(execution):
            execution.follow()
    return execution.collect()
