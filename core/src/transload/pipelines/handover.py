"""Wait for a job in another process than the one that started it, and end its step there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import StateUnknown, TransloadError, TransloadTimeout
from transload.pipelines.errors import AppLost, Detached, HandedBack
from transload.runner.results import AppResults
from transload.runtime.tracking import TrackingError
from transload.specs import AppState
from transload.specs.serialization import SCHEMA

if TYPE_CHECKING:
    from transload.pipelines.drivers import Driver

__all__ = ["finish", "outcome"]

_KINDS: Final[dict[type[Exception], str]] = {
    StateUnknown: "unknown",
    AppLost: "lost",
    HandedBack: "lost",  # a job that is gone is all that a process which waits has to save
    TransloadTimeout: "timeout",
    Detached: "detached",
}

MOST_RESULTS: Final = 1 << 16
"""The largest results, in bytes of JSON, that travel with an outcome."""


async def outcome(driver: Driver) -> dict[str, Any]:
    """Follow a job to its end, and return its outcome as JSON for `finish` in another process.

    It does not raise if the job fails.

    ``kind`` is ``ended``, ``unknown``, ``lost``, ``timeout``, ``detached``, ``elsewhere`` (this
    process cannot see the job, so wait where it was submitted) or ``error``. The results are read
    as soon as the end is seen, since the job may be gone when the other process asks.
    """
    import asyncio

    made: dict[str, Any] = {"schema": SCHEMA, "kind": "ended", "message": ""}
    try:
        if driver.can_defer():
            await driver.follow_async()
            made["results"] = await asyncio.to_thread(_results_now, driver)
        else:
            made["kind"] = "elsewhere"
            made["message"] = f"{driver.handle} can only be watched from where it was submitted"
    except Exception as exc:
        made.update(_described(exc))
    made["state"] = driver.state()
    return made


def _results_now(driver: Driver) -> dict[str, Any] | None:
    """Return the results of a job that has succeeded, or None if they are not to be had now."""
    if driver.status is None or driver.status.state is not AppState.SUCCEEDED:
        return None
    try:
        results = driver.runner.results(str(driver.handle))
    except Exception:  # the process that finishes the step reads them, and says why it cannot
        return None
    if len(results.to_json()) > MOST_RESULTS:
        return None
    return results.to_dict()


def _described(error: Exception) -> dict[str, Any]:
    """Return the kind and the message of an error, with the other values that `finish` needs."""
    kinds = [kind for known, kind in _KINDS.items() if isinstance(error, known)]
    if not kinds:
        return {"kind": "error", "message": f"{type(error).__name__}: {error}"}
    kind = kinds[0]
    if isinstance(error, StateUnknown):
        return {"kind": kind, "message": error.why}
    described: dict[str, Any] = {"kind": kind, "message": str(error)}
    if isinstance(error, Detached) and not error.asked:
        described["asked"] = False
    return described


def finish(driver: Driver, waited: Mapping[str, Any]) -> AppResults:
    """Return the results, or raise, as `Adapter.run` does, by the `outcome` of another process.

    Args:
        driver: looks after the job here.
        waited: as `outcome` returned it.

    Raises:
        TransloadError: as in `Adapter.run`.
    """
    driver.restore(waited["state"])
    kind = waited["kind"]
    message = str(waited.get("message", ""))
    handle = str(driver.handle)
    if kind == "unknown":
        seconds = waited["state"].get("unknown_for") or driver.options.patience
        raise StateUnknown(handle, seconds, message)
    if kind == "lost":
        raise driver.lost()
    if kind == "timeout":
        raise TransloadTimeout(message)
    if kind == "detached":
        raise Detached(handle, asked=waited.get("asked", True))
    if kind == "error":
        raise TransloadError(f"waiting for {handle} failed: {message}")
    if kind == "elsewhere":
        driver.log(f"{message}: waiting in place, which holds this slot")
        return driver.resume()
    try:
        return driver.collect()
    except (AppLost, TrackingError) as exc:
        kept = waited.get("results")
        if not kept:
            raise
        driver.log(f"the results were read at the end of the job, and are gone now: {exc}")
        return AppResults.from_dict(kept)
