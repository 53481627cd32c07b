"""Searches that keep their state in a tracker base."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from transload.errors import ConfigError, SpecError
from transload.pipelines import host_runner
from transload.runner import AppResults
from transload.runtime.tracking import FsspecResultTracker, open_store, read_steps
from transload.specs import AppDef, AppState, AppStatus, Role
from transload_search import (
    Constraint,
    EarlyStopping,
    Objective,
    Parameter,
    Search,
    SearchFailed,
    SearchLedger,
    next_round,
    run_search,
    trial_values,
)

SPACE = (Parameter("x1", "float", -5, 5), Parameter("x2", "float", -5, 5))


def search(**more: object) -> Search:
    """Return a search over Booth's function."""
    given = {"objective": Objective("booth"), "trials": 5, "parallelism": 2, **more}
    return Search("utils.booth", SPACE, **given)  # type: ignore[arg-type]


def reported(value: object, *, key: str = "0", state: AppState = AppState.SUCCEEDED) -> AppResults:
    """Return what a trial reported."""
    return AppResults("local://x/y", state, {key: {"booth": value}})  # type: ignore[dict-item]


@pytest.fixture(params=["folder", "memory"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return a tracker base on each kind of store."""
    return str(tmp_path / "base") if request.param == "folder" else f"memory://{uuid4().hex}/base"


def test_rounds_stay_as_they_were(base: str) -> None:
    """A round asked for again, also by another process, has the same trials.

    The last round has what is left, and then there is none.
    """
    ledger = SearchLedger(search(), base)
    assert ledger.search.rounds == 3
    rounds = [ledger.suggest(0), ledger.suggest(1), ledger.suggest(2), ledger.suggest(3)]
    assert [[trial.index for trial in each] for each in rounds] == [[0, 1], [2, 3], [4], []]
    again = SearchLedger(search(), base)
    assert [again.suggest(number) for number in (3, 1, 0, 2)] == [
        rounds[3],
        rounds[1],
        rounds[0],
        rounds[2],
    ]
    with pytest.raises(SpecError, match="round 6: the round before"):
        ledger.suggest(6)
    with pytest.raises(SpecError, match="round -1"):
        ledger.suggest(-1)


def test_open_reads_what_is_there(base: str) -> None:
    """Whoever has only the base reads the search out of it. A base without a search is refused."""
    with pytest.raises(ConfigError, match="there is no search"):
        SearchLedger.open(base)
    ledger = SearchLedger(search(), base)
    trials = ledger.suggest(0)
    ledger.observe(0, reported(3.5))
    opened = SearchLedger.open(base)
    assert opened.search == search()
    assert opened.summary() == ledger.summary()
    assert opened.best() == (trials[0], 3.5)


def test_best_and_summary(base: str) -> None:
    """The best has the smallest objective, failures have reasons, and the end has its own key."""
    ledger = SearchLedger(search(), base)
    trials = ledger.suggest(0)
    assert ledger.best() is None
    assert ledger.observe(0, reported(3.5)) == 3.5
    assert (
        ledger.observe(1, None, state=AppState.CANCELLED, handle="local://x/z", reason="by hand")
        is None
    )
    ledger.suggest(1)
    assert ledger.observe(2, reported(3.5)) == 3.5
    assert ledger.ended(3) is None
    other = SearchLedger(search(), base)
    assert other.best() == (trials[0], 3.5)
    summary = json.loads(json.dumps(other.finish()))
    assert [row["state"] for row in summary["trials"]] == [
        "SUCCEEDED",
        "CANCELLED",
        "SUCCEEDED",
        None,
    ]
    assert summary["trials"][1]["reason"] == "by hand"
    assert summary["best"] == {
        "index": 0,
        "parameters": trials[0].parameters,
        "value": 3.5,
        "handle": "local://x/y",
    }
    assert Search.from_dict(summary["search"]).trials == 5
    assert FsspecResultTracker(base)["best"] == {**trials[0].parameters, "trial": 0, "booth": 3.5}
    assert list(FsspecResultTracker(base).keys()) == ["best"]


def test_another_search_is_refused(base: str) -> None:
    """A base belongs to one search, for which trials, parallelism and scheduler may change."""
    SearchLedger(search(), base).suggest(0)
    with pytest.raises(SpecError, match="has another search: seed is 0 there, 1 here"):
        SearchLedger(search(seed=1), base)
    with pytest.raises(
        SpecError,
        match="parameters is x1:float:-5:5, x2:float:-5:5 there, x1:float:-5:5, x2:float:0:1 ",
    ):
        SearchLedger(replace(search(), parameters=(SPACE[0], Parameter("x2", "float", 0, 1))), base)
    more = SearchLedger(search(trials=9, parallelism=4, scheduler="local"), base)
    assert [trial.index for trial in more.suggest(0)] == [0, 1]
    assert [trial.index for trial in more.suggest(1)] == [2, 3, 4, 5]


def test_a_search_that_ended_goes_on_with_more_trials(base: str) -> None:
    """A search that ended gets more rounds when more trials are allowed, and keeps those before."""
    ledger = SearchLedger(search(trials=2), base)
    first = ledger.suggest(0)
    assert (ledger.suggest(1), ledger.suggest(2)) == ([], [])
    more = SearchLedger(search(trials=5), base)
    assert more.suggest(0) == first
    rounds = [more.suggest(1), more.suggest(2), more.suggest(3)]
    assert [[trial.index for trial in each] for each in rounds] == [[2, 3], [4], []]
    assert [more.suggest(number) for number in (1, 2, 3)] == rounds


def test_broken_records_are_named(tmp_path: Path) -> None:
    """A file that is not a record, or of a newer version, is named with its path."""
    ledger = SearchLedger(search(), str(tmp_path))
    ledger.suggest(0)
    for text, message in (
        ("{", "must be a record"),
        ("[]", "must be a record"),
        ('{"schema": 99}', "is too new"),
    ):
        (tmp_path / "search" / "rounds" / "0.json").write_text(text)
        with pytest.raises(SpecError, match=rf"rounds/0\.json: .*{message}"):
            ledger.suggest(0)


@pytest.mark.parametrize(
    ("results", "value", "reason"),
    [
        (reported(2), 2.0, ""),
        (reported(2, key="final"), 2.0, ""),
        (AppResults("h", AppState.SUCCEEDED, {"1": {"booth": 1}, "0": {"booth": 7}}), 7.0, ""),
        (
            AppResults("h", AppState.SUCCEEDED, {"epoch-1": {"booth": 1}, "final": {"booth": 7}}),
            7.0,
            "",
        ),
        (
            AppResults("h", AppState.SUCCEEDED, {"a": {"booth": 1}, "b": {"booth": 7}}),
            None,
            "under 2 keys (a, b)",
        ),
        (reported(float("nan")), None, "not a finite number"),
        (reported("good"), None, "not a finite number"),
        (reported(2, state=AppState.FAILED), None, "ended FAILED"),
        (AppResults("h", AppState.SUCCEEDED, {}), None, "no result 'booth'"),
    ],
)
def test_objective(results: AppResults, value: float | None, reason: str) -> None:
    """The objective is found under the trial's number, ``final`` or the only key, else not."""
    found, why = trial_values(search(), 0, results)
    assert found == (None if value is None else {"booth": value})
    assert reason in why


def test_which_key_counts() -> None:
    """The key that the search names counts, else the trial's number, else ``final``.

    Otherwise the keys that are there are named.
    """
    curve = {"1": {"booth": 9.0}, "2": {"booth": 8.0}, "final": {"booth": 7.0}}
    results = AppResults("local://x/y", AppState.SUCCEEDED, curve)
    assert trial_values(search(), 0, results) == ({"booth": 7.0}, "")
    assert trial_values(search(), 2, results) == ({"booth": 8.0}, "")
    named = search(objective=Objective("booth", key="1"))
    assert trial_values(named, 2, results) == ({"booth": 9.0}, "")
    del curve["final"]
    found, why = trial_values(search(), 0, results)
    assert found is None and "1, 2" in why


def test_next_round_is_pure() -> None:
    """The next round is the same from a JSON state as in one go."""
    first, state = next_round(search(), None, {})
    second, _ = next_round(search(), json.loads(json.dumps(state)), {0: {"booth": 1.0}, 1: None})
    together, _ = next_round(search(), None, {}, 4)
    assert first + second == together


def component(x1: float, x2: float, tracker_base: str, trial_idx: int, gate: str = "") -> AppDef:
    """Report a sum, and fail for the second trial."""
    body = f'{{"schema": 1, "key": "{trial_idx}", "results": {{"booth": {x1 + x2}}}}}'
    script = 'echo "{\\"fraction\\": 0.$3}" > "$TRANSLOAD_PROGRESS_FILE"; '
    script += (
        'mkdir -p "$1" && printf "%s" "$2" > "$1/$3.json" && echo "trial $3" && test "$3" != 1'
    )
    role = Role(
        "main", "", entrypoint="sh", args=["-c", script, "sh", tracker_base, body, str(trial_idx)]
    )
    return AppDef("trial", [role])


def run(ledger: SearchLedger, **more: Any) -> dict[str, Any]:
    """Run a search here."""
    return run_search(ledger, host_runner("test"), **more)


def test_run_search(transload_home: Path, tmp_path: Path) -> None:
    """All trials run and report progress, and the failed one counts. Run again, nothing starts."""
    lines: list[str] = []
    wanted = Search(
        component, SPACE, Objective("booth"), trials=5, parallelism=2, scheduler="local"
    )
    base = str(tmp_path / "base")

    def sink_of(trial: object) -> object:
        return lambda role, replica, stream, line: lines.append(line.strip())

    reached: dict[int, float | None] = {}

    def on_progress(index: int, status: AppStatus) -> None:
        assert status.progress is not None
        reached[index] = status.progress.fraction

    summary = run(SearchLedger(wanted, base), sink_of=sink_of, on_progress=on_progress)
    assert reached == {0: 0.0, 1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert [row["state"] for row in summary["trials"]] == [
        "SUCCEEDED",
        "FAILED",
        *["SUCCEEDED"] * 3,
    ]
    assert "exit code 1" in summary["trials"][1]["reason"]
    assert summary["best"]["value"] == min(
        row["value"] for row in summary["trials"] if row["value"] is not None
    )
    assert sorted(lines) == [f"trial {index}" for index in range(5)]
    assert run(SearchLedger(wanted, base)) == summary
    assert len(host_runner("test").list("local")) == 5
    other = run(SearchLedger(wanted, str(tmp_path / "other")))
    assert other["best"]["value"] == summary["best"]["value"]
    assert len(host_runner("test").list("local")) == 10


def test_nothing_reported_is_a_failure(transload_home: Path, tmp_path: Path) -> None:
    """A search whose trials report something else fails, and says which keys and names there
    were.
    """
    wanted = Search(component, SPACE, Objective("both"), trials=1, scheduler="local")
    with pytest.raises(
        SearchFailed,
        match=r"none of 1 trials has a value of 'both': trial 0: .* reported 0: booth",
    ):
        run(SearchLedger(wanted, str(tmp_path / "base")))


def test_too_many_failures(base: str) -> None:
    """With more than its share of failed trials, at least five, a search is given up and says
    why.
    """
    ledger = SearchLedger(search(trials=20, parallelism=1, failures=0.5), base)
    for index in range(5):
        trial = ledger.next_trial()
        assert trial is not None and trial.index == index
        ledger.observe(index, None, reason=f"exit code {index}")
    with pytest.raises(
        SearchFailed, match="5 of 5 trials failed, and failures=0.5: trial 4: exit code 4"
    ):
        ledger.next_trial()


def test_one_at_a_time(base: str) -> None:
    """Trials can be had one by one. Whoever continues sees which are open, and files stay small."""
    ledger = SearchLedger(search(trials=4), base)
    first = [ledger.next_trial() for _ in range(3)]
    assert [each.index for each in first if each is not None] == [0, 1, 2]
    ledger.observe(1, reported(2.0, key="1"))
    again = SearchLedger(search(trials=4), base)
    assert [trial.index for trial in again.unfinished()] == [0, 2]
    last = again.next_trial()
    assert last is not None and last.index == 3
    assert (again.next_trial(), again.suggest(4)) == (None, [])
    more = SearchLedger(search(trials=5), base).next_trial()
    assert more is not None and more.index == 4


def test_several_objectives_and_constraints(base: str) -> None:
    """Several objectives have a front of trials that keep the constraints.

    With none it has failed.
    """
    goals = (Objective("a"), Objective("b", minimize=False))
    ledger = SearchLedger(search(objective=goals, constraints=[Constraint.parse("c<=1")]), base)
    trials = [ledger.next_trial() for _ in range(4)]
    assert all(trials)
    points = [
        (1, 1, 0),
        (2, 2, 0),
        (2, 1, 0),
        (0, 9, 5),
    ]  # the third is beaten, the fourth breaks the bound
    for index, (a, b, c) in enumerate(points[3:], 3):
        ledger.observe(index, AppResults("h", AppState.SUCCEEDED, {"k": {"a": a, "b": b, "c": c}}))
    with pytest.raises(SearchFailed, match="no trial satisfies the constraints: c<=1"):
        ledger.finish()
    for index, (a, b, c) in enumerate(points[:3]):
        ledger.observe(index, AppResults("h", AppState.SUCCEEDED, {"k": {"a": a, "b": b, "c": c}}))
    summary = json.loads(json.dumps(ledger.finish()))
    assert summary["best"] is None
    assert [(each["index"], each["values"]["a"]) for each in summary["front"]] == [
        (0, 1.0),
        (1, 2.0),
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"parameters": SPACE[:1]}, "nothing gives 'x2'"),
        ({"constants": {"x3": 1}}, "constants: .*no argument 'x3'"),
        (
            {"parameters": (*SPACE, Parameter("trial_idx", "int", 0, 1))},
            "each trial gets",
        ),
        ({"parameters": (SPACE[0], Parameter("x2", "choice", values=("a",)))}, "x2"),
        ({"component": "utils.boothe"}, "utils.booth"),
    ],
)
def test_a_search_that_does_not_fit_its_component(base: str, more: Any, says: str) -> None:
    """Names and values that the component does not take are refused before anything is kept."""
    with pytest.raises(SpecError, match=says):
        SearchLedger(replace(search(), **more), base)
    with pytest.raises(ConfigError, match="there is no search"):
        SearchLedger.open(base)
    assert not Path(base).exists()


def test_secrets_are_not_kept(tmp_path: Path) -> None:
    """Run options whose name looks secret are used, but not written down."""
    ledger = SearchLedger(search(cfg={"api_key": "hush", "x": "y"}), str(tmp_path))
    trial = ledger.next_trial()
    assert trial is not None and ledger.launch(trial).cfg == {"api_key": "hush", "x": "y"}
    assert "hush" not in (tmp_path / "search" / "search.json").read_text()
    assert "hush" not in json.dumps(ledger.summary())


def stepping(x1: float, trial_idx: int, tracker_base: str, gate: str) -> AppDef:
    """Report two steps, then the result, at once for even trials and else once a file is there."""
    script = (
        'mkdir -p "$1"; for s in 1 2; do printf \'{"schema": 1, "step": %s, "results": {"loss": '
        "%s}}\\n' $s $2; done "
        '> "$1/final.steps.jsonl"; while [ $3 = 1 ] && [ ! -e "$4" ]; do sleep 0.02; done; '
        'printf \'{"schema": 1, "key": "final", "results": {"loss": %s}}\' $2 > "$1/final.json"'
    )
    loss = 104 if trial_idx == 4 else 0
    args = ["-c", script, "sh", tracker_base, str(loss), str(int(trial_idx == 4)), gate]
    return AppDef("trial", [Role("main", "", entrypoint="sh", args=args)])


def test_a_trial_is_stopped_early(transload_home: Path, tmp_path: Path) -> None:
    """A trial whose steps are worse than the others' is ended, and counts as stopped."""
    wanted = Search(
        stepping,
        SPACE[:1],
        Objective("loss"),
        trials=5,
        parallelism=5,
        scheduler="local",
        constants={"gate": str(tmp_path / "never")},
        early_stopping=EarlyStopping(),
    )
    summary = run(SearchLedger(wanted, str(tmp_path / "base")))
    assert [row["state"] for row in summary["trials"]] == [*["SUCCEEDED"] * 4, "STOPPED"]
    last = summary["trials"][4]
    assert (last["value"], last["reason"]) == (104.0, "it was stopped early, at step 2")
    assert summary["best"]["index"] == 0
    states = [row.state.name for row in host_runner("test").list("local")]
    assert sorted(states) == ["CANCELLED", *["SUCCEEDED"] * 4]


def test_steps(tmp_path: Path) -> None:
    """Steps are read from any key's file, in the base or a job's folder. Half a line is ignored."""
    own = tmp_path / "base" / ".apps" / "x"
    own.mkdir(parents=True)
    rows = [
        {"step": 1, "results": {"loss": 3}},
        {"step": 2, "results": {"loss": float("nan"), "other": 1}},
        [],
        {"step": 1},
    ]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, {"step": 1, "results": {"loss": 2.5}}])
    (own / "final.steps.jsonl").write_text(text + '{"step": 3, "results": {"loss": 1')
    store = open_store(str(tmp_path))
    assert (
        read_steps(store, "base", "loss")
        == read_steps(store, "base", "loss", "final")
        == {1.0: 2.5}
    )
    assert read_steps(store, "base", "loss", "0") == read_steps(store, "none", "loss") == {}
    assert read_steps(open_store(str(tmp_path / "base")), "", "other") == {2.0: 1.0}


@pytest.mark.parametrize("is_there", [False, True], ids=["new folder", "folder of the user's"])
def test_what_a_search_keeps_is_private(tmp_path: Path, is_there: bool) -> None:
    """Nobody else reads it, whatever the umask, and a folder that is there stays as it is."""
    base = tmp_path / "above" / "base"
    if is_there:
        base.mkdir(parents=True)
        base.chmod(0o755)
    before = os.umask(0)
    try:
        ledger = SearchLedger(search(), str(base))
        ledger.suggest(0)
    finally:
        os.umask(before)
    assert (base / "search").stat().st_mode & 0o777 == 0o700
    assert base.stat().st_mode & 0o777 == (0o755 if is_there else 0o700)


@pytest.mark.parametrize("bound", [10**401, -(10**401), 1e301, float("inf"), float("nan")])
def test_bounds_are_bounded(bound: float) -> None:
    """A bound that nobody means is refused, as it is typed and in Python."""
    for kind in ("int", "float"):
        with pytest.raises(SpecError, match="x"):
            Parameter("x", kind, 0, bound)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="x"):
            Parameter.parse(f"x:{kind}:0:{bound}")
    with pytest.raises(SpecError, match="latency"):
        Constraint("latency", bound)
    with pytest.raises(SpecError, match="latency"):
        Constraint.parse(f"latency<={bound}")
