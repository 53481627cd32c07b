"""What an app's results say about the trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transload.runtime.tracking import finite_number
from transload.specs import AppState

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload_search.search import Search


def trial_values(
    search: Search, index: int, results: AppResults
) -> tuple[dict[str, float] | None, str]:
    """Return each objective and constrained result of a trial, and why there are none (empty if
    there are).

    Args:
        search: says the results' names and, maybe, their keys; else they are looked for under the
            trial's number, then under ``final``, then under the only key that has them.
        index: the trial.
        results: what the trial's app reported.
    """
    from transload.runner import NoSuchResult

    if results.state != AppState.SUCCEEDED:
        return None, f"{results.handle} ended {results.state.name}"
    found: dict[str, float] = {}
    for name, key in search.results.items():
        usual = (each for each in (str(index), "final") if name in results.results.get(each, {}))
        try:
            value = results.value(name, key or next(usual, None))
        except NoSuchResult as exc:
            return None, str(exc)
        number = finite_number(value)
        if number is None:
            return (
                None,
                f"{results.handle} reported {name}={value!r:.80}, which is no finite number",
            )
        found[name] = number
    return found, ""
