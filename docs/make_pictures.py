"""Make the pictures and recordings of the pages anew, from real runs: the session
`pictures` of benchmarks/noxfile.py.

After ``--``, names choose: ``airflow``, ``prefect``, ``kfp``, ``search`` (the pages of the
orchestrators), ``report``, ``engines``, ``run``, ``preempted``, ``kill`` (recordings of terminals).
Chromium and jq must be there. ``architecture.svg`` and ``concepts.svg`` are drawn by
hand, and are their own source.

Each picture is there in light and in dark colours: a page of a browser as two files, a drawing as
one file that follows its reader. A terminal is dark for everybody.
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
COLOURS = ("light", "dark")
PREFECT_COLOURS = "localStorage.setItem('color-scheme', '\"{colours}\"')"
"""Prefect's page is dark for everybody who has not chosen."""
DARK = {
    # paper, ink and lines
    "#ffffff": "#0d1117",
    "#000000": "#c9d1d9",
    "#444444": "#c9d1d9",
    "#24303c": "#d7dee6",
    "#b0b0b0": "#8b949e",
    "#cccccc": "#30363d",
    "#dfe5ea": "#30363d",
    # green, red, blue, violet, brown
    "#2a7f62": "#3fb98f",
    "#12876f": "#3fb9a0",
    "#b3411e": "#f0703f",
    "#2a6fb0": "#58a6ff",
    "#0967d2": "#58a6ff",
    "#8a5a9e": "#b98fd0",
    "#b44d12": "#f08a4b",
}
"""What a colour of a drawing is for a reader who prefers dark pages. The others stay."""
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
    """Make the log of a training with three replicas, in a real Airflow."""
    dags = folder / "dags"
    for name in ("airflow", "digits"):
        shutil.copytree(ROOT / "examples" / name, dags / name)
    with SHOW["airflow_server"](folder, dags) as (url, token):
        address = f"{SHOW['run_dag'](url, token, 'digits')}/tasks/retrain"
        for colours in COLOURS:
            with browser(colours) as open_page:
                page = open_page(address, 1280)
                page.get_by_text("epoch").last.wait_for()
                page.wait_for_timeout(1000)  # lines are laid out once more when the last has come
                page.screenshot(path=IMAGES / f"airflow-log-{colours}.png")


def prefect(folder: Path) -> None:
    """Make the page of a flow run of four trainings and a last one, on a real Prefect server."""
    with SHOW["prefect_server"](folder) as url:
        address = SHOW["run_flow"](url, ROOT / "examples" / "prefect" / "flow.py")
        for colours in COLOURS:
            with browser(colours) as open_page:
                page = open_page(address, script=PREFECT_COLOURS.format(colours=colours))
                page.get_by_text("joined").first.wait_for()
                page.wait_for_timeout(3000)  # the timeline slides to its place
                page.screenshot(path=IMAGES / f"prefect-flow-run-{colours}.png")


def search(_folder: Path) -> None:
    """Search with Ax, and draw it."""
    more = ["--minimize", "booth_eval", "--trials", "16", "--parallel", "4"]
    transload("search", "run", *SEARCH.split(), *more)
    picture = IMAGES / "ax-search.svg"
    transload("search", "plot", "booth", "-o", str(picture))
    add_dark_colours(picture)


def report(folder: Path) -> None:
    """Make the top of the page about a job of three replicas, one of which starts again, and its
    results.
    """
    (folder / "train.py").write_text(JOB, encoding="utf-8")
    command = ["--", "python", str(folder / "train.py")]
    transload("run", "--app-id", "digits", "--replicas", "3", "--retries", "1", *command)
    written = folder / "report.html"
    transload("report", "digits", "-o", str(written))
    for colours in COLOURS:
        with browser(colours) as open_page:
            page = open_page(written.as_uri())
            page.set_viewport_size({"width": 1100, "height": 1000})
            page.screenshot(path=IMAGES / f"report-{colours}.png")
            # the menu stays on top of what is scrolled to
            page.locator("nav").evaluate_all("all => all.forEach(each => each.remove())")
            page.locator("#results").screenshot(path=IMAGES / f"report-results-{colours}.png")


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


def add_dark_colours(path: Path) -> None:
    """Let a drawing of matplotlib (SVG) follow the colours that its reader prefers."""
    drawing = path.read_text(encoding="utf-8")
    used = {light: dark for light, dark in DARK.items() if light in drawing}
    rules = [f"text {{ fill: {DARK['#000000']} }}"]
    for light, dark in used.items():
        for painted in ("fill", "stroke"):
            rules.append(f'[style*="{painted}: {light}"] {{ {painted}: {dark} !important }}')
    style = f"<style>@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"
    first, head, rest = drawing.partition(" <defs>\n")
    path.write_text(f"{first}{head}  {style}\n{rest}", encoding="utf-8")


@contextmanager
def browser(colours: str) -> Iterator[Callable[..., Any]]:
    """Have the system's Chromium, and give a function that opens a page in these colours."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )

        def open_page(url: str, width: int = 1100, script: str = "") -> Any:
            page = chromium.new_page(viewport={"width": width, "height": 760}, color_scheme=colours)
            page.add_init_script(script)
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
    "search": search,
    "report": report,
    "engines": engines,
    "run": record("run"),
    "preempted": record("preempted"),
    "kill": record("kill"),
}


if __name__ == "__main__":
    main(sys.argv[1:])
