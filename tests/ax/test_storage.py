"""Experiments survive an optimiser that is killed at any time, without a lost or second job."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import ax_child
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from warm import FORKS, warm_up

from transload.errors import ConfigError
from transload.pipelines import host_runner
from transload.specs import AppState


class Scene:
    """A search in a process of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gate = folder / "gate"
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.snapshot = folder / "experiment.json"
        self.sql = f"sqlite:///{folder}/ax.db"

    def kill(self, moment: str, *, sql: bool = False, code: int = -signal.SIGKILL) -> None:
        """Run the search until it dies at a moment, with an exit code."""
        request = {
            "moment": moment,
            "gate": str(self.gate),
            "marks": str(self.marks),
            "base": str(self.folder / "results"),
            "snapshot": str(self.snapshot),
            "sql": self.sql if sql else None,
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


@pytest.mark.parametrize(
    "moment",
    [
        "after submit",
        "while it stores",
        "while trials run",
    ],
)
def test_killed_and_gone_on_with(moment: str, scene: Scene) -> None:
    """Wherever the optimiser is killed, another one finishes the search with one job per trial."""
    from transload_ax import run_experiment

    scene.kill(moment)
    scene.gate.touch()
    found = run_experiment(None, 4, 3, snapshot=scene.snapshot)
    trials = found.experiment.trials
    assert {trial.index: trial.status.name for trial in trials.values()} == dict.fromkeys(
        range(4), "COMPLETED"
    )
    frame = found.experiment.lookup_data().df
    for index, mean in zip(frame["trial_index"], frame["mean"], strict=True):
        assert mean == trials[index].arm.parameters["x"]
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert len(host_runner("ax").list("local")) == 4


def test_sigterm_leaves_the_jobs(scene: Scene) -> None:
    """A program that gets SIGTERM leaves its jobs and exits with 143.

    A later one finds each once.
    """
    from transload_ax import run_experiment

    scene.kill("told to end", code=128 + signal.SIGTERM)
    assert [row.state.name for row in host_runner("ax").list("local")] == ["RUNNING"] * 3
    scene.gate.touch()
    run_experiment(None, 4, 3, snapshot=scene.snapshot)
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert len(host_runner("ax").list("local")) == 4


def test_ctrl_c_ends_the_jobs(scene: Scene) -> None:
    """A program that a person ends by Ctrl-C ends its jobs, and leaves a snapshot."""
    scene.kill("interrupted", code=-signal.SIGINT)
    assert [row.state.name for row in host_runner("ax").list("local")] == ["CANCELLED"] * 3
    assert scene.snapshot.exists()


@pytest.fixture
def settings(scene: Scene) -> Any:
    """Return Ax's SQL storage in a scene's folder. Ax has one engine for a process."""
    from ax.storage.sqa_store.db import init_engine_and_session_factory
    from ax.storage.sqa_store.structs import DBSettings

    from transload_ax import registry_bundle

    bundle = registry_bundle()
    init_engine_and_session_factory(url=scene.sql, force_init=True)
    return DBSettings(encoder=bundle.encoder, decoder=bundle.decoder, url=scene.sql)


def test_killed_and_loaded_from_sql(scene: Scene, settings: Any) -> None:
    """The same with Ax's own orchestrator and its SQL storage."""
    from ax.orchestration.orchestrator import Orchestrator, OrchestratorOptions

    from transload_ax import TransloadRunner

    scene.kill("while trials run", sql=True)
    options = OrchestratorOptions(
        max_pending_trials=3, init_seconds_between_polls=0, min_seconds_before_poll=0
    )
    orchestrator = Orchestrator.from_stored_experiment("search", options, db_settings=settings)
    runner = orchestrator.experiment.runner
    assert isinstance(runner, TransloadRunner)
    assert len(orchestrator.running_trials) == 3
    scene.gate.touch()
    orchestrator.run_n_trials(1)
    assert {trial.status.name for trial in orchestrator.experiment.trials.values()} == {"COMPLETED"}
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert orchestrator.experiment.metrics["loss"].lower_is_better is True


def test_killed_and_gone_on_with_from_sql(scene: Scene, settings: Any) -> None:
    """At another moment, too, run_experiment continues from SQL storage with one job per trial."""
    from ax.storage.sqa_store.load import (
        load_experiment,
        load_generation_strategy_by_experiment_name,
    )

    from transload_ax import make_experiment, run_experiment

    scene.kill("after submit", sql=True)
    scene.gate.touch()
    other = make_experiment(
        "ax_components:square", ["x:float:-1:3"], "loss", scene.folder / "other"
    )
    with pytest.raises(ConfigError, match="'search' is stored there already"):
        run_experiment(other, 1, db_settings=settings)
    loaded = load_experiment("search", config=settings.decoder.config)
    plan = load_generation_strategy_by_experiment_name("search", settings.decoder.config, loaded)
    run_experiment(loaded, 4, 3, generation_strategy=plan, db_settings=settings)
    assert {trial.index: trial.status.name for trial in loaded.trials.values()} == dict.fromkeys(
        range(4), "COMPLETED"
    )
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}
    assert len(host_runner("ax").list("local")) == 4


def test_all_classes_round_trip(experiment: Callable[..., Any], tmp_path: Path, sobol: Any) -> None:
    """Runner, metrics and what they were made with come back equal."""
    from transload_ax import Snapshot, TransloadCurveMetric

    curve = TransloadCurveMetric("accuracy", lower_is_better=False, step_name="epoch")
    made = experiment(
        metrics=[curve], constants={"y": 2.0}, cfg={"log_dir": "/x"}, patience=7.0, max_running=3
    )
    kept = Snapshot(tmp_path / "deep" / "kept.json")
    kept.save(made, sobol(), {"note": "ä"})
    loaded, plan, more = kept.load()
    assert loaded == made
    assert loaded.runner == made.runner
    assert loaded.metrics["accuracy"].step_name == "epoch"
    assert loaded.metrics["accuracy"].lower_is_better is False
    assert plan is not None
    assert more["note"] == "ä"


def test_added_trials_are_part_of_the_snapshot(
    experiment: Callable[..., Any], tmp_path: Path, sobol: Any
) -> None:
    """Trials that were added are loaded with the rest, once, and the strategy goes on behind
    them.
    """
    from transload_ax import Snapshot

    made, plan, kept = experiment(), sobol(), Snapshot(tmp_path / "kept.json")
    with pytest.raises(ConfigError, match="as a whole first"):
        kept.add([], plan)

    def propose() -> Any:
        return made.new_trial(generator_run=plan.gen(experiment=made, num_trials=1, n=1)[0][0])

    propose()
    kept.save(made, plan)
    for _ in range(2):
        kept.add([propose()], plan)
    lines = tmp_path / "kept.json.trials"
    written = lines.read_text()
    lines.write_text(f'{written}{{"schema": 1, "tri')  # and a killed writer's half of a line
    loaded, again, _ = kept.load()
    assert loaded == made
    following = again.gen(experiment=loaded, num_trials=1, n=1)[0][0].arms  # type: ignore[union-attr]
    kept.save(made, plan)
    assert not lines.exists()
    lines.write_text(written)  # as if killed before it could be removed
    loaded, again, _ = kept.load()
    assert loaded == made
    assert again.gen(experiment=loaded, num_trials=1, n=1)[0][0].arms == following  # type: ignore[union-attr]
    assert plan.gen(experiment=made, num_trials=1, n=1)[0][0].arms == following


@pytest.mark.parametrize("special", [False, True])
def test_data_round_trips(special: bool, experiment: Callable[..., Any], tmp_path: Path) -> None:
    """Means, errors and steps come back as they were, as precise as they were, also in Ax's own
    reading.
    """
    import math

    import pandas as pd
    from ax.core.arm import Arm
    from ax.core.data import Data

    from transload_ax import Snapshot

    made = experiment()
    rows: list[dict[str, Any]] = []
    for index in range(3):
        made.new_trial().add_arm(Arm(parameters={"x": float(index)}))
        for step in range(2):
            value = {
                "mean": index + 1 / 3,
                "sem": math.nan if index else 0.125,
                "step": float(step),
            }
            rows.append(
                {"trial_index": index, "arm_name": f"{index}_0", "metric_name": "loss", **value}
            )
        rows[-1] = {**rows[-1], "metric_name": "ä", "step": math.nan}
    table = pd.DataFrame.from_records(rows).assign(metric_signature="loss")
    if special:
        table = table.assign(n=3)
    made.attach_data(Data(df=table))
    kept = Snapshot(tmp_path / "kept.json")
    kept.save(made)
    found = kept.load()[0].data.full_df
    pd.testing.assert_frame_equal(
        found, made.data.full_df, rtol=1e-9 if special else 1e-15, check_dtype=False
    )


def test_what_changes_is_stored_again(experiment: Callable[..., Any], tmp_path: Path) -> None:
    """Each save holds what is in a trial at that time, though parts of it were encoded before."""
    from ax.core.arm import Arm

    from transload_ax import Snapshot

    made, kept = experiment(), Snapshot(tmp_path / "kept.json")
    trial = made.new_trial()
    changes: list[Callable[[], Any]] = [
        lambda: trial.add_arm(Arm(parameters={"x": 1.0})),
        lambda: trial.mark_running(no_runner_required=True),
        lambda: trial.run_metadata.update(a={"deep": [1]}),
        lambda: trial.run_metadata["a"]["deep"].append(2),
        lambda: trial.mark_failed(reason="bad"),
        lambda: trial.update_stop_metadata({"reason": "none"}),
        lambda: setattr(made, "description", "other"),
    ]
    for change in changes:
        change()
        kept.save(made)
        assert kept.load()[0] == made
        loaded = kept.load()[0].trials[0]
        assert (loaded.run_metadata, loaded.status_reason) == (
            trial.run_metadata,
            trial.status_reason,
        )


def test_component_that_is_gone_can_still_be_loaded(
    experiment: Callable[..., Any], tmp_path: Path
) -> None:
    """A stored experiment can be read where its component cannot be imported, but not run."""
    from transload_ax import Snapshot, run_experiment

    kept = Snapshot(tmp_path / "kept.json")
    kept.save(experiment())
    kept.path.write_text(kept.path.read_text().replace("ax_components:square", "ax_gone:square"))
    assert kept.load()[0].runner.component == "ax_gone:square"
    with pytest.raises(Exception, match="ax_gone"):
        run_experiment(None, 1, snapshot=kept.path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 99, "experiment": {}, "generation_strategy": null}']
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    """A file that is no snapshot, or a newer one, is refused by its path."""
    from transload_ax import Snapshot

    path = tmp_path / "kept.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"kept\.json"):
        Snapshot(path).load()


def test_another_search_under_the_same_name(
    experiment: Callable[..., Any], tmp_path: Path, sobol: Any
) -> None:
    """A snapshot goes on only with the search that it holds."""
    from transload_ax import run_experiment

    kept = tmp_path / "kept.json"
    run_experiment(experiment(), 1, generation_strategy=sobol(), snapshot=kept)
    with pytest.raises(ConfigError, match="search space"):
        run_experiment(experiment(parameters=["x:float:0:9"]), 2, snapshot=kept)
    found = run_experiment(experiment(), 2, snapshot=kept)
    assert len(found.experiment.trials) == 2


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scheduler": "scripted"}, "scheduler (local, not scripted)"),
        ({"tracker_base": "/other"}, "not /other"),
        ({"cfg": {"log_dir": "/x", "max_log_size": 3.0}}, "cfg (log_dir, max_log_size)"),
        ({"workspace": "/code"}, "workspace (none, not /code)"),
        ({"constants": {"y": 1.0}}, "component_const_params (y)"),
        ({"component": "ax_components:fails_below_zero"}, "component (ax_components:square, not"),
        ({"parameters": ["x:float:-1:3", "y:float:0:1"]}, "search space (y)"),
        ({"minimize": False}, "objective"),
        ({"curve": True}, "metrics (loss)"),
        ({"patience": 7.0}, "options (patience)"),
        ({"parent_run_id": "local://a/b"}, "parent_run_id (none, not local://a/b)"),
        ({"inherit_env": True}, "inherit_env (False, not True)"),
        ({"arms_as_apps": True}, "arms_as_apps (False, not True)"),
        ({"max_running": 2}, "max_running (none, not 2)"),
        ({"cfg": {"log_dir": "/x"}, "max_running": 2}, "cfg (log_dir), max_running (none, not 2)"),
    ],
)
def test_another_definition_under_the_same_name(
    more: dict[str, Any], words: str, experiment: Callable[..., Any], tmp_path: Path
) -> None:
    """Going on with anything else than what a search began with is refused by its name, in one
    line.
    """
    from transload_ax import Snapshot, run_experiment

    kept = Snapshot(tmp_path / "kept.json")
    kept.save(experiment())
    with pytest.raises(ConfigError) as caught:
        run_experiment(experiment(**more), 1, snapshot=kept.path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert host_runner("ax").list("local") == []


def test_another_strategy_under_the_same_name(
    experiment: Callable[..., Any], tmp_path: Path, sobol: Any
) -> None:
    """A search goes on with what proposed its trials. Something else is refused with an error."""
    from transload_ax import Snapshot, run_experiment
    from transload_ax.spaces import strategy

    kept = Snapshot(tmp_path / "kept.json")
    kept.save(experiment(), sobol())
    with pytest.raises(ConfigError, match="another generation strategy"):
        run_experiment(None, 1, generation_strategy=strategy("fast"), snapshot=kept.path)
    assert host_runner("ax").list("local") == []


@pytest.mark.parametrize(
    ("more", "word"),
    [({"scheduler": "nowhere"}, "'nowhere'"), ({"cfg": {"log_dri": "/x"}}, "'log_dri'")],
)
def test_what_no_scheduler_takes_is_not_stored(
    more: dict[str, Any], word: str, experiment: Callable[..., Any], tmp_path: Path, sobol: Any
) -> None:
    """A wrong scheduler or option is refused before there is a snapshot, which must be gone on with
    as it is.
    """
    from transload_ax import run_experiment

    kept = tmp_path / "kept.json"
    with pytest.raises(ConfigError, match=word):
        run_experiment(experiment(**more), 1, generation_strategy=sobol(), snapshot=kept)
    assert not kept.exists()


def test_paths_are_relative_to_the_file_that_defines_the_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transload_home: Path
) -> None:
    """Component file and what a trial opens lie beside the defining file, wherever it is run.

    The tracker base is absolute.
    """
    from ax.core.arm import Arm

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "loss.txt").write_text("0.25")
    (folder / "train.py").write_text(TRAIN)
    (folder / "search.py").write_text(
        "from transload_ax import make_experiment\n"
        'made = make_experiment("train.py", ["x:float:0:1"], "loss", "results", '
        'pass_env=["AX_TEST_*"])\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AX_TEST_MORE", "1")
    program: dict[str, Any] = {"__name__": "search", "__file__": str(folder / "search.py")}
    exec((folder / "search.py").read_text(), program)
    made = program["made"]
    assert (made.runner.folder, made.runner.tracker_base) == (
        str(folder),
        str(tmp_path / "results"),
    )
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


def test_secret_options_of_the_one_who_goes_on(
    experiment: Callable[..., Any], tmp_path: Path, sobol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secret options, which are not stored, are those of the experiment that is given."""
    from transload_ax import Snapshot, run_experiment

    kept = Snapshot(tmp_path / "kept.json")
    kept.save(experiment(scheduler="scripted"), sobol())
    given = experiment(scheduler="scripted", cfg={"api_key": "s"})
    taken: list[Any] = []

    def start(self: Any, unit: Any, launch: Any, *more: Any) -> None:
        taken.append(dict(launch.cfg))
        raise ConfigError("seen")

    monkeypatch.setattr("transload_ax.jobs.TrialJobs.start", start)
    with pytest.raises(ConfigError, match="seen"):
        run_experiment(given, 1, snapshot=kept.path)
    assert taken[0]["api_key"] == "s"
    assert "api_key" not in kept.path.read_text()


def test_one_process_at_a_time(experiment: Callable[..., Any], tmp_path: Path, sobol: Any) -> None:
    """A search that is being run is refused. When its process is killed, it is free again."""
    from transload_ax import run_experiment

    kept = tmp_path / "kept.json"
    program = (  # what `Snapshot.locked` does, without the seconds that importing Ax takes
        "import pathlib, sys, time\nfrom transload_search.places import locked\n"
        "with locked(pathlib.Path(sys.argv[1]), 'it'):\n"
        "    print('held', flush=True)\n    time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, f"{kept}.lock"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            ConfigError, match=r"kept\.json: another process is running this search"
        ):
            run_experiment(experiment(), 1, generation_strategy=sobol(), snapshot=kept)
        assert not kept.exists()
        assert host_runner("ax").list("local") == []
    finally:
        holder.kill()
        holder.communicate()
    assert run_experiment(experiment(), 1, generation_strategy=sobol(), snapshot=kept).trial == 0


def test_going_on_that_fails_at_once_leaves_no_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of the process before are ended too, if the next one raises before it has looked at any.

    That holds for a job whose trial was not yet stored as started when its process was killed.
    """
    from transload_ax import run_experiment
    from transload_ax.orchestrator import TransloadOrchestrator

    def fails(*args: Any, **more: Any) -> None:
        raise RuntimeError("at once")

    scene.kill("while trials run")
    monkeypatch.setattr(TransloadOrchestrator, "__init__", fails)
    with pytest.raises(RuntimeError, match="at once"):
        run_experiment(None, 4, 3, snapshot=scene.snapshot)
    assert [row.state.name for row in host_runner("ax").list("local")] == ["CANCELLED"] * 3


def no_room(*args: Any, **more: Any) -> None:
    """Fail as a write to a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_search_that_cannot_be_stored_leaves_its_jobs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next trial cannot be stored, and is not submitted.

    Jobs that run go on, and whoever goes on with the search reattaches to them. The full disk is
    played.
    """
    from transload_ax import Snapshot, run_experiment

    scene.kill("while trials run")
    with monkeypatch.context() as full:
        full.setattr(Snapshot, "save", no_room)
        with pytest.raises(OSError, match="No space left"):
            run_experiment(None, 4, 4, snapshot=scene.snapshot)
    assert [row.state.name for row in host_runner("ax").list("local")] == ["RUNNING"] * 3
    scene.gate.touch()
    run_experiment(None, 4, 3, snapshot=scene.snapshot)
    assert scene.starts == {"0": 1, "1": 1, "2": 1, "3": 1}


def test_a_locked_database_leaves_the_jobs(scene: Scene, settings: Any) -> None:
    """SQL storage that another connection has locked ends the search, and no job of it."""
    from ax.storage.sqa_store.db import init_engine_and_session_factory
    from ax.storage.sqa_store.load import (
        load_experiment,
        load_generation_strategy_by_experiment_name,
    )
    from sqlalchemy.exc import OperationalError

    from transload_ax import run_experiment

    def loaded() -> tuple[Any, Any]:
        found = load_experiment("search", config=settings.decoder.config)
        config = settings.decoder.config
        return found, load_generation_strategy_by_experiment_name("search", config, found)

    scene.kill("while trials run", sql=True)
    init_engine_and_session_factory(url=f"{scene.sql}?timeout=0.1", force_init=True)
    found, plan = loaded()
    with closing(sqlite3.connect(scene.folder / "ax.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OperationalError, match="locked"):
            run_experiment(found, 4, 4, generation_strategy=plan, db_settings=settings)
    states = {row.state.name for row in host_runner("ax").list("local")}
    assert states == {"RUNNING"}
    scene.gate.touch()
    found, plan = loaded()
    run_experiment(found, 4, 4, generation_strategy=plan, db_settings=settings)
    assert [scene.starts[number] for number in "012"] == [1, 1, 1]


def test_what_cannot_be_stored_now_is_stored_later(
    experiment: Callable[..., Any],
    tmp_path: Path,
    gate: Path,
    sobol: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """States and results that the disk does not take for a while end no search.

    The full disk is played. The jobs run until it has room again.
    """
    from transload_ax import Snapshot, run_experiment

    save = Snapshot.save
    calls: list[Any] = []

    def sometimes(self: Snapshot, *args: Any, **more: Any) -> None:
        calls.append(args)
        if len(calls) in (2, 3):
            no_room()
        save(self, *args, **more)
        if len(calls) > 3:
            gate.touch()

    monkeypatch.setattr(Snapshot, "save", sometimes)
    monkeypatch.setattr("transload_ax.snapshot.REFUSED_S", 0.0)
    kept = tmp_path / "kept.json"
    made = experiment("ax_components:waits", constants={"gate": str(gate)})
    run_experiment(made, 2, 2, generation_strategy=sobol(), snapshot=kept)
    assert len(calls) > 3
    assert caplog.text.count("cannot be stored now, and goes on") == 1
    trials = Snapshot(kept).load()[0].trials.values()
    assert [trial.status.name for trial in trials] == ["COMPLETED"] * 2


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


def test_a_full_disk_stores_no_half_of_a_trial(
    experiment: Callable[..., Any], tmp_path: Path, sobol: Any
) -> None:
    """What could not be stored is said, before a job of it is started, and what is stored later can
    be read.
    """
    from transload_ax import Snapshot

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of limited size can be mounted here")
    try:
        made, plan, kept = experiment(), sobol(), Snapshot(disk / "kept.json")

        def propose() -> Any:
            return made.new_trial(generator_run=plan.gen(experiment=made, num_trials=1, n=1)[0][0])

        propose()
        kept.save(made, plan)
        first, filler = propose(), disk / "filler"
        kept.add([first], plan)
        with open(filler, "wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(OSError, match="No space left"):
            for _ in range(100):  # until the last block that the lines have is full
                kept.add([first], plan)
        filler.unlink()
        kept.add([propose()], plan)
        assert len(kept.load()[0].trials) == 3
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
