"""What an app's results say about the trial."""

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
    """Return each objective and constrained result of a trial.

    Where there are none, None stands in their place, and the reason beside it.

    Args:
        search: says the results' names and, maybe, their keys; else they are looked for under the
            trial's number, then under ``final``, then under the only key that has them.
        index: the trial.
        results: what the trial's app reported.
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
            return None, f"{results.handle} reported {what}, which is no finite number"
        found[name] = number
    return found, ""


def _usual_key(results: AppResults, index: int, name: str) -> str | None:
    """Return the key that a trial's result is usually reported under; None: under neither."""
    for key in (str(index), "final"):
        if name in results.results.get(key, {}):
            return key
    return None
