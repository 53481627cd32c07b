"""Launchers that were compiled and loaded again, and launchers in loops."""

import os
from pathlib import Path
from typing import Any

import launched
import pytest
import yaml
from kfp import compiler, components, dsl, local

from transload.errors import SpecError
from transload.pipelines import host_runner
from transload_kfp import launcher_from_app

HERE: dict[str, Any] = {"image": "python:3.11", "scheduler": "local"}


@pytest.fixture
def subprocess_kfp(local_kfp: Any, transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start KFP's subprocess runner, whose tasks find these tests' modules and programs."""
    found = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    folder: Path = local_kfp(local.SubprocessRunner(use_venv=False))
    return folder


def _loaded(component: Any, folder: Path) -> Any:
    file = folder / f"{component.name}.yaml"
    compiler.Compiler().compile(component, str(file))
    return components.load_component_from_file(str(file))


def _apps() -> int:
    runner = host_runner("kfp")
    try:
        return len(runner.list("local"))
    finally:
        runner.close()


def test_a_loaded_launcher_runs(subprocess_kfp: Path, tmp_path: Path) -> None:
    """A loaded launcher takes the component's arguments only, and gives its outputs.

    Each run of it is a job, and so is each key.
    """
    settled = {"image": "/tmp", "words": ["one"], "replicas": 1}
    made = launcher_from_app(launched.group, component_args=settled, results={"who": str}, **HERE)
    loaded = _loaded(made, tmp_path)

    @dsl.pipeline(name="p")
    def pipeline() -> str:
        loaded(transload_key="first")
        return loaded(cpu=0.1, transload_key="second").outputs["who"]

    assert pipeline().outputs["Output"] == "one-0"
    assert _apps() == 2
    assert pipeline().outputs["Output"] == "one-0"
    assert _apps() == 4, "another run is another job"


def test_the_interface_of_a_loaded_launcher(tmp_path: Path) -> None:
    """Inputs and outputs are those of the launcher, without what only a pipeline's compiler fills
    in.
    """
    made = launcher_from_app(launched.group, results={"left/who": str}, image="python:3.11")
    loaded = _loaded(made, tmp_path)
    assert {name: each.optional for name, each in loaded.component_spec.inputs.items()} == {
        "image": False,
        "replicas": True,
        "cpu": True,
        "words": True,
        "transload_key": True,
        "parent_run_id": True,
    }
    assert set(loaded.component_spec.outputs) == set(made.component_spec.outputs)


def test_loaded_launchers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Two launchers of one name that run different things do not have one path."""
    paths = set()
    for number, arguments in enumerate([{"cpu": 0.1}, {"cpu": 0.2}, {"cpu": 0.2}]):
        made = launcher_from_app(launched.group, component_args=arguments, image="python:3.11")
        (task,) = made.pipeline_spec.root.dag.tasks.values()
        paths.add(task.inputs.parameters["transload_path"].runtime_value.constant.string_value)
        assert len(paths) == min(number + 1, 2)


def _compile(body: Any, folder: Path) -> None:
    @dsl.pipeline(name="p")
    def pipeline(items: list = ["a", "b"]) -> None:  # noqa: B006 - KFP's defaults
        body(items)

    compiler.Compiler().compile(pipeline, str(folder / "p.yaml"))


LOOPS: dict[str, Any] = {}


def loop(body: Any) -> Any:
    """Note a pipeline whose tasks in a loop are equal."""
    LOOPS[body.__name__] = body
    return body


@loop
def constant(made: Any, items: Any) -> None:
    """No input at all depends on the item."""
    with dsl.ParallelFor([1, 2]):
        made(code=0)


@loop
def inner_only(made: Any, items: Any) -> None:
    """None depends on that of the outer loop."""
    with dsl.ParallelFor(items), dsl.ParallelFor([0, 0]) as item:
        made(code=item)


@loop
def upstream(made: Any, items: Any) -> None:
    """A task before the loop is the same for all items."""
    before = made(code=0)
    with dsl.ParallelFor(items):
        made(code=1, parent_run_id=before.outputs["handle"])


@pytest.mark.parametrize("name", LOOPS)
def test_equal_jobs_of_a_loop(name: str, tmp_path: Path) -> None:
    """Each task has its place in the run at hand, which a backend gives without any right."""
    made = launcher_from_app(launched.failing, image="python:3.11")
    _compile(lambda items: LOOPS[name](made, items), tmp_path)
    _, platform = yaml.safe_load_all((tmp_path / "p.yaml").read_text())
    executors = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for each in executors.values():
        assert each["fieldPathAsEnv"] == [
            {
                "name": "TRANSLOAD_KFP_NODE",
                "fieldPath": "metadata.annotations['workflows.argoproj.io/node-name']",
            }
        ]


def test_equal_jobs_of_a_loop_without_a_backend(
    subprocess_kfp: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """KFP's local runner tells no such tasks apart, so they are refused before anything runs."""
    made = launcher_from_app(launched.failing, component_args={"code": 0}, **HERE)

    @dsl.pipeline(name="p")
    def pipeline() -> None:
        with dsl.ParallelFor([1, 2]):
            made()

    with pytest.raises(RuntimeError):
        pipeline()
    said = capfd.readouterr()
    assert "Give each a key: key=item" in said.out + said.err
    assert _apps() == 0


def test_a_key_that_is_equal_for_all_items(tmp_path: Path) -> None:
    """Such a key is refused by its value when it is written."""
    made = launcher_from_app(launched.failing, image="python:3.11")

    def body(items: Any) -> None:
        with dsl.ParallelFor(items):
            made(code=1, key="same")

    with pytest.raises(SpecError, match="key='same'"):
        _compile(body, tmp_path)


def test_jobs_of_a_loop_that_differ(tmp_path: Path) -> None:
    """An item, a part of one, a text that holds one, or what a task of the loop returned is
    enough.
    """
    made = launcher_from_app(launched.failing, image="python:3.11")

    def body(items: Any) -> None:
        with dsl.ParallelFor([{"code": 1, "word": "a"}, {"code": 1, "word": "b"}]) as item:
            first = made(code=item.code)
            made(code=1, key=f"run {item.word}")
            made(code=1, parent_run_id=first.outputs["handle"])
        with dsl.ParallelFor([1, 2]) as number, dsl.If(number == 1):
            made(code=number)
        with dsl.ParallelFor(items) as outer, dsl.ParallelFor([1, 2]) as inner:
            made(code=inner, key=outer)

    _compile(body, tmp_path)
