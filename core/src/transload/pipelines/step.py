"""Run the job of one step of an orchestrator: submit it or attach to it, follow, collect, end it.

An adapter is written on `Step` like this. ``plugins/_template`` has all of it::

    class FlowStep(Step):
        host = "flow"

        def __init__(self, context, launch, options):
            super().__init__(launch, options, tried=context.tries)
            self._context = context

        def identity(self):  # whose job it is, in words that never change while the step exists
            return Identity(self.host, (self._context.run_id,), (self._context.step,))

        def say(self, text):  # a line of the step's log
            self._context.log(text)

        def asked(self):  # did a person, or a limit of the host, want this step's end?
            return self._context.is_cancelled()

    def work(context):
        step = FlowStep(context, launch, options)
        context.on_stop(step.kill)
        try:
            return step.run()
        except TransloadError as exc:
            raise context.failure(str(exc), again=options.host_may_retry(exc)) from exc

- A host that tells apart whether a person runs a step again gives `words` and `again` as well.
- A host that shows how far a job is overrides `changed`, and one that clears something before a job
  is submitted `before_submit`.
- An event loop awaits `run_async`. Cancelling its task is a `kill`.
- A host that polls calls `start`, now and then `look`, and at the end `collect`.
- A host that defers calls `start`, and gives `handle`, `cursor` and `where()` to the process that
  waits. That one makes a step without a launch, calls `attach`, and awaits `event`. The host then
  calls `resume` with this event, which attaches and collects, and submits nothing. (One that has
  something to do in between calls `attach_by`, `follow` and `collect`.)

The decisions are in ``chain.py`` (what to do about the newest job of the step) and in `_stop` (is the
job to end?).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from transload.errors import (
    AppExists,
    AppFailed,
    AppNotFound,
    ConfigError,
    SchedulerUnavailable,
    StateUnknown,
    TransloadError,
    TransloadTimeout,
)
from transload.pipelines.chain import (
    Action,
    Again,
    Member,
    Newest,
    decide,
    first_of_asking,
    is_own,
    json_values,
    newest_of,
    refuse,
)
from transload.pipelines.end_requests import interrupted, somebody_asked
from transload.pipelines.errors import AppCancelled, AppLost, Detached, StillRunning
from transload.pipelines.identity import Identity, app_id_of, chain_of, where
from transload.pipelines.logs import LogForwarder
from transload.pipelines.options import (
    ExecutionOptions,
    OnKill,
    next_limit,
    note_state,
    retries_note,
    without_retries,
)
from transload.pipelines.status_lines import (
    Reported,
    end_line,
    new_interruptions,
    reach_line,
    status_lines,
)
from transload.runner.api import host_runner
from transload.runner.failures import failure_message
from transload.runner.logs import tail
from transload.runtime.progress_lines import lines_to
from transload.schedulers.asked import host_words
from transload.schedulers.cancelling import cancelling_for
from transload.schedulers.chains import chain_and_number
from transload.schedulers.follower import emit, watch
from transload.schedulers.patience import backoff, patiently, unknown_for, unknown_since
from transload.schedulers.subscription import Observation, Subscription, ended, observed
from transload.specs import AppState, AppStatus, make_app_handle, parse_app_handle

if TYPE_CHECKING:
    from transload.runner import AppResults, Launch, Plan, Runner
    from transload.schedulers.api import SchedulerBase, Stream
    from transload.specs import AppDef

_logger = logging.getLogger("transload.pipelines")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
"""The first and the longest pause, in seconds, between two questions to a scheduler that is away."""

FIRST_CANCEL_PAUSE: Final = 1.0
LONGEST_CANCEL_PAUSE: Final = 30.0
"""The first and the longest pause, in seconds, before a failed cancel is tried again."""

SHORTEST_SHOW_PAUSE: Final = 1.0
"""The shortest pause, in seconds, between two changes of how far a job is."""
SHOW_PAUSE_RATIO: Final = 9.0
"""A pause is at least so many times as long as the change of the display before it took."""

LAST_LINES: Final = 50
"""With so many of the last lines of each replica begins the log of a step that attaches."""

FOREVER: Final = float("inf")


class Place(NamedTuple):
    """Where jobs of a step are: a scheduler, and what their ids begin with there."""

    scheduler: str
    prefix: str


class Wait:
    """How long something is waited for, and the next pause between two questions."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._pause = FIRST_PAUSE

    def seconds(self) -> float:
        """Return how long it is waited for, from the first call on."""
        if self.since is None:
            self.since = time.monotonic()
        return time.monotonic() - self.since

    def pause(self, longest: float) -> None:
        """Sleep for a pause that grows from call to call, and is no longer than ``longest``."""
        time.sleep(max(0.0, min(self._pause, longest)))
        self._pause = backoff(self._pause, LONGEST_PAUSE)


class Step(ABC):
    """The job of one step of an orchestrator, as this process looks after it.

    Three methods end a step. `kill` only sets a flag, which whoever waits for the job acts on.
    `give_up` does the same without waiting. `cancel` ends the job whatever the options say.

    Args:
        launch: what to submit. None means that this process only follows and collects.
        options: how the job is run.
        runner: submits and asks. None means the one that all steps of the host share.
        arguments: what a component may declare (``trial_idx`` …).
        tried: how often the host has tried this step before, as far as it knows, a person's new
            runs included. The loss of a job is reported by the first try, and answered by the next
            job in later ones.
        one_machine: all tries have one machine, so that none need report that it sees no job at all.
        host_retries: how often the host itself retries, for a note in the log. None means that it
            is not known.
        hint: the handle that the host shows for this step, if it does. A job of another scheduler
            than that of the present settings is found by it.
        hint_words: the `words` of the try that submitted the job of the hint, if the host keeps
            them. They count where no scheduler knows that job any more.

    Attributes:
        handle: the job, once it was submitted or attached to.
        attached: `start` has found the job, and submitted nothing.
        status: the status that was seen last.
        killed: `kill` was called.
    """

    host: ClassVar[str]
    """Name of the orchestrator, which is the session of all handles."""

    def __init__(
        self,
        launch: Launch | None,
        options: ExecutionOptions | None = None,
        *,
        runner: Runner | None = None,
        arguments: Mapping[str, Any] | None = None,
        tried: int = 0,
        one_machine: bool = False,
        host_retries: int | None = None,
        hint: str | None = None,
        hint_words: Mapping[str, Any] | None = None,
    ) -> None:
        self.launch = launch
        self.options = options or ExecutionOptions()
        self.runner = runner or host_runner(self.host)
        self.arguments = dict(arguments or {})
        self.tried = tried
        self.one_machine = one_machine
        self.host_retries = host_retries
        self.hint = hint
        self.hint_words = hint_words
        self.handle: str | None = None
        self.attached = False
        self.status: AppStatus | None = None
        self.killed = False
        self._intended: str | None = None  # what is asked for or submitted before there is a handle
        self._is_hidden = False  # the scheduler could not say which job is the newest
        self._chain: list[Member] = []
        self._submitting = False
        self._was_asked: bool | None = None
        self._passed: str | None = None  # the limit that has passed, in words
        self._told_to_end: str | None = None  # a job of an earlier asking that was cancelled
        self._cancelled = False  # the scheduler has accepted that
        self._cancel_due = 0.0
        self._cancel_pause = FIRST_CANCEL_PAUSE
        self._not_cancelled = ""  # why, as it was said
        self._first_seen: dict[str, float] = {}
        self._unknown_since: float | None = None
        self._reported = Reported()
        self._show_due = 0.0
        self._not_shown = ""  # why, as it was said
        self._cursor: Mapping[str, Any] | None = None
        self._last_lines: int | None = None
        self._forwarder: LogForwarder | None = None
        self._subscription: Subscription | None = None

    # -- what an adapter gives

    @abstractmethod
    def identity(self) -> Identity:
        """Return whose job it is, in words that never change while the step exists.

        It is equal for every try of a step, and also when a person runs the step again.
        """

    hands_on_lines: bool = True
    """Whether `line` is to get the lines of the job's log."""

    def say(self, text: str) -> None:
        """Take a line for people. One that begins with "warning: " is a warning."""
        _logger.info("%s", text)

    def line(self, role: str, replica: int, stream: Stream, line: str) -> None:
        """Take a line of the job's log, with its newline. The default says it."""
        text = line.removesuffix("\n")
        self.say(f"{role}/{replica} {text}")

    def asked(self) -> bool | None:
        """Tell whether somebody wanted the step's end, or None if that cannot be said now.

        It is asked when something ends the step, and answers within three seconds. The default
        tells whether a person's Ctrl-C did.
        """
        return interrupted()

    def changed(self, status: AppStatus) -> None:
        """Take a new status, for a display. It may block, and a failure does the job no harm.

        It is called for each new state, and for another whole percent of progress at most once a
        second. With `run_async` it is called in a thread. The default is a line for debugging.
        """
        _logger.debug("%s is %s", self.handle, status.state)

    def words(self) -> Mapping[str, Any]:
        """Return the host's words of this try, as JSON values. They are kept with its job.

        One that is called ``url`` is the address of the host's page about the try.
        """
        return {}

    def again(self, kept: Mapping[str, Any], now: Mapping[str, Any]) -> Again:
        """Tell how this try asks, compared with the one that submitted the newest job.

        Args:
            kept: the `words` of that try. They are empty if that try said nothing.
            now: the `words` of this one.

        Returns:
            By default ``Again.NO``: every try asks for the same job.
        """
        return Again.NO

    def before_submit(self, number: int, *, anew: bool) -> None:
        """Make ready what the job of a number needs of the host. The default is a debugging line.

        Args:
            number: of the job in its chain. The first one has 0.
            anew: a person asks anew, so that nothing of the jobs before it counts.
        """
        _logger.debug("job number %d of the step is submitted (anew: %s)", number, anew)

    # -- the whole

    def run(self) -> AppResults:
        """Submit the job or attach to it, wait for its end, return its results.

        Raises:
            AppFailed: if the job failed. The message has replica, exit code and last log lines.
            AppCancelled: if somebody cancelled it.
            AppLost: if it is gone without a trace.
            StateUnknown: if the unreachable timeout has passed. The job goes on.
            TransloadTimeout: if a limit passed. The job was cancelled.
            Detached: if `kill` was called, and nobody asked for the end, or with
                ``on_kill="detach"``, or if a later try of the step has the job.
            SubmitError: if it was not taken.
            SpecError: if the job is wrong.
            ConfigError: for an unknown scheduler or option, or a job that may be another
                installation's.
        """
        with self.giving_up_on_kill():
            self.start()
            return self.collect(self.follow())

    async def run_async(self) -> AppResults:
        """Do what `run` does, without blocking the event loop. Cancelling the task is a kill."""
        import asyncio

        with self.giving_up_on_kill():
            await self.start_async()
            status = await self.follow_async()
        return await asyncio.to_thread(self.collect, status)

    @contextmanager
    def giving_up_on_kill(self) -> Iterator[None]:
        """Give a context which gives the job up if it ends by a kill.

        That is after `kill`, or by what is no Exception: what a signal handler raises, a task that
        is cancelled.
        """
        try:
            yield
        except BaseException as exc:
            if self.killed or not isinstance(exc, Exception):
                self.give_up()
            raise

    # -- submit or attach

    def start(self) -> str:
        """Submit the next job of the step or attach to the newest, and return its handle.

        The errors are those of `run`.
        """
        self.need_launch()
        try:
            handle = self._attach_or_submit()
        finally:
            self._stop_watching()
        if self.status is not None:
            emit(handle, self.status)  # nobody may have seen it so far
        return handle

    async def start_async(self) -> str:
        """Do what `start` does, without blocking the event loop."""
        import asyncio

        try:
            return await asyncio.shield(asyncio.to_thread(self.start))
        except asyncio.CancelledError:
            self.kill()  # a submit under way in its thread is undone there
            raise

    def attach(
        self, handle: str, cursor: Mapping[str, Any] | None = None, *, last: int | None = None
    ) -> None:
        """Look after the job with this handle, in place of `start`, without asking for it.

        Args:
            handle: the job.
            cursor: from `cursor`, so that its log goes on there. None means its first line.
            last: in place of the first line, begin with so many of the last ones of each replica.
        """
        self.handle = handle
        self._cursor = None
        self._last_lines = last
        if cursor is not None:
            self._cursor = cursor["lines"]
            self._last_lines = cursor["last"]
            self._reported = Reported.from_dict(cursor["reported"])
        self._forwarder = None

    def plan(self) -> Plan[Any]:
        """Return what would be submitted first. Nothing outside of this process is touched.

        Raises:
            SpecError: if the job is wrong.
            ConfigError: for an unknown scheduler or option.
        """
        return self._plan_of(0, first=0)

    def _attach_or_submit(self) -> str:
        """Take the newest job of the chain, or submit the next one.

        Whoever submits for the step competes for one id. Who loses looks again.
        """
        clash = Wait()
        while True:
            action, newest = self._decision()
            if action in (Action.ATTACH, Action.COLLECT):
                return self._take(newest)
            if action is Action.GONE:
                self._report_loss(newest)
            if action is Action.SUBMIT:
                self._report_nothing_in_sight(newest)
            number = 0 if newest.number is None else newest.number + 1
            try:
                plan = self._submit(number, anew=not newest.again.is_same)
            except AppExists:
                if clash.seconds() >= self.options.patience:
                    raise
            else:
                if not plan.reattached:
                    return plan.handle
                if clash.seconds() >= self.options.patience:
                    why = "another process has submitted it, and its scheduler does not list it"
                    raise StateUnknown(plan.handle, self.options.patience, why)
            clash.pause(FOREVER)

    def _decision(self) -> tuple[Action, Newest]:
        """Look at the newest job until it is clear what to do, and return that and the job."""
        ending = Wait()
        is_said = False
        while True:
            action, newest = self._known_newest()
            if action not in (Action.WAIT_END, Action.END):
                return action, newest
            handle = str(newest.handle)
            if not is_said:
                is_said = True
                why = "of an earlier run" if action is Action.END else "which is being cancelled"
                self._say(f"{handle}, {why}: waiting for its end")
            if action is Action.WAIT_END:
                self._wait_for_end(handle, FOREVER)
            else:
                self._end_earlier(handle, ending)

    def _known_newest(self) -> tuple[Action, Newest]:
        """Return what to do about the newest job, once its scheduler can say what it does.

        Raises:
            StateUnknown: if the unreachable timeout has passed.
        """
        outage = Wait()
        while True:
            newest = self._look_at_newest()
            action = decide(newest, self.options.resubmit_on)
            refuse(action, newest)
            self._stop_before_start(action, newest)
            what = newest.handle or chain_of(self.identity())
            if action is not Action.WAIT_KNOWN:
                if outage.since is not None:
                    self._say(reach_line(what, False))
                return action, newest
            why = _message(newest.status)
            if outage.since is None:
                self._say(reach_line(what, True, why))
            waited = outage.seconds()
            left = self.options.patience - waited
            if left <= 0:
                raise StateUnknown(what, waited, why)
            outage.pause(min(left, self._seconds_to_deadline()))

    def _look_at_newest(self) -> Newest:
        """Ask for all jobs of the chain, and return the newest."""
        self._is_hidden = False
        hinted = self._hinted()
        present = None
        places = []
        if hinted is not None:
            places.append(hinted[0])
        try:
            present = self._present_place()
        except ConfigError:  # a submit says so; until then, the job may be where the hint says
            if hinted is None:
                raise
        if present is not None and present not in places:
            places.append(present)
        members: list[Member] = []
        for place in places:
            try:
                found = self.runner.scheduler(place.scheduler).chain(place.prefix)
            except SchedulerUnavailable as exc:
                self._is_hidden = True
                return Newest(self.hint, status=AppStatus(AppState.UNKNOWN, msg=str(exc)))
            for number, each in found:
                handle = self._handle_in(place, number)
                words = None if each is None else host_words(each.asked, self.identity().host)
                members.append(Member(handle, number, each, words, place == present))
        if hinted is not None:
            place, number = hinted
            members.append(Member(str(self.hint), number, None, self.hint_words, place == present))
        self._chain = [each for each in members if each.here]
        if not members:
            return Newest(self._handle_in(places[-1], 0))
        return newest_of(members, self._words(), self.again)

    def _words(self) -> dict[str, Any]:
        return json_values(self.words())

    def _present_place(self) -> Place:
        """Return where the present settings submit.

        Raises:
            ConfigError: if there is no such scheduler, or a run option is wrong.
        """
        name = self._scheduler_name()
        chain = chain_of(self.identity())
        return Place(name, self.runner.qualified_id(chain, name, self.need_launch().cfg))

    def _hinted(self) -> tuple[Place, int] | None:
        """Return the place and the number of the job of the hint, if it is one of the chain."""
        if self.hint is None:
            return None
        parsed = parse_app_handle(self.hint)
        found = chain_and_number(parsed.app_id)
        if found is None or not found[0].endswith(chain_of(self.identity())):
            return None
        prefix, number = found
        return Place(parsed.scheduler_backend, prefix), number

    def _handle_in(self, place: Place, number: int) -> str:
        return make_app_handle(place.scheduler, self.runner.name(), f"{place.prefix}-{number}")

    def _stop_before_start(self, action: Action, newest: Newest) -> None:
        """Raise if the step was killed, or a limit has passed, and end the job if it is the step's."""
        stop = self._stop()
        if stop is None:
            return
        if is_own(action, newest):
            self._intended = newest.handle
            self._undo()
        raise self._stopped(stop)

    def _end_earlier(self, handle: str, ending: Wait) -> None:
        """End the job of an earlier asking, and wait for that, for as long as the patience lasts.

        With ``on_kill="detach"`` its end is waited for only.

        Raises:
            StillRunning: if it has not ended by then.
        """
        waited = ending.seconds()
        left = self.options.patience - waited
        if left <= 0:
            raise StillRunning(handle, waited)
        if handle != self._told_to_end and self.options.on_kill != "detach":
            try:
                self._cancel(handle)
            except AppNotFound:
                pass  # the next look reports it
            except SchedulerUnavailable as exc:
                self._say_not_cancelled(handle, str(exc))
                ending.pause(left)
                return
            self._told_to_end = handle
        self._wait_for_end(handle, left)

    def _wait_for_end(self, handle: str, longest: float) -> None:
        """Wait until a job has ended, the step was killed, or a limit has passed.

        Raises:
            StateUnknown: if the unreachable timeout has passed.
        """
        end = time.monotonic() + longest
        while True:
            left = end - time.monotonic()
            seen = self._observe(handle, min(self._seconds_to_deadline(), left))
            if self._stop() is not None:
                return
            if seen is not None and ended(seen):
                return
            if time.monotonic() >= end:
                return

    def _report_loss(self, newest: Newest) -> None:
        """Raise if the newest job is gone, unless an earlier try or another asking said so."""
        handle = str(newest.handle)
        is_first = not self.tried and newest.again is Again.NO
        if is_first or newest.again is Again.SAME_TRY:
            raise AppLost(handle)
        self._say(f"{handle} is gone: the next job is submitted")

    def _report_nothing_in_sight(self, newest: Newest) -> None:
        """Raise in the first retry if it finds nothing of the step, and may not see all machines."""
        if self.tried != 1 or self.one_machine:
            return
        scheduler = self.runner.scheduler(self._scheduler_name())
        if scheduler.reach != "network":
            why = (
                "an earlier try of this step may have submitted it on another machine: this "
                "scheduler's jobs are seen from their own machine only"
            )
            raise AppLost(str(newest.handle), why)

    def _take(self, newest: Newest) -> str:
        """Attach to a job that is there."""
        handle = str(newest.handle)
        self._say(
            f"attached to {handle} ({newest.status and newest.status.state}); nothing was "
            f"submitted. Its last {LAST_LINES} lines follow; to see all of them: transload log "
            f"{handle}"
        )
        if newest.here:
            self._compare(newest)
        else:
            self._say(f"{handle} was submitted to another place than the present settings name")
        self.attach(handle, last=LAST_LINES)
        self.attached = True
        if newest.status is not None:
            self._note(newest.status)
        return handle

    def _compare(self, newest: Newest) -> None:
        """Say so if the job has another definition than a submit would have now."""
        if not newest.digest or newest.number is None:
            return
        with suppress(TransloadError):
            plan = self._plan_of(newest.number, first_of_asking(self._chain, self.again))
            if plan.digest != newest.digest:
                self._say(
                    f"{newest.handle} was submitted with another definition than the present one"
                )

    def _submit(self, number: int, *, anew: bool) -> Plan[Any]:
        """Submit the job of a number. `Plan.reattached` tells whether another process has done so.

        Args:
            number: of the job in its chain.
            anew: a person asks anew, so that it finds no checkpoints of the jobs before it.

        Raises:
            AppExists: if the id has another job.
        """
        stop = self._stop()
        if stop is not None:
            raise self._stopped(stop)
        first = number if anew else first_of_asking(self._chain, self.again)
        plan = self._plan_of(number, first)
        self.before_submit(number, anew=anew)
        self._intended = plan.handle
        try:
            self._schedule(plan)
        except AppExists:
            self._intended = None
            raise
        except BaseException as exc:
            if not isinstance(exc, Exception):
                self.kill()
            self._undo()
            raise
        if plan.reattached:
            self._intended = None
            return plan
        self.attach(plan.handle)
        self._undo()
        return plan

    def _schedule(self, plan: Plan[Any]) -> None:
        self._submitting = True
        try:
            missing = plan.variables_to_name()
            if missing:
                self._say(
                    f"set here, and not passed to jobs: {', '.join(missing)} (what a job needs of "
                    "these must be named in pass_env; this is not said again)"
                )
            # a submit may take long, since packages are installed, images are pulled, code is sent
            with lines_to(self._say):
                self.runner.schedule(plan)
        finally:
            self._submitting = False

    def _plan_of(self, number: int, first: int) -> Plan[Any]:
        """Return what would be submitted as the job of a number.

        Args:
            number: of the job in its chain.
            first: number of the first job of this asking, whose checkpoints it finds.
        """
        launch = replace(self.need_launch(), scheduler=self._scheduler_name())
        identity = self.identity()
        checkpoint_name = None
        if self.options.checkpoints == "keep":
            checkpoint_name = app_id_of(identity, first)
        app_id = app_id_of(identity, number)
        return launch.plan(
            self.runner,
            self.runner.qualified_id(app_id, launch.scheduler, launch.cfg),
            context_args=self.arguments,
            change=self._with_retries,
            checkpoint_name=checkpoint_name,
            asked={identity.host: self._words()},
        )

    def _with_retries(self, app: AppDef) -> AppDef:
        """Return the app definition with the retries that the options leave to it."""
        note = retries_note(app, self.options, self.host_retries)
        if note:
            self._say(note)
        if self.options.retries_by == "host":
            return without_retries(app)
        return app

    def need_launch(self) -> Launch:
        """Return what is to be submitted.

        Raises:
            ConfigError: if this process only follows and collects.
        """
        if self.launch is None:
            raise ConfigError("no launch was given: this process can follow and collect, not start")
        return self.launch

    def _scheduler_name(self) -> str:
        return self.need_launch().scheduler_name(self.runner.settings)

    # -- follow

    def follow(self) -> AppStatus:
        """Wait for the end of the job, hand on logs and changes, and return its final status.

        The errors are those of `run`.
        """
        self.follow_for(FOREVER)
        assert self.status is not None
        return self.status

    def follow_for(self, seconds: float) -> bool:
        """Do what `follow` does, for these seconds at most, and tell whether the job has ended."""
        end = time.monotonic() + seconds
        handle = self._need_handle()
        try:
            while not self._has_ended():
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._act_on(self._observe(handle, min(self._pause(), left), logs=True))
            self.logs.finish(patience=self.options.patience)
        finally:
            self._stop_watching()
        return True

    def _has_ended(self) -> bool:
        return self.status is not None and self.status.is_terminal()

    async def follow_async(self) -> AppStatus:
        """Do what `follow` does, without blocking the event loop."""
        import asyncio

        try:
            while not self._has_ended():
                seen = await self._observe_async(self._need_handle(), self._pause())
                await asyncio.shield(asyncio.to_thread(self._act_on, seen))
            await asyncio.to_thread(self.logs.finish, patience=self.options.patience)
        finally:
            await asyncio.to_thread(self._stop_watching)
        assert self.status is not None
        return self.status

    def look(self, status: AppStatus | None = None, *, asked: bool = False) -> AppStatus:
        """Look once at the job, hand on new log lines, and return what a poll is to show.

        It waits for one thing only, which is the rest of the log of a job that has ended, for as
        long as the unreachable timeout lasts. While the state is UNKNOWN for less than the unreachable timeout, that is
        RUNNING. A job that failed is returned like any other, and `collect` raises for it.

        Args:
            status: the scheduler's answer, where the host has asked for many jobs together
                (``Runner.status_many``).
            asked: ``status`` is that answer. None then means that the job is gone.

        Raises:
            AppLost: if it is gone.
            StateUnknown: if the unreachable timeout has passed.
            TransloadTimeout: if a limit passed. The job was cancelled.
            Detached: if `kill` was called, and the job goes on.
        """
        handle = self._need_handle()
        if not asked:
            status = self.runner.status(handle)
        before = self.status
        since = None
        if status is not None:
            since = unknown_since(status.state, self._unknown_since)
            if before is None or _is_another(before, status):
                emit(handle, status)
        seen = observed(handle, status, self.options.patience, since)
        try:
            self._act_on(seen)
        finally:
            self._look_at_logs(seen)
        assert seen.status is not None  # else it was lost
        if seen.status.state is AppState.UNKNOWN:
            return replace(seen.status, state=AppState.RUNNING)
        return seen.status

    def _look_at_logs(self, seen: Observation) -> None:
        if seen.status is None:
            self._stop_watching()  # the job is gone, and its log with it
        elif seen.final and not seen.exhausted:
            self.logs.finish(patience=self.options.patience)
        else:
            self.logs.pump()

    def _act_on(self, seen: Observation | None) -> None:
        """Act on what was seen of the job (None if there is nothing new), on a kill, and on limits."""
        handle = self._need_handle()
        if seen is not None:
            if seen.status is None:
                raise AppLost(handle)
            self._note(seen.status)
            if seen.status.is_terminal():
                self._show(seen.status)
                return
        stop = self._stop()
        if stop == "detach":
            raise Detached(handle, asked=self.options.on_kill == "detach")
        if stop == "cancel":
            self._cancel_when_due(handle)
        if seen is not None and seen.exhausted:
            raise StateUnknown(handle, seen.unknown_for, _message(seen.status))
        if self._passed is not None and self._cancelled:
            raise TransloadTimeout(f"{handle} was cancelled: {self._passed}")
        if self.status is not None:
            self._show(self.status)

    def _note(self, status: AppStatus) -> None:
        """Keep a new status, and say what has changed."""
        handle = self._need_handle()
        was_unknown = self._unknown_since is not None
        is_unknown = status.state is AppState.UNKNOWN
        self._unknown_since = unknown_since(status.state, self._unknown_since)
        if is_unknown is not was_unknown:
            self._say(reach_line(handle, is_unknown, status.msg))
        before = self.status
        self.status = status
        note_state(self._first_seen, status.state, time.time())
        for each in new_interruptions(status, self._reported):
            self._say(f"{handle} was {each.in_words(self._allowed(each.role))}")
        if status.roles:
            self._reported.interruptions = status.interruptions
        now = time.time()
        for line in status_lines(handle, status, self._reported, now, self.options.deadline):
            self._say(line)
        if before is None or status.state is not before.state:
            self._hand_on(status)

    def _allowed(self, role: str) -> int | None:
        """Return how many interruptions a role may have, or None if that is not known."""
        try:
            found = self.runner.job(self._need_handle()).description()
        except TransloadError:
            return None
        if found is None or found.app is None:
            return None
        allowed = {each.name: each.interruptions_allowed for each in found.app.roles}
        return allowed.get(role)

    # -- the display

    def _show(self, status: AppStatus) -> None:
        """Hand on another whole percent, at most once a second, and for a tenth of the time."""
        if not self._is_to_be_shown(status):
            return
        began = time.monotonic()
        if began < self._show_due and not status.is_terminal():
            return
        self._hand_on(status)
        took = time.monotonic() - began
        self._show_due = time.monotonic() + max(SHORTEST_SHOW_PAUSE, SHOW_PAUSE_RATIO * took)

    def _is_to_be_shown(self, status: AppStatus) -> bool:
        progress = status.progress
        return progress is not None and progress.percent() != self._reported.percent

    def _hand_on(self, status: AppStatus) -> None:
        """Call `changed`. Whatever is wrong with a display, the job goes on."""
        if status.progress is not None:
            self._reported.percent = status.progress.percent()
        try:
            self.changed(status)
        except Exception as exc:
            text = f"warning: the status cannot be displayed: {type(exc).__name__}: {exc}"
            if text != self._not_shown:
                self._say(text)
            self._not_shown = text

    def _say(self, text: str) -> None:
        with suppress(OSError):  # a pipe that nobody reads ends neither a job nor its watching
            self.say(text)

    # -- the end

    def collect(self, status: AppStatus | None = None) -> AppResults:
        """Return the results of a job that has succeeded. Its state decides that, not its results.

        Args:
            status: its final status. The default is the latest that was seen.

        Raises:
            AppFailed: if it failed.
            AppCancelled: if it was cancelled.
            AppLost: if it is gone.
            TransloadTimeout: if it was cancelled because a limit had passed.
            SchedulerUnavailable: if its results cannot be asked for as long as patience lasts.
            ConfigError: if it has not ended yet.
        """
        handle = self._need_handle()
        status = status or self.status
        if status is None or not status.is_terminal():
            seen = "not seen yet" if status is None else str(status.state)
            raise ConfigError(f"{handle} has not ended ({seen}): follow it first")
        with suppress(TransloadError):
            self._say_end(handle, status)
        if status.state is AppState.CANCELLED:
            if self._passed is not None:
                raise TransloadTimeout(f"{handle} was cancelled: {self._passed}")
            raise AppCancelled(status, self._why(handle, status))
        if status.state is not AppState.SUCCEEDED:
            raise AppFailed(status, self._why(handle, status))
        try:
            results = patiently(partial(self.runner.results, handle), self.options.patience)
        except AppNotFound as exc:
            raise AppLost(handle, "it was deleted before its results were read") from exc
        for line in results.lines():
            self._say(line)
        for line in results.refusals():
            self._say(f"warning: not read: {line}")
        return results

    def _say_end(self, handle: str, status: AppStatus) -> None:
        found = self.runner.job(handle).description()
        created = app = None
        if found is not None:
            created = found.created
            app = found.app
        self._say(end_line(handle, status, created))
        for line in status.short_of_memory(app):
            self._say(f"warning: {line}")

    def _why(self, handle: str, status: AppStatus) -> str:
        """Return why a job did not succeed, with the last of all lines that it wrote."""
        lines = self.options.tail_lines
        patience = self.options.patience

        def last_lines(role: str, replica: int) -> Sequence[str]:
            return tail(*self._locate(handle), role, replica, lines, status, patience=patience)

        return failure_message(status, last_lines, handle=handle, lines=lines)

    # -- another process waits

    @property
    def cursor(self) -> dict[str, Any]:
        """Return how far the step's log came, as JSON values.

        That is which lines of the job were handed on (before the first one: with how many of the
        last ones it begins), and what was reported about it.
        """
        return {
            "lines": self.logs.cursor,
            "last": self._last_lines,
            "reported": self._reported.to_dict(),
        }

    def can_be_seen(self, place: str) -> bool:
        """Tell whether this process sees the job, if it was submitted at a place (see `where`)."""
        scheduler, _ = self._locate(self._need_handle())
        visible = scheduler.reach
        return visible == "network" or (visible == "host" and place == where())

    async def event(self, place: str) -> dict[str, Any]:
        """Wait in another process than the step's, and return what the step goes on with.

        It neither submits nor cancels, and does not raise. The event is JSON, and the only state
        that travels. It has the ``handle``, the ``cursor``, a ``message`` and its ``kind``:

        - ``ended``: the job has ended, or is gone.
        - ``limit``: a limit has passed. The step is to cancel it.
        - ``elsewhere``: this process cannot see it.
        - ``error``: this process cannot wait for it.

        It also has ``unknown_for``: for how many seconds its scheduler has been unable to say what
        it does. The step's patience goes on from there.

        Args:
            place: where it was submitted (see `where`).
        """
        import asyncio

        kind = "error"
        try:
            if await asyncio.to_thread(self.can_be_seen, place):
                kind, message = await self._wait_only()
            else:
                kind = "elsewhere"
                message = f"{self.handle} can only be watched from where it was submitted"
        except Exception as exc:  # whatever happens here, it is no failure of the job
            message = f"{type(exc).__name__}: {exc}"
        finally:
            await asyncio.to_thread(self._stop_watching)
        return {
            "kind": kind,
            "handle": self.handle,
            "cursor": self.cursor,
            "message": message,
            "unknown_for": unknown_for(self._unknown_since),
        }

    async def _wait_only(self) -> tuple[str, str]:
        """Wait until there is something to do about the job, and return the kind and the message."""
        import asyncio

        while True:
            seen = await self._observe_async(self._need_handle(), self._pause())
            if seen is not None and seen.status is not None:
                await asyncio.to_thread(self._note, seen.status)
            if seen is not None and seen.exhausted:
                self._unknown_since = time.monotonic() - seen.unknown_for
                return "error", f"{seen.handle} cannot be reached"
            if seen is not None and seen.final:
                await asyncio.to_thread(self.logs.finish)
                return "ended", ""
            if self._passed_limit() is not None:
                return "limit", str(self._passed)
            if self.killed:
                return "error", "the process that waits for it is ended"

    def attach_by(self, event: Mapping[str, Any]) -> None:
        """Attach to the job of an `event`. Nothing is asked."""
        last = LAST_LINES if event["cursor"] is None else None
        self.attach(event["handle"], event["cursor"], last=last)
        if event["unknown_for"]:
            self._unknown_since = time.monotonic() - event["unknown_for"]
        if event["kind"] == "ended":  # whatever the clock of this machine says, it came first
            self.options = replace(self.options, deadline=None)
        elif event["kind"] == "limit":
            self._passed = event["message"]
        else:
            self._say(f"{event['message']}: waiting in place, which holds this slot")

    def resume(self, event: Mapping[str, Any]) -> AppResults:
        """Go on with the job of an `event`: attach to it, wait for its end, return its results.

        It submits nothing. The errors are those of `run`.
        """
        self.attach_by(event)
        with self.giving_up_on_kill():
            return self.collect(self.follow())

    # -- kills and limits

    def kill(self, asked: bool | None = None) -> None:
        """End the step. The job is cancelled if somebody asked for that end, and else goes on.

        With ``on_kill="detach"`` it goes on in any case. This sets a flag, and wakes the thread
        that waits. So a signal handler may call it, repeatedly. A `follow` that waits goes on until
        a cancelled job has ended. Where the job goes on, it raises `Detached`.

        Args:
            asked: whether somebody asked for that end. None means that `asked` is asked.
        """
        if asked is not None:
            self._was_asked = asked or bool(self._was_asked)
        self.killed = True
        news = self._subscription
        if news is not None:
            news.wake()

    def give_up(self, asked: bool | None = None) -> bool:
        """Do what `kill` does, for a host that does not wait any more. It asks the scheduler.

        Args:
            asked: as of `kill`.

        Returns:
            False if a job that is to end could not be cancelled yet. The caller repeats the call as
                long as it can.
        """
        self.kill(asked)
        if self._submitting:
            return False  # the thread that submits cancels the job afterwards
        if self._stop() != "cancel" or self._cancelled:
            return True
        return self.cancel()

    def cancel(self) -> bool:
        """Cancel the job if there is one, whatever ``on_kill`` says.

        Returns:
            False if its scheduler could not be reached, or this process has trouble.
        """
        if not self._find_hidden():
            return False
        handle = self.handle or self._intended
        if handle is None:
            return True
        self._cancelled = self._is_cancelled(handle)
        return self._cancelled

    def _find_hidden(self) -> bool:
        """Look which job is to be cancelled, if the scheduler could not say so far.

        Returns:
            False if it still cannot.
        """
        if not self._is_hidden or self.handle is not None:
            return True
        newest = self._look_at_newest()
        if self._is_hidden:
            self._say_not_cancelled(chain_of(self.identity()), _message(newest.status))
        elif is_own(decide(newest, self.options.resubmit_on), newest):
            self._intended = newest.handle
        return not self._is_hidden

    def _is_cancelled(self, handle: str) -> bool:
        """Cancel a job. If that fails, return False, and say a new reason once."""
        try:
            self._cancel(handle)
        except AppNotFound:
            return True
        except Exception as exc:  # the cancel is tried again after any error
            self._say_not_cancelled(handle, str(exc))
            return False
        return True

    def _cancel(self, handle: str) -> None:
        identity = self.identity()
        name = "/".join((*identity.run, *identity.path))
        with cancelling_for(f"{identity.host}: {name}"):
            self.runner.cancel(handle)

    def _say_not_cancelled(self, what: str, reason: str) -> None:
        if reason != self._not_cancelled:
            self._not_cancelled = reason
            self._say(f"{what} could not be cancelled: {reason}")

    def _cancel_when_due(self, handle: str) -> None:
        """Cancel a job, unless the last failed try is too recent. The pauses grow."""
        if self._cancelled or time.monotonic() < self._cancel_due:
            return
        self._cancel_due = time.monotonic() + self._cancel_pause
        self._cancel_pause = backoff(self._cancel_pause, LONGEST_CANCEL_PAUSE)
        self._cancelled = self._is_cancelled(handle)

    def _stop(self) -> OnKill | None:
        """Return whether to cancel the job or to detach from it, or None to go on.

        A passed limit always means ``cancel``. After a kill of the step, ``on_kill`` decides, and
        ``cancel`` also needs a request for the end.
        """
        if self._passed_limit() is not None:
            return "cancel"
        if not self.killed:
            return None
        if self.options.on_kill == "detach":
            return "detach"
        return "cancel" if self._somebody_asked() else "detach"

    def _passed_limit(self) -> str | None:
        """Return the limit that has passed, in words, or None."""
        if self._passed is None:
            limit, what = next_limit(self.options, self._first_seen)
            if time.time() >= limit:
                self._passed = what
        return self._passed

    def _somebody_asked(self) -> bool:
        if self._was_asked is None:
            self._was_asked = somebody_asked(self.runner, self.asked)
            handle = self.handle or self._intended
            if not self._was_asked and handle is not None:
                self._say(
                    f"the end of {handle} was not asked for, so it goes on, and the next try "
                    "reattaches"
                )
        return self._was_asked

    def _stopped(self, stop: OnKill) -> TransloadError:
        """Return the error of a step that stops before it has a job."""
        if self._passed is None:
            return Detached(None, asked=stop == "cancel" or self.options.on_kill == "detach")
        if self._is_hidden:
            return TransloadTimeout(f"its job could not be cancelled: {self._passed}")
        if self._intended is None:
            return TransloadTimeout(f"nothing was submitted: {self._passed}")
        how = "was cancelled" if self._cancelled else "could not be cancelled"
        return TransloadTimeout(f"{self._intended} {how}: {self._passed}")

    def _undo(self) -> None:
        """Cancel the job of a submit if the step was killed, or a limit passed, meanwhile."""
        if self._stop() == "cancel":
            self.cancel()

    def _pause(self) -> float:
        """Return the seconds until the next limit, try of a cancel, or change of the display."""
        seconds = FOREVER
        if self._passed is None:
            limit, _ = next_limit(self.options, self._first_seen)
            seconds = limit - time.time()
        if (self.killed or self._passed is not None) and not self._cancelled:
            seconds = min(seconds, max(self._cancel_due - time.monotonic(), 0.01))
        if self.status is not None and self._is_to_be_shown(self.status):
            seconds = min(seconds, max(self._show_due - time.monotonic(), 0.01))
        return max(0.0, seconds)

    def _seconds_to_deadline(self) -> float:
        if self.options.deadline is None:
            return FOREVER
        return max(0.0, self.options.deadline - time.time())

    # -- waiting, in two forms

    def _need_handle(self) -> str:
        if self.handle is None:
            raise ConfigError("there is no job yet: call start() first")
        return self.handle

    def _locate(self, handle: str) -> tuple[SchedulerBase, str]:
        """Return the scheduler of a job, and the job's id there."""
        parsed = parse_app_handle(handle)
        return self.runner.scheduler(parsed.scheduler_backend), parsed.app_id

    @property
    def logs(self) -> LogForwarder:
        """Return what hands on the log lines of the job."""
        if self._forwarder is None:
            handle = self._need_handle()
            self._forwarder = LogForwarder(
                handle,
                partial(self._locate, handle),
                self.line if self.hands_on_lines else None,
                self.options.logging_interval,
                cursor=None if self._cursor is None else dict(self._cursor),
                last=self._last_lines,
            )
        return self._forwarder

    def _observe(self, handle: str, seconds: float, *, logs: bool = False) -> Observation | None:
        """Wait for the next observation of a job, for at most ``seconds``, or until a kill."""
        news = self._watch(handle)
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            seen = news.next(min(left, self.logs.pause) if logs else left)
            if logs:
                self._follow_logs(news, here=True)
            if self._wait_is_over(seen, end):
                return seen

    async def _observe_async(self, handle: str, seconds: float) -> Observation | None:
        news = self._watch(handle)
        end = time.monotonic() + seconds
        while True:
            left = max(0.0, end - time.monotonic())
            seen = await news.next_async(min(left, self.logs.pause))
            self._follow_logs(news, here=False)
            if self._wait_is_over(seen, end):
                return seen

    def _follow_logs(self, news: Subscription, *, here: bool) -> None:
        """Hand on the lines that are due, and follow the logs from now on."""
        if self.logs.due:
            self.logs.pump()
        self.logs.follow(news.wake, here=here)

    def _wait_is_over(self, seen: Observation | None, end: float) -> bool:
        if seen is not None and seen.final:  # nothing comes after it
            self._stop_observing()
        return seen is not None or self.killed or time.monotonic() >= end

    def _watch(self, handle: str) -> Subscription:
        """Return the observations of a job, and stop those of another one."""
        if self._subscription is not None and self._subscription.handle == handle:
            return self._subscription
        self._stop_observing()
        news = watch(
            self._locate(handle)[0],
            handle,
            patience=self.options.patience,
            unknown_for=unknown_for(self._unknown_since),
            poll_interval=self.options.poll_interval,
        )
        self._subscription = news
        if self.killed:  # a signal came before there was a subscription to wake
            news.wake()
        return news

    def _stop_observing(self) -> None:
        news = self._subscription
        self._subscription = None
        if news is not None:
            news.close()

    def _stop_watching(self) -> None:
        self._stop_observing()
        if self._forwarder is not None:
            self._forwarder.stop()


def _message(status: AppStatus | None) -> str:
    return "" if status is None else status.msg


def _is_another(before: AppStatus, status: AppStatus) -> bool:
    return status.state is not before.state or status.num_restarts != before.num_restarts
