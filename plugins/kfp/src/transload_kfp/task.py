"""Run a launcher's task, with the inputs and outputs of Kubeflow Pipelines.

This imports no KFP.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from transload.errors import SpecError
from transload.pipelines import json_safe
from transload.runner import Job
from transload.runtime.tracking import FsspecResultTracker
from transload_kfp.inline import artifacts_of, empty, hand_over, metrics_of, report
from transload_kfp.launch_spec import IDENTITY, KEY, PARENT, LaunchSpec
from transload_kfp.run_watch import RunWatch
from transload_kfp.step import (
    NODE,
    KfpStep,
    failing_the_task,
    identity_of,
    place_of,
    tries_of,
)

if TYPE_CHECKING:
    from transload.runner import AppResults
    from transload_kfp.ports import OutputPort


def step_of(context: Mapping[str, str], spec: LaunchSpec, arguments: Mapping[str, Any]) -> KfpStep:
    """Return the job of a launcher's task.

    Args:
        context: see `transload_kfp.step.identity_of`. Its ``parent`` is the handle of the job that
            this one derives from.
        spec: what the component carries.
        arguments: value of each input, or None if it was not given.

    Raises:
        SpecError: for a wrong argument, or a file among the results for which the job has no
            folder. That would be noticed only after its end.
    """
    node = os.environ.get(NODE, "")  # empty where no backend says it
    launch = spec.launch_with(arguments)
    if context.get("parent"):
        launch = replace(launch, parent_run_id=context["parent"])
    words = {
        "run": context.get("job_id"),
        "run_name": context.get("job_name"),
        "node": place_of(node),
        "key": context.get("key"),
        "task": context.get("task_name") or launch.name,
    }
    step = KfpStep(
        identity_of({"node": node, **context}, launch.name, arguments),
        launch,
        spec.execution_options(),
        cluster=spec.cluster,
        inherit_env=spec.inherit_env,
        run=RunWatch(context.get("job_id", "")),
        words={name: word for name, word in words.items() if word},
        tries=tries_of(node),
    )
    files = [port.source for port in spec.outputs if port.is_artifact]
    if files and step.plan().tracker_base is None:
        raise SpecError(
            f"results[{files[0]!r}]: a file, and this scheduler gives the job no folder for files: "
            "give tracker_base='s3://…'"
        )
    return step


def run_task(
    spec: LaunchSpec,
    arguments: Mapping[str, Any],
    context: Mapping[str, str],
    made: Mapping[str, Any],
) -> dict[str, Any]:
    """Run the launcher, and return the value of each output.

    Args:
        spec: what the component carries.
        arguments: value of each input, or None if it was not given.
        context: see `transload_kfp.step.identity_of`.
        made: artifacts that come out, with ``path`` and ``metadata``, by name.

    Raises:
        TaskFailed: with the exit code.
    """
    with failing_the_task():
        step = step_of(context, spec, arguments)
        with step.ending_with_its_task():
            results = step.run()
    job = Job(str(step.handle), step.runner)
    files = [port for port in spec.outputs if port.is_artifact]
    with failing_the_task(ended_well=True):
        values = spec.output_values(results)
        _write_artifacts(job, results, made)
        _fetch_files(job, results, files, made)
    values = {"handle": step.handle, **values}
    return {name: _safe(value) for name, value in values.items()}


def _safe(value: Any) -> Any:
    """Return a text without what a backend's database takes in none. Numbers stay as they are."""
    return json_safe(value) if isinstance(value, str) else value


def _write_artifacts(job: Job, results: AppResults, made: Mapping[str, Any]) -> None:
    """Make the results artifact a tracker base with what the job reported.

    A downstream job then reads it by key.
    """
    folder = made["results"].path
    empty(folder)
    made["results"].metadata["transload_handle"] = job.handle
    link = job.page()
    if link:
        made["results"].metadata["transload_link"] = link
    metrics = metrics_of(results.results)
    made["metrics"].metadata.update({_safe(name): _safe(value) for name, value in metrics.items()})
    tracker = FsspecResultTracker(folder)
    for key, values in results.results.items():
        tracker[key] = dict(values)


def _fetch_files(
    job: Job, results: AppResults, ports: Sequence[OutputPort], made: Mapping[str, Any]
) -> None:
    """Copy the files that were declared into their artifacts.

    Where all files are is noted at the results artifact.
    """
    places = {name: str(each["path"]) for name, each in results.artifacts.items()}
    if places:
        made["results"].metadata["transload_files"] = json_safe(places)
    for port in ports:
        path = made[port.name].path
        with tempfile.TemporaryDirectory(
            dir=os.path.dirname(path)
        ) as folder:  # moved from there, not copied again
            for pattern in (escape(port.source), f"{escape(port.source)}/*"):
                job.fetch(pattern, folder)
            try:
                made[port.name].metadata.update(hand_over(folder, port.source, port.type, path))
            except LookupError as exc:
                there = f"; the job made: {', '.join(places) or 'nothing'}"
                raise SpecError(f"{exc.args[0].partition(';')[0]}{there}") from exc


def main(text: str, request: dict[str, Any], paths: Sequence[str]) -> None:
    """Run a launcher's task.

    Args:
        text: the encoded spec.
        request: KFP's executor input.
        paths: of artifacts, made ones first.

    Raises:
        TaskFailed: with the exit code.
    """
    with failing_the_task():
        spec = LaunchSpec.decode(text)
    left = iter(paths)
    inputs = request.get("inputs", {}).get("parameterValues", {})
    made = {name: SimpleNamespace(path=next(left), metadata={}) for name in spec.made_artifacts}
    given = {
        port.name: next(left) if port.is_artifact else inputs.get(port.name) for port in spec.inputs
    }
    context = {each.removeprefix("transload_"): inputs.get(each) or "" for each in (*IDENTITY, KEY)}
    values = run_task(spec, given, {**context, "parent": inputs.get(PARENT) or ""}, made)
    artifacts = artifacts_of(request, {name: each.metadata for name, each in made.items()})
    report(request, {"parameterValues": values, "artifacts": artifacts})
