"""Make the pictures of the pages anew, from real runs: .venv/bin/python docs/make_pictures.py [hosts] [search] [report]

``python3 quickstart.py --with ax,report,search`` makes the environment; matplotlib and Chromium are needed.

- ``hosts``: each host of the README is started by ``quickstart.py --host``, runs the example, and is ended.
- ``search``: a search by Ax, drawn by ``transload search plot``.
- ``report``: the page of a job of three replicas, one of which is started again, in light and in dark colours.

The recordings are those of ``make_recordings.py``, the benchmarks' pictures those of ``make_plots.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
HOSTS = {"airflow": "task.png", "prefect": "flow-run.png"}
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
    makers = {"hosts": hosts, "search": search, "report": report}
    if unknown := [name for name in chosen if name not in makers]:
        raise SystemExit(f"{', '.join(unknown)}: there are: {', '.join(makers)}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRANSLOAD_HOME"] = str(Path(folder, "home"))
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for name in chosen or makers:
            makers[name](Path(folder))


def hosts(folder: Path) -> None:
    """Run each host, and keep what it shows."""
    for host, name in HOSTS.items():
        subprocess.run([sys.executable, str(ROOT / "quickstart.py"), "--host", host], cwd=ROOT, check=True)
        made = ROOT / f"everywhere-{host}"
        shutil.copy(made / name, IMAGES / f"everywhere-{host}.png")
        shutil.rmtree(made)


def search(folder: Path) -> None:
    """Search with Ax, and draw it."""
    more = ["--minimize", "booth_eval", "--trials", "16", "--parallel", "4"]
    transload("search", "run", *SEARCH.split(), *more)
    transload("search", "plot", "booth", "-o", str(IMAGES / "ax-search.png"))


def report(folder: Path) -> None:
    """Train, and take the page of it: its top in light, its results in dark colours."""
    (folder / "train.py").write_text(JOB, encoding="utf-8")
    command = ["--", "python", str(folder / "train.py")]
    transload("run", "--app-id", "digits", "--replicas", "3", "--retries", "1", *command)
    page = folder / "report.html"
    transload("report", "digits", "-o", str(page))
    photograph(page.as_uri(), IMAGES / "report-light.png")
    text = page.read_text(encoding="utf-8")
    above, results = text.index('<section id="overview"'), text.index('<section id="results"')
    text = f"{text[:above]}{text[results:]}".replace("<html ", '<html data-theme="dark" ', 1)
    page.write_text(text, encoding="utf-8")
    photograph(page.as_uri(), IMAGES / "report-dark.png")


def transload(*arguments: str) -> None:
    """Run the command of this environment."""
    subprocess.run([sys.executable, "-m", "transload", *arguments], check=True)


def photograph(url: str, picture: Path) -> None:
    """Save a page as a picture."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1000"]
    command = ["chromium", *options, "--virtual-time-budget=5000", f"--screenshot={picture}", url]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
