"""Define `Job`, an object to hold, ask, wait for and cancel."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from transload.errors import (
    AppFailed,
    AppNotFound,
    SchedulerUnavailable,
    SpecError,
    TransloadError,
)
from transload.runner.failures import failure_message
from transload.runner.logs import LineFilter, LogReader, follow_logs, last_lines
from transload.runner.logs import tail as tail_of
from transload.runner.provenance import cancelling_as_user
from transload.runner.results import collect_results, collect_steps, fetch_outputs
from transload.runner.schedulers import Cluster
from transload.schedulers import follower
from transload.schedulers.api import LogPage, LogQuery, Stream, replicas_of
from transload.specs import AppDef, AppHandle, AppState, AppStatus, parse_app_handle
from transload.specs.interruptions import signal_name

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from transload.runner.api import Runner
    from transload.runner.results import AppResults
    from transload.schedulers.api import AppDescription, SchedulerBase


class Job:
    """A job that was submitted.

    It belongs to its scheduler, so another process may `attach` when this object is gone. ``await
    job`` waits for its end. It can be pickled.

    Args:
        handle: the handle of the job.
        runner: whom to ask. The default is the one that this process shares.
    """

    default_runner: ClassVar[Callable[[], Runner]]
    """Returns the runner that this process shares. The module of `Runner` sets it."""

    def __init__(self, handle: AppHandle, runner: Runner | None = None) -> None:
        self._parsed = parse_app_handle(handle)
        self.handle = handle
        self.runner = runner or Job.default_runner()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.handle!r})"

    def __str__(self) -> str:
        return self.handle

    def _repr_html_(self) -> str:
        """Return a line for a notebook with its handle, its state, and what went wrong."""
        from html import escape

        status = self.status()
        text = "gone" if status is None else status.summary()
        return f"<code>{escape(self.handle)}</code> {escape(text)}"

    def __reduce__(self) -> tuple[Any, ...]:
        cluster = self.runner.cluster(self._parsed.scheduler_backend)
        return _revive, (type(self), self.handle, cluster.to_dict())

    def __await__(self) -> Generator[Any, None, AppStatus]:
        return self.wait_async().__await__()

    @property
    def app_id(self) -> str:
        """Return its id, as its scheduler knows it."""
        return self._parsed.app_id

    @property
    def scheduler(self) -> SchedulerBase:
        """Return the scheduler that it is on."""
        return self.runner.scheduler(self._parsed.scheduler_backend)

    def description(self) -> AppDescription | None:
        """Return all that its scheduler knows of it, or None if it is gone.

        Raises:
            SchedulerUnavailable: if the scheduler cannot be reached.
        """
        return self.scheduler.describe([self.app_id])[self.app_id]

    def need_description(self) -> AppDescription:
        """Return all that its scheduler knows of it.

        Raises:
            AppNotFound: if it is gone.
            SchedulerUnavailable: if the scheduler cannot be reached.
        """
        description = self.description()
        if description is None:
            raise AppNotFound(self.handle)
        return description

    def status(self) -> AppStatus | None:
        """Return its status, or None if it is gone, or UNKNOWN if its scheduler cannot say."""
        return self.runner.status_many([self.handle])[self.handle]

    def wait(
        self,
        timeout: float | None = None,
        patience: float = 300.0,
        on_change: Callable[[AppStatus], None] | None = None,
    ) -> AppStatus:
        """Block until it has ended, and return its final status, whatever that is.

        Args:
            timeout: seconds to wait at most. None means no limit.
            patience: seconds for which its state may be UNKNOWN without a break.
            on_change: called with each new state.

        Raises:
            TransloadTimeout: when the time has passed. The job goes on.
            StateUnknown: when ``patience`` has passed. The job goes on.
            AppNotFound: if it is gone.
        """
        return self._there(self.wait_if_there(timeout, patience, on_change))

    async def wait_async(self, timeout: float | None = None, patience: float = 300.0) -> AppStatus:
        """Do what `wait` does, without blocking the event loop."""
        return self._there(await self.wait_if_there_async(timeout, patience))

    def wait_if_there(
        self,
        timeout: float | None = None,
        patience: float = 300.0,
        on_change: Callable[[AppStatus], object] | None = None,
    ) -> AppStatus | None:
        """Wait as `wait` does, but return None if it is gone."""
        return follower.wait(
            self.scheduler, self.handle, timeout=timeout, patience=patience, on_change=on_change
        )

    async def wait_if_there_async(
        self, timeout: float | None = None, patience: float = 300.0
    ) -> AppStatus | None:
        """Do what `wait_if_there` does, without blocking the event loop."""
        return await follower.wait_async(
            self.scheduler, self.handle, timeout=timeout, patience=patience
        )

    def check(self, timeout: float | None = None) -> AppStatus:
        """Wait until it has ended, and raise unless it succeeded.

        Raises:
            AppFailed: with which replica failed, how, and its last lines. `wait` names the other
                errors.
        """
        status = self.wait(timeout)
        if status.state is not AppState.SUCCEEDED:
            text = failure_message(
                status,
                lambda role, k: tail_of(self.scheduler, self.app_id, role, k, 20, status),
                handle=self.handle,
            )
            raise AppFailed(status, text)
        return status

    def logs(
        self,
        role: str | None = None,
        replica: int | None = None,
        *,
        tail: int | None = None,
        regex: str | None = None,
        follow: bool = True,
    ) -> Iterator[str]:
        """Return its log lines as they come, until it has ended.

        Lines of several replicas begin with ``role/replica``.

        Args:
            role: that role alone.
            replica: that replica alone.
            tail: only this many last lines of each replica, without following.
            regex: only lines in which it is found.
            follow: wait for further lines. Otherwise only the lines that are there now are
                returned.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for an unknown role or replica, or a bad regex.
        """
        scheduler = self.scheduler
        app_id = self.app_id
        chosen = self._replicas(role, replica)
        logs = {
            LogReader(scheduler, app_id, LogQuery(*each, Stream.COMBINED)): LineFilter(regex)
            for each in chosen
        }
        pages: Iterable[tuple[LogReader, LogPage]]
        if tail is None:
            pages = follow_logs(list(logs), follow=follow)
        else:
            last = [last_lines(scheduler, app_id, *each, Stream.COMBINED, tail) for each in chosen]
            pages = [
                (log, LogPage(list(lines), "", True)) for log, lines in zip(logs, last, strict=True)
            ]
        prefix = "{}/{} " if len(chosen) > 1 else ""
        return (
            prefix.format(log.role, log.replica) + line
            for log, page in pages
            for line in logs[log].take(page)
        )

    def results(self, *, shared: bool = False) -> AppResults:
        """Return what it reported so far, and what the configured trackers know of the run.

        Args:
            shared: as in `Runner.results`.

        Raises:
            AppNotFound: if there is no such job.
            TrackingError: if the results cannot be read. The message says where they are.
        """
        return collect_results(
            self.handle,
            self.scheduler,
            self.need_description(),
            self.runner.settings.trackers(),
            shared=shared,
        )

    def steps(self) -> dict[str, dict[str, dict[float, float]]]:
        """Return the values that it reported step by step so far.

        Returns:
            A mapping of key → name → step → value.

        Raises:
            AppNotFound: if there is no such job.
            TrackingError: if they cannot be read.
        """
        return collect_steps(self.scheduler, self.need_description())

    def fetch(
        self, pattern: str = "*", folder: str = ".", *, replace: bool = True
    ) -> Sequence[str]:
        """Copy files that it made (in ``TRANSLOAD_OUTPUT_DIR``) here, and return their new paths.

        Only regular files are copied, and no link is followed out of the job's folder. What is left
        out is logged as a warning.

        Args:
            pattern: which of them: the name of a file, or a pattern with ``*`` (which matches ``/``,
                too), ``?`` and ``[a-z]``.
            folder: where to. It is made if it is not there.
            replace: whether files of the same names are replaced.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: if a file is there already that must not be replaced. Nothing has been
                copied.
            TrackingError: if they cannot be read.
        """
        return fetch_outputs(
            self.scheduler, self.need_description(), pattern, folder, replace=replace
        )

    def result(self, timeout: float | None = None, *, trust: bool = False) -> Any:
        """Wait for the end of a function (`submit`), and return its value or raise its exception.

        Both are unpickled only from a folder of this machine that no other user can write to.
        Elsewhere a value must be JSON, and what was raised is an `AppFailed` with its text.

        Args:
            timeout: seconds to wait at most. None means no limit.
            trust: unpickle what was written, whoever can write there.

        Raises:
            AppFailed: if it ended without a result of the function (killed, out of memory), with
                the reason.
            SpecError: if the job is no function, or the result was refused. It may be of another
                version of Python, too large to come back, or not JSON where only that is read.
            TrackingError: if the result is none that a function wrote.
            TransloadTimeout: if ``timeout`` seconds have passed. The function goes on.
        """
        from transload.runner.function_result import result_of

        return result_of(self, self.wait(timeout), trust)

    def signal(
        self, name: str, role: str | None = None, replica: int | None = None
    ) -> Sequence[tuple[str, int]]:
        """Send a signal to the main process of each of its replicas that runs.

        Args:
            name: the signal, such as ``USR1``.
            role: that role alone.
            replica: that replica alone.

        Returns:
            Role and number of those that got it.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for a signal that no program can handle, a replica that does not exist, or if
                none runs.
            SchedulerUnavailable: if it was not sent to one of them.
            UnsupportedFeature: if its scheduler sends none.
        """
        chosen = signal_name(name, "signal")
        running = self._running(role, replica)
        self.scheduler.signal(self.app_id, running, chosen)
        return running

    def exec(
        self,
        command: Sequence[str],
        role: str | None = None,
        replica: int | None = None,
        *,
        capture: bool = False,
        terminal: bool = False,
    ) -> CompletedProcess[bytes]:
        """Run a command where its replica runs, with the replica's folder and variables.

        Args:
            command: the program and its arguments.
            role: the role. It may be left out where only one replica runs.
            replica: number of the replica within it, as ``role``.
            capture: return what it writes, and give it no input. Otherwise it has the streams of
                this process.
            terminal: give it a terminal, which this process must have.

        Returns:
            Its exit code, with its output if that was wanted.

        Raises:
            AppNotFound: if there is no such job.
            SpecError: for a replica that does not exist or does not run, or if several run.
            SchedulerUnavailable: if the scheduler cannot be reached.
            UnsupportedFeature: if its scheduler runs none.
        """
        if not command:
            raise SpecError("command: must name a program")
        running = self._running(role, replica)
        if len(running) > 1:
            names = ", ".join(f"{name}/{k}" for name, k in running)
            raise SpecError(f"{self.handle}: name one of its replicas: {names}")
        made = self.scheduler.exec_command(self.app_id, *running[0], command, terminal=terminal)
        from transload.runner.commands import run_command  # few need it

        return run_command(made, capture=capture)

    def cancel(self) -> None:
        """Ask for its end, without waiting. Nothing happens if it has ended.

        Raises:
            AppNotFound: if it is gone.
            SchedulerUnavailable: if the scheduler cannot be reached.
        """
        with cancelling_as_user(self.runner.settings):
            is_there = self.scheduler.cancel([self.app_id])
        if not is_there:
            raise AppNotFound(self.handle)

    def delete(self) -> None:
        """Forget it, ending it first. Nothing happens if it is gone.

        Raises:
            UnsupportedFeature: if its scheduler cannot delete jobs.
        """
        self.scheduler.delete(self.app_id)

    def describe(self) -> AppDef | None:
        """Return its definition as it was submitted, with secret-looking values masked.

        Returns:
            The definition, or None if it is not known.
        """
        found = self.description()
        return None if found is None else copy.deepcopy(found.app)

    def page(self) -> str | None:
        """Return the full address of a page about it, or None if there is none.

        A plugin's page goes before the scheduler's.
        """
        from transload.plugins import get_plugins

        links = [get_plugins().app_link(self.handle)]
        with suppress(TransloadError):
            description = self.description()
            if description is not None:
                links += [description.status.ui_url, description.log_url]
        for link in links:
            if link and link.partition(":")[0] in ("http", "https"):
                return link
        return None

    def _there(self, status: AppStatus | None) -> AppStatus:
        if status is None:
            raise AppNotFound(self.handle)
        return status

    def _running(self, role: str | None, replica: int | None) -> list[tuple[str, int]]:
        """Return the chosen replicas that run, of which there is one at least."""
        description = self.need_description()
        chosen = self._chosen(replicas_of(description), role, replica)
        status = description.status
        states = {(each.role, each.id): each.state for one in status.roles for each in one.replicas}
        running = [each for each in chosen if states.get(each) is AppState.RUNNING]
        if running:
            return running
        if status.state is AppState.UNKNOWN:
            raise SchedulerUnavailable(f"{self.handle}: its state is UNKNOWN: {status.msg}")
        if status.is_terminal():
            raise SpecError(f"{self.handle}: the job is {status.state.name}, and nothing runs")
        now = [f"{name}/{k} is {states.get((name, k), status.state).name}" for name, k in chosen]
        raise SpecError(f"{self.handle}: none of these runs: {', '.join(now)}")

    def _replicas(self, role: str | None, replica: int | None) -> list[tuple[str, int]]:
        return self._chosen(replicas_of(self.need_description()), role, replica)

    def _chosen(
        self, found: list[tuple[str, int]], role: str | None, replica: int | None
    ) -> list[tuple[str, int]]:
        chosen = [(name, k) for name, k in found if role in (None, name) and replica in (None, k)]
        if not chosen:
            known = ", ".join(f"{name}/{k}" for name, k in found) or "none"
            raise SpecError(
                f"role={role!r}, replica={replica!r}: {self.handle} has no such replica (it has: "
                f"{known})"
            )
        return chosen


def _revive(kind: type[Job], handle: str, cluster: dict[str, Any]) -> Job:
    return kind(handle, Job.default_runner().with_clusters(Cluster.from_dict(cluster)))
