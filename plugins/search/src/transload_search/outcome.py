"""Read the values of a trial from the results of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.runner import NoSuchResult
from transload.runtime.tracking import finite_number
from transload.specs import AppState

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload_search.search import Search


def trial_values(
    search: Search, index: int, results: AppResults
) -> tuple[dict[str, float] | None, str]:
    """Return the objectives and constrained results of a trial, or None and a reason.

    Args:
        search: has the names of the results and may have their keys. Without a key, results are
            read from the trial's number, then from ``final``, then from the only key with them.
        index: the trial.
        results: the results of the trial's job.
    """
    if results.state != AppState.SUCCEEDED:
        return None, f"{results.handle} ended {results.state.name}"
    found: dict[str, float] = {}
    for name, key in search.results.items():
        try:
            value = results.value(name, key or _usual_key(results, index, name))
        except NoSuchResult as exc:
            return None, str(exc)
        number = finite_number(value)
        if number is None:
            what = f"{name}={value!r:.80}"
            return None, f"{results.handle} reported {what}, which is not a finite number"
        found[name] = number
    return found, ""


def _usual_key(results: AppResults, index: int, name: str) -> str | None:
    """Return the usual key that has a trial's result, or None if neither has it."""
    for key in (str(index), "final"):
        if name in results.results.get(key, {}):
            return key
    return None
