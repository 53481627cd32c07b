"""Waiting in another process than the one that started the app: what it sends back, and how that is
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import StateUnknown, TransloadError, TransloadTimeout
from transload.pipelines.errors import AppLost, Detached
from transload.specs.serialization import SCHEMA

if TYPE_CHECKING:
    from transload.pipelines.execution import Execution
    from transload.runner import AppResults

__all__ = ["outcome", "settle"]

_KINDS: Final[dict[type[Exception], str]] = {
    StateUnknown: "unknown",
    AppLost: "lost",
    TransloadTimeout: "timeout",
    Detached: "detached",
}


async def outcome(execution: Execution) -> dict[str, Any]:
    """Follow an app to its end and return what happened as JSON values, for `settle` in another
    process.

    It does not raise if the app fails.

    ``kind`` is ``ended``, ``unknown``, ``lost``, ``timeout``, ``detached``, ``elsewhere`` (this
    process cannot see
    the app: wait where it was submitted) or ``error``.
    """
    kind, message = "ended", ""
    more: dict[str, bool] = {}
    try:
        if not execution.can_defer():
            kind, message = (
                "elsewhere",
                f"{execution.handle} can only be watched from where it was submitted",
            )
        else:
            await execution.follow_async()
    except Exception as exc:
        kind = next((kind for error, kind in _KINDS.items() if isinstance(exc, error)), "error")
        if isinstance(exc, Detached) and not exc.asked:
            more = {"asked": False}
        message = exc.why if isinstance(exc, StateUnknown) else str(exc)
        message = f"{type(exc).__name__}: {exc}" if kind == "error" else message
    return {"schema": SCHEMA, "kind": kind, "message": message, "state": execution.state(), **more}


def settle(execution: Execution, told: Mapping[str, Any]) -> AppResults:
    """Return the results, or raise, as `Execution.run` would have done, given an `outcome` from
    elsewhere.

    Raises:
        TransloadError: as in `Execution.run`.
    """
    execution.restore(told["state"])
    kind, message, handle = told["kind"], str(told.get("message", "")), str(execution.handle)
    if kind == "unknown":
        waited = told["state"].get("unknown_for") or execution.options.patience
        raise StateUnknown(handle, waited, message)
    if kind == "lost":
        raise execution.lost()
    if kind == "timeout":
        raise TransloadTimeout(message)
    if kind == "detached":
        raise Detached(handle, asked=told.get("asked", True))
    if kind == "error":
        raise TransloadError(f"waiting for {handle} failed: {message}")
    if kind == "elsewhere":
        execution.log(f"{message}: waiting in place, which holds this slot")
        return execution.resume()
    return execution.collect()
