"""The newer API has Client.configure_runner, configure_metrics and run_trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transload.errors import SpecError
from transload.pipelines import host_runner


@pytest.fixture
def client(transload_home: Path, base: str) -> Iterator[Callable[..., Any]]:
    """Make a client over ``x`` in [-1, 3], and end all jobs after the test."""
    made: list[Any] = []

    def make(component: str = "ax_components:square", metric: Any = None, **more: Any) -> Any:
        from ax.api.client import Client
        from ax.api.configs import RangeParameterConfig

        from transload_ax import TransloadClientMetric, TransloadClientRunner

        runner = TransloadClientRunner(base, component, **more)
        made.append(runner)
        found = Client(random_seed=1)
        found.configure_experiment(
            [RangeParameterConfig(name="x", parameter_type="float", bounds=(-1, 3))], name="newer"
        )
        found.configure_optimization("-loss")
        found.configure_generation_strategy(method="random_search")
        found.configure_runner(runner)
        found.configure_metrics([metric or TransloadClientMetric("loss", lower_is_better=True)])
        return found

    yield make
    for runner in made:
        runner.close(cancel=True)


def test_run_trials(client: Callable[..., Any]) -> None:
    """A client runs trials as apps and knows the best one."""
    made = client()
    made.run_trials(max_trials=4, parallelism=2, initial_seconds_between_polls=0)
    trials = made._experiment.trials
    assert {trial.status.name for trial in trials.values()} == {"COMPLETED"}

    parameters = made.get_best_parameterization(use_model_predictions=False)[0]
    assert parameters["x"] == min(
        (trial.arm.parameters["x"] for trial in trials.values()), key=lambda x: (x - 1) ** 2
    )
    assert made._experiment.metrics["loss"].lower_is_better is True


def test_run_trials_waits_for_all(
    client: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that wait for resources do not let run_trials return early (trap 1)."""
    from transload_testing.scripted import ScriptedControl

    for name, value in ScriptedControl(tmp_path / "scripted").environment().items():
        monkeypatch.setenv(name, value)
    made = client("ax_components:preempted", scheduler="scripted")
    made.run_trials(max_trials=2, parallelism=2, initial_seconds_between_polls=0)
    assert [trial.status.name for trial in made._experiment.trials.values()] == [
        "COMPLETED",
        "COMPLETED",
    ]


def test_saved_and_loaded(client: Callable[..., Any], tmp_path: Path) -> None:
    """A client's own JSON file holds runner, metric and handles."""
    from ax.api.client import Client

    from transload_ax import TransloadClientRunner, register

    register()
    made = client()
    made.run_trials(max_trials=1, initial_seconds_between_polls=0)
    made.save_to_json_file(str(tmp_path / "client.json"))
    loaded = Client.load_from_json_file(str(tmp_path / "client.json"))
    runner = loaded._experiment.runner
    assert isinstance(runner, TransloadClientRunner)
    assert runner.namespace == made._experiment.runner.namespace
    assert loaded._experiment.metrics["loss"].lower_is_better is True
    loaded.run_trials(max_trials=1, initial_seconds_between_polls=0)
    assert len(loaded._experiment.trials) == 2
    assert len(host_runner("ax").list("local")) == 2


def test_protocol_called_directly(
    base: str, transload_home: Path, eventually: Any, gate: Path
) -> None:
    """The three methods of the protocol, called by keyword."""
    from transload_ax import TransloadClientRunner

    runner = TransloadClientRunner(base, "ax_components:waits", {"gate": str(gate)})
    metadata = runner.run_trial(trial_index=3, parameterization={"x": 2.0})
    assert runner.run_trial(trial_index=3, parameterization={"x": 2.0}) == metadata
    assert runner.poll_trial(trial_index=3, trial_metadata=metadata).name == "RUNNING"
    assert runner.stop_trial(trial_index=3, trial_metadata=metadata) == {}
    eventually(
        lambda: runner.poll_trial(trial_index=3, trial_metadata=metadata).name == "ABANDONED"
    )
    assert runner.poll_trial(trial_index=9, trial_metadata={}).name == "FAILED"
    with pytest.raises(SpecError, match="'x'"):
        runner.run_trial(trial_index=4, parameterization={})
    runner.close()


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ({"loss": 3}, (0, 3.0)),
        ({"loss": 3.5, "step": 7}, (7, 3.5)),
        ({"loss/mean": 1, "loss/sem": 0.5}, (0, (1.0, 0.5))),
        ({"loss/1": 4, "loss/2": 3, "loss/10": 2}, (10, 2.0)),
    ],
)
def test_fetch(results: dict[str, Any], expected: object, base: str) -> None:
    """Plain values, means with errors and curves are always floats."""
    from transload.runtime.tracking import FsspecResultTracker
    from transload_ax import TransloadClientMetric

    FsspecResultTracker(base)[0] = results
    found = TransloadClientMetric("loss").fetch(
        trial_index=0, trial_metadata={"transload_tracker_base": base}
    )
    assert found == expected
    assert type(found[0]) is int


@pytest.mark.parametrize("results", [{}, {"loss": float("nan")}, {"loss": "low"}, {"other": 1}])
def test_fetch_refuses(results: dict[str, Any], base: str) -> None:
    """What is missing or no number is an error that says what is there."""
    from transload.runtime.tracking import FsspecResultTracker
    from transload_ax import MetricMissing, TransloadClientMetric

    FsspecResultTracker(base)[0] = results
    with pytest.raises(MetricMissing, match="loss"):
        TransloadClientMetric("loss").fetch(
            trial_index=0, trial_metadata={"transload_tracker_base": base}
        )
    with pytest.raises(MetricMissing, match="transload_tracker_base"):
        TransloadClientMetric("loss").fetch(trial_index=0, trial_metadata={})


NEED_A_MODEL = {"ArmEffectsPlot", "CrossValidationPlot", "ScatterPlot", "TopSurfacesAnalysis"}
"""Analyses that draw what a model predicts, which quasi-random trials do not have."""


def check_cards(cards: Any) -> None:
    """Check that all analyses were drawn, save those that need a model if there is none yet."""
    from ax.core.analysis_card import ErrorAnalysisCard, NotApplicableStateAnalysisCard

    leaves = [leaf for card in cards for leaf in card.flatten()]
    assert [
        (leaf.title, leaf.subtitle) for leaf in leaves if isinstance(leaf, ErrorAnalysisCard)
    ] == []
    not_yet = {
        leaf.name: leaf.blob for leaf in leaves if isinstance(leaf, NotApplicableStateAnalysisCard)
    }
    assert not_yet.keys() <= NEED_A_MODEL, not_yet
    assert all("RandomAdapter" in why for why in not_yet.values()), not_yet
    drawn = {leaf.name for leaf in leaves if not isinstance(leaf, NotApplicableStateAnalysisCard)}
    assert {"ArmEffectsPlot", "BestTrials", "Summary", "UtilityProgressionAnalysis"} <= drawn


def test_compute_analyses(client: Callable[..., Any]) -> None:
    """Ax's own cards can be had of a client whose trials were apps."""
    made = client()
    made.run_trials(max_trials=3, parallelism=3, initial_seconds_between_polls=0)
    check_cards(made.compute_analyses(display=False))


@pytest.mark.parametrize("curve", [False, True])
def test_analyses_of_an_experiment(
    curve: bool, experiment: Callable[..., Any], orchestrate: Callable[..., Any], gate: Path
) -> None:
    """Ax's own cards can be had of an experiment whose trials were jobs."""
    from ax.analysis.overview import OverviewAnalysis

    gate.touch()
    made = experiment()
    if curve:
        made = experiment("ax_components:curve", constants={"gate": str(gate)}, curve=True)
    orchestrator = orchestrate(made, parallel=3)
    orchestrator.run_n_trials(4)
    card = OverviewAnalysis().compute_or_error_card(
        experiment=made, generation_strategy=orchestrator.generation_strategy
    )
    check_cards([card])
