"""Three jobs, each from the one before: make data, fit with as many replicas as it asks for, check; the lineage drawn.

What an upstream job reported decides how the next one is launched, and the tracker knows which came from which.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from prefect import flow, get_run_logger

from transload.tracker import FsspecTracker, lineage_svg
from transload_prefect import app_task

STAGES = str(Path(__file__).with_name("stages.py"))

prepare = app_task(f"{STAGES}:prepare", name="prepare", assets=True)
fit = app_task(f"{STAGES}:fit", name="fit", retries=1)
check = app_task(f"{STAGES}:check", name="check")


@flow(name="chain")
def chain(folder: str, rows: int = 300, scheduler: str = "local") -> float:
    """Make data, fit lines to it, check them; return the mean error.

    Args:
        folder: where the data and the drawing are written
        rows: how many points
        scheduler: where the jobs run
    """
    where = {"scheduler": scheduler}
    data = prepare(folder=folder, rows=rows, launch=where)
    dataset = data.value("dataset")
    # a launch parameter from upstream, and the run that this one comes from
    lines = fit(dataset=dataset, replicas=data.value("shares"), launch={**where, "parent_run_id": data})
    slopes = [values["slope"] for values in lines.results.values()]
    final = check(dataset=dataset, slopes=slopes, launch={**where, "parent_run_id": lines})
    drawing = Path(folder, "lineage.svg")
    drawing.write_text(lineage_svg(FsspecTracker(None, tracker_folder(folder)).lineage(final.handle)))
    get_run_logger().info("%s came from %s, which came from %s: %s", final.handle, lines.handle, data.handle, drawing)
    return float(final.value("error"))


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
