"""Whole searches use the adapter, the suggester, pictures, and real Bayesian optimisation."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from transload.errors import ConfigError, SpecError, UnsupportedFeature
from transload.pipelines import get_adapter, host_runner
from transload.runner import AppResults
from transload.specs import AppDef, AppState, Role
from transload_search import (
    Constraint,
    Objective,
    Parameter,
    Search,
    SearchLedger,
    SearchTrial,
    get_suggester,
    run_search,
)


def search(**more: Any) -> Search:
    """Return a search over Booth's function that Ax is to suggest."""
    given: dict[str, Any] = {
        "component": "utils.booth",
        "parameters": [Parameter("x1", "float", -10, 10), Parameter("x2", "float", -10, 10)],
        "objective": Objective("booth_eval"),
        "trials": 6,
        "suggester": "ax",
        **more,
    }
    return Search(**given)


class TestAdapter:
    """The uniform door."""

    def test_convert_gives_a_runner(self, base: str) -> None:
        """A component becomes a runner, with what the launch says."""
        from transload_ax import TransloadRunner

        adapter = get_adapter("ax")
        runner = adapter.convert(
            "ax_components:square", launch={"args": {"y": 1.0}}, tracker_base=base, max_running=2
        )
        assert isinstance(runner, TransloadRunner)
        assert (runner.component_const_params, runner.tracker_base, runner.max_running) == (
            {"y": 1.0},
            base,
            2,
        )

    def test_convert_refuses(self, base: str) -> None:
        """An app without parameters and arguments without names are refused by name."""
        from transload.specs import AppDef, Role

        adapter = get_adapter("ax")
        with pytest.raises(UnsupportedFeature, match="source"):
            adapter.convert(AppDef("a", [Role("r", "i", entrypoint="true")]), tracker_base=base)
        with pytest.raises(SpecError, match="name → value"):
            adapter.convert("utils.booth", launch={"args": ["--x1", "1"]})

    def test_dry_run(self, base: str, transload_home: Path) -> None:
        """A dry run shows the request, and starts nothing."""
        shown = get_adapter("ax").dry_run(
            "utils.booth", launch={"args": {"x1": 1.0, "x2": 2.0}}, tracker_base=base
        )
        assert "booth" in shown
        assert host_runner("ax").list("local") == []

    def test_dry_run_takes_what_convert_takes(self, base: str, transload_home: Path) -> None:
        """A dry run shows its options, with example values for what the search will set."""
        given: dict[str, Any] = {
            "scheduler": "local_cwd",
            "cfg": {"max_log_size": 9.5},
            "tracker_base": base,
        }
        constants = {"component_const_params": {"gate": "open", "steps": 7}}
        shown = get_adapter("ax").dry_run(
            "ax_components:curve", **given, **constants, pass_env=["HF_*"], max_running=2
        )
        assert "searched, with a value for show: x=1.0\n" in shown
        assert all(word in shown for word in ("local_cwd", "9.5", base, "open", "7")), shown

    @pytest.mark.parametrize(
        "wrong",
        [
            {"scheduler": "nosuch"},
            {"nonsense": 1},
            {"patience": -4},
            {"max_running": 0},
            {"cfg": {"nosuch": 1}},
            {"component_const_params": {"nosuch": 1}},
            {"component_const_params": {"trial_idx": 1}},
        ],
        ids=str,
    )
    def test_dry_run_refuses(self, wrong: dict[str, Any], base: str, transload_home: Path) -> None:
        """What convert, or the first trial, would refuse is refused by name."""
        name, value = next(iter(wrong.items()))
        known = value if isinstance(value, dict) else {value if isinstance(value, str) else name: 0}
        with pytest.raises((ConfigError, SpecError), match=next(iter(known))):
            get_adapter("ax").dry_run("ax_components:square", tracker_base=base, **wrong)


class TestSuggester:
    """Ax as a suggester of core's searches."""

    def test_suggests_and_observes(self) -> None:
        """Trials are in the space, numbered and limited. One that was not suggested is refused."""
        suggester = get_suggester(search(trials=3))
        trials = suggester.suggest(2) + suggester.suggest(5)
        assert [trial.index for trial in trials] == [0, 1, 2]
        assert all(-10 <= trial.parameters[name] <= 10 for trial in trials for name in ("x1", "x2"))
        suggester.observe(0, {"booth_eval": 3.0})
        suggester.observe(1, None)
        with pytest.raises(SpecError, match="not suggested"):
            suggester.observe(7, {"booth_eval": 1.0})

    def test_state_goes_on_elsewhere(self) -> None:
        """The state is JSON, from which another suggester goes on with the same next trial."""
        one, other = get_suggester(search(seed=3)), get_suggester(search(seed=3))
        one.suggest(2)
        one.observe(0, {"booth_eval": 5.0})
        one.observe(1, {"booth_eval": 4.0})
        other.load(json.loads(json.dumps(one.state())))
        assert other.suggest(1) == one.suggest(1)
        with pytest.raises(SpecError, match="not of the ax suggester"):
            other.load({"schema": 1, "suggester": "random", "next": 0})
        with pytest.raises(SpecError):
            other.load({})

    def test_several_objectives_and_constraints(self) -> None:
        """Ax gets each objective in its direction, and each bound.

        An early stop is one to Ax too.
        """
        from ax.core.optimization_config import MultiObjectiveOptimizationConfig

        goals = (Objective("booth_eval"), Objective("cost", minimize=False))
        suggester = get_suggester(
            search(objective=goals, constraints=[Constraint("memory", 4.0)], suggester="ax-sobol")
        )
        suggester.suggest(2)
        suggester.observe(0, {"booth_eval": 1.0, "cost": 2.0, "memory": 3.0})
        suggester.observe(1, {"booth_eval": 1.0})
        experiment, _ = suggester._ax()
        aim = experiment.optimization_config
        assert isinstance(aim, MultiObjectiveOptimizationConfig)
        assert aim.objective.expression == "-booth_eval, cost"
        assert [(each.metric_names[0], each.bound) for each in aim.outcome_constraints] == [
            ("memory", 4.0)
        ]
        assert [trial.status.name for trial in experiment.trials.values()] == [
            "COMPLETED",
            "EARLY_STOPPED",
        ]
        other = get_suggester(
            search(objective=goals, constraints=[Constraint("memory", 4.0)], suggester="ax-sobol")
        )
        other.load(json.loads(json.dumps(suggester.state())))
        assert other.suggest(1) == suggester.suggest(1)

    def test_state_stays_small(self) -> None:
        """One more trial adds about five kilobytes to the state, which is stored once a round."""
        suggester = get_suggester(search(trials=20, seed=2))
        sizes = []
        for index in range(5):
            assert [trial.index for trial in suggester.suggest(1)] == [index]
            suggester.observe(index, {"booth_eval": float(index)})
            sizes.append(len(json.dumps(suggester.state())))
        assert max(later - earlier for earlier, later in pairwise(sizes)) < 8000
        assert sizes[-1] < 60_000

    def test_choices_and_ints(self) -> None:
        """Every kind of parameter comes in its type."""
        space = [
            Parameter("a", "int", 1, 5),
            Parameter("b", "choice", values=("u", "v", "w")),
            Parameter("c", "float", 1e-4, 1.0, log=True),
            Parameter("d", "choice", values=(8,)),
        ]
        for trial in get_suggester(search(parameters=space)).suggest(4):
            assert type(trial.parameters["a"]) is int
            assert trial.parameters["b"] in ("u", "v", "w")
            assert 1e-4 <= trial.parameters["c"] <= 1.0
            assert trial.parameters["d"] == 8


class TestLedger:
    """Ax in core's searches over rounds, with the state in a tracker base."""

    @staticmethod
    def booth(trial: SearchTrial) -> AppResults:
        """Return what a trial over Booth's function would report."""
        x1, x2 = trial.parameters["x1"], trial.parameters["x2"]
        value = (x1 + 2 * x2 - 7) ** 2 + (2 * x1 + x2 - 5) ** 2
        results = {str(trial.index): {"booth_eval": float(value)}}
        return AppResults(f"local://test/{trial.index}", AppState.SUCCEEDED, results)

    def test_rounds_go_on_in_another_process(self, base: str) -> None:
        """Each round of a fresh ledger gives new trials, and the same ones when asked again."""
        given = search(trials=5, parallelism=2, seed=4)
        seen: list[SearchTrial] = []
        for number in range(given.rounds):
            trials = SearchLedger(given, base).suggest(number)
            assert SearchLedger(given, base).suggest(number) == trials
            for trial in trials:
                SearchLedger(given, base).observe(trial.index, self.booth(trial))
            seen += trials
        assert [trial.index for trial in seen] == [0, 1, 2, 3, 4]
        assert len({tuple(trial.parameters.items()) for trial in seen}) == 5
        ledger = SearchLedger(given, base)
        assert ledger.suggest(given.rounds) == []
        found = ledger.best()
        assert found is not None
        assert found[1] == min(self.booth(trial).value("booth_eval", trial.index) for trial in seen)

    @pytest.mark.slow
    @pytest.mark.timeout(900)
    def test_better_than_random(self, tmp_path: Path) -> None:
        """With as many trials, Ax comes closer to Booth's minimum than the random suggester, and
        its state is small.
        """
        found: dict[str, list[float]] = {"random": [], "ax": []}
        for suggester, seed in product(found, range(3)):
            given = search(trials=24, parallelism=2, seed=seed, suggester=suggester)
            base = str(tmp_path / suggester / str(seed))
            for number in range(given.rounds):
                ledger = SearchLedger(given, base)
                for trial in ledger.suggest(number):
                    ledger.observe(trial.index, self.booth(trial))
            best = SearchLedger(given, base).best()
            assert best is not None
            found[suggester].append(best[1])
        sizes = [
            path.stat().st_size for path in (tmp_path / "ax" / "0" / "search" / "rounds").iterdir()
        ]
        print(found, max(sizes))
        assert median(found["ax"]) < median(found["random"])
        assert max(sizes) < 300_000


def test_models_compute_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch has one thread while trials are proposed. The environment's setting goes first."""
    import torch

    from transload_ax.threads import one_thread

    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    try:
        torch.set_num_threads(2)
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        with one_thread():
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def _run_of(x: float) -> Any:
    """Return a generator run with one arm."""
    from ax.core.arm import Arm
    from ax.core.generator_run import GeneratorRun

    return GeneratorRun([Arm({"x": x})])


class TestOwnLoop:
    """Ax's own orchestrator, in the context of our runner."""

    @pytest.mark.parametrize("on_kill", ["cancel", "detach"])
    def test_an_exception_leaves_no_job(
        self,
        on_kill: str,
        experiment: Callable[..., Any],
        orchestrate: Callable[..., Any],
        gate: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Whatever is raised, the jobs are ended. If they are to go on, a line says how many."""
        made = experiment("ax_components:waits", constants={"gate": str(gate)}, on_kill=on_kill)
        poll = made.runner.poll_available_capacity
        calls: list[int] = []

        def interrupted() -> int:
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return int(poll())

        made.runner.poll_available_capacity = interrupted
        with pytest.raises(KeyboardInterrupt), made.runner:
            orchestrate(made, parallel=4).run_n_trials(4)
        runner = host_runner("ax")
        rows = runner.list("local")
        told = [each.getMessage() for each in caplog.records if "go on" in each.getMessage()]
        if on_kill == "cancel":
            assert told == []
            assert [row.state.name for row in rows] == ["CANCELLED", "CANCELLED"]
            return
        (line,) = told
        assert line.startswith("jobs that go on: 2; `transload list -s local`")
        handles = re.search(r"`transload cancel (.*?)`", line)
        assert handles is not None
        assert set(handles[1].split()) == {row.app_handle for row in rows}
        gate.touch()
        ends = [runner.wait(row.app_handle) for row in rows]
        assert [end.state.name for end in ends if end is not None] == ["SUCCEEDED", "SUCCEEDED"]

    def test_submits_side_by_side(
        self, experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Trials of one call are submitted at once, without waiting, each with its own metadata."""
        from transload_ax.jobs import TrialJobs

        made = experiment()
        trials = [made.new_trial(_run_of(x)) for x in (0.0, 1.0, 2.0)]
        together, start = threading.Barrier(3), TrialJobs.start

        def waits_for_the_others(self: Any, *args: Any, **more: Any) -> str:
            together.wait(30)
            return start(self, *args, **more)

        monkeypatch.setattr(TrialJobs, "start", waits_for_the_others)
        found = made.runner.run_multiple(trials)
        assert sorted(found) == [0, 1, 2]
        assert len({each["transload_app_handle"] for each in found.values()}) == 3

    def test_equal_seeds_draw_equal_numbers(self) -> None:
        """What models draw follows from the seed, and the process's own numbers go on as if nothing
        had been.
        """
        import torch

        from transload_ax.threads import seeded

        torch.manual_seed(1)
        expected = torch.rand(2).tolist()
        torch.manual_seed(1)
        drawn = []
        for _ in range(2):
            with seeded(7):
                drawn.append(torch.rand(3).tolist())
        assert torch.rand(2).tolist() == expected
        assert drawn[0] == drawn[1]


@pytest.mark.slow
class TestBayesianOptimisation:
    """Real models, real processes."""

    @pytest.mark.timeout(900)
    @pytest.mark.parametrize(
        ("component", "space", "objective", "limit"),
        [
            ("utils.booth", ["x1:float:-10:10", "x2:float:-10:10"], "booth_eval", 1.0),
            ("ax_components:branin", ["x1:float:-5:10", "x2:float:0:15"], "branin", 0.44),
        ],
    )
    def test_known_functions(
        self,
        component: str,
        space: list[str],
        objective: str,
        limit: float,
        transload_home: Path,
        tmp_path: Path,
    ) -> None:
        """25 trials come near the minimum with two of three seeds."""
        values = []
        for seed in range(3):
            given = Search(
                component,
                [Parameter.parse(each) for each in space],
                Objective(objective),
                trials=25,
                seed=seed,
                suggester="ax",
            )
            values.append(best_of(given, tmp_path / str(seed)))
        print(values)
        assert sum(value <= limit for value in values) >= 2

    @pytest.mark.timeout(900)
    def test_digits_tuned_beat_the_default(self, transload_home: Path, tmp_path: Path) -> None:
        """The digits trainer, tuned over three parameters, beats its own default."""
        common: dict[str, Any] = {
            "component": str(Path(__file__).parents[2] / "examples" / "ax" / "digits_trial.py"),
            "objective": Objective("accuracy", minimize=False),
            "constants": {"epochs": 4},
            "suggester": "ax",
        }
        space = ["lr:float:0.01:3:log", "hidden:int:8:128:log", "batch:int:16:256:log"]
        default = Search(parameters=[Parameter.parse("lr:choice:0.5")], trials=1, **common)
        tuned = Search(
            parameters=[Parameter.parse(each) for each in space],
            trials=16,
            parallelism=2,
            **common,
        )
        before = best_of(default, tmp_path / "default")
        assert best_of(tuned, tmp_path / "tuned") > before


def best_of(given: Search, base: Path) -> float:
    """Run a search, and return its best value."""
    summary = run_search(SearchLedger(given, str(base)), host_runner("search"))
    return float(summary["best"]["value"])


def ratio(x: float, n: int | str = 1, pick: int = 1) -> AppDef:
    """Do nothing.

    Args:
        x: a float
        n: a number or a word
        pick: a whole number
    """
    return AppDef("ratio", [Role("main", "", entrypoint="true", args=[str(x), str(n), str(pick)])])


@pytest.mark.parametrize(
    "parameter", [Parameter("x", "choice", values=(1, 0.5, 2)), Parameter.parse("x:choice:1,0.5,2")]
)
def test_choices_keep_their_values(parameter: Parameter) -> None:
    """Choices have the argument's type, whatever the type of the first one is."""
    given = Search(ratio, [parameter], Objective("loss"), suggester="ax", trials=3, parallelism=3)
    found = [trial.parameters["x"] for trial in get_suggester(given).suggest(3)]
    assert sorted(found) == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "n:choice:16,32,auto",
            (
                r"parameter 'n': choices 16 \(int\), 32 \(int\), 'auto' \(str\): Ax wants all of one "
                r"type"
            ),
        ),
        ("x:float:1e-19:1e-14", "parameter 'x:float:1e-19:1e-14': Ax refuses it: .* very small"),
    ],
)
def test_what_ax_does_not_take_is_refused_before_anything_starts(
    text: str, says: str, tmp_path: Path
) -> None:
    """The parameter is named, and nothing of the search is kept."""
    constants = {} if text.startswith("x") else {"x": 1.0}
    given = Search(
        ratio, [Parameter.parse(text)], Objective("loss"), suggester="ax", constants=constants
    )
    with pytest.raises(SpecError, match=says):
        SearchLedger(given, str(tmp_path / "base"))
    assert not (tmp_path / "base").exists()


def test_an_exhausted_space_ends_the_search(base: str) -> None:
    """With more trials than points each point is proposed once, and then no more."""
    given = Search(
        ratio,
        [Parameter("pick", "choice", values=(1, 2))],
        Objective("loss"),
        suggester="ax",
        trials=6,
        constants={"x": 1.0},
    )
    suggester = get_suggester(given)
    found = []
    while made := suggester.suggest(1):
        found += [each.parameters["pick"] for each in made]
        suggester.observe(made[0].index, {"loss": float(made[0].parameters["pick"])})
    assert sorted(found) == [1, 2]
