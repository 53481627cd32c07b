"""What converting costs over writing the component by hand, and what a converted one costs when it
runs.

Conversion and compilation, of 1 app and of 200, against ``dsl.container_component`` on the same
command; then a task by KFP's local runner: the app's own command, the same with results collected,
and the hand-written one, in turn. The runs need an engine that the tests can start (root, docker);
without one they are left out.

Needs an environment with transload-kfp and docker's client.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# this file has the name of the package that it measures
sys.path[:] = [
    folder
    for folder in sys.path
    if Path(folder or ".").resolve() != Path(__file__).resolve().parent
]
from kfp import compiler, dsl, local  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parent))
from measure import figure, interleaved, report  # noqa: E402

from transload.specs import AppDef, Role  # noqa: E402
from transload_kfp import component_from_app  # noqa: E402

warnings.simplefilter("ignore")
MANY = 200
ROOT = Path(__file__).resolve().parents[1]


def app(number: int, image: str = "img:1") -> AppDef:
    """Return an app of two arguments."""
    return AppDef(
        f"app{number}", [Role("main", image, entrypoint="echo", args=["--name", f"value {number}"])]
    )


def by_hand(number: int, image: str = "img:1") -> Any:
    """Return the component that somebody would write."""

    def hand(name: str = f"value {number}"):
        return dsl.ContainerSpec(image=image, command=["echo"], args=["--name", name])

    hand.__name__ = f"app{number}"
    hand.__annotations__ = {"name": str}
    return dsl.container_component(hand)


def ours(number: int, image: str = "img:1") -> Any:
    """Return the converted app with the same input."""
    return component_from_app(app(number, image), inputs={"name": "args[1]"})


def compiled(make: Callable[[int], Any], count: int) -> float:
    """Return the seconds that making and compiling a pipeline of so many components takes."""
    begin = time.perf_counter()
    made = [make(number) for number in range(count)]

    def pipeline():
        for each in made:
            each()

    whole = dsl.pipeline(pipeline, name="bench")
    with tempfile.TemporaryDirectory() as folder:
        compiler.Compiler().compile(whole, str(Path(folder) / "p.yaml"))
    return time.perf_counter() - begin


def run(component: Any) -> float:
    """Return the seconds of a task."""
    begin = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        component()
    return time.perf_counter() - begin


def engine() -> Any:
    """Return an engine of the tests, or None."""
    if (
        os.geteuid() != 0
        or shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
    ):
        return None
    spec = importlib.util.spec_from_file_location(
        "private_engine", ROOT / "tests" / "private_engine.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PrivateEngine(in_memory=True)


def runs() -> list[dict]:
    """Measure tasks on an engine."""
    started = engine()
    if started is None:
        return []
    try:
        started.start()
        os.environ["DOCKER_HOST"] = started.url
        image = started.python_image("bench:1", packages=(), applets="sh echo mktemp")
        with tempfile.TemporaryDirectory() as folder:
            logging.disable(logging.CRITICAL)
            local.init(runner=local.DockerRunner(), pipeline_root=folder)
            converted = component_from_app(app(0, image), inputs={"name": "args[1]"})
            wrapped = component_from_app(app(0, image), inputs={"name": "args[1]"}, results={})
            hand = by_hand(0, image)
            plain, with_results, peer = interleaved(
                7, *(lambda each=each: run(each) for each in (converted, wrapped, hand))
            )
        return [
            figure("task of an app, its own command", "s", plain, peer, target=1.1),
            figure("task of an app, results collected", "s", with_results, peer, target=1.5),
        ]
    finally:
        started.close()


def main() -> None:
    """Measure, and print JSON."""
    compiled(ours, 1), compiled(by_hand, 1)
    one, one_peer = interleaved(15, lambda: compiled(ours, 1), lambda: compiled(by_hand, 1))
    many, many_peer = interleaved(3, lambda: compiled(ours, MANY), lambda: compiled(by_hand, MANY))
    rows = [
        figure("pipeline of 1 app, made and compiled", "s", one, one_peer, target=2.0),
        figure(f"pipeline of {MANY} apps, made and compiled", "s", many, many_peer, target=2.0),
    ]
    report([*rows, *runs()], peer="a `dsl.container_component` by hand")


if __name__ == "__main__":
    main()
