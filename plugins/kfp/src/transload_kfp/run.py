"""The launcher at run time: submits an app through a scheduler and waits, inside a task of Kubeflow Pipelines.

Imports no KFP: the container form runs ``python3 -m transload_kfp SPEC EXECUTOR_INPUT FOLDER``, which calls `main`; the
Python form calls `launch_in_component` from a few generated lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, PluginError, SpecError, StateUnknown, TransloadError
from transload.pipelines import AppCancelled, Detached, Execution, Identity, host_runner
from transload.runtime.tracking import FsspecResultTracker, TrackingError
from transload_kfp import sigterm
from transload_kfp.inline import empty, metrics_of, write
from transload_kfp.launch_spec import IDENTITY, KEY, PARENT, LaunchSpec
from transload_kfp.states import EXIT_CANCELLED, EXIT_UNKNOWN

if TYPE_CHECKING:
    from transload.pipelines import LogSink
    from transload.runner import AppResults
    from transload.schedulers.api import Stream

HOST: Final = "kfp"
EXIT_FAILED: Final = 1
EXIT_WRONG: Final = 2
EXIT_NO_RESULT: Final = 70
EXIT_DETACHED: Final = 128 + int(signal.SIGTERM)


@dataclass(frozen=True)
class Place:
    """What Kubeflow Pipelines says of the task.

    Args:
        job_id: of the run.
        job_name: of the run.
        task_name: of the task.
        path: what tells the task from others of its pipeline, made when compiling.
        key: what tells it from others of its loop, given by the user.
        parent: handle of the app that this one derives from.
    """

    job_id: str = ""
    job_name: str = ""
    task_name: str = ""
    path: str = ""
    key: str = ""
    parent: str = ""

    def identity(self, title: str, arguments: Mapping[str, Any]) -> Identity:
        """Return whose app it is: equal for every try of the task, different for everything else."""
        canonical = json.dumps(dict(arguments), sort_keys=True, default=str)
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
        key = (self.path, self.key, digest, self.task_name or title)
        return Identity(HOST, f"{self.job_id}/{self.job_name}", key)


@dataclass
class Outcome:
    """What a launcher reports.

    Args:
        handle: the app.
        values: output → value, declared results only.
        results: all that the app reported; None for a dry-run.
    """

    handle: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    results: AppResults | None = None

    @property
    def metrics(self) -> dict[str, float | str]:
        """The numbers among the results; NaN and infinities as text, for JSON has none."""
        return metrics_of(self.results.results if self.results is not None else {})

    @property
    def notes(self) -> dict[str, str]:
        """What the results artifact says of the app: its handle, and the page about it where there is one."""
        from transload.plugins import get_plugins

        if not self.handle:
            return {}
        link = get_plugins().app_link(self.handle)
        return {"transload_handle": self.handle, **({"transload_link": link} if link else {})}


class LaunchFailed(SystemExit):
    """Ends the process; what happened has been said."""


def execution_of(
    spec: LaunchSpec, arguments: Mapping[str, Any], place: Place, sink: LogSink | None = None
) -> Execution:
    """Return the execution of the launcher's app.

    Args:
        spec: what the component carries.
        arguments: input → value.
        place: what KFP says of the task.
        sink: gets the log lines; default: standard output.

    Raises:
        SpecError: for a wrong argument.
    """
    launch = spec.launch_with(arguments)
    if place.parent:
        launch = replace(launch, parent_run_id=place.parent)
    # a try after the first: KFP has seen the failure of the one before
    options = replace(spec.execution_options(), answer_lost=os.environ.get("KFP_RETRY_INDEX", "0") not in ("", "0"))
    return Execution(
        host_runner(HOST, inherit_env=spec.inherit_env),
        launch,
        place.identity(launch.name, arguments),
        options,
        sink=sink or _print_line,
        log=say,
    )


def run_launch(spec: LaunchSpec, arguments: Mapping[str, Any], place: Place) -> Outcome:
    """Submit the app or attach to it, wait, return what it reported; SIGTERM does what ``on_kill`` says.

    Raises:
        LaunchFailed: with the exit code, once the reason was said.
    """
    execution: Execution | None = None
    try:
        execution = execution_of(spec, arguments, place)
        if spec.dry_run:
            print(execution.dry_run(), flush=True)  # noqa: T201
            return Outcome()
        with killed_by_sigterm(execution):
            results = execution.run()
    except TrackingError as exc:
        raise _no_result(exc) from exc
    except TransloadError as exc:
        say(_NOT_FOLLOWED if isinstance(exc, Detached) and exc.handle is None else str(exc))
        raise LaunchFailed(exit_code(exc)) from exc
    assert execution.handle is not None
    say(f"{execution.handle} SUCCEEDED")
    try:
        return Outcome(execution.handle, spec.output_values(results), results)
    except TransloadError as exc:
        raise _no_result(exc) from exc


_NOT_FOLLOWED: Final = "stopped before the app was submitted or found again; on_kill holds for one that is there"


def _no_result(why: TransloadError) -> LaunchFailed:
    say(f"the app ended well, but {why}")
    return LaunchFailed(EXIT_NO_RESULT)


def _decoded(text: str) -> LaunchSpec:
    """Return the spec that a component carries.

    Raises:
        LaunchFailed: if it is none that this version reads.
    """
    try:
        return LaunchSpec.decode(text)
    except TransloadError as exc:
        say(str(exc))
        raise LaunchFailed(EXIT_WRONG) from exc


def exit_code(error: TransloadError) -> int:
    """Return how a launcher ends for a failure."""
    for kind, code in (
        (AppCancelled, EXIT_CANCELLED),
        (StateUnknown, EXIT_UNKNOWN),
        (Detached, EXIT_DETACHED),
        ((SpecError, ConfigError, PluginError), EXIT_WRONG),
    ):
        if isinstance(error, kind):
            return code
    return EXIT_FAILED


def _print_line(role: str, replica: int, stream: Stream, line: str) -> None:
    print(f"{role}/{replica} {line.rstrip()}", flush=True)  # noqa: T201


def say(text: str) -> None:
    """Write to the task's log."""
    print(f"[transload] {text}", file=sys.stderr, flush=True)  # noqa: T201


class killed_by_sigterm:  # noqa: N801 - reads as what it does
    """For the length of a ``with``, SIGTERM does to the app what ``on_kill`` says."""

    def __init__(self, execution: Execution) -> None:
        self.happened = False
        self._execution = execution
        self._before: Any = None

    def __enter__(self) -> killed_by_sigterm:
        def kill(number: int, frame: FrameType | None) -> None:
            self.happened = True
            say(f"SIGTERM: {'cancelling' if self._execution.options.on_kill == 'cancel' else 'detaching from'} the app")
            self._execution.kill()

        with suppress(ValueError):  # not in the main thread: whoever runs us there keeps its own way
            self._before = signal.signal(signal.SIGTERM, kill)
        if sigterm.was_noted():
            kill(signal.SIGTERM, None)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)


# -- outputs


@dataclass
class MadeArtifact:
    """An artifact of KFP's that comes out, as far as it is used here.

    Args:
        path: where its content goes.
        metadata: what KFP keeps with it.
    """

    path: str
    metadata: dict[str, Any] = field(default_factory=dict)


def write_artifacts(outcome: Outcome, made: Mapping[str, Any]) -> None:
    """Make the results artifact a tracker base with what the app reported, so that a downstream app reads it by key.

    Args:
        outcome: what the launcher reports.
        made: name → artifact, KFP's or a `MadeArtifact`.

    Raises:
        LaunchFailed: if the app has reported what no result can be, such as a text that is too long.
    """
    folder = made["results"].path
    empty(folder)
    made["results"].metadata.update(outcome.notes)
    made["metrics"].metadata.update(outcome.metrics)
    if outcome.results is not None:
        tracker = FsspecResultTracker(folder)
        for key, values in outcome.results.results.items():
            try:
                tracker[key] = dict(values)
            except TransloadError as exc:
                raise _no_result(exc) from exc


def launch_in_component(
    spec: str, arguments: Mapping[str, Any], place: Mapping[str, str], made: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the launcher inside a Python component; return output → value.

    Args:
        spec: the encoded spec.
        arguments: input → value; None: not given.
        place: fields of a `Place`.
        made: KFP's artifacts that come out, by name.

    Raises:
        LaunchFailed: with the exit code.
    """
    outcome = run_launch(_decoded(spec), arguments, Place(**place))
    write_artifacts(outcome, made)
    return {"handle": outcome.handle, **outcome.values}


def main(words: list[str]) -> int:
    """Run the container form: the encoded spec, KFP's executor input as JSON, paths of artifacts, made ones first."""
    try:
        _run(_decoded(words[0]), json.loads(words[1]), words[2:])
    except LaunchFailed as exc:
        return int(exc.code or 0)
    return 0


def _run(spec: LaunchSpec, request: Mapping[str, Any], paths: Sequence[str]) -> None:
    inputs = request.get("inputs", {}).get("parameterValues", {})
    made = {name: MadeArtifact(path) for name, path in zip(spec.made_artifacts, paths, strict=False)}
    folders = dict(zip(spec.artifact_ports, paths[len(made) :], strict=True))
    given = {name: inputs.get(name) for name in spec.parameter_ports}
    named = {each.removeprefix("transload_"): inputs.get(each) or "" for each in (*IDENTITY, KEY)}
    outcome = run_launch(spec, {**given, **folders}, Place(**named, parent=inputs.get(PARENT) or ""))
    write_artifacts(outcome, made)
    artifacts = {}
    for name, each in request["outputs"]["artifacts"].items():
        artifacts[name] = {"artifacts": [{**each["artifacts"][0], "metadata": made[name].metadata}]}
    values = {} if spec.dry_run else {"handle": outcome.handle, **outcome.values}
    write(request["outputs"]["outputFile"], json.dumps({"parameterValues": values, "artifacts": artifacts}))
