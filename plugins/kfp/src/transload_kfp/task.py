"""Run a launcher's task, with the inputs and outputs of Kubeflow Pipelines.

The container form runs ``python3 -m transload_kfp SPEC EXECUTOR_INPUT PATH …``, which calls `main`.
The Python form calls `launch_in_component` from a few generated lines. This imports no KFP.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from glob import escape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from transload.errors import SpecError
from transload.pipelines import json_safe
from transload.runtime.tracking import FsspecResultTracker
from transload_kfp.adapter import (
    ADAPTER,
    TaskFailed,
    check_files,
    failing_the_task,
    launcher_driver,
)
from transload_kfp.inline import artifacts_of, empty, hand_over, metrics_of, report
from transload_kfp.launch_spec import IDENTITY, KEY, PARENT, LaunchSpec

if TYPE_CHECKING:
    from transload.pipelines import Driver
    from transload.runner import AppResults
    from transload_kfp.ports import OutputPort


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
        context: see `transload_kfp.adapter.identity_of`.
        made: artifacts that come out, with ``path`` and ``metadata``, by name.

    Raises:
        TaskFailed: with the exit code.
    """
    with failing_the_task():
        task, driver = launcher_driver(context, spec, arguments)
        if spec.dry_run:
            empty(made["results"].path)
            print(driver.dry_run(), flush=True)  # noqa: T201
            return {}
        check_files(spec, driver)
    with ADAPTER.guard(task, driver):
        results = driver.run()
    files = [port for port in spec.outputs if port.is_artifact]
    with failing_the_task(ended_well=True):
        values = spec.output_values(results)
        _write_artifacts(driver, results, made)
        _fetch_files(driver, results, files, made)
    values = {"handle": driver.handle, **values}
    return {name: _safe(value) for name, value in values.items()}


def _safe(value: Any) -> Any:
    """Return a text without what a backend's database takes in none. Numbers stay as they are."""
    return json_safe(value) if isinstance(value, str) else value


def _write_artifacts(driver: Driver, results: AppResults, made: Mapping[str, Any]) -> None:
    """Make the results artifact a tracker base with what the job reported.

    A downstream job then reads it by key.
    """
    folder = made["results"].path
    empty(folder)
    made["results"].metadata["transload_handle"] = driver.handle
    link = driver.link()
    if link:
        made["results"].metadata["transload_link"] = link
    metrics = metrics_of(results.results)
    made["metrics"].metadata.update({_safe(name): _safe(value) for name, value in metrics.items()})
    tracker = FsspecResultTracker(folder)
    for key, values in results.results.items():
        tracker[key] = dict(values)


def _fetch_files(
    driver: Driver, results: AppResults, ports: Sequence[OutputPort], made: Mapping[str, Any]
) -> None:
    """Copy the files that were declared into their artifacts.

    Where all files are is noted at the results artifact.
    """
    places = {name: str(each["path"]) for name, each in results.artifacts.items()}
    if places:
        made["results"].metadata["transload_files"] = json_safe(places)
    handle = driver.handle or ""
    for port in ports:
        path = made[port.name].path
        with tempfile.TemporaryDirectory(
            dir=os.path.dirname(path)
        ) as folder:  # moved from there, not copied again
            for pattern in (escape(port.source), f"{escape(port.source)}/*"):
                driver.runner.job(handle).fetch(pattern, folder)
            try:
                made[port.name].metadata.update(hand_over(folder, port.source, port.type, path))
            except LookupError as exc:
                there = f"; the job made: {', '.join(places) or 'nothing'}"
                raise SpecError(f"{exc.args[0].partition(';')[0]}{there}") from exc


def launch_in_component(
    spec: str, arguments: Mapping[str, Any], context: Mapping[str, str], made: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the launcher inside a Python component, as `run_task` with the encoded spec."""
    with failing_the_task():
        decoded = LaunchSpec.decode(spec)
    return run_task(decoded, arguments, context, made)


def main(words: list[str]) -> int:
    """Run the container form.

    The words are the encoded spec, KFP's executor input as JSON, and the paths of artifacts, made
    ones first.
    """
    try:
        with failing_the_task():
            spec = LaunchSpec.decode(words[0])
        request = json.loads(words[1])
        paths = iter(words[2:])
        inputs = request.get("inputs", {}).get("parameterValues", {})
        made = {
            name: SimpleNamespace(path=next(paths), metadata={}) for name in spec.made_artifacts
        }
        given = {
            port.name: next(paths) if port.is_artifact else inputs.get(port.name)
            for port in spec.inputs
        }
        context = {
            each.removeprefix("transload_"): inputs.get(each) or "" for each in (*IDENTITY, KEY)
        }
        values = run_task(spec, given, {**context, "parent": inputs.get(PARENT) or ""}, made)
    except TaskFailed as exc:
        return int(exc.code or 0)
    artifacts = artifacts_of(request, {name: each.metadata for name, each in made.items()})
    report(request, {"parameterValues": values, "artifacts": artifacts})
    return 0
