"""The job as a component of Kubeflow Pipelines: a launcher, since it has two replicas, in a
pipeline by itself.
"""

from typing import Any

from job import ARGUMENTS, COMPONENT
from kfp import dsl, local

from transload_kfp import launcher_from_app


def make_pipeline(scheduler: str = "local", **launcher: Any) -> Any:
    """Return the pipeline.

    Args:
        scheduler: where the job runs.
        launcher: image of the launcher.
    """
    digits = launcher_from_app(
        COMPONENT,
        name="digits",
        scheduler=scheduler,
        component_args=ARGUMENTS,
        results={"accuracy": float},
        **launcher,
    )

    @dsl.pipeline(name="everywhere", description=__doc__)
    def everywhere() -> str:
        return digits().outputs["handle"]

    return everywhere


def run_here(folder: str, scheduler: str = "local") -> dsl.PipelineTask:
    """Run the pipeline by KFP's local runner, without a cluster; return its task."""
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=folder)
    task: dsl.PipelineTask = make_pipeline(scheduler, image="python:3.11")()
    return task


if __name__ == "__main__":
    print(run_here("everywhere-pipelines").outputs)
