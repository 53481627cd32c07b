"""The chain as a Prefect flow: two tasks, the second as large as the first says.

``python examples/chain/prefect_flow.py place`` runs it, and draws the lineage.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from prefect import flow

from transload.tracker import FsspecTracker
from transload_prefect import app_task
from transload_report import lineage_svg

JOBS = str(Path(__file__).with_name("jobs.py"))

plan = app_task(f"{JOBS}:plan", name="plan", assets=True)
count = app_task(f"{JOBS}:count", name="count", retries=1)


@flow(name="chain")
def chain(folder: str, rows: int = 3000, scheduler: str = "local") -> str:
    """Write numbers, add them up; return the handle of the last job.

    Args:
        folder: where the numbers and the drawing are written
        rows: how many numbers
        scheduler: where the jobs run
    """
    where = {"scheduler": scheduler}
    first = plan(folder=folder, rows=rows, launch=where)
    # an argument and a launch parameter from upstream, and the run that this one comes from
    second = count(
        numbers=first.value("numbers"),
        replicas=first.value("replicas"),
        launch={**where, "parent_run_id": first},
    )
    lineage = FsspecTracker(None, tracker_folder(folder)).lineage(second.handle)
    Path(folder, "lineage.svg").write_text(lineage_svg(lineage), encoding="utf-8")
    return str(second.handle)


def tracker_folder(folder: str) -> str:
    """Return where the runs are recorded."""
    return str(Path(folder, "runs").resolve())


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else "chain"
    Path(place).mkdir(parents=True, exist_ok=True)
    # a tracker for every job; a transload.toml says the same for good
    os.environ.setdefault("TRANSLOAD_TRACKERS", "fsspec")
    os.environ.setdefault("TRANSLOAD_TRACKER_FSSPEC_CONFIG", tracker_folder(place))
    print(chain(str(Path(place).resolve())))
