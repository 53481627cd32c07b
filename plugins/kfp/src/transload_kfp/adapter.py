"""Run jobs as tasks of Kubeflow Pipelines.

This holds what is Kubeflow's own, while the core runs the job. It imports no KFP, since the image
of a launcher need not have it.
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeGuard

import transload_kfp
from transload.errors import ConfigError, SpecError, TransloadError
from transload.pipelines import (
    AdapterIO,
    Again,
    Detached,
    Driver,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    LifecycleAdapter,
    LifecycleState,
    host_runner,
    inside_job,
)
from transload.runner import Cluster
from transload.runtime.tracking import TrackingError
from transload_kfp import sigterm
from transload_kfp.inline import last_word, say
from transload_kfp.launch_spec import EACH_TASK
from transload_kfp.node import node_of_task, place_of, tries_of
from transload_kfp.refusals import submit_fields
from transload_kfp.run_watch import RunWatch
from transload_kfp.states import ENDINGS, EXIT_NO_RESULT, STATES

if TYPE_CHECKING:
    from transload.pipelines import LogSink
    from transload.runner import Runner
    from transload.schedulers.api import Stream
    from transload_kfp.launch_spec import LaunchSpec
    from transload_search import Search

HOST: Final = "kfp"
"""Session name of all handles."""


def log_line(role: str, replica: int, stream: Stream, line: str) -> None:
    """Put a line of a replica into the log of the task."""
    print(f"{role}/{replica} {line.rstrip()}", flush=True)  # noqa: T201


@dataclass(frozen=True)
class TaskContext:
    """A task that runs, with its job, where that is submitted, and where its lines go.

    Args:
        identity: see `identity_of` for a launcher's.
        cluster: what the component carries of a cluster, if it does.
        inherit_env: give the job the environment of the task.
        sink: gets the job's log lines.
        context_args: arguments that a component may declare (``trial_idx`` …).
        run: tells whether a person ended the task's run.
        tries: number of the try of each part of the task's node (`tries_of`), empty where no
            backend says it.
    """

    identity: Identity
    cluster: Mapping[str, Any] | None = None
    inherit_env: bool = False
    sink: LogSink = log_line
    context_args: Mapping[str, Any] = field(default_factory=dict)
    run: RunWatch = field(default_factory=RunWatch)
    tries: Sequence[int] = ()


_RUN_WORDS: Final = ("run", "run_name")
_PATH_WORDS: Final = ("pipeline", "node", "key", "inputs", "task")
"""What the parts of a task's identity are (see `identity_of`)."""
_SHOWN_WORDS: Final = ("run", "run_name", "node", "key", "task")


class TaskFailed(SystemExit):
    """Ends the task's process with an exit code. What happened has been said."""


class KfpAdapter(LifecycleAdapter[TaskContext]):
    """The adapter that ``transload.pipelines.get_adapter("kfp")`` returns."""

    name = HOST
    states = STATES
    endings: ClassVar[Mapping[Ending, int]] = ENDINGS

    def convert(self, source: Any, **host_options: Any) -> Any:
        """Return a component, a launcher, or of a search a pipeline.

        It is a launcher if ``scheduler``, ``cfg`` or ``launcher=True`` is given.

        Args:
            source: an AppDef, its JSON, a component, a `transload.pipelines.Launch`, or a
                `transload_search.Search`.
            host_options: arguments of `component_from_app`, `launcher_from_app` or
                `search_pipeline`, with ``launch={"args": …, "scheduler": …}`` as in every adapter.

        Raises:
            UnsupportedFeature: for what one component cannot express, by field name.
            SpecError: for a wrong source, argument or input.
            ConfigError: for a wrong option.
        """
        # by the package's own names, since launchers import this module
        if _is_search(source):
            return _search_pipeline(source, host_options)
        source, launches = _launched(source, host_options)
        if launches:
            return transload_kfp.launcher_from_app(source, **host_options)
        return transload_kfp.component_from_app(source, **host_options)

    def dry_run(self, source: Any, **host_options: Any) -> str:
        """Return a component's YAML, what a launcher would submit, or a search's pipeline.

        Arguments and errors as in `convert`.
        """
        if _is_search(source):
            return transload_kfp.pipeline_text(_search_pipeline(source, host_options))
        source, launches = _launched(source, host_options)
        if launches:
            return transload_kfp.dry_run_launcher(source, **host_options)
        return transload_kfp.dry_run_component(source, **host_options)

    def identity(self, context: TaskContext) -> Identity:
        """Return whose job it is."""
        return context.identity

    def asked(self, context: TaskContext) -> Mapping[str, Any]:
        """Return the run, the task and its node, and the numbers of this try, where they are known."""
        names = (*_RUN_WORDS, *_PATH_WORDS)
        known = dict(zip(names, (*context.identity.run, *context.identity.path), strict=False))
        words: dict[str, Any] = {name: known[name] for name in _SHOWN_WORDS if known.get(name)}
        if context.tries:
            words["tries"] = list(context.tries)
        return words

    def asked_anew(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell a person's *retry run* from a backend's next try, whose number has grown.

        A pod that is deleted by force comes again without being counted. It looks as a person's
        retry does, but its job runs.
        """
        before = kept.get("tries")
        after = now.get("tries")
        if not before or not after or after > before:
            return Again.NO
        return Again.IF_ENDED

    def io(self, context: TaskContext) -> AdapterIO:
        """Return the task's log, and who is asked at its end. Kubeflow keeps nothing for us."""
        return AdapterIO(
            runner=runner_of(context.cluster, inherit_env=context.inherit_env),
            sink=context.sink,
            log=say,
            context_args=context.context_args,
            asked=partial(end_asked_for, context.run),
        )

    @contextmanager
    def cancel_on_exit(self, context: TaskContext, driver: Driver) -> Iterator[None]:
        """Give a context in which the end of the run or of the pod reaches the job.

        A person's end of the run does with the job what ``on_kill`` says. SIGTERM does so where it
        was asked for (`end_asked_for`).
        """

        def end() -> None:
            driver.kill(asked=True)
            say("the run was ended by a person")

        def kill(number: int, frame: FrameType | None) -> None:
            driver.kill()  # first: nobody may read what is said, and there is a second at most
            say(f"SIGTERM{_what_follows(context.run, driver.options)}")

        before: Any = None
        with suppress(ValueError):  # outside of the main thread, signals are somebody else's
            before = signal.signal(signal.SIGTERM, kill)
        if sigterm.noted:
            kill(signal.SIGTERM, None)
        context.run.start(end)
        try:
            yield
        finally:
            context.run.stop()
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def translate(self, error: TransloadError, context: TaskContext) -> TaskFailed:
        """Return how the task ends for an error, after saying why (see `task_failed`)."""
        return task_failed(error)


ADAPTER: Final = KfpAdapter()


# -- whose job it is, and where it goes


def identity_of(context: Mapping[str, str], title: str, arguments: Mapping[str, Any]) -> Identity:
    """Return whose job it is, which is equal for every try of a task in one run.

    Args:
        context: what Kubeflow Pipelines says of the task as ``job_id``, ``job_name``,
            ``task_name``, and ``node``, its name on a backend. Its ``path`` tells it from others of
            its pipeline, its node and ``key``, the user's, from others of its loop.
        title: the job's name, where the task has none.
        arguments: value of each input.

    Raises:
        SpecError: for a task of a loop of which nothing here tells it from the others.
    """
    place = place_of(context.get("node", ""))
    key = context.get("key", "")
    if key == EACH_TASK and not place:
        raise SpecError(
            "key: this task runs once for each item of a ParallelFor, no input depends on the item, "
            "and only a backend of Kubeflow Pipelines tells such tasks apart: all of them would "
            "share one job. Give each a key: key=item"
        )
    canonical = json.dumps(dict(arguments), sort_keys=True, default=str)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    task = context.get("task_name") or title
    run = (context.get("job_id", ""), context.get("job_name", ""))
    return Identity(HOST, run, (context.get("path", ""), place, key, digest, task))


def launcher_driver(
    context: Mapping[str, str],
    spec: LaunchSpec,
    arguments: Mapping[str, Any],
    *,
    sink: LogSink = log_line,
) -> tuple[TaskContext, Driver]:
    """Return the context of a launcher's task, and what looks after its job.

    Args:
        context: see `identity_of`. Its ``parent`` is the handle of the job that this one derives
            from.
        spec: what the component carries.
        arguments: value of each input.
        sink: gets the job's log lines.

    Raises:
        SpecError: for a wrong argument.
    """
    node = node_of_task()
    context = {"node": node, **context}
    launch = spec.launch_with(arguments)
    if context.get("parent"):
        launch = replace(launch, parent_run_id=context["parent"])
    task = TaskContext(
        identity_of(context, launch.name, arguments),
        cluster=spec.cluster,
        inherit_env=spec.inherit_env,
        sink=sink,
        run=RunWatch(context.get("job_id", "")),
        tries=tries_of(node),
    )
    # a later try does not report a loss once more
    options = replace(spec.execution_options(), loss_already_reported=any(task.tries))
    state = LifecycleState(task.identity, options)
    return task, Driver(
        launch, state, ADAPTER.io(task), asked=ADAPTER.asked(task), asked_anew=ADAPTER.asked_anew
    )


def check_files(spec: LaunchSpec, driver: Driver) -> None:
    """Check that the job has a folder for the files that are declared as results.

    Raises:
        SpecError: if it has none, which would be noticed only after its end.
    """
    files = [port.source for port in spec.outputs if port.is_artifact]
    if not files or driver.plan().tracker_base is not None:
        return
    raise SpecError(
        f"results[{files[0]!r}]: a file, and this scheduler gives the job no folder for files: give "
        "tracker_base='s3://…'"
    )


def runner_of(cluster: Mapping[str, Any] | None, *, inherit_env: bool) -> Runner:
    """Return the runner of this process, which knows the cluster that a component carries."""
    clusters = []
    if cluster:
        clusters.append(Cluster.from_dict(cluster))
    return host_runner(HOST, inherit_env=inherit_env, clusters=clusters)


# -- the end of a task


FIRST_ANSWER_S: Final = 2.0
"""Seconds to wait for the first word of the run's Workflow.

A pod of a backend has one second after SIGTERM: without that word, its job goes on.
"""


def end_asked_for(run: RunWatch) -> bool:
    """Tell whether SIGTERM came since somebody asked for the task's end.

    A person may have ended the run, or the time limit of the task has passed. A pod that is
    drained, evicted or deleted was not asked for. Where the run cannot be seen, SIGTERM is taken
    for a request. A job around the task can say so by itself.
    """
    if inside_job():
        return False
    ended = run.ended_by_now(FIRST_ANSWER_S)
    if ended is False:
        return run.limit_passed()
    return True


def _what_follows(run: RunWatch, options: ExecutionOptions) -> str:
    """Return what SIGTERM does, as far as it is known in its handler."""
    if options.on_kill == "detach" or inside_job():
        return ": detaching from the job"
    if run.ended is False:
        return ", and nobody ended the run"
    return ": cancelling the job"


@contextmanager
def failing_the_task(*, ended_well: bool = False) -> Iterator[None]:
    """Give a context in which an error ends the task's process.

    Args:
        ended_well: the job did, so that its results are to blame.

    Raises:
        TaskFailed: with the exit code.
    """
    try:
        yield
    except TransloadError as exc:
        raise task_failed(exc, ended_well=ended_well) from exc


def task_failed(error: TransloadError, *, ended_well: bool = False) -> TaskFailed:
    """Return how a task ends for an error, after logging why, also as termination message.

    Args:
        error: what happened.
        ended_well: the job did, so that its results are to blame.
    """
    code = ENDINGS[Ending.of(error)]
    text = str(error)
    if ended_well or isinstance(error, TrackingError):
        code = EXIT_NO_RESULT
        text = f"the job ended well, but {error}"
    elif isinstance(error, Detached) and error.handle is None:
        text = (
            "stopped before the job was submitted or reattached; on_kill concerns one that is there"
        )
    last_word(text)
    return TaskFailed(code)


# -- what `convert` is given


def _is_search(source: object) -> TypeGuard[Search]:
    """Tell whether a source is a Search. Without the extra transload-search nothing is."""
    return type(source).__module__.startswith("transload_search.")


def _search_pipeline(search: Search, host_options: Mapping[str, Any]) -> Any:
    if "tracker_base" not in host_options:
        raise ConfigError(
            "a search needs tracker_base, a folder for its state and for what its trials report: "
            "give tracker_base='s3://…' or a folder that all tasks see"
        )
    return transload_kfp.search_pipeline(search, **host_options)


def _launched(source: Any, host_options: dict[str, Any]) -> tuple[Any, bool]:
    """Return the source with its ``launch``, and whether a launcher is asked for."""
    launch = host_options.pop("launch", None)
    if launch is not None:
        source = Launch.of(source, **launch)
    if host_options.pop("launcher", None):
        return source, True
    if "scheduler" in host_options or "cfg" in host_options:
        return source, True
    if not isinstance(source, Launch):
        return source, False
    return source, bool(submit_fields(source))
