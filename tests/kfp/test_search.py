"""Searches as pipelines and as one task, run for real by KFP's local runner."""

# No "from __future__ import annotations": KFP reads the annotations of pipeline functions, and as
# types.

import json
import os
from pathlib import Path
from typing import Any

import pytest
import search_jobs
from kfp import dsl, kubernetes, local
from test_convert import compiled

from transload.errors import ConfigError, SpecError
from transload.pipelines import Launch, get_adapter, host_runner
from transload.runtime.tracking import FsspecResultTracker
from transload.specs import AppDef, Role
from transload_kfp import search_component, search_pipeline
from transload_kfp.search_steps import Steps, encode_search
from transload_search import EarlyStopping, Objective, Parameter, Search, SearchLedger

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*no effect in the current local runner:UserWarning"),
]
IMAGE = "python:3.11"


@pytest.fixture
def run_kfp(local_kfp: Any, transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """KFP's subprocess runner, whose tasks find these tests' modules."""
    found = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    folder: Path = local_kfp(local.SubprocessRunner(use_venv=False))
    return folder


def search(folder: Path, trials: int = 4, parallelism: int = 2, bad: int = -1) -> Search:
    """Return a search for the parabola's lowest point."""
    return Search(
        search_jobs.parabola,
        [Parameter("x", "float", -2, 4)],
        Objective("loss"),
        trials=trials,
        parallelism=parallelism,
        seed=3,
        constants={"bad": bad, "folder": str(folder)},
        scheduler="local",
    )


def starts(folder: Path) -> list[int]:
    """Return the numbers of the trials that were started."""
    return sorted(int(line) for line in (folder / "starts").read_text().split())


def test_rounds_as_a_pipeline(run_kfp: Path, tmp_path: Path) -> None:
    """Each trial is a task. A failed one does not fail the search, whose output is the best."""
    base = tmp_path / "base"
    found = json.loads(
        search_pipeline(search(tmp_path, bad=1), str(base), image=IMAGE)().outputs["Output"]
    )
    assert starts(tmp_path) == [0, 1, 2, 3]
    (own,) = base.iterdir()
    ledger = SearchLedger(search(tmp_path, bad=1), str(own))
    summary = ledger.summary()
    assert [row["state"] for row in summary["trials"]] == [
        "SUCCEEDED",
        "FAILED",
        "SUCCEEDED",
        "SUCCEEDED",
    ]
    values = {row["index"]: row["value"] for row in summary["trials"] if row["value"] is not None}
    assert found["value"] == min(values.values())
    assert found["value"] == pytest.approx((found["parameters"]["x"] - 1) ** 2)
    assert FsspecResultTracker(str(own))["best"]["trial"] == found["index"]
    tasks = list(run_kfp.glob("*/for-loop-*-iteration-*/run-trial*"))
    assert len(tasks) == 4


def test_all_in_one_task(run_kfp: Path, tmp_path: Path) -> None:
    """The launcher form runs all rounds in one task. Continuing runs only what is new."""
    base = tmp_path / "base"
    short = search_component(search(tmp_path, trials=3), str(base), own=False, image=IMAGE)
    longer = search_component(search(tmp_path, trials=5), str(base), own=False, image=IMAGE)

    @dsl.pipeline(name="p")
    def pipeline() -> str:
        first = short()
        return longer().after(first).outputs["best"]

    found = json.loads(pipeline().outputs["Output"])
    assert starts(tmp_path) == [0, 1, 2, 3, 4]
    best = SearchLedger(search(tmp_path, trials=5), str(base)).best()
    assert best is not None
    assert (best[0].index, best[1]) == (found["index"], found["value"])


def test_compiled(tmp_path: Path) -> None:
    """Compiling lays out the rounds, each as a suggestion, a bounded loop and a summary."""
    made = search_pipeline(
        search(tmp_path, trials=5),
        "s3://bucket/searches",
        image=IMAGE,
        each_task=lambda task: task.set_retry(2),
    )
    spec, _ = compiled(made, tmp_path / "p.yaml")
    tasks = spec["root"]["dag"]["tasks"]
    loops = [each for each in tasks.values() if "parameterIterator" in each]
    assert len(loops) == 3
    assert all(each["iteratorPolicy"]["parallelismLimit"] == 2 for each in loops)
    assert tasks["suggest-trials-2"]["dependentTasks"] == ["observe-trials"]
    assert tasks["suggest-trials"]["retryPolicy"]["maxRetryCount"] == 2
    assert (
        spec["root"]["inputDefinitions"]["parameters"]["tracker_base"]["defaultValue"]
        == "s3://bucket/searches"
    )


def needs(task: dsl.PipelineTask) -> None:
    """Set what a task of a search needs."""
    task.set_cpu_request("500m")
    kubernetes.use_secret_as_env(task, "s3", {"key": "AWS_SECRET_ACCESS_KEY"})
    kubernetes.add_node_selector(task, "pool", "small")


@pytest.mark.parametrize("form", [search_pipeline, search_component])
def test_every_task_has_what_is_set(form: Any, tmp_path: Path) -> None:
    """KFP's own calls set secrets, placement and resources of each task of a search."""
    more = {"each_task": needs} if form is search_pipeline else {}
    made = form(search(tmp_path), "s3://bucket/searches", image=IMAGE, patience=60, **more)

    @dsl.pipeline(name="p")
    def pipeline():
        task = made()
        if form is search_component:
            needs(task)

    spec, platform = compiled(pipeline, tmp_path / "p.yaml")
    executors = spec["deploymentSpec"]["executors"]
    assert len(executors) == (6 if form is search_pipeline else 1)
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for name, executor in executors.items():
        assert executor["container"]["resources"]["resourceCpuRequest"] == "500m"
        assert pods[name]["nodeSelector"]["labels"] == {"pool": "small"}
        assert pods[name]["secretAsEnv"][0]["keyToEnv"] == [
            {"envVar": "AWS_SECRET_ACCESS_KEY", "secretKey": "key"}
        ]


@pytest.mark.parametrize("cached", [False, True])
def test_names_and_caching(cached: bool, tmp_path: Path) -> None:
    """The tasks of a search have names of their own, and are never taken from the cache, unless the
    user says so.
    """
    more: dict[str, Any] = {}
    if cached:
        more["each_task"] = lambda task: task.set_caching_options(True)
    made = search_pipeline(search(tmp_path, trials=2), "s3://bucket/searches", image=IMAGE, **more)
    spec, _ = compiled(made, tmp_path / "p.yaml")
    loops = [each["dag"]["tasks"] for each in spec["components"].values() if "dag" in each]
    tasks = [
        task
        for each in (spec["root"]["dag"]["tasks"], *loops)
        for task in each.values()
        if "parameterIterator" not in task
    ]
    names = {"round 0: suggest", "round 0: trial", "round 0: observe"}
    assert {task["taskInfo"]["name"] for task in tasks} == names
    assert [task["cachingOptions"].get("enableCache", False) for task in tasks] == [cached] * 3


def test_a_cluster_of_a_search(tmp_path: Path, transload_home: Path) -> None:
    """A search's trials run on the cluster that its tasks carry."""
    cluster = {
        "name": "lab",
        "kind": "local",
        "connection": {"state_folder": str(tmp_path / "state")},
    }
    made = search_component(
        search(tmp_path, trials=1), str(tmp_path / "base"), image=IMAGE, cluster=cluster
    )
    try:
        steps = Steps(
            made.component_spec.implementation.container.command[4], str(tmp_path / "base")
        )
        assert steps.run_trial(0, steps.suggest(0)[0])["handle"].startswith("lab://kfp/")
    finally:
        host_runner("kfp").close()


def test_variables_of_a_search(
    tmp_path: Path, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search's trials get the variables of its tasks that are named."""
    monkeypatch.setenv("SEARCH_TEST_LOSS", "0.5")
    given = Search(
        search_jobs.told,
        [Parameter("x", "float", 0, 1)],
        Objective("loss"),
        trials=1,
        scheduler="local",
    )
    made = search_component(given, str(tmp_path / "base"), image=IMAGE, pass_env=["SEARCH_TEST_*"])
    try:
        steps = Steps(
            made.component_spec.implementation.container.command[4], str(tmp_path / "base")
        )
        assert steps.run_trial(0, steps.suggest(0)[0])["value"] == 0.5
    finally:
        host_runner("kfp").close()


def test_a_trial_is_stopped_early(tmp_path: Path, transload_home: Path) -> None:
    """A trial that does badly is ended by the search, and its task goes on."""
    given = Search(
        search_jobs.stepping,
        [Parameter("x", "float", 0, 1)],
        Objective("loss"),
        trials=5,
        parallelism=5,
        scheduler="local",
        early_stopping=EarlyStopping(),
    )
    steps = Steps(encode_search(given, {}), str(tmp_path / "base"))
    try:
        found = [steps.run_trial(0, item) for item in steps.suggest(0)]
    finally:
        host_runner("kfp").close()
    assert [each["state"] for each in found] == [*["SUCCEEDED"] * 4, "STOPPED"]
    assert steps.ledger.finish()["best"]["index"] == 0


def test_through_the_uniform_door(tmp_path: Path) -> None:
    """The adapter converts a search, and shows its pipeline as a dry-run."""
    adapter = get_adapter("kfp")
    made = adapter.convert(search(tmp_path), tracker_base="s3://bucket/x", name="tune", image=IMAGE)
    assert made.name == "tune"
    assert "observe-trials" in adapter.dry_run(
        search(tmp_path), tracker_base="s3://bucket/x", image=IMAGE
    )


ELSEWHERE = {"scheduler": "local", "image": IMAGE}
APP = AppDef("hello", [Role("main", "busybox", entrypoint="echo", args=["hello"])])


@pytest.mark.parametrize(
    ("source", "options", "name"),
    [
        (APP, {}, "hello"),
        (APP.to_json(), {}, "hello"),
        (search_jobs.parabola, ELSEWHERE, "parabola"),
        (Launch(component="utils.echo", args={"msg": "hello"}), {}, "echo"),
        (Launch(app=APP), ELSEWHERE, "hello"),
        (
            Search(
                "utils.booth", [Parameter("x1", "int", 0, 1)], Objective("a"), constants={"x2": 1}
            ),
            {"tracker_base": "s3://bucket/x", "image": IMAGE},
            "search-utils-booth",
        ),
    ],
    ids=["AppDef", "JSON", "component", "Launch", "Launch elsewhere", "Search"],
)
def test_every_source(source: Any, options: dict[str, Any], name: str) -> None:
    """``convert`` takes whatever can be launched, and a search."""
    assert get_adapter("kfp").convert(source, **options).name == name


def test_refusals(tmp_path: Path) -> None:
    """What cannot be found again, and wrong options, are refused when converting."""
    closure = Search(lambda x: None, [Parameter("x", "float", 0, 1)], Objective("loss"))  # type: ignore[arg-type,return-value]
    with pytest.raises(SpecError, match="function of a module"):
        search_pipeline(closure, "base")
    with pytest.raises(ConfigError, match="on_kill"):
        search_pipeline(search(tmp_path), "base", on_kill="pause")
    with pytest.raises(ConfigError, match="retries_by"):
        search_component(search(tmp_path), "base", retrys_by="host")
    for convert in (get_adapter("kfp").convert, get_adapter("kfp").dry_run):
        with pytest.raises(ConfigError, match="retries_by"):
            convert(search(tmp_path), tracker_base="base", retrys_by="host")
        with pytest.raises(ConfigError, match="needs tracker_base"):
            convert(search(tmp_path))
