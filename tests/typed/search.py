"""What a user's type checker sees of searches. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import Any, assert_type

from transload.runner import Runner
from transload.specs import AppDef
from transload_search import Objective, Parameter, Search, SearchLedger, SearchTrial, run_search


def component(replicas: int = 1) -> AppDef:
    """Return an app as a user's component would."""
    raise NotImplementedError


def search_api(runner: Runner) -> None:
    """Return types of searches."""
    search = Search(component, [Parameter("replicas", "int", 1, 4)], Objective("loss"))
    ledger = SearchLedger(search, "base")
    assert_type(ledger.suggest(0), list[SearchTrial])
    assert_type(ledger.best(), tuple[SearchTrial, float] | None)
    assert_type(run_search(ledger, runner), dict[str, Any])
