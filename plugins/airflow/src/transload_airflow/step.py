"""The job of an Airflow task, as the task's process or its trigger looks after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowTaskTimeout

from transload.errors import TransloadError
from transload.pipelines import (
    Again,
    ExecutionOptions,
    Identity,
    Launch,
    Step,
    interrupted,
    json_safe,
    where,
)
from transload.runner import Cluster, Runner
from transload.specs import parse_app_handle
from transload_airflow.adapter import HOST
from transload_airflow.log_lines import log_line, log_line_in_pieces, write_about_job
from transload_airflow.runner import runner_for_tasks
from transload_airflow.settings import workers_share_a_machine
from transload_airflow.task_instance import HANDLES, end_asked_for, keep, kept, will_reattach
from transload_airflow.tries import asked_anew, retried, words_of

if TYPE_CHECKING:
    from transload.schedulers.api import Stream
    from transload.specs import AppStatus

CANCEL_S: Final = 20.0
"""Seconds for which a scheduler that cannot be reached is asked again to cancel.

Airflow gives a trigger 30 by default (``[triggerer] on_kill_timeout``).
"""

PAUSE_S: Final = 1.0
"""Seconds between two such questions."""

PROGRESS_KEY: Final = "progress"
"""XCom key of how far the job was at its end, as fields of `transload.specs.Progress`."""


class CallbackRaised(BaseException):
    """A user's callback has raised, so that the task fails.

    It is no Exception, since the core takes those for failures of a display.

    Args:
        error: what it has raised.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class AirflowStep(Step):
    """The job of a task.

    Args:
        launch: what to submit. None means that this process only follows and collects.
        options: how the job is run.
        identity: whose job it is.
        runner: submits and asks.
        log: logger of the task, or of its trigger.
        context: Airflow's context of the task. None in a trigger.
        key: which of the task's jobs it is, if it has several.
        arguments: what a component may declare (``trial_idx`` …).
        on_status: the user's callback, which gets each new status.
    """

    host = HOST

    def __init__(
        self,
        launch: Launch | None,
        options: ExecutionOptions,
        *,
        identity: Identity,
        runner: Runner,
        log: Any,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        on_status: Callable[[AppStatus], object] | None = None,
    ) -> None:
        self.context = context or {}
        tried = 0
        noted: Mapping[str, Any] = {}
        if launch is not None:
            tried = retried(self.context)
            noted = kept(self.context, HANDLES).get(key or "", {})
        super().__init__(
            launch,
            options,
            runner=runner,
            arguments=arguments,
            tried=tried,
            one_machine=workers_share_a_machine(),
            host_retries=getattr(self.context.get("task"), "retries", None),
            hint=noted.get("handle"),
            hint_words=noted.get("words"),
        )
        self._identity = identity
        self._key = key
        self._log = log
        self._on_status = on_status

    # -- what Airflow says and shows

    def identity(self) -> Identity:
        """Return whose job it is, which is equal for all tries of a task, cleared or not."""
        return self._identity

    def words(self) -> dict[str, Any]:
        """Return what Airflow says of this try."""
        return words_of(self.context)

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell whether somebody has cleared the task since its newest job was submitted."""
        found = asked_anew(kept, now)
        rescheduled = self.context.get("task_reschedule_count", 0)
        if found is Again.NO and rescheduled and kept.get("try") == now["try"]:
            return Again.SAME_TRY
        return found

    def note(self) -> None:
        """Have Airflow keep which job it is, and its words of the try that has submitted it.

        Raises:
            airflow.sdk.exceptions.AirflowRuntimeError: if Airflow refuses them.
        """
        if self.attached and self.handle == self.hint:
            return
        words = None if self.attached else self.words()
        noted = {"handle": self.handle, "words": words}
        keep(self.context, HANDLES, {self._key or "": noted})

    def asked(self) -> bool:
        """Tell whether somebody marked or cleared the task, or deleted its run."""
        if "ti" not in self.context:
            return interrupted()
        return end_asked_for(self.context)

    def say(self, text: str) -> None:
        """Write a line about the job into the log of the task."""
        write_about_job(self._log, text)

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Write a line of a replica into the log of the task."""
        log_line(role, replica, line)

    def changed(self, status: AppStatus) -> None:
        """Call the user's callback, and push how far the job was at its end, as an XCom.

        Raises:
            CallbackRaised: if the callback has raised.
        """
        if self._on_status is not None:
            try:
                self._on_status(status)
            except Exception as exc:
                raise CallbackRaised(exc) from exc
        if "ti" not in self.context or status.progress is None or not status.is_terminal():
            return
        said = asdict(status.progress.without_history())
        values = {name: value for name, value in said.items() if value not in (None, [])}
        self.context["ti"].xcom_push(key=PROGRESS_KEY, value=json_safe(values))

    # -- its end

    @contextmanager
    def ending_with_its_task(self) -> Iterator[None]:
        """Give a context in which the job ends with its task, if that was asked for.

        Transload's own errors say what becomes of the job. After any other error, of a callback or
        of Airflow's API, it goes on if a retry will reattach to it. A time limit of Airflow's
        cancels it in any case.
        """
        try:
            yield
        except TransloadError:
            raise
        except AirflowTaskTimeout:
            self.cancel_for_long()
            raise
        except CallbackRaised as exc:
            self._end_by(exc.error)
            raise exc.error from exc.error.__cause__
        except Exception as exc:
            self._end_by(exc)
            raise
        except BaseException:
            self.give_up()
            raise

    def _end_by(self, error: Exception) -> None:
        """Give the job up after an error that is not of the job, unless a retry will reattach."""
        if not will_reattach(error, self.context):
            self.give_up(asked=True)

    def cancel_for_long(self) -> None:
        """Cancel the job. A scheduler that cannot be reached is asked again, for `CANCEL_S`."""
        end = time.monotonic() + CANCEL_S
        cancelled = self.cancel()
        while not cancelled and time.monotonic() < end:
            time.sleep(PAUSE_S)
            cancelled = self.cancel()
        if not cancelled:
            self.say(f"the task was ended, but {self.handle} could not be cancelled, and goes on")

    # -- in the triggerer

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON values of which a trigger makes its step. They hold no secrets.

        Of a time limit, they have the seconds that are left, since clocks differ.
        """
        handle = str(self.handle)
        seconds_left = None
        if self.options.deadline is not None:
            seconds_left = max(0.0, self.options.deadline - time.time())
        cluster = self.runner.cluster(parse_app_handle(handle).scheduler_backend)
        return {
            "handle": handle,
            "identity": [list(self._identity.run), list(self._identity.path)],
            "options": replace(self.options, deadline=None).to_dict(),
            "seconds_left": seconds_left,
            "cluster": cluster.to_dict(),
            "cursor": self.cursor,
            "place": where(),
            "at": time.time(),
        }


class TriggerStep(AirflowStep):
    """The job of a deferred task, in the triggerer.

    Args:
        values: from `AirflowStep.to_dict`.
        log: logger of the trigger.
        hands_on_lines: put the job's lines into the log of the task.
    """

    def __init__(self, values: Mapping[str, Any], log: Any, *, hands_on_lines: bool = True) -> None:
        options = ExecutionOptions.from_dict(values["options"])
        if values["seconds_left"] is not None:
            options = replace(options, deadline=time.time() + values["seconds_left"])
        super().__init__(
            None,
            options,
            identity=identity_in(values),
            runner=runner_for_tasks(cluster=Cluster.from_dict(values["cluster"])),
            log=log,
        )
        self.hands_on_lines = hands_on_lines

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Write a line of a replica into the log of the task, a very long one as several."""
        log_line_in_pieces(role, replica, line)


def identity_in(values: Mapping[str, Any]) -> Identity:
    """Return the identity in the values of `AirflowStep.to_dict`, or in a trigger's event."""
    run, path = values["identity"]
    return Identity(HOST, tuple(run), tuple(path))
