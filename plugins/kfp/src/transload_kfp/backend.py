"""Look at, wait for and end runs on a backend of Kubeflow Pipelines, in transload's states."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from transload.errors import (
    AppNotFound,
    ConfigError,
    SchedulerUnavailable,
    StateUnknown,
    TransloadTimeout,
)
from transload.schedulers import check_seconds, patience_left, unknown_for, unknown_since
from transload.specs import AppState, AppStatus, ReplicaStatus, RoleStatus, is_terminal
from transload_kfp.states import STATES

if TYPE_CHECKING:
    from kfp import Client

FIRST_PAUSE: Final = 0.25
ANSWER: Final = 15.0
"""Longest time in seconds that an answer is waited for. KFP's client itself waits for ever."""
_TRIES: Final = 4
"""How often the HTTP library asks before it gives up."""
_NOT_FOUND: Final = 404
_LATER: Final = (408, 429)
"""Answers to a question that is right, but was asked at the wrong moment."""


@dataclass
class RunDescription:
    """A run as it was seen.

    Args:
        run_id: its id.
        name: its name, for people.
        state: of the whole run.
        runtime_state: the same in KFP's own word.
        msg: why, if the backend says so.
        tasks: path of a task (``loop/train``, ``train#2`` for the second of a name) → its status.
    """

    run_id: str
    name: str
    state: AppState
    runtime_state: str
    msg: str = ""
    tasks: dict[str, AppStatus] = field(default_factory=dict)

    def is_terminal(self) -> bool:
        """Tell whether the run has ended."""
        return is_terminal(self.state)

    @property
    def status(self) -> AppStatus:
        """The run as one job, each task a role of it."""
        roles = [role for status in self.tasks.values() for role in status.roles]
        return AppStatus(
            self.state,
            msg=self.msg,
            roles=roles,
            cancel_requested=self.runtime_state in ("CANCELING", "CANCELED"),
        )


def describe_run(client: Client, run_id: str) -> RunDescription:
    """Return what the backend says of a run now.

    Args:
        client: a ``kfp.Client``.
        run_id: the run.

    Raises:
        AppNotFound: if there is no such run.
        ConfigError: if the backend refuses the question, for the client's credentials are wrong for
            example.
        SchedulerUnavailable: if the backend cannot be asked.
    """
    return _seen(client, run_id, ANSWER)


def wait_for_run(
    client: Client,
    run_id: str,
    timeout: float | None = None,
    *,
    poll_interval: float = 5.0,
    patience: float = 300.0,
    on_change: Callable[[RunDescription], object] | None = None,
) -> RunDescription:
    """Wait until a run has ended, in whatever state, and return it with all of its tasks.

    Cancelled runs end too.

    Args:
        client: a ``kfp.Client``.
        run_id: the run.
        timeout: seconds, or None for no limit. The run goes on when it passes. It holds for a
            silent backend too.
        poll_interval: longest pause in seconds between two questions.
        patience: seconds that the backend may be out of reach, or not know, without a break.
        on_change: gets the run whenever its state, or a task's, has changed.

    Raises:
        AppNotFound: if there is no such run.
        TransloadTimeout: if time ran out.
        StateUnknown: if patience is exhausted.
        ConfigError: for a wrong pause, or if the backend refuses the question, at once.
    """
    check_seconds("poll_interval", poll_interval)
    check_seconds("patience", patience, zero=True)
    limit = float("inf") if timeout is None else timeout
    end = time.monotonic() + limit
    since = None
    pause = min(FIRST_PAUSE, poll_interval)
    last: RunDescription | None = None
    last_word = "not known"
    while True:
        state = AppState.UNKNOWN
        why = ""
        try:
            seen = _seen(client, run_id, _answer_within(end - time.monotonic()))
        except SchedulerUnavailable as exc:
            why = str(exc)
        else:
            state = seen.state
            last_word = seen.runtime_state
            if seen != last:
                last = seen
                pause = min(FIRST_PAUSE, poll_interval)
                if on_change is not None:
                    on_change(seen)
            if seen.is_terminal():
                return seen
        since = unknown_since(state, since)
        unknown_left = patience_left(patience, since)
        if unknown_left <= 0:
            raise StateUnknown(f"run {run_id}", unknown_for(since), why)
        left = end - time.monotonic()
        if left <= 0:
            raise TransloadTimeout(
                f"run {run_id} has not ended within {limit:g} s (state {last_word}); it goes on"
            )
        time.sleep(min(pause, left, unknown_left))
        pause = min(pause * 1.5, poll_interval)


def _answer_within(left: float) -> float:
    """Return how many seconds an answer is waited for.

    Args:
        left: seconds until the caller's time runs out. Each of the tries takes its part of them.
    """
    return max(1.0, min(ANSWER, left / _TRIES))


def cancel_run(client: Client, run_id: str) -> None:
    """Ask for the end of a run, without waiting. Nothing happens if it has ended.

    Raises:
        AppNotFound: if there is no such run.
        ConfigError: if the backend refuses it.
        SchedulerUnavailable: if the backend cannot be asked.
    """
    if describe_run(client, run_id).is_terminal():
        return
    try:
        _ask(run_id, lambda: client.terminate_run(run_id))
    except ConfigError:
        if not describe_run(client, run_id).is_terminal():  # else it has ended in between
            raise


def _seen(client: Client, run_id: str, seconds: float) -> RunDescription:
    """Do what ``client.get_run`` does, for at most ``seconds``, if the client is KFP's."""
    import kfp

    is_kfp = isinstance(client, kfp.Client) and type(client).get_run is kfp.Client.get_run

    def question() -> Any:
        if not is_kfp:
            return client.get_run(run_id)
        wait = (seconds, seconds)  # to connect and to read: of a float alone it takes no notice
        return client._run_api.run_service_get_run(run_id=run_id, _request_timeout=wait)

    run = _ask(run_id, question)
    word = _word(run.state)
    details: Iterable[Any] = ()
    if run.run_details is not None:
        details = run.run_details.task_details or ()
    return RunDescription(
        run_id=run.run_id,
        name=run.display_name or "",
        state=STATES.to_app(word),
        runtime_state=word,
        msg=_message(run.error),
        tasks=_tasks(details),
    )


def _ask(run_id: str, question: Callable[[], Any]) -> Any:
    import kfp_server_api  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import urllib3

    try:
        return question()
    except kfp_server_api.ApiException as exc:
        if exc.status == _NOT_FOUND:
            raise AppNotFound(f"run {run_id}") from exc
        said = f"run {run_id}: the backend answers {exc.status} {exc.reason}"
        if 400 <= (exc.status or 0) < 500 and exc.status not in _LATER:
            raise ConfigError(
                f"{said}: check the client's host, namespace and credentials"
            ) from exc
        raise SchedulerUnavailable(said) from exc
    except (urllib3.exceptions.HTTPError, OSError) as exc:
        raise SchedulerUnavailable(f"run {run_id}: the backend cannot be reached: {exc}") from exc


def _tasks(details: Iterable[Any]) -> dict[str, AppStatus]:
    ordered = sorted(details, key=_creation)
    by_id = {each.task_id: each for each in ordered}
    made: dict[str, AppStatus] = {}
    for each in ordered:
        base = "/".join(_path(each, by_id))
        path = base
        number = 1
        while path in made:
            number += 1
            path = f"{base}#{number}"
        made[path] = _status(each, path)
    return made


def _creation(task: Any) -> tuple[float, str]:
    """Return what tasks are sorted by."""
    return _seconds(task.create_time) or 0.0, task.task_id or ""


def _path(task: Any, by_id: dict[str, Any]) -> list[str]:
    names: list[str] = []
    seen: set[str] = set()
    while task is not None and task.task_id not in seen:
        seen.add(task.task_id)
        names.append(task.display_name or task.task_id)
        task = by_id.get(task.parent_task_id)
    return names[::-1]


def _status(task: Any, path: str) -> AppStatus:
    word = _word(task.state)
    state = STATES.to_app(word)
    restarts = _restarts(task.state_history or ())
    replica = ReplicaStatus(
        id=0,
        state=state,
        role=path,
        hostname=task.pod_name or "",
        start_time=_seconds(task.start_time),
        restarts=restarts,
    )
    if is_terminal(state):
        replica.end_time = _seconds(task.end_time)
    message = _message(task.error)
    if not message and word == "SKIPPED":
        message = "taken from the cache, or not needed"
    return AppStatus(
        state,
        num_restarts=restarts,
        msg=message,
        roles=[RoleStatus(path, [replica])],
        cancel_requested=word in ("CANCELING", "CANCELED"),
    )


def _restarts(history: Iterable[Any]) -> int:
    """Return how often a task was tried again. A try begins after a failure."""
    words = [_word(each.state) for each in history]
    pairs = pairwise(words)
    return sum(before == "FAILED" and after != "FAILED" for before, after in pairs)


def _word(state: object) -> str:
    return str(state or "RUNTIME_STATE_UNSPECIFIED")


def _message(error: Any) -> str:
    if error is None:
        return ""
    text = str(error.message or f"error {error.code}")
    return " ".join(text.split())


def _seconds(moment: datetime | None) -> float | None:
    """Return a moment in seconds since the epoch, or None if it has not come."""
    # a backend writes the year 1 or 1970 for what has not happened
    if moment is None or moment.year <= 1970:
        return None
    return moment.timestamp()
