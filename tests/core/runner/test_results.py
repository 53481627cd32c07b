"""AppResults."""

from __future__ import annotations

import math

import pytest

from transload.errors import SpecError
from transload.runner import AppResults, NoSuchResult
from transload.runner.results import collect_results
from transload.runtime.tracking import Store, TrackingError
from transload.schedulers.api import AppDescription
from transload.specs import AppState, AppStatus


def _results() -> AppResults:
    return AppResults(
        "local://s/a",
        AppState.SUCCEEDED,
        {"final": {"accuracy": 0.9, "loss": math.inf}, "1": {"loss": 2, "note": "ü"}},
        metadata={"lr": 0.1},
        artifacts={"model": {"path": "/m", "metadata": {}}},
        looked_in=["/base"],
    )


def test_round_trip() -> None:
    """The JSON form keeps every value, infinities included."""
    results = _results()
    assert AppResults.from_json(results.to_json()) == results


def test_a_value_is_found_by_its_name_alone() -> None:
    """``final`` goes before replica 0 of the first role, and that before an only key.

    Of several others none is taken.
    """
    results = _results()
    assert results.value("accuracy") == 0.9
    assert results.value("loss", 1) == 2
    assert results.value("loss") == math.inf
    del results.results["final"]
    assert results.value("loss") == 2
    results.results |= {"train/0": {"loss": 5}, "serve/0": {"loss": 6}, "0": {"loss": 7}}
    assert results.value("loss") == 7
    results.first = "train/0"
    assert results.value("loss") == 5
    del results.results["train/0"]
    with pytest.raises(NoSuchResult, match=r"reported under 3 keys \(1, serve/0, 0\)"):
        results.value("loss")


def test_a_missing_value_says_what_was_reported_and_where() -> None:
    """Asking for what is not there names what is."""
    with pytest.raises(NoSuchResult, match="no result 'f1'.*final: accuracy, loss.*in /base"):
        _results().value("f1")
    with pytest.raises(NoSuchResult, match="no result 'accuracy' under key '1'"):
        _results().value("accuracy", "1")


def test_a_misspelt_name_is_named() -> None:
    """Beside what was reported stands what was probably meant."""
    reported = {"final": {"accuracy": 0.5, "loss": 1.0}}
    results = AppResults("local://x/a", AppState.SUCCEEDED, results=reported)
    with pytest.raises(NoSuchResult, match=r"final: accuracy, loss.*did you mean 'accuracy'\?"):
        results.value("accurcy")
    with pytest.raises(NoSuchResult) as raised:
        results.value("epochs")
    assert "did you mean" not in str(raised.value)


def test_nothing_reported_says_where_it_looked() -> None:
    """An app that reported nothing is explained, with or without a tracker base."""
    assert "looked in /base" in AppResults("h", AppState.FAILED, looked_in=["/base"]).explain()
    assert "give tracker_base" in AppResults("h", AppState.FAILED).explain()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 99, "handle": "h", "state": "FAILED"}']
)
def test_what_is_not_results_is_refused(text: str) -> None:
    """Text that is not the JSON form, or of a newer schema, is a SpecError."""
    with pytest.raises(SpecError, match="AppResults"):
        AppResults.from_json(text)


def test_outputs_that_are_refused_cost_no_results() -> None:
    """Where a scheduler cannot bring files here, that is said in their place. The results come."""

    class Pods(Store):
        base = "the pods"

        def entries(self, folder: str = "") -> list[tuple[str, bool]]:
            if folder:
                raise TrackingError("too large: give tracker_base")
            return [("0.json", False), ("outputs", True)]

        def read(self, path: str, limit: int = 0) -> bytes:
            return b'{"schema": 1, "results": {"x": 1}}'

    class Scheduler:
        def results_store(self, app_id: str) -> Store:
            return Pods()

    description = AppDescription("a", AppStatus(AppState.SUCCEEDED))
    found = collect_results("local://s/a", Scheduler(), description, {})  # type: ignore[arg-type]
    assert found.results == {"0": {"x": 1}}
    assert found.artifacts["(outputs)"]["metadata"] == {"problem": "too large: give tracker_base"}
