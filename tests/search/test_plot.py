"""Pictures of searches are drawn, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError
from transload.runner import AppResults
from transload.specs import AppState
from transload_search import Objective, Parameter, Search, SearchLedger
from transload_search.plot import importance, look, plot_search


@pytest.fixture
def ledger(tmp_path: Path) -> SearchLedger:
    """A search of which nothing was observed."""
    space = [Parameter("x1", "float", -5, 5), Parameter("x2", "float", -5, 5)]
    return SearchLedger(
        Search("utils.booth", space, Objective("booth"), trials=9), str(tmp_path / "tuned & more")
    )


def observe(ledger: SearchLedger, *values: float | None) -> dict[str, Any]:
    """Have trials end with these values, None for failed, and return the summary."""
    for index, value in enumerate(values):
        ledger.next_trial()
        results = (
            None if value is None else AppResults("h", AppState.SUCCEEDED, {"0": {"booth": value}})
        )
        ledger.observe(index, results)
    return ledger.summary()


def test_what_is_drawn(ledger: SearchLedger, tmp_path: Path) -> None:
    """A plot has values, the best so far and failures, and the format that its name says."""
    pytest.importorskip("matplotlib")
    summary = observe(ledger, 3.0, None, 5.0, 1.0, 2.0)
    picture = look(summary)
    assert picture.best == {0: 3.0, 2: 3.0, 3: 1.0, 4: 1.0}
    assert (picture.bad, picture.name) == ({1: "failed"}, "tuned & more")
    plot_search(summary, tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn(ledger: SearchLedger, tmp_path: Path) -> None:
    """Without a value there is an error and no picture, and so for a name that is no picture's."""
    with pytest.raises(ConfigError, match="none of its 1 trials has a value"):
        plot_search(observe(ledger, None), tmp_path / "picture.png")
    with pytest.raises(ConfigError, match="must end in"):
        plot_search(ledger.summary(), tmp_path / "picture.html")


def test_importance_finds_what_matters() -> None:
    """A parameter that decides gets nearly all, one that does nothing nearly none."""
    count = 40
    column = {
        "big": {k: k / count for k in range(count)},
        "none": {k: (k * 17) % count for k in range(count)},
    }
    shares = importance(column, {k: float(k) for k in range(count)})
    assert list(shares) == ["big", "none"]
    assert shares["big"] > 0.8
    assert shares["none"] < 0.2
