"""The common parts of the scheduler suite, as programs, jobs of them, and waits with a deadline."""

from __future__ import annotations

import copy
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, TypeVar, Unpack

import pytest

from transload.runner import LogReader, Runner, Settings, log_lines
from transload.schedulers.api import LogPage, LogQuery, SchedulerBase, Stream, Submission, reconcile
from transload.schedulers.follower import release
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


class SubmissionFields(TypedDict, total=False):
    """Fields of a submission, as `transload.schedulers.Submission` describes them."""

    session: str
    cfg: Mapping[str, CfgVal]
    tracker_base: str | None
    parent_run_id: str | None
    id_given: bool
    inherit_env: bool
    secrets: Mapping[str, Mapping[str, str]]
    checkpoints: str | None
    asked: Mapping[str, Any]


@dataclass
class SchedulerStage:
    """A scheduler, and jobs on it that are ended when the test is over.

    Args:
        suite: the suite, for what it knows of the scheduler.
        scheduler: the scheduler.
        folder: a folder of the test's own.
    """

    suite: SchedulerSuite
    scheduler: SchedulerBase
    folder: Path
    submitted: list[str] = field(default_factory=list)

    def app(
        self,
        programs: Mapping[str, Program] | Program,
        replicas: int = 1,
        **fields: Unpack[AppFields],
    ) -> AppDef:
        """Return a job.

        The ``fields`` are the first role's, save ``timeout``, which is the job's.
        """
        if isinstance(programs, Program):
            programs = {"main": programs}
        return self.suite.make_app(programs, replicas, self.folder, fields)

    def submission(self, app: AppDef, **more: Unpack[SubmissionFields]) -> Submission:
        """Return the submission of an app definition."""
        values: dict[str, Any] = {"session": "suite", "cfg": self.cfg(), "id_given": True, **more}
        return Submission(app, app.digest(), **values)

    def cfg(self, **more: CfgVal) -> dict[str, CfgVal]:
        """Return the resolved run options."""
        return self.scheduler.run_opts().resolve({**self.suite.cfg, **more})

    def runner(self) -> Runner:
        """Return a runner that only has this scheduler."""
        return Runner(
            "suite",
            {self.scheduler.name: lambda session, **_: self.scheduler},
            settings=Settings({}, {}),
        )

    def submit(
        self, app: AppDef, app_id: str | None = None, **more: Unpack[SubmissionFields]
    ) -> str:
        """Submit a job, and return its id."""
        app_id = app_id or f"suite-{uuid.uuid4().hex[:12]}"
        self.start(app, app_id, **more)
        return app_id

    def start(self, app: AppDef, app_id: str, **more: Unpack[SubmissionFields]) -> bool:
        """Submit a job under an id, and return what the scheduler returned."""
        self.submitted.append(app_id)
        name = more.get("checkpoints")
        if name is not None:
            app = self._with_checkpoint_folders(app, name)
        prepared = self.scheduler.prepare(app, self.cfg())
        request = self.scheduler.convert(prepared, self.cfg())
        return self.scheduler.submit(request, app_id, self.submission(app, **more))

    def _with_checkpoint_folders(self, app: AppDef, name: str) -> AppDef:
        """Return a job whose roles find their folder of checkpoints, as a runner makes it."""
        app = copy.deepcopy(app)
        for role in app.roles:
            folder = None
            if role.checkpoints:
                folder = self.scheduler.checkpoint_folder(name, role, self.cfg())
            if folder is not None:
                role.env["TRANSLOAD_CHECKPOINT_DIR"] = folder
        return app

    def status(self, app_id: str) -> AppStatus:
        """Return the status of a job that must be there.

        What is due for it is done, as by any owner that waits.
        """
        found = self.scheduler.describe(app_id)
        reconcile(self.scheduler, found)
        assert found is not None, f"{app_id} is not there"
        return found.status

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

    def ended(self, app_id: str) -> AppStatus:
        """Wait for the end of a job, and return its final status.

        Every replica must have an end in it.
        """
        __tracebackhide__ = True
        status = self.until(
            lambda: (status := self.status(app_id)).is_terminal() and status, f"{app_id} ends"
        )
        endless = [
            replica
            for role in status.roles
            for replica in role.replicas
            if replica.end_time is None
        ]
        assert not endless, f"{app_id} has ended, but its duration counts up for ever: {endless}"
        return status

    def running(self, app_id: str, *, said: str | None = None) -> AppStatus:
        """Wait until a job runs.

        If a line is named, wait until the first replica has written it to stdout, too.
        """
        status = self.until(
            lambda: (status := self.status(app_id)).state is AppState.RUNNING and status,
            f"{app_id} runs",
        )
        if said is not None:
            role = status.roles[0].role
            self.until(
                lambda: any(said in line for line in self.lines(app_id, role)),
                f"{app_id} says {said}",
            )
        return status

    def replicas(self, status: AppStatus) -> list[ReplicaStatus]:
        """Return the statuses of all replicas."""
        return [replica for role in status.roles for replica in role.replicas]

    @property
    def stream(self) -> Stream:
        """The output to which programs write, which is stdout if it is separate."""
        streams = self.scheduler.capabilities.streams
        return Stream.STDOUT if Stream.STDOUT in streams else Stream.COMBINED

    def lines(
        self,
        app_id: str,
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
            app_id,
            role,
            k,
            stream=stream or self.stream,
            regex=regex,
            since=since,
            until=until,
            follow=follow,
        )
        return list(found)

    def pages(
        self,
        app_id: str,
        cursor: str | None,
        max_bytes: int,
        stream: Stream | None = None,
        limit: int = 10_000,
    ) -> Iterator[LogPage]:
        """Yield the pages of the first replica's log, up to the complete one."""
        for _ in range(limit):
            page = self.scheduler.log_read(
                app_id, LogQuery("main", 0, stream or self.stream, cursor, max_bytes)
            )
            yield page
            cursor = page.cursor
            if page.complete:
                return

    def everything(
        self, app_id: str, stream: Stream | None = None, *, role: str = "main", k: int = 0
    ) -> list[str]:
        """Wait until a log is complete, and return its lines."""
        lines: list[str] = []
        reader = LogReader(self.scheduler, app_id, LogQuery(role, k, stream or self.stream))

        def complete() -> bool:
            lines.extend(reader.read().lines)
            return reader.complete

        self.until(complete, f"the log of {app_id} {role}/{k} is complete")
        return lines


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
        scheduler = self.make_scheduler(tmp_path)
        stage = SchedulerStage(self, scheduler, tmp_path)
        try:
            yield stage
        finally:
            for app_id in stage.submitted:
                if scheduler.capabilities.delete:
                    scheduler.delete(app_id)
                else:
                    scheduler.cancel(app_id)
            release(scheduler)  # first, as a runner does
            scheduler.close()


F = TypeVar("F", bound=Callable[..., Any])


def needs_programs(function: F) -> F:
    """Mark a test that wants a scheduler which runs programs."""
    function.needs_programs = True  # type: ignore[attr-defined]
    return function


def submits_once(function: F) -> F:
    """Mark a test that no scheduler may leave out, since one id is one job."""
    function.submits_once = True  # type: ignore[attr-defined]
    return function
