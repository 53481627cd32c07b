"""Two jobs, the second as large as the first says; the tracker knows which came from which, and the lineage is drawn.

``python examples/kfp/chain.py place`` runs the pipeline here, without a cluster.
"""

import os
import sys
from pathlib import Path
from typing import Any

from kfp import dsl, local

from transload.tracker import FsspecTracker, lineage_svg
from transload_kfp import launcher_from_app

JOBS = str(Path(__file__).with_name("chain_jobs.py"))


def make_chain(scheduler: str = "local", **launcher: Any) -> Any:
    """Return the pipeline.

    Args:
        scheduler: where the jobs run.
        launcher: form and image of the launchers.
    """
    planning = launcher_from_app(
        f"{JOBS}:plan", name="plan", scheduler=scheduler, results={"replicas": int, "share": int}, **launcher
    )
    estimating = launcher_from_app(f"{JOBS}:estimate", name="estimate", scheduler=scheduler, **launcher)

    @dsl.pipeline(name="chain")
    def chain(samples: int = 300) -> str:
        first = planning(samples=samples)
        # launch parameters from upstream, and the run that this one comes from
        second = estimating(
            samples=first.outputs["share"], replicas=first.outputs["replicas"], parent_run_id=first.outputs["handle"]
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
    handle = make_chain(form="python", image="python:3.11")().outputs["Output"]
    (folder / "lineage.svg").write_text(lineage_svg(FsspecTracker(None, str(runs)).lineage(handle)), encoding="utf-8")
    print(handle)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "chain")
