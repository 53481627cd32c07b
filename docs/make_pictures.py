"""Make the pictures and recordings of the pages anew, from real runs: `python3 run_tests.py -s
pictures`.

After ``--``, names choose: ``airflow``, ``prefect``, ``kfp``, ``ax`` (the hosts of the README and
of their pages), ``engines``, ``search``, ``report``, ``run``, ``preempted``, ``kill`` (the recordings),
``benchmarks``. Chromium must be there. ``architecture.svg`` is drawn by hand, and is its own
source.
"""

from __future__ import annotations

import importlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
IMAGES = HERE / "images"
SHOW = runpy.run_path(str(ROOT / "examples" / "everywhere" / "show.py"))
RECORD = runpy.run_path(str(HERE / "make_recordings.py"))
KEPT = ("HOME", "LANG", "PATH", "TMPDIR", "REAL_CLUSTER", "REAL_KUBECONFIG")
"""All that is left of the environment: nothing of this machine's belongs into a picture."""
SEARCH = "--suggester ax --name booth --component utils.booth --param x1:float:-10:10 --param x2:float:-10:10"
JOB = """
import math, os, sys, time
from transload.runtime import report
replica, first = int(os.environ["TRANSLOAD_REPLICA_ID"]), os.environ["TRANSLOAD_RETRY"] == "0"
for epoch in range(20):
    time.sleep(0.1)
    loss = 2.3 * math.exp(-epoch / 5) + 0.02 * replica
    print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
    if replica == 1 and first and epoch == 6:
        raise ValueError("a batch without labels")
    if replica == 0:
        report(step=epoch, loss=loss, learning_rate=0.1 * 0.7**epoch)
report(accuracy=0.97 + 0.004 * replica)
"""


def main(chosen: list[str]) -> None:
    """Make those that are named, or all."""
    if unknown := [name for name in chosen if name not in MAKERS]:
        raise SystemExit(f"{', '.join(unknown)}: there are: {', '.join(MAKERS)}")
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    os.environ.clear()
    os.environ |= kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"}
    for name in chosen or MAKERS:
        with tempfile.TemporaryDirectory(prefix="tl-") as folder:
            sys.stderr.write(f"{name} ...\n")
            os.environ["TRANSLOAD_HOME"] = str(Path(folder, "transload"))
            MAKERS[name](Path(folder))


def airflow(folder: Path) -> None:
    """The README's job, and the example with three replicas, in one Airflow."""
    dags = folder / "dags"
    for name in ("airflow", "digits", "everywhere"):
        shutil.copytree(ROOT / "examples" / name, dags / name)
    with SHOW["airflow_server"](folder, dags) as (url, token), browser() as open_page:
        for dag, task, name in (
            ("everywhere", "digits", "everywhere-airflow"),
            ("digits", "retrain", "airflow-log"),
        ):
            page = open_page(f"{SHOW['run_dag'](url, token, dag)}/tasks/{task}", 1280)
            page.get_by_text("epoch").last.wait_for()
            page.wait_for_timeout(1000)  # lines are laid out once more when the last has come
            page.screenshot(path=IMAGES / f"{name}.png")


def prefect(folder: Path) -> None:
    """The README's job, and the example of four trainings and a last one, on one Prefect server."""
    with SHOW["prefect_server"](folder) as url, browser() as open_page:
        flows = (
            ("everywhere/prefect_flow.py", "everywhere-prefect"),
            ("prefect/flow.py", "prefect-flow-run"),
        )
        for flow, name in flows:
            page = open_page(SHOW["run_flow"](url, ROOT / "examples" / flow))
            page.get_by_text("joined").first.wait_for()
            if flow.startswith("everywhere"):  # room for the epochs
                page.set_viewport_size({"width": 1100, "height": 1060})
            page.wait_for_timeout(3000)  # the timeline slides to its place
            page.screenshot(path=IMAGES / f"{name}.png")


def ax(folder: Path) -> None:
    """The README's search."""
    program = [sys.executable, str(ROOT / "examples" / "everywhere" / "show.py"), "ax"]
    subprocess.run(program, cwd=folder, check=True)
    shutil.copy(folder / "everywhere-ax" / "search.svg", IMAGES / "everywhere-ax.svg")


def search(_folder: Path) -> None:
    """Search with Ax, and draw it."""
    more = ["--minimize", "booth_eval", "--trials", "16", "--parallel", "4"]
    transload("search", "run", *SEARCH.split(), *more)
    transload("search", "plot", "booth", "-o", str(IMAGES / "ax-search.png"))


def report(folder: Path) -> None:
    """A job of three replicas, one of which starts again: the top of its page in light and in dark
    colours, and its results.
    """
    (folder / "train.py").write_text(JOB, encoding="utf-8")
    command = ["--", "python", str(folder / "train.py")]
    transload("run", "--app-id", "digits", "--replicas", "3", "--retries", "1", *command)
    written = folder / "report.html"
    transload("report", "digits", "-o", str(written))
    for colours in ("light", "dark"):
        with browser(colours=colours) as open_page:
            page = open_page(written.as_uri())
            page.set_viewport_size({"width": 1100, "height": 1000})
            page.screenshot(path=IMAGES / f"report-{colours}.png")
    with browser(colours="light") as open_page:
        page = open_page(written.as_uri())
        page.locator("nav").evaluate_all(
            "all => all.forEach(each => each.remove())"
        )  # they stay on top
        page.locator("#results").screenshot(path=IMAGES / "report-results.png")


def engines(_folder: Path) -> None:
    """One job on each engine that can be started here; a picture of another one stays as it is."""
    sys.path.insert(0, str(ROOT / "benchmarks" / "everywhere"))
    table = importlib.import_module("table")
    with table.started(
        sys.executable, [sys.executable], ("docker", "slurm", "kubernetes")
    ) as there:
        os.environ |= there["environment"]
        for engine in set(there["engines"]) - {"local"}:
            RECORD["record"](engine, ROOT)


def record(name: str) -> Callable[[Path], None]:
    """Return what makes a recording."""
    return lambda folder: RECORD["record"](name, folder)


def benchmarks(_folder: Path) -> None:
    """The figures of the last benchmarks, and of the simulation."""
    subprocess.run([sys.executable, str(HERE / "make_plots.py")], check=True)
    simulation = [
        sys.executable,
        str(ROOT / "benchmarks" / "scale.py"),
        "--plot",
        str(ROOT / "benchmarks" / "scale.svg"),
    ]
    subprocess.run(simulation, stdout=subprocess.DEVNULL, check=True)


@contextmanager
def browser(colours: str = "light") -> Iterator[Callable[..., Any]]:
    """Have the system's Chromium; give a function that opens a page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )

        def open_page(url: str, width: int = 1100) -> Any:
            page = chromium.new_page(viewport={"width": width, "height": 760}, color_scheme=colours)
            page.goto(url)
            return page

        yield open_page
        chromium.close()


def transload(*arguments: str) -> None:
    """Run the command of this environment."""
    subprocess.run([sys.executable, "-m", "transload", *arguments], check=True)


MAKERS: dict[str, Callable[[Path], None]] = {
    "airflow": airflow,
    "prefect": prefect,
    "kfp": record("kfp"),
    "ax": ax,
    "search": search,
    "report": report,
    "engines": engines,
    "run": record("run"),
    "preempted": record("preempted"),
    "kill": record("kill"),
    "benchmarks": benchmarks,
}


if __name__ == "__main__":
    main(sys.argv[1:])
