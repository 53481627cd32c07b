"""Searches: a component run many times with other arguments, to make a result small or large.

Workflow hosts run a `Search` as stages of their own; `run_search` and ``transload search`` need no host.
"""

from __future__ import annotations

from typing import Final

from transload_search.ledger import SearchLedger, next_round, objective_value
from transload_search.random_suggester import RandomSuggester
from transload_search.run import run_search, run_search_async
from transload_search.search import Objective, Parameter, Search, SearchTrial, Suggester, get_suggester

__version__: Final = "0.1.0"

__all__ = [
    "Objective",
    "Parameter",
    "RandomSuggester",
    "Search",
    "SearchLedger",
    "SearchTrial",
    "Suggester",
    "__version__",
    "get_suggester",
    "next_round",
    "objective_value",
    "run_search",
    "run_search_async",
]
