"""An app to hold: a thin face on the runner, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transload.errors import AppFailed, AppNotFound, SpecError
from transload.runner.clusters import Cluster
from transload.schedulers.api import LogQuery
from transload.specs import (
    AppDef,
    AppHandle,
    AppState,
    AppStatus,
    CfgVal,
    Workspace,
    parse_app_handle,
    parse_mounts,
)

if TYPE_CHECKING:
    from transload.components import Overrides
    from transload.runner import AppResults, Runner

SESSION = "transload"


def default_runner() -> Runner:
    """Return the runner that this process shares, of the session of the command line."""
    from transload.pipelines import host_runner

    return host_runner(SESSION, inherit_env=True)


class App:
    """A job that was submitted. It belongs to its scheduler: this object may go, and another
    process may `attach`.

    ``await app`` waits for its end. It can be pickled.

    Args:
        handle: the app.
        runner: whom to ask; default: the one that this process shares.
    """

    def __init__(self, handle: AppHandle, runner: Runner | None = None) -> None:
        parse_app_handle(handle)
        self.handle = handle
        self._runner = runner or default_runner()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.handle!r})"

    def __str__(self) -> str:
        return self.handle

    def _repr_html_(self) -> str:
        """Return a line for a notebook: handle, state, what went wrong."""
        from html import escape

        status = self.status()
        text = "gone" if status is None else status.summary()
        return f"<code>{escape(self.handle)}</code> {escape(text)}"

    def __reduce__(self) -> tuple[Any, ...]:
        cluster = self._runner.cluster(parse_app_handle(self.handle).scheduler_backend)
        return _revive, (type(self), self.handle, cluster.to_dict())

    def __await__(self) -> Generator[Any, None, AppStatus]:
        return self.wait_async().__await__()

    def status(self) -> AppStatus | None:
        """Return its status; None if it is gone; state UNKNOWN if its scheduler cannot say."""
        return self._runner.status(self.handle)

    def wait(
        self,
        timeout: float | None = None,
        patience: float = 300.0,
        on_change: Callable[[AppStatus], None] | None = None,
    ) -> AppStatus:
        """Block until it has ended; return its final status, whatever that is.

        Args:
            timeout: seconds to wait at most; None: no limit.
            patience: seconds for which its state may be UNKNOWN without a break.
            on_change: called with each new state.

        Raises:
            TransloadTimeout: when the time ran out; the app goes on.
            StateUnknown: when patience ran out; the app is not touched.
            AppNotFound: if it is gone.
        """
        return self._there(
            self._runner.wait(self.handle, timeout=timeout, patience=patience, on_change=on_change)
        )

    async def wait_async(self, timeout: float | None = None, patience: float = 300.0) -> AppStatus:
        """Do what `wait` does, without blocking the event loop."""
        return self._there(
            await self._runner.wait_async(self.handle, timeout=timeout, patience=patience)
        )

    def check(self, timeout: float | None = None) -> AppStatus:
        """Wait until it has ended, and raise unless it succeeded.

        Raises:
            AppFailed: with which replica failed, how, and its last lines; what `wait` raises.
        """
        from transload.pipelines.told import failure_message
        from transload.runner.logs import tail

        status = self.wait(timeout)
        if status.state is not AppState.SUCCEEDED:
            scheduler, app_id = self._runner._locate(self.handle)
            text = failure_message(
                status,
                lambda role, k: tail(scheduler, app_id, role, k, 20, status),
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
        """Return its log lines as they come, until it has ended; of several replicas each behind
        ``role/replica``.

        Args:
            role: that role alone.
            replica: that replica alone.
            tail: only so many last lines of each replica, without following.
            regex: only lines in which it is found.
            follow: False: only what is there now.

        Raises:
            AppNotFound: if there is no such app.
            SpecError: for an unknown role or replica, or a bad regex.
        """
        from transload.runner.logs import LineFilter, LogReader, follow_logs, last_lines
        from transload.schedulers.api import LogPage, Stream

        scheduler, app_id = self._runner._locate(self.handle)
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

    def results(self) -> AppResults:
        """Return what it reported so far.

        Raises:
            AppNotFound: if there is no such app.
            TrackingError: if the results cannot be read; the message says where they are.
        """
        return self._runner.results(self.handle)

    def result(self, timeout: float | None = None, *, safe: bool = False) -> Any:
        """Wait for the end of a function (`submit`); return what it returned, or raise what it
        raised.

        That is unpickled only if it is signed with the key of this job, which is in the state
        folder of the user who submitted it, on the machine where that was.

        Args:
            timeout: seconds to wait at most; None: no limit.
            safe: unpickle nothing: return only what is JSON, and raise what was raised as
                `AppFailed`, with its text. Without the key nobody can tell who wrote that.

        Raises:
            AppFailed: if it ended without a word of the function (killed, out of memory), with the
                reason.
            SpecError: if the job is no function, or the result was refused: another version of
                Python, too large to come back, not JSON where only that is read.
            ConfigError: if the key is not here.
            TrackingError: if the result was not written by this job.
            TransloadTimeout: when the time ran out; the function goes on.
        """
        from transload.runner.function_result import read_reply, value_of

        status = self.wait(timeout)
        has_ended = status.state in (AppState.SUCCEEDED, AppState.FAILED)
        reply = read_reply(self._runner, self.handle, safe=safe) if has_ended else None
        if reply is None:
            self.check()
            raise AppFailed(
                status, f"{self.handle} SUCCEEDED, and the result of its function is not there"
            )
        return value_of(reply, self.handle, status, safe=safe)

    def cancel(self) -> None:
        """Ask for its end; return at once. Nothing happens if it has ended."""
        self._runner.cancel(self.handle)

    def delete(self) -> None:
        """Forget it, ending it first. Nothing happens if it is gone.

        Raises:
            UnsupportedFeature: if its scheduler cannot delete apps.
        """
        self._runner.delete(self.handle)

    def describe(self) -> AppDef | None:
        """Return the app as it was submitted, secret-looking values masked; None if it is not
        known.
        """
        return self._runner.describe(self.handle)

    def _there(self, status: AppStatus | None) -> AppStatus:
        if status is None:
            raise AppNotFound(self.handle)
        return status

    def _replicas(self, role: str | None, replica: int | None) -> list[tuple[str, int]]:
        from transload.schedulers.api import replicas_of

        found = replicas_of(self._runner._found(self.handle)[1])
        chosen = [(name, k) for name, k in found if role in (None, name) and replica in (None, k)]
        if not chosen:
            known = ", ".join(f"{name}/{k}" for name, k in found) or "none"
            raise SpecError(
                f"role={role!r}, replica={replica!r}: {self.handle} has no such replica (it has: "
                f"{known})"
            )
        return chosen


def _revive(kind: type[App], handle: str, cluster: dict[str, Any]) -> App:
    return kind(handle, default_runner().with_clusters(Cluster.from_dict(cluster)))


def overrides_of(values: Mapping[str, Any]) -> Overrides:
    """Return the overrides that were given as keywords; ``mem`` may be a text such as ``8G``, a
    mount one, too.

    Raises:
        TypeError: for an unknown keyword.
        SpecError: for a size that cannot be read.
    """
    from transload.components import Overrides
    from transload.specs.text import parse_size

    if unknown := sorted(values.keys() - {*Overrides._fields}):
        raise TypeError(
            f"{unknown[0]}=: unknown argument; over an app can be set: "
            f"{', '.join(Overrides._fields)}"
        )
    mem = values.get("mem")
    if isinstance(mem, int) and 0 < mem < 1 << 20:
        raise SpecError(
            f"mem={mem}: is a number of bytes: write it with a unit, such as '{mem}M' or '{mem}G'"
        )
    mounts = values.get("mounts") or ()
    if any(isinstance(mount, str) for mount in mounts):
        mounts = parse_mounts([word for mount in mounts for word in mount.split(",")])
    size = parse_size(mem, "mem") if isinstance(mem, str) else mem
    return Overrides(**{**values, "mem": size, "mounts": mounts})


def run(
    app: AppDef | str | Callable[..., AppDef] | None = None,
    args: Sequence[str] | Mapping[str, Any] = (),
    *,
    command: Sequence[str] | None = None,
    scheduler: str | None = None,
    cfg: Mapping[str, CfgVal] | None = None,
    workspace: str | Workspace | None = None,
    pass_env: Sequence[str] = (),
    app_id: str | None = None,
    parent_run_id: str | None = None,
    tracker_base: str | None = None,
    runner: Runner | None = None,
    **overrides: Any,
) -> App:
    """Submit a job; return it at once.

    Args:
        app: an AppDef, or a component: its name (``train.py:train``, ``utils.echo``) or function.
        args: arguments of the component: name → value, or as on the command line.
        command: a program and its arguments, in place of ``app``.
        scheduler: where to run it; default: the configured one, else ``local``.
        cfg: run options of the scheduler.
        workspace: a local folder that travels with it.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        app_id: an id of your own: an equal app of that id is attached to, not started.
        parent_run_id: the run that this one derives from.
        tracker_base: where it reports results.
        runner: submits; default: the one that this process shares.
        overrides: what is set over what the app says: ``name, env, image, replicas, retries,
            retry_delay, time_limit, cpu, gpu, mem, role`` (see `transload.components.Overrides`).

    Raises:
        SpecError: if the app or an argument is not valid.
        ConfigError: for an unknown scheduler or option.
        SubmitError: if it was not taken; nothing runs.

    Example:
        >>> app = run(command=["python", "train.py"], gpu=1, mem="8G")  # doctest: +SKIP
        >>> print(app.wait().state, app.results())  # doctest: +SKIP
    """
    from transload.errors import SpecError
    from transload.runner import Launch

    if (app is None) == (command is None):
        raise SpecError("run: exactly one of app and command must be given")
    runner = runner or default_runner()
    more: dict[str, Any] = {
        name: value for name, value in {"args": args, "pass_env": pass_env}.items() if value
    }
    launch = Launch(command=command, **more) if app is None else Launch.of(app, **more)
    where = (scheduler, cfg, workspace, parent_run_id)
    overridden = overrides_of(overrides)
    info = runner.dryrun(
        launch, *where, app_id=app_id, tracker_base=tracker_base, overrides=overridden
    )
    return App(runner.schedule(info), runner)


def attach(handle: AppHandle, runner: Runner | None = None) -> App:
    """Return the app of a handle, whoever submitted it.

    Raises:
        AppNotFound: if there is no such app.
        MalformedAppHandleException: if it is no handle.
        SchedulerUnavailable: if its scheduler cannot be reached.
    """
    app = App(handle, runner)
    app._runner.attach(handle)
    return app
