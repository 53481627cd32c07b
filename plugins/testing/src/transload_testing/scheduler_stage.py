"""The common parts of the scheduler suite, as programs, jobs of them, and waits with a deadline."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack

import pytest

from transload.errors import AppNotFound, TransloadTimeout
from transload.runner import (
    Job,
    Launch,
    LogReader,
    Plan,
    Runner,
    Settings,
    last_lines,
    log_lines,
)
from transload.schedulers.api import (
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    Stream,
)
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    CfgVal,
    Environment,
    Mount,
    Notice,
    ReplicaStatus,
    Resource,
    RetryPolicy,
    Role,
    macros,
    make_app_handle,
)

T = TypeVar("T")


Damage = Literal["empty", "truncated", "no JSON", "deep JSON", "other JSON", "folder", "FIFO"]
"""Kinds of damage to the record of a job."""


def damaged_text(text: str, damage: Damage) -> str | None:
    """Return a damaged text, or None for damage that only a file can have."""
    damaged: dict[str, str] = {
        "empty": "",
        "truncated": text[: len(text) // 2],
        "no JSON": "hello",
        "deep JSON": "[" * 100_000,
        "other JSON": '{"schema": 1, "app": 5, "roles": [1], "created": "yesterday"}',
    }
    return damaged.get(damage)


def damage_file(path: Path, damage: Damage) -> None:
    """Damage a file."""
    text = damaged_text(path.read_text(), damage)
    path.unlink()
    if text is not None:
        path.write_text(text)
    elif damage == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)


@dataclass(frozen=True)
class Program:
    """The actions of each replica of a role, in this order.

    Args:
        out: lines for stdout.
        err: lines for stderr.
        hold: then goes on until it is ended from outside.
        seconds: then takes that long.
        exit_code: then ends so, where −N is by signal N.
        failures: that many starts fail (exit code 9) before one does all of the above.
        ragged: the last line of stdout has no newline.
        command: a line of shell in place of all of the above. Tests that need it want a scheduler
            that runs programs.
        only: the replicas that do this, or None for all. The others end well at once.
    """

    out: tuple[str, ...] = ()
    err: tuple[str, ...] = ()
    hold: bool = False
    seconds: float = 0.0
    exit_code: int = 0
    failures: int = 0
    ragged: bool = False
    command: str | None = None
    only: tuple[int, ...] | None = None

    def shell(self, folder: Path) -> str:
        """Return the program as a shell command.

        Args:
            folder: where starts may be counted, visible to the replicas.
        """
        if self.command is not None:
            return self.command
        parts = []
        if self.only is not None:
            parts.append(
                f"case {macros.replica_id} in {'|'.join(map(str, self.only))}) ;; *) exit 0 ;; esac"
            )
        if self.failures:
            count = folder / f"starts-{uuid.uuid4().hex}-{macros.replica_id}"
            parts.append(
                f"echo x >> {count}; if [ $(wc -l < {count}) -le {self.failures} ]; then exit 9; fi"
            )
        for number, line in enumerate(self.out):
            end = "" if self.ragged and number == len(self.out) - 1 else r"\n"
            parts.append(f"printf '%s{end}' '{line}'")
        parts += [f"printf '%s\\n' '{line}' >&2" for line in self.err]
        if self.hold:
            parts.append("sleep 300 & wait $!")
        if self.seconds:
            parts.append(f"sleep {self.seconds}")
        parts.append(
            f"kill -{-self.exit_code} $$" if self.exit_code < 0 else f"exit {self.exit_code}"
        )
        return "; ".join(parts)


class AppFields(TypedDict, total=False):
    """Fields of a job's first role, except ``timeout``, which is the job's own."""

    timeout: float | None
    entrypoint: str
    args: Sequence[str]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    min_replicas: int | None
    max_retries: int
    retry_delay: float
    retry_policy: RetryPolicy
    resource: Resource
    port_map: Mapping[str, int]
    metadata: Mapping[str, Any]
    mounts: Sequence[Mount]
    notice: Notice | None
    checkpoints: bool
    max_interruptions: int | None
    stall_after: float | None
    environment: Environment | None


class SubmitOptions(TypedDict, total=False):
    """What a test sets of a submit besides the job, as `transload.runner.Launch` describes it.

    ``checkpoints`` is the name under which the job's checkpoints are kept, ``asked`` who asks.
    """

    cfg: Mapping[str, CfgVal]
    tracker_base: str | None
    parent_run_id: str | None
    checkpoints: str | None
    asked: Mapping[str, Any]
    environment: str | None


@dataclass
class SchedulerStage:
    """A runner of one scheduler, and jobs that are deleted when the test is over.

    Args:
        suite: the suite, for what it knows of the scheduler.
        scheduler: the scheduler.
        folder: a folder of the test's own.
        session: name of the runner's session.
        inherit_env: whether jobs get the whole environment of this process.
    """

    suite: SchedulerSuite
    scheduler: SchedulerBase
    folder: Path
    session: str = "suite"
    inherit_env: bool = True
    submitted: list[Job] = field(default_factory=list)
    runner: Runner = field(init=False)

    def __post_init__(self) -> None:
        self.runner = Runner(
            self.session,
            {self.scheduler.name: lambda session, **_: self.scheduler},
            inherit_env=self.inherit_env,
            settings=Settings({}, {}),
        )
        # a runner closes what it has made, and tests use the scheduler without it, too
        self.runner.scheduler(self.scheduler.name)

    @contextmanager
    def another(
        self, session: str = "suite", *, inherit_env: bool = True
    ) -> Iterator[SchedulerStage]:
        """Give what another process of the same user has: a scheduler and a runner of its own.

        What it submits is deleted when the test is over.
        """
        scheduler = self.suite.make_scheduler(self.folder)
        other = SchedulerStage(
            self.suite,
            scheduler,
            self.folder,
            session=session,
            inherit_env=inherit_env,
            submitted=self.submitted,
        )
        with other.runner:
            yield other

    def offers(self, name: str) -> bool:
        """Tell whether the scheduler has a field, or overrides a method."""
        return self.scheduler.offers(name)

    def app(
        self,
        programs: Mapping[str, Program] | Program,
        replicas: int = 1,
        **fields: Unpack[AppFields],
    ) -> AppDef:
        """Return an app definition.

        The ``fields`` are the first role's, save ``timeout``, which is the job's.
        """
        if isinstance(programs, Program):
            programs = {"main": programs}
        return self.suite.make_app(programs, replicas, self.folder, fields)

    def plan(
        self, app: AppDef, app_id: str | None = None, **options: Unpack[SubmitOptions]
    ) -> Plan[Any]:
        """Return what would be submitted. The id is a fresh one by default."""
        launch = Launch(
            app=app,
            scheduler=self.scheduler.name,
            cfg={**self.suite.cfg, **options.get("cfg", {})},
            tracker_base=options.get("tracker_base"),
            parent_run_id=options.get("parent_run_id"),
            environment=options.get("environment"),
        )
        return launch.plan(
            self.runner,
            app_id or fresh_id(),
            checkpoint_name=options.get("checkpoints"),
            asked=options.get("asked"),
        )

    def submit(
        self, app: AppDef, app_id: str | None = None, **options: Unpack[SubmitOptions]
    ) -> Job:
        """Submit a job, and return it."""
        return self.start(self.plan(app, app_id, **options))

    def start(self, plan: Plan[Any]) -> Job:
        """Submit what was planned. `Plan.reattached` tells afterwards whether it was there."""
        job = Job(plan.handle, self.runner)
        self.submitted.append(job)
        return plan.submit()

    def job(self, app_id: str) -> Job:
        """Return the job of an id, which need not be there."""
        handle = make_app_handle(self.scheduler.name, self.session, app_id)
        return Job(handle, self.runner)

    def status(self, job: Job) -> AppStatus:
        """Return the status of a job that must be there."""
        status = job.status()
        assert status is not None, f"{job.handle} is not there"
        return status

    def listed(self) -> dict[str, ListAppResponse]:
        """Return the jobs that the scheduler lists, by id."""
        rows = self.runner.list(self.scheduler.name)
        found = {row.app_id: row for row in rows}
        assert len(found) == len(rows), f"a job is listed twice: {rows}"
        return found

    def until(self, condition: Callable[[], T | Literal[False] | None], what: str) -> T:
        """Return the first truthy value of a condition, or fail."""
        __tracebackhide__ = True
        end = time.monotonic() + self.suite.timeout
        pause = 0.005
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > end:
                pytest.fail(f"{what}: not within {self.suite.timeout} s; last value: {value!r}")
            time.sleep(pause)
            pause = min(pause * 1.4, self.suite.longest_pause)

    def ended(self, job: Job) -> AppStatus:
        """Wait for the end of a job, and return its final status.

        Every replica must have an end in it.
        """
        __tracebackhide__ = True
        try:
            status = job.wait(timeout=self.suite.timeout)
        except TransloadTimeout:
            pytest.fail(f"{job.handle} did not end within {self.suite.timeout} s: {job.status()}")
        endless = [
            replica
            for role in status.roles
            for replica in role.replicas
            if replica.end_time is None
        ]
        assert not endless, (
            f"{job.handle} has ended, but its duration counts up for ever: {endless}"
        )
        return status

    def running(self, job: Job, *, said: str | None = None) -> AppStatus:
        """Wait until a job runs.

        If a line is named, wait until the first replica has written it to stdout, too.
        """
        status = self.until(
            lambda: (status := self.status(job)).state is AppState.RUNNING and status,
            f"{job.handle} runs",
        )
        if said is not None:
            role = status.roles[0].role
            self.until(
                lambda: any(said in line for line in self.lines(job, role)),
                f"{job.handle} says {said}",
            )
        return status

    def replicas(self, status: AppStatus) -> list[ReplicaStatus]:
        """Return the statuses of all replicas."""
        return [replica for role in status.roles for replica in role.replicas]

    # -- logs

    @property
    def stream(self) -> Stream:
        """The output to which programs write, which is stdout if it is separate."""
        streams = self.scheduler.streams
        return Stream.STDOUT if Stream.STDOUT in streams else Stream.COMBINED

    def lines(
        self,
        job: Job,
        role: str = "main",
        k: int = 0,
        *,
        stream: Stream | None = None,
        regex: str | None = None,
        since: float | None = None,
        until: float | None = None,
        follow: bool = False,
    ) -> list[str]:
        """Return the lines that are there now. Arguments are as of `transload.runner.log_lines`."""
        found = log_lines(
            self.scheduler,
            job.app_id,
            role,
            k,
            stream=stream or self.stream,
            regex=regex,
            since=since,
            until=until,
            follow=follow,
        )
        return list(found)

    def query(
        self,
        cursor: str | None = None,
        *,
        stream: Stream | None = None,
        max_bytes: int = 1 << 20,
        last: int | None = None,
    ) -> LogQuery:
        """Return a query for a page of the first replica's log."""
        return LogQuery("main", 0, stream or self.stream, cursor, max_bytes, last=last)

    def page(self, job: Job, query: LogQuery | None = None) -> LogPage:
        """Return a page of a log, by default the first one of the first replica's."""
        return self.scheduler.log_read(job.app_id, query or self.query())

    def pages(
        self, job: Job, cursor: str | None, max_bytes: int, limit: int = 10_000
    ) -> Iterator[LogPage]:
        """Yield the pages of the first replica's log, up to the complete one."""
        for _ in range(limit):
            page = self.page(job, self.query(cursor, max_bytes=max_bytes))
            yield page
            cursor = page.cursor
            if page.complete:
                return

    def last_lines(self, job: Job, number: int) -> Sequence[str]:
        """Return the last lines of the first replica."""
        return last_lines(self.scheduler, job.app_id, "main", 0, self.stream, number)

    def everything(
        self, job: Job, stream: Stream | None = None, *, role: str = "main", k: int = 0
    ) -> list[str]:
        """Wait until a log is complete, and return its lines."""
        lines: list[str] = []
        reader = LogReader(self.scheduler, job.app_id, LogQuery(role, k, stream or self.stream))

        def complete() -> bool:
            lines.extend(reader.read().lines)
            return reader.complete

        self.until(complete, f"the log of {job.handle} {role}/{k} is complete")
        return lines


def fresh_id() -> str:
    """Return an id that no other test uses."""
    return f"suite-{uuid.uuid4().hex[:12]}"


class SchedulerSuite:
    """Settings and fixtures of `transload_testing.SchedulerConformance`.

    Attributes:
        image: image of the roles.
        cfg: run options for every submit.
        runs_programs: False for a scheduler that runs nothing. Tests that need a shell are then
            left out.
        inherits_environment: jobs can get the environment of the submitting process.
        timeout: seconds for each wait.
        notice_seconds: the time after a notice that tests give, which some of them wait for.
        segment_seconds: the length of a segment, which is longer than a notice.
        stall_seconds: the silence after which a replica is said to have stalled.
        longest_pause: seconds between two questions while waiting.
        cannot: name of the test → why this scheduler cannot have it. Submitting once is not to be
            had for less.
    """

    image: ClassVar[str] = ""
    cfg: ClassVar[Mapping[str, CfgVal]] = {}
    runs_programs: ClassVar[bool] = True
    inherits_environment: ClassVar[bool] = True
    timeout: ClassVar[float] = 30.0
    longest_pause: ClassVar[float] = 0.05
    notice_seconds: ClassVar[float] = 2.0
    segment_seconds: ClassVar[float] = 4.0
    stall_seconds: ClassVar[float] = 1.0
    cannot: ClassVar[Mapping[str, str]] = {}

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return a scheduler. Override this.

        Two schedulers made of one folder are as two processes of one user would have.

        Args:
            folder: a folder of the test's own.
        """
        raise NotImplementedError(
            "a SchedulerConformance says how to make its scheduler: override make_scheduler"
        )

    def state_folders(self, folder: Path) -> list[Path]:
        """Return where the scheduler keeps state that the test may read.

        No secret may be found there.

        Args:
            folder: the test's own folder.
        """
        return [folder]

    def damage_record(self, folder: Path, app_id: str, damage: Damage) -> bool:
        """Damage what is kept of a job, as a crash or a full disk would.

        Args:
            folder: the test's own folder.
            app_id: the job, which has ended or runs.
            damage: what becomes of its record. `damage_file` does it to a file, `damaged_text` to a
                text.

        Returns:
            False if that cannot be done to it.
        """
        return False

    def make_app(
        self,
        programs: Mapping[str, Program],
        replicas: int,
        folder: Path,
        fields: Mapping[str, Any],
    ) -> AppDef:
        """Return a job that runs programs, by default through ``sh -c``.

        Args:
            programs: name of role → what its replicas do.
            replicas: how many of each role.
            folder: visible to the replicas.
            fields: more fields of the first role, and the job's ``timeout``.
        """
        extra = dict(fields)
        timeout = extra.pop("timeout", None)
        roles = [
            Role(
                name,
                self.image,
                entrypoint="sh",
                args=["-c", program.shell(folder)],
                num_replicas=replicas,
            )
            for name, program in programs.items()
        ]
        for name, value in extra.items():
            setattr(roles[0], name, value)
        return AppDef("suite", roles, timeout=timeout)

    @pytest.fixture
    def stage(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SchedulerStage]:
        """Make a scheduler of its own for each test.

        A test that the scheduler cannot have is skipped with its reason.
        """
        reason = self.cannot.get(request.function.__name__)
        if reason is not None:
            pytest.skip(f"this scheduler cannot have it: {reason}")
        if not self.runs_programs and getattr(request.function, "needs_programs", False):
            pytest.skip("this scheduler runs no programs")
        stage = SchedulerStage(self, self.make_scheduler(tmp_path), tmp_path)
        with stage.runner:
            try:
                yield stage
            finally:
                for job in {each.app_id: each for each in stage.submitted}.values():
                    _end(stage, job.app_id)


def _end(stage: SchedulerStage, app_id: str) -> None:
    """Delete a job, or cancel it where it cannot be deleted."""
    job = stage.job(app_id)
    if stage.offers("delete"):
        job.delete()
        return
    with suppress(AppNotFound):
        job.cancel()


F = TypeVar("F", bound=Callable[..., Any])


def needs_programs(function: F) -> F:
    """Mark a test that wants a scheduler which runs programs."""
    function.needs_programs = True  # type: ignore[attr-defined]
    return function


def submits_once(function: F) -> F:
    """Mark a test that no scheduler may leave out, since one id is one job."""
    function.submits_once = True  # type: ignore[attr-defined]
    return function
