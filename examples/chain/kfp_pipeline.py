"""The chain as a pipeline of Kubeflow Pipelines: two launchers, the second as large as the first
says.

``python examples/chain/kfp_pipeline.py place`` runs it here, without a cluster, and draws the
lineage.
"""

import os
import sys
from pathlib import Path
from typing import Any

from kfp import dsl, local

from transload.tracker import FsspecTracker
from transload_kfp import launcher_from_app
from transload_report import lineage_svg

JOBS = str(Path(__file__).with_name("jobs.py"))


def make_chain(scheduler: str = "local", **launcher: Any) -> Any:
    """Return the pipeline.

    Args:
        scheduler: where the jobs run.
        launcher: image of the launchers.
    """
    planning = launcher_from_app(
        f"{JOBS}:plan",
        name="plan",
        scheduler=scheduler,
        results={"numbers": str, "replicas": int},
        **launcher,
    )
    counting = launcher_from_app(f"{JOBS}:count", name="count", scheduler=scheduler, **launcher)

    @dsl.pipeline(name="chain")
    def chain(folder: str, rows: int = 3000) -> str:
        first = planning(folder=folder, rows=rows)
        # an argument and a launch parameter from upstream, and the run that this one comes from
        second = counting(
            numbers=first.outputs["numbers"],
            replicas=first.outputs["replicas"],
            parent_run_id=first.outputs["handle"],
        )
        return second.outputs["handle"]

    return chain


def main(place: str) -> None:
    """Run the chain by KFP's local runner; leave pipelines, runs and the drawing in a folder."""
    folder = Path(place).resolve()
    runs = folder / "runs"
    # a tracker for every job; a transload.toml says the same for good
    os.environ.setdefault("TRANSLOAD_TRACKERS", "fsspec")
    os.environ.setdefault("TRANSLOAD_TRACKER_FSSPEC_CONFIG", str(runs))
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "pipelines"))
    handle = make_chain(image="python:3.11")(folder=str(folder)).outputs["Output"]
    (folder / "lineage.svg").write_text(
        lineage_svg(FsspecTracker(None, str(runs)).lineage(handle)), encoding="utf-8"
    )
    print(handle)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "chain")
