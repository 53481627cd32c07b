"""Searches that keep their state in a tracker base."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from transload.errors import ConfigError, SpecError
from transload.pipelines import Identity, host_runner
from transload.runner import AppResults
from transload.runtime.tracking import FsspecResultTracker
from transload.specs import AppDef, AppState, Role
from transload_search import Objective, Parameter, Search, SearchLedger, next_round, objective_value, run_search

SPACE = (Parameter("x1", "float", -5, 5), Parameter("x2", "float", -5, 5))


def search(**more: object) -> Search:
    """Return a search over Booth's function."""
    return Search("utils.booth", SPACE, Objective("booth"), **{"trials": 5, "parallelism": 2, **more})  # type: ignore[arg-type]


def reported(value: object, *, key: str = "0", state: AppState = AppState.SUCCEEDED) -> AppResults:
    """Return what a trial reported."""
    return AppResults("local://x/y", state, {key: {"booth": value}})  # type: ignore[dict-item]


@pytest.fixture(params=["folder", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a tracker base on each kind of store."""
    return str(tmp_path / "base") if request.param == "folder" else f"memory://{uuid4().hex}/base"


def test_rounds_stay_as_they_were(base: str) -> None:
    """A round asked for again, also by another process, has the same trials; the last has what is left; then none."""
    ledger = SearchLedger(search(), base)
    assert ledger.rounds == 3
    rounds = [ledger.suggest(0), ledger.suggest(1), ledger.suggest(2), ledger.suggest(3)]
    assert [[trial.index for trial in each] for each in rounds] == [[0, 1], [2, 3], [4], []]
    again = SearchLedger(search(), base)
    assert [again.suggest(number) for number in (3, 1, 0, 2)] == [rounds[3], rounds[1], rounds[0], rounds[2]]
    with pytest.raises(SpecError, match="round 6: the round before"):
        ledger.suggest(6)
    with pytest.raises(SpecError, match="round -1"):
        ledger.suggest(-1)


def test_open_reads_what_is_there(base: str) -> None:
    """Whoever has only the base reads the search out of it, and changes nothing; a base without a search is refused."""
    with pytest.raises(ConfigError, match="holds no search"):
        SearchLedger.open(base)
    ledger = SearchLedger(search(), base)
    trials = ledger.suggest(0)
    ledger.observe(0, reported(3.5))
    opened = SearchLedger.open(base)
    assert opened.search == search()
    assert opened.summary() == ledger.summary()
    assert opened.best() == (trials[0], 3.5)


def test_best_and_summary(base: str) -> None:
    """The best is the smallest objective; what failed has its reason; the end is reported under a key of its own."""
    ledger = SearchLedger(search(), base)
    trials = ledger.suggest(0)
    assert ledger.best() is None
    assert ledger.finish()["best"] is None
    assert ledger.observe(0, reported(3.5)) == 3.5
    assert ledger.observe(1, None, state=AppState.CANCELLED, handle="local://x/z", reason="by hand") is None
    ledger.suggest(1)
    assert ledger.observe(2, reported(3.5)) == 3.5
    assert ledger.ended(3) is None
    other = SearchLedger(search(), base)
    assert other.best() == (trials[0], 3.5)
    summary = json.loads(json.dumps(other.finish()))
    assert [row["state"] for row in summary["trials"]] == ["SUCCEEDED", "CANCELLED", "SUCCEEDED", None]
    assert summary["trials"][1]["reason"] == "by hand"
    assert summary["best"] == {"index": 0, "parameters": trials[0].parameters, "value": 3.5}
    assert Search.from_dict(summary["search"]).trials == 5
    assert FsspecResultTracker(base)["best"] == {**trials[0].parameters, "trial": 0, "booth": 3.5}
    assert list(FsspecResultTracker(base).keys()) == ["best"]


def test_another_search_is_refused(base: str) -> None:
    """A base belongs to one search; more trials, other parallelism, another scheduler are still the same search."""
    SearchLedger(search(), base).suggest(0)
    with pytest.raises(SpecError, match="holds another search: seed is 0 there, 1 here"):
        SearchLedger(search(seed=1), base)
    more = SearchLedger(search(trials=9, parallelism=4, scheduler="local"), base)
    assert [trial.index for trial in more.suggest(0)] == [0, 1]
    assert [trial.index for trial in more.suggest(1)] == [2, 3, 4, 5]


def test_a_search_that_ended_goes_on_with_more_trials(base: str) -> None:
    """Its end was written down; with more trials allowed there are more rounds, and those before stay."""
    ledger = SearchLedger(search(trials=2), base)
    first = ledger.suggest(0)
    assert (ledger.suggest(1), ledger.suggest(2)) == ([], [])
    more = SearchLedger(search(trials=5), base)
    assert more.suggest(0) == first
    rounds = [more.suggest(1), more.suggest(2), more.suggest(3)]
    assert [[trial.index for trial in each] for each in rounds] == [[2, 3], [4], []]
    assert [more.suggest(number) for number in (1, 2, 3)] == rounds


def test_broken_records_are_named(tmp_path: Path) -> None:
    """A file that is no record, or of a newer version, is said with its path."""
    ledger = SearchLedger(search(), str(tmp_path))
    ledger.suggest(0)
    for text, message in (("{", "not a record"), ("[]", "not a record"), ('{"schema": 99}', "newer")):
        (tmp_path / "search" / "rounds" / "0.json").write_text(text)
        with pytest.raises(SpecError, match=rf"rounds/0\.json: .*{message}"):
            ledger.suggest(0)


@pytest.mark.parametrize(
    ("results", "value", "reason"),
    [
        (reported(2), 2.0, ""),
        (reported(2, key="final"), 2.0, ""),
        (AppResults("h", AppState.SUCCEEDED, {"1": {"booth": 1}, "0": {"booth": 7}}), 7.0, ""),
        (reported(float("nan")), None, "no finite number"),
        (reported("good"), None, "no finite number"),
        (reported(2, state=AppState.FAILED), None, "ended FAILED"),
        (AppResults("h", AppState.SUCCEEDED, {}), None, "no result 'booth'"),
    ],
)
def test_objective(results: AppResults, value: float | None, reason: str) -> None:
    """The objective is found under the trial's number or the only key; everything else is a reason."""
    found, why = objective_value(search(), 0, results)
    assert found == value
    assert reason in why


def test_next_round_is_pure() -> None:
    """State in, state out: JSON, and the same as asking in one go."""
    first, state = next_round(search(), None, {})
    second, _ = next_round(search(), json.loads(json.dumps(state)), {0: 1.0, 1: None})
    together, _ = next_round(search(), None, {}, 4)
    assert first + second == together


def component(x1: float, x2: float, tracker_base: str, trial_idx: int, gate: str = "") -> AppDef:
    """Report a sum; fail for the second trial."""
    body = f'{{"schema": 1, "key": "{trial_idx}", "results": {{"booth": {x1 + x2}}}}}'
    script = 'mkdir -p "$1" && printf "%s" "$2" > "$1/$3.json" && echo "trial $3" && test "$3" != 1'
    role = Role("main", "", entrypoint="sh", args=["-c", script, "sh", tracker_base, body, str(trial_idx)])
    return AppDef("trial", [role])


def test_run_search(transload_home: Path, tmp_path: Path) -> None:
    """All trials run, the failed one counts as failed; run again, nothing is started a second time."""
    lines: list[str] = []
    wanted = Search(component, SPACE, Objective("booth"), trials=5, parallelism=2, scheduler="local")
    ledger = SearchLedger(wanted, str(tmp_path / "base"))

    def sink_of(trial: object) -> object:
        return lambda role, replica, stream, line: lines.append(line.strip())

    with host_runner("test") as runner:
        summary = run_search(ledger, runner, Identity("test", "one", ("search",)), sink_of=sink_of)  # type: ignore[arg-type]
        states = [row["state"] for row in summary["trials"]]
        assert states == ["SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]
        assert "exit code 1" in summary["trials"][1]["reason"]
        sums = {row["index"]: row["value"] for row in summary["trials"] if row["value"] is not None}
        assert summary["best"]["value"] == min(sums.values())
        assert sorted(lines) == [f"trial {index}" for index in range(5)]
        again = run_search(SearchLedger(wanted, str(tmp_path / "base")), runner, Identity("test", "one", ("search",)))
        assert again == summary
        assert len(runner.list("local")) == 5
