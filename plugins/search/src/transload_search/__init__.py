"""Run a component many times with different arguments to optimize one of its results.

Orchestrators run a `Search` as their own steps. `run_search` and ``transload search`` need no
orchestrator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transload.plugins.lazy import lazy_names

if TYPE_CHECKING:
    from transload_search.ledger import SearchLedger
    from transload_search.outcome import trial_values
    from transload_search.random_suggester import RandomSuggester
    from transload_search.run import run_search, run_search_async
    from transload_search.search import (
        Constraint,
        EarlyStopping,
        Objective,
        Parameter,
        Search,
        SearchFailed,
        SearchTrial,
        Suggester,
        Values,
        get_suggester,
        next_round,
    )
    from transload_search.steps import check_round, run_trial, stopped_early, suggest_round

__version__: Final = "0.1.0"

__all__ = [
    "Constraint",
    "EarlyStopping",
    "Objective",
    "Parameter",
    "RandomSuggester",
    "Search",
    "SearchFailed",
    "SearchLedger",
    "SearchTrial",
    "Suggester",
    "Values",
    "__version__",
    "check_round",
    "get_suggester",
    "next_round",
    "run_search",
    "run_search_async",
    "run_trial",
    "stopped_early",
    "suggest_round",
    "trial_values",
]

# lazy, because every ``transload`` command imports this package for its plugin
__getattr__, __dir__, _ = lazy_names(
    __name__,
    {
        "ledger": "SearchLedger",
        "outcome": "trial_values",
        "random_suggester": "RandomSuggester",
        "run": "run_search run_search_async",
        "search": "Constraint EarlyStopping Objective Parameter Search SearchFailed "
        "SearchTrial Suggester Values get_suggester next_round",
        "steps": "check_round run_trial stopped_early suggest_round",
    },
)
