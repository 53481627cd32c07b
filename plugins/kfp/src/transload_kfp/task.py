"""Run a launcher's task, with the inputs and outputs of Kubeflow Pipelines.

This imports no KFP.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SpecError
from transload.pipelines import json_safe
from transload.runner import Job
from transload.runtime.tracking import FsspecResultTracker
from transload_kfp.inline import empty, hand_over, metrics_of, report
from transload_kfp.launch_spec import LaunchSpec
from transload_kfp.ports import HANDLE, IDENTITY, KEY, METRICS, PARENT, PATH, RESULTS, OutputPort
from transload_kfp.run_watch import RunWatch
from transload_kfp.step import NODE, KfpStep, failing_the_task, identity_of

if TYPE_CHECKING:
    from transload.runner import AppResults

WORDS: Final = dict(
    zip(
        (*IDENTITY, PATH, KEY, PARENT),
        ("run", "run_name", "task", "path", "key", "parent"),
        strict=True,
    )
)
"""Input of a launcher → what the step calls it."""


def main(text: str, request: dict[str, Any], paths: Sequence[str]) -> None:
    """Run a launcher's task.

    Args:
        text: the encoded spec.
        request: KFP's executor input.
        paths: of artifacts, made ones first.

    Raises:
        TaskFailed: with the exit code.
    """
    left = iter(paths)
    inputs = request.get("inputs", {}).get("parameterValues", {})
    with failing_the_task():
        spec = LaunchSpec.decode(text)
        made = {port.name: next(left) for port in spec.artifacts}
        arguments = {
            port.name: next(left) if port.is_artifact else inputs.get(port.name)
            for port in spec.inputs
        }
        words = {word: inputs.get(name) or "" for name, word in WORDS.items()}
        step = step_of(spec, words, arguments)
        with step.ending_with_its_task():
            results = step.run()
    job = Job(str(step.handle), step.runner)
    with failing_the_task(ended_well=True):
        values = {HANDLE.name: job.handle, **spec.values(results)}
        metadata = {
            RESULTS.name: _keep_results(job, results, made[RESULTS.name]),
            METRICS.name: metrics_of(dict(results.results)),
        }
        for port in spec.files:
            metadata[port.name] = _fetch_file(job, results, port, made[port.name])
    report(request, values, metadata)


def step_of(spec: LaunchSpec, words: Mapping[str, str], arguments: Mapping[str, Any]) -> KfpStep:
    """Return the job of a launcher's task.

    Args:
        spec: what the component carries.
        words: what is known of the task (see `WORDS`).
        arguments: value of each input, or None if it was not given.

    Raises:
        SpecError: for a wrong argument, or a file among the results for which the job has no
            folder. That would be noticed only after its end.
    """
    launch = spec.launch_with(arguments)
    if words.get("parent"):
        launch = replace(launch, parent_run_id=words["parent"])
    words = {
        **words,
        "task": words.get("task") or launch.name,
        "node": os.environ.get(NODE, ""),  # empty where no backend says it
    }
    step = KfpStep(
        identity_of(words, arguments),
        launch,
        spec.execution_options(),
        cluster=spec.cluster,
        inherit_env=spec.inherit_env,
        run=RunWatch(words.get("run", "")),
        words=words,
    )
    if spec.files and step.plan().tracker_base is None:
        raise SpecError(
            f"results[{spec.files[0].source!r}]: a file, and this scheduler gives the job no folder "
            "for files: give tracker_base='s3://…'"
        )
    return step


def _keep_results(job: Job, results: AppResults, folder: str) -> dict[str, Any]:
    """Make an artifact a tracker base with what the job reported, and return its metadata.

    A downstream job then reads it by key. The metadata says which job it was, and where it is seen.
    """
    empty(folder)
    tracker = FsspecResultTracker(folder)
    for key, values in results.results.items():
        tracker[key] = dict(values)
    metadata: dict[str, Any] = {"transload_handle": job.handle}
    link = job.page()
    if link:
        metadata["transload_link"] = link
    places = {name: str(each["path"]) for name, each in results.artifacts.items()}
    if places:
        metadata["transload_files"] = json_safe(places)
    return metadata


def _fetch_file(job: Job, results: AppResults, port: OutputPort, path: str) -> dict[str, Any]:
    """Copy a declared file or folder of the job to its artifact's path, and return its metadata.

    Raises:
        SpecError: if the job did not make it, or it has another form.
    """
    # moved from there, not copied again
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        for pattern in (escape(port.source), f"{escape(port.source)}/*"):
            job.fetch(pattern, folder)
        try:
            return hand_over(folder, port.source, port.type, path, list(results.artifacts))
        except LookupError as exc:
            raise SpecError(exc.args[0]) from exc
