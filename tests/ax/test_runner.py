"""Our runner passes Ax's own tests of a runner, and keeps its class's promises."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SpecError
from transload.pipelines import JOB_SETTINGS, host_runner
from transload.schedulers import Stream
from transload.specs import AppState
from transload_testing.packages import package_index

APPLY = (
    "test_base_runner_staging_required",
    "test_base_runner_clone",
    "test_poll_available_capacity",
    "test_on_search_space_update_default_is_noop",
)
"""Ax's tests that hold for every runner. Its others test runners without stop, poll or update."""


@pytest.fixture
def trials(experiment: Callable[..., Any], gate: Path) -> list[Any]:
    """Two trials whose apps wait."""
    from ax.core.arm import Arm

    made = experiment("ax_components:waits", constants={"gate": str(gate)})
    return [made.new_trial().add_arm(Arm(parameters={"x": x})) for x in (0.0, 1.0)]


def test_it_takes_what_torchx_runner_takes() -> None:
    """The runner takes the arguments of Ax's runner for TorchX, in its order.

    That runner's source is read without TorchX.
    """
    from transload_ax import TransloadRunner

    found = importlib.util.find_spec("ax.runners.torchx")
    assert found is not None and found.origin is not None
    tree = ast.parse(Path(found.origin).read_text())
    (theirs,) = [
        [each.arg for each in node.args.args]
        for kind in ast.walk(tree)
        if isinstance(kind, ast.ClassDef) and kind.name == "TorchXRunner"
        for node in kind.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    assert theirs[4] == "orchestrator"
    ours = list(inspect.signature(TransloadRunner.__init__).parameters)
    assert ours[:6] == [*theirs[:4], "scheduler", *theirs[5:]]
    assert "orchestrator" in ours


@pytest.mark.parametrize("name", APPLY)
def test_axs_own(
    name: str, experiment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ax's test of its base class, with our runner in place of its dummy."""
    from ax.core.tests import test_runner

    from transload_ax import TransloadRunner

    case = test_runner.RunnerTest(name)
    case.dummy_runner = experiment().runner
    monkeypatch.setattr(test_runner, "DummyRunner", TransloadRunner)
    getattr(case, name)()


def test_run_multiple(trials: list[Any]) -> None:
    """run_multiple maps the index of each trial to what run returns, a dict with the handle."""
    runner = trials[0].experiment.runner
    metadata = runner.run_multiple(trials)
    assert metadata == {trial.index: runner.run(trial) for trial in trials}
    assert {row.app_handle for row in host_runner("ax").list("local")} == {
        each[key] for each in metadata.values() for key in runner.run_metadata_report_keys
    }
    assert runner.run_multiple([]) == {}


def test_who_asked_is_kept_with_the_job(trials: list[Any]) -> None:
    """A job leads to the experiment and the trial that it was submitted for."""
    experiment = trials[0].experiment
    (key,) = experiment.runner.run_metadata_report_keys
    for trial in trials:
        handle = experiment.runner.run(trial)[key]
        asked = host_runner("ax").job(handle).description().asked["ax"]
        assert (asked["experiment"], asked["trial"]) == (experiment.name, trial.index)


def test_poll_and_stop(trials: list[Any], eventually: Any) -> None:
    """A poll gives the indices by status.

    A stop takes a reason, gives metadata, and keeps the reason.
    """
    from ax.core.trial_status import TrialStatus

    experiment = trials[0].experiment
    for trial in trials:
        trial.run()
    assert experiment.runner.poll_trial_status(trials) == {TrialStatus.RUNNING: {0, 1}}
    assert experiment.runner.poll_trial_status([]) == {}
    trials[0].stop(TrialStatus.ABANDONED, reason="dull")
    assert trials[0].status is TrialStatus.ABANDONED
    assert trials[0].stop_metadata == {"reason": "dull"}
    experiment.runner.stop(trials[1])
    abandoned = {TrialStatus.ABANDONED: {1}}
    eventually(lambda: experiment.runner.poll_trial_status([trials[1]]) == abandoned)
    assert "CANCELLED" in experiment.runner.poll_exception(trials[1])


def test_run_then_mark_completed(trials: list[Any]) -> None:
    """A trial runs from its submit on, and may be marked as completed, as Ax's pages do."""
    from ax.core.trial_status import TrialStatus

    assert trials[0].run().status is TrialStatus.RUNNING
    trials[0].mark_completed()
    assert trials[0].status is TrialStatus.COMPLETED


def test_equality(experiment: Callable[..., Any]) -> None:
    """Runners are equal if their arguments are, and each shows what it is."""
    made = experiment(namespace="one").runner
    with made:
        assert made.clone() == made
    assert experiment(namespace="one").runner == made
    assert experiment(namespace="two").runner != made
    assert "TransloadRunner" in repr(made)


def test_options_name_each_argument() -> None:
    """What declares the options of a runner has its arguments, all of them."""
    from transload.pipelines import ExecutionSettings
    from transload_ax.options import TrialRunnerOptions
    from transload_ax.runner import ARGUMENTS

    own = set(TrialRunnerOptions.__annotations__) - set(ExecutionSettings.__annotations__)
    own -= set(JOB_SETTINGS)
    assert own == {*ARGUMENTS, "orchestrator"} - {"component", "options"}


def test_objects_of_a_launch_are_stored() -> None:
    """A workspace and an environment that a launch has as objects come back from what is stored."""
    from transload.pipelines import Launch, get_adapter
    from transload.specs import Environment, Workspace
    from transload_ax import TransloadRunner

    launch = Launch(
        component="utils.booth",
        workspace=Workspace({"/code": "src"}),
        environment=Environment("uv.lock", "uv.lock", groups=["test"]),
    )
    made = get_adapter("ax").convert(launch)
    stored = json.loads(json.dumps(TransloadRunner.serialize_init_args(made)))
    again = TransloadRunner(**TransloadRunner.deserialize_init_args(stored))
    assert again == made
    assert Workspace.from_str(again.workspace) == launch.workspace
    assert again.environment == launch.environment


def test_settings_of_trials() -> None:
    """What is set over each trial's job reaches it, is stored only when set, and lasts."""
    from transload.pipelines import get_adapter
    from transload.specs import Notice
    from transload_ax import TransloadRunner

    plain = get_adapter("ax").convert("utils.booth")
    assert "overrides" not in TransloadRunner.serialize_init_args(plain)
    made = TransloadRunner(
        None,
        "utils.booth",
        gpu=1,
        notice=Notice(60.0, "USR1"),
        overrides={"retries": 4, "gpu": 7, "time_limit": "2h"},
    )
    stored = json.loads(json.dumps(TransloadRunner.serialize_init_args(made)))
    again = TransloadRunner(**TransloadRunner.deserialize_init_args(stored))
    assert again == made and again.overrides == made.overrides
    for ttl, limit in ((None, 7200.0), (600.0, 600.0)):
        app = again._launch("", {"x1": 1.0, "x2": 2.0}, ttl).build()
        role = app.roles[0]
        assert (role.resource.gpu, role.max_retries, app.timeout) == (1, 4, limit)
        assert role.notice == Notice(60.0, "USR1")
    with pytest.raises(ConfigError, match="option 'gpuu' does not exist: did you mean 'gpu'"):
        TransloadRunner(None, "utils.booth", gpuu=1)  # type: ignore[call-arg]


def test_packages_of_trials(
    experiment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file beside the component names the packages of trials, which uv installs."""
    from ax.core.arm import Arm

    program = "import tiny; print(tiny.VERSION)"
    (tmp_path / "packages.txt").write_text("tiny\n", encoding="utf-8")
    (tmp_path / "jobs.py").write_text(
        "from transload.specs import AppDef, Role\n\n"
        "def train(x: float) -> AppDef:\n"
        '    """Train.\n\n    Args:\n        x: value\n    """\n'
        f"    return AppDef('train', [Role('r', '', entrypoint='python', args=['-c', {program!r}])])\n",
        encoding="utf-8",
    )
    made = experiment("jobs.py:train", folder=str(tmp_path), environment="packages.txt")
    trials = [made.new_trial().add_arm(Arm(parameters={"x": x})) for x in (0.0, 1.0)]
    with package_index(tmp_path / "index") as index:
        index.add("tiny", "1.0")
        index.be_the_only_one(monkeypatch)
        started = made.runner.run_multiple(trials)
        runner = host_runner("ax")
        said = set()
        for trial in trials:
            handle = started[trial.index]["transload_app_handle"]
            assert runner.wait(handle).state is AppState.SUCCEEDED
            # uv writes to the other stream
            said.add("".join(runner.log_lines(handle, "r", 0, streams=Stream.STDOUT)).strip())
    assert said == {"1.0"}


@pytest.mark.parametrize(
    "name", ["scheduler", "workspace", "parent_run_id", "environment", "namespace", "image"]
)
def test_an_empty_text_is_not_taken_as_left_out(name: str, tmp_path: Path) -> None:
    """What a variable that is not set makes of a keyword is refused before the first trial."""
    from transload_ax import TransloadRunner

    with pytest.raises(SpecError, match=f"{name}='': must not be empty"):
        TransloadRunner(tracker_base=str(tmp_path), component="utils.booth", **{name: ""})
