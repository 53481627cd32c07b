"""Experiments survive an optimiser that is killed at any time, without a lost or second job."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ax_child
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm import FORKS, warm_up

from transload.errors import SpecError
from transload.pipelines import host_runner
from transload.specs import AppState
from transload_search import SearchLedger


class Scene:
    """A search in a process of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = folder / "gate"
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.sql = f"sqlite:///{folder}/ax.db"

    def kill(self, moment: str, *, code: int = -signal.SIGKILL) -> None:
        """Run the search until it dies at a moment, with an exit code."""
        request = {
            "moment": moment,
            "gate": str(self.gate),
            "marks": str(self.marks),
            "base": str(self.folder / "results"),
            "sql": self.sql,
            "output": str(self.folder / "output"),
        }
        warm_up("ax", "local")
        process = FORKS.Process(target=ax_child.run, args=(request, dict(os.environ)))
        process.start()
        process.join(240)
        output = (self.folder / "output").read_text(errors="replace")
        assert process.exitcode == code, output[-2000:]

    @property
    def starts(self) -> Counter[str]:
        """How often each trial's process was started."""
        return Counter(name.partition("-")[0] for name in os.listdir(self.marks))


@pytest.fixture
def scene(tmp_path: Path, transload_home: Path) -> Any:
    """Make a scene, and end whatever still runs afterwards."""
    made = Scene(tmp_path)
    yield made
    made.gate.touch()
    runner = host_runner("ax")
    for row in runner.list("local"):
        runner.cancel(row.app_handle)
        runner.wait(row.app_handle)


def jobs() -> list[str]:
    """Return the state of each job, by the time of its submit."""
    return [row.state.name for row in reversed(host_runner("ax").list("local"))]


@pytest.fixture
def settings(scene: Scene) -> Any:
    """Return Ax's SQL storage in a scene's folder. Ax has one engine for a process."""
    return ax_child.storage(scene.sql, force_init=True)


OPTIONS = {"init_seconds_between_polls": 0, "min_seconds_before_poll": 0}


def go_on(settings: Any, plan: Any = None) -> Any:
    """Have the stored search reach four trials, as a user of Ax does, and return its experiment."""
    from ax.orchestration.orchestrator import Orchestrator, OrchestratorOptions
    from ax.storage.sqa_store.load import load_experiment

    options = OrchestratorOptions(max_pending_trials=3, **OPTIONS)
    if plan is None:
        orchestrator = Orchestrator.from_stored_experiment("search", options, db_settings=settings)
    else:
        stored = load_experiment("search", config=settings.decoder.config)
        # Ax stores a search with one strategy only
        orchestrator = Orchestrator(stored, plan, options)
    orchestrator.run_n_trials(4 - len(orchestrator.trials) + len(orchestrator.candidate_trials))
    return orchestrator.experiment


def check_all_completed(experiment: Any) -> None:
    """Check that four trials completed, each with the result of its own parameters."""
    trials = experiment.trials
    assert {index: trial.status.name for index, trial in trials.items()} == dict.fromkeys(
        range(4), "COMPLETED"
    )
    frame = experiment.lookup_data().df
    assert sorted(frame["trial_index"]) == [0, 1, 2, 3]
    for index, mean in zip(frame["trial_index"], frame["mean"], strict=True):
        assert mean == trials[index].arm.parameters["x"]


@pytest.mark.parametrize("moment", ["after submit", "while trials run"])
def test_killed_and_gone_on_with(moment: str, scene: Scene, settings: Any) -> None:
    """Wherever the optimiser is killed, another one finishes the search with one job per trial."""
    scene.kill(moment)
    scene.gate.touch()
    found = go_on(settings)
    check_all_completed(found)
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert len(jobs()) == 4
    assert found.metrics["loss"].lower_is_better is True


def test_an_optimiser_that_resumes_with_other_parameters(
    scene: Scene, settings: Any, sobol: Any, eventually: Any
) -> None:
    """One that died unsaved gives the same number to other parameters, whose job is another one.

    The job of the old ones is ended, and nothing that it reported is taken.
    """
    scene.kill("after submit")
    assert jobs() == ["RUNNING"] * 3
    opener = threading.Thread(
        target=lambda: (eventually(lambda: scene.starts["2"] == 2, 120), scene.gate.touch())
    )
    opener.start()
    found = go_on(settings, sobol(2))
    opener.join()
    check_all_completed(found)
    handles = [trial.run_metadata["transload_app_handle"] for trial in found.trials.values()]
    anew = [handle for handle in handles if handle.endswith("-1")]
    assert handles[2] in anew
    assert jobs().count("CANCELLED") == len(anew)
    assert jobs().count("SUCCEEDED") == 4


def test_sigterm_leaves_the_jobs(scene: Scene, settings: Any) -> None:
    """A program that gets SIGTERM leaves its jobs and exits with 143.

    A later one finds each once.
    """
    scene.kill("told to end", code=128 + signal.SIGTERM)
    assert jobs() == ["RUNNING"] * 3
    scene.gate.touch()
    check_all_completed(go_on(settings))
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert len(jobs()) == 4


def test_ctrl_c_ends_the_jobs(scene: Scene) -> None:
    """A program that a person ends by Ctrl-C ends its jobs."""
    scene.kill("interrupted", code=-signal.SIGINT)
    assert jobs() == ["CANCELLED"] * 3


def test_a_killed_search_of_the_command_line(scene: Scene, eventually: Any) -> None:
    """`transload search` with Ax goes on after a kill: no trial is started or proposed twice."""
    request = {
        "gate": str(scene.gate),
        "marks": str(scene.marks),
        "output": str(scene.folder / "output"),
    }
    warm_up("ax", "local")
    first = FORKS.Process(target=ax_child.command_line, args=(request, dict(os.environ)))
    first.start()
    eventually(lambda: len(scene.starts) == 3, 120)
    first.kill()
    first.join()
    scene.gate.touch()
    second = FORKS.Process(target=ax_child.command_line, args=(request, dict(os.environ)))
    second.start()
    second.join(240)
    output = (scene.folder / "output").read_text(errors="replace")
    assert second.exitcode == 0, output[-2000:]
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    base = Path(os.environ["TRANSLOAD_HOME"]) / "searches" / "search"
    rows = SearchLedger.open(str(base)).summary()["trials"]
    assert [row["value"] for row in rows] == [row["parameters"]["x"] for row in rows]
    assert len({row["value"] for row in rows}) == 4


def test_all_classes_round_trip(experiment: Callable[..., Any], tmp_path: Path) -> None:
    """Runner, metrics and what they were made with come back equal from Ax's JSON."""
    from ax.storage.json_store.load import load_experiment
    from ax.storage.json_store.save import save_experiment

    from transload_ax import TransloadCurveMetric, register

    register()
    curve = TransloadCurveMetric("accuracy", lower_is_better=False, step_name="epoch")
    made = experiment(
        metrics=[curve], constants={"y": 2.0}, cfg={"log_dir": "/x"}, patience=7.0, max_running=3
    )
    save_experiment(made, str(tmp_path / "kept.json"))
    loaded = load_experiment(str(tmp_path / "kept.json"))
    assert loaded == made
    assert loaded.runner == made.runner
    assert loaded.metrics["accuracy"].step_name == "epoch"
    assert loaded.metrics["accuracy"].lower_is_better is False


def test_component_that_is_gone_can_still_be_loaded(
    experiment: Callable[..., Any], orchestrate: Callable[..., Any], tmp_path: Path
) -> None:
    """A stored experiment can be read where its component cannot be imported, but not run."""
    from ax.storage.json_store.load import load_experiment
    from ax.storage.json_store.save import save_experiment

    from transload_ax import register

    register()
    kept = tmp_path / "kept.json"
    save_experiment(experiment(), str(kept))
    kept.write_text(kept.read_text().replace("ax_components:square", "ax_gone:square"))
    loaded = load_experiment(str(kept))
    assert loaded.runner.component == "ax_gone:square"
    with pytest.raises(SpecError, match="ax_gone"):
        orchestrate(loaded).run_n_trials(1)


def test_paths_are_relative_to_the_file_that_defines_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transload_home: Path
) -> None:
    """Component file and what a trial opens lie beside the defining file, wherever it is run."""
    from ax.core.arm import Arm

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "loss.txt").write_text("0.25")
    (folder / "train.py").write_text(TRAIN)
    (folder / "search.py").write_text(
        "from ax_experiment import parameter\n"
        "from ax.core.experiment import Experiment\n"
        "from ax.core.search_space import SearchSpace\n"
        "from transload_ax import TransloadMetric, TransloadRunner\n"
        "runner = TransloadRunner(None, 'train.py', pass_env=['AX_TEST_*'])\n"
        "made = Experiment(SearchSpace([parameter('x:float:0:1')]), name='search',"
        " metrics=[TransloadMetric('loss')], runner=runner)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AX_TEST_MORE", "1")
    program: dict[str, Any] = {"__name__": "search", "__file__": str(folder / "search.py")}
    exec((folder / "search.py").read_text(), program)
    made = program["made"]
    assert made.runner.folder == str(folder)
    trial = made.new_trial()
    trial.add_arm(Arm(parameters={"x": 1.0}))
    trial.run()
    end = host_runner("ax").wait(trial.run_metadata["transload_app_handle"], timeout=60)
    assert end is not None
    assert end.state is AppState.SUCCEEDED
    assert made.metrics["loss"].fetch_trial_data(trial).unwrap().df["mean"].tolist() == [1.25]


TRAIN = """
import sys
from transload.specs import AppDef, Role

PROGRAM = '''
import os
from transload.runtime import report

report(loss=float(open('loss.txt').read()) + float(os.environ['AX_TEST_MORE']))
'''


def train(x: float) -> AppDef:
    \"\"\"Report what a file beside this one says.

    Args:
        x: nothing
    \"\"\"
    return AppDef("train", [Role("train", image="", entrypoint=sys.executable, args=["-c", PROGRAM])])
"""


def test_a_cluster_by_its_name(
    experiment: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Any,
    gate: Path,
) -> None:
    """Trials run on a cluster of the settings, without a tracker base.

    The cluster is found again where the settings lack it.
    """
    from ax.core.arm import Arm

    import transload.runner.api as shared

    def in_another_process(settings: str) -> None:
        host_runner("ax").close()
        monkeypatch.setattr(shared, "_runners", {})
        (tmp_path / "settings.toml").write_text(settings)

    monkeypatch.setenv("TRANSLOAD_CONFIG", str(tmp_path / "settings.toml"))
    in_another_process('[schedulers.prod]\nkind = "local"\n')
    made = experiment(
        "ax_components:waits", constants={"gate": str(gate)}, scheduler="prod", tracker_base=None
    )
    trial = made.new_trial()
    trial.add_arm(Arm(parameters={"x": 1.0}))
    trial.run()
    assert trial.run_metadata["transload_app_handle"].startswith("prod://ax/")
    made.runner.close(cancel=False)
    del made.runner._trials
    in_another_process("")
    assert {status.name for status in made.runner.poll_trial_status([trial])} == {"RUNNING"}
    gate.touch()
    eventually(
        lambda: {status.name for status in made.runner.poll_trial_status([trial])} == {"COMPLETED"}
    )
    trial.mark_completed()
    assert made.fetch_data().df["mean"].tolist() == [1.0]
    host_runner("ax").close()


def test_copies_do_not_share_processes(experiment: Callable[..., Any], gate: Path) -> None:
    """An experiment with running trials can be copied and pickled.

    A copy finds its jobs by handles.
    """
    import copy
    import pickle

    from ax.core.arm import Arm

    made = experiment("ax_components:waits", constants={"gate": str(gate)})
    trial = made.new_trial()
    trial.add_arm(Arm(parameters={"x": 1.0}))
    trial.run()
    for runner in (copy.deepcopy(made.runner), pickle.loads(pickle.dumps(made.runner))):
        assert runner == made.runner
        assert {status.name for status in runner.poll_trial_status([trial])} == {"RUNNING"}
    gate.touch()
    assert (
        host_runner("ax").wait(trial.run_metadata["transload_app_handle"]).state
        is AppState.SUCCEEDED
    )  # type: ignore[union-attr]
