"""The job of a task of Kubeflow Pipelines: whose it is, who ended the task, how the task ends.

This imports no KFP, since the image of a launcher need not have it.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SpecError, SubmitError, TransloadError
from transload.pipelines import (
    Again,
    Ending,
    ExecutionOptions,
    Identity,
    Launch,
    Step,
    host_runner,
    inside_job,
)
from transload.runner import Cluster, Job
from transload.runtime.tracking import TrackingError
from transload.specs import is_started
from transload_kfp import sigterm
from transload_kfp.inline import last_word, say
from transload_kfp.run_watch import RunWatch
from transload_kfp.states import ENDINGS, EXIT_NO_RESULT

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.schedulers.api import Stream
    from transload.specs import AppStatus

HOST: Final = "kfp"
"""Session name of all handles."""

NODE: Final = "TRANSLOAD_KFP_NODE"
"""The variable of a task with the name of its node, which Argo gives to each try of each task.

An example is ``loop-z28kb(0).root(0).for-loop-2(0).iteration-item(4:0.5)(0).sh(0).executor(1)``: the
Workflow, a pipeline, a loop, its item number 4 with its value, a task. After each comes the number
of the try.
"""
NODE_FIELD: Final = "metadata.annotations['workflows.argoproj.io/node-name']"
"""The field of the task's pod from which that comes."""
EACH_TASK: Final = "each task"
"""The key of tasks that only their place in the run tells apart."""

FIRST_ANSWER_S: Final = 2.0
"""Seconds to wait for the first word of the run's Workflow.

A pod of a backend has one second after SIGTERM: without that word, its job goes on.
"""

_TRY: Final = re.compile(r"\((\d+)\)(?=\.|$)")


def place_of(node: str) -> str:
    """Return what every try of one task shares, and no other task of the run.

    >>> place_of("loop-z28kb(0).root(0).for-loop-2(0).iteration-item(4:0.5)(0).sh(0).executor(1)")
    'root.for-loop-2.iteration-item(4:0.5).sh.executor'
    """
    _, _, place = _TRY.sub("", node).partition(".")
    return place


def tries_of(node: str) -> list[int]:
    """Return the number of the try of each part, which grow with each retry of the backend.

    >>> tries_of("files-zbwdn(0).root(0).sh(0).executor(2)")
    [0, 0, 0, 2]
    """
    return [int(each) for each in _TRY.findall(node)]


def identity_of(words: Mapping[str, str], arguments: Mapping[str, Any]) -> Identity:
    """Return whose job it is, which is equal for every try of a task in one run.

    Args:
        words: what is known of the task: its ``run`` and ``run_name``, the ``task``, and its
            ``node`` on a backend. Its ``path`` tells it from others of its pipeline, its node and
            the user's ``key`` from others of its loop.
        arguments: value of each input.

    Raises:
        SpecError: for a task of a loop of which nothing here tells it from the others.
    """
    place = place_of(words.get("node", ""))
    key = words.get("key", "")
    if key == EACH_TASK and not place:
        raise SpecError(
            "key: this task runs once for each item of a ParallelFor, no input depends on the item, "
            "and only a backend of Kubeflow Pipelines tells such tasks apart: all of them would "
            "share one job. Give each a key: key=item"
        )
    canonical = json.dumps(dict(arguments), sort_keys=True, default=str)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    run = (words.get("run", ""), words.get("run_name", ""))
    return Identity(HOST, run, (words.get("path", ""), place, key, digest, words.get("task", "")))


class KfpStep(Step):
    """The job of a task.

    Args:
        identity: whose it is.
        launch: what to submit.
        options: how it is run.
        cluster: what the component carries of a cluster, if it does.
        inherit_env: give the job the environment of the task.
        run: tells whether a person ended the task's run.
        words: what is known of the task (see `identity_of`).
        arguments: what a component may declare (``trial_idx`` …).
    """

    host = HOST

    def __init__(
        self,
        identity: Identity,
        launch: Launch,
        options: ExecutionOptions,
        *,
        cluster: Mapping[str, Any] | None = None,
        inherit_env: bool = False,
        run: RunWatch,
        words: Mapping[str, str] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        words = words or {}
        node = words.get("node", "")
        tries = tries_of(node)
        super().__init__(
            launch,
            options,
            runner=runner_of(cluster, inherit_env=inherit_env),
            arguments=arguments,
            tried=sum(tries),
        )
        self._identity = identity
        self._run = run
        told: dict[str, Any] = {
            **{name: words.get(name) for name in ("run", "run_name", "key", "task")},
            "node": place_of(node),
            "tries": tries,
        }
        self._own_words = {name: word for name, word in told.items() if word}
        self._page_is_said = False

    def identity(self) -> Identity:
        """Return whose job it is."""
        return self._identity

    def words(self) -> dict[str, Any]:
        """Return the run, the task and its node, and the numbers of this try."""
        return self._own_words

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell a person's *retry run* from a backend's next try, whose number has grown.

        A pod that is deleted by force comes again without being counted. It looks as a person's
        retry does, but its job runs.
        """
        before = kept.get("tries")
        after = now.get("tries")
        if not before or not after or after > before:
            return Again.NO
        return Again.IF_ENDED

    def changed(self, status: AppStatus) -> None:
        """Say once, when the job has started, where a person finds it, if it has a page."""
        if self._page_is_said or not is_started(status.state):
            return
        self._page_is_said = True
        page = Job(str(self.handle), self.runner).page()
        if page:
            say(f"its page: {page}")

    def say(self, text: str) -> None:
        """Write to the log of the task."""
        say(text)

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Put a line of a replica into the log of the task."""
        print(f"{role}/{replica} {line.rstrip()}", flush=True)  # noqa: T201

    def asked(self) -> bool:
        """Tell whether SIGTERM came since somebody asked for the task's end."""
        return end_asked_for(self._run)

    @contextmanager
    def ending_with_its_task(self) -> Iterator[None]:
        """Give a context in which the end of the run, or of the pod, reaches the job.

        It acts first and speaks afterwards. After SIGTERM the pod has a second at most, and nobody
        may read what is said.
        """

        def end() -> None:
            self.kill(asked=True)
            say("the run was ended by a person")

        def terminate(number: int, frame: FrameType | None) -> None:
            self.kill()
            say(f"SIGTERM{self._what_follows()}")

        before: Any = None
        with suppress(ValueError):  # outside of the main thread, signals are somebody else's
            before = signal.signal(signal.SIGTERM, terminate)
        if sigterm.noted:
            terminate(signal.SIGTERM, None)
        self._run.start(end)
        try:
            yield
        finally:
            self._run.stop()
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def _what_follows(self) -> str:
        """Return what SIGTERM does, as far as it is known in its handler."""
        if self.options.on_kill == "detach" or inside_job():
            return ": detaching from the job"
        if self._run.ended is False:
            return ", and nobody ended the run"
        return ": cancelling the job"


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


def runner_of(cluster: Mapping[str, Any] | None, *, inherit_env: bool) -> Runner:
    """Return the runner of this process, which knows the cluster that a component carries."""
    clusters = []
    if cluster:
        clusters.append(Cluster.from_dict(cluster))
    return host_runner(HOST, inherit_env=inherit_env, clusters=clusters)


class TaskFailed(SystemExit):
    """Ends the task's process with an exit code. What happened has been said."""


@contextmanager
def failing_the_task(*, ended_well: bool = False) -> Iterator[None]:
    """Give a context in which an error ends the task's process, after its last word.

    Args:
        ended_well: the job did, so that its results are to blame.

    Raises:
        TaskFailed: with the exit code.
    """
    try:
        yield
    except TransloadError as exc:
        code = ENDINGS[Ending.of(exc)]
        text = str(exc)
        if ended_well or isinstance(exc, TrackingError):
            code = EXIT_NO_RESULT
            text = f"the job ended well, but {exc}"
        elif isinstance(exc, SubmitError) and not exc.transient:
            code = ENDINGS[Ending.MISCONFIGURED]
        last_word(text)
        raise TaskFailed(code) from exc
