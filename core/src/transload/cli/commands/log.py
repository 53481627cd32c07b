"""The command ``transload log``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from transload.cli.options import WholeNumber, handle_argument, json_option
from transload.cli.output import note
from transload.cli.screen import Screen, open_screen
from transload.cli.session import description_of, find_job, open_runner, split_handle
from transload.cli.show import ReplicaLog
from transload.errors import SpecError, TransloadError, UnsupportedFeature
from transload.runner.logs import LineFilter, LogReader, follow_logs
from transload.schedulers.api import LogQuery, Stream, replicas_of
from transload.specs import nearest
from transload.specs.text import parse_duration, parse_number

if TYPE_CHECKING:
    from transload.runner import Job

Replicas = list[tuple[str, int]]


@click.command()
@handle_argument(metavar="HANDLE[/ROLE[/K,K…]]")
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the replicas have ended.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="NAME",
    help="Only this role; may be given several times.",
)
@click.option(
    "--replica", "numbers", metavar="K,K…", help="Only replicas with these numbers, in each role."
)
@click.option("--regex", metavar="REGEX", help="Only lines that match this regular expression.")
@click.option("--since", metavar="WHEN", help="Only lines since then: 10m (ago) or an ISO time.")
@click.option("--until", metavar="WHEN", help="Only lines before then.")
@click.option("--stream", "--streams", type=click.Choice(["stdout", "stderr", "combined"]), default="combined",
              show_default=True, help="Which output.")  # fmt: skip
@click.option(
    "-n",
    "--tail",
    type=WholeNumber(min=0),
    metavar="N",
    help="Start with the last N lines of each replica.",
)
@click.option("--no-prefix", is_flag=True, help="Show lines without the prefix ROLE/REPLICA.")
@json_option
def log(
    handle: str,
    follow: bool,
    roles: tuple[str, ...],
    numbers: str | None,
    regex: str | None,
    since: str | None,
    until: str | None,
    stream: str,
    tail: int | None,
    no_prefix: bool,
    as_json: bool,
) -> None:
    """Show the logs of a job's replicas one after the other, or follow all of them together.

    Ctrl-C leaves, and the job goes on. With --json, each line of output is a JSON object.
    """
    with open_runner() as runner:
        named = split_handle(handle)
        job = find_job(runner, named.handle)
        LineFilter(regex)  # refuses a text that is not a regular expression
        wanted_lines = _Lines(
            stream=Stream(stream),
            regex=regex,
            since=_seconds(since, "--since", job),
            until=_seconds(until, "--until", job),
            tail=tail,
        )
        if wanted_lines.is_empty_span():
            raise SpecError(f"--until={until!r}: must be after --since={since!r}")
        replicas = replicas_of(description_of(job))
        wanted_roles = [*roles, named.role] if named.role else list(roles)
        replicas = _of_roles(replicas, wanted_roles)
        if numbers is None:
            numbers = named.numbers
        if numbers is not None:
            replicas = _of_numbers(replicas, numbers)
        screen = None
        if not as_json:
            labels = [] if no_prefix else [f"{role}/{k}" for role, k in replicas]
            screen = open_screen(labels)
        _show(job, replicas, wanted_lines, screen, follow=follow)


@dataclass(frozen=True)
class _Lines:
    """The wanted lines. Times are in seconds since the epoch."""

    stream: Stream
    regex: str | None
    since: float | None
    until: float | None
    tail: int | None

    def is_empty_span(self) -> bool:
        """Tell whether the time span is empty."""
        return self.since is not None and self.until is not None and self.since >= self.until


def parse_when(text: str, what: str, now: datetime | None = None) -> datetime:
    """Parse a duration before now (``10m``) or a time in ISO 8601. Times without zone are local."""
    text = text.strip()
    try:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            now = now or datetime.now().astimezone()
            return now - timedelta(seconds=parse_duration(text))
        if when.tzinfo is not None:
            return when
        if when.year == MAXYEAR:  # Python 3.13 has no local zone on its last day
            return when.replace(tzinfo=UTC)
        return when.astimezone()
    except (ValueError, OverflowError):
        # a SpecError is a ValueError, and a local time in the year 0 raises one, too
        allowed = "a duration (10m, 2h: that long ago) or a time (2025-01-31T08:00)"
        raise SpecError(f"{what}={text!r}: must be {allowed}") from None


def _seconds(text: str | None, option: str, job: Job) -> float | None:
    """Return the time that an option names, in seconds since the epoch."""
    if not text:
        return None
    when = parse_when(text, option)
    if not job.scheduler.since_until:
        raise UnsupportedFeature(
            f"--since, --until: scheduler {job.scheduler.name!r} does not keep the times of lines; leave it out"
        )
    return when.timestamp()


def _of_roles(replicas: Replicas, wanted: list[str]) -> Replicas:
    """Return the replicas of some roles, or all replicas without roles."""
    known = list(dict.fromkeys(role for role, _ in replicas))
    for role in wanted:
        if role not in known:
            raise SpecError(f"role {role!r} does not exist: {nearest(role, known)}")
    if not wanted:
        return replicas
    return [(role, k) for role, k in replicas if role in wanted]


def _of_numbers(replicas: Replicas, text: str) -> Replicas:
    """Return the replicas whose number is in a list such as ``0,2``."""
    try:
        wanted = {parse_number(part, int) for part in text.split(",")}
    except ValueError:
        raise SpecError(
            f"--replica={text!r}: must be numbers of replicas, such as 0 or 0,2"
        ) from None
    known = {k for _, k in replicas}
    for k in sorted(wanted - known):
        highest = max(known, default=-1)
        raise SpecError(f"replica {k} does not exist: must be from 0 to {highest}")
    return [(role, k) for role, k in replicas if k in wanted]


def _show(
    job: Job, replicas: Replicas, wanted: _Lines, screen: Screen | None, *, follow: bool
) -> None:
    """Show the log of each replica so far, then follow all of them, if requested."""
    logs: dict[LogReader, ReplicaLog] = {}
    for role, k in replicas:
        query = LogQuery(role, k, wanted.stream, since=wanted.since, until=wanted.until)
        reader = LogReader(job.scheduler, job.app_id, query)
        chosen = LineFilter(wanted.regex, wanted.since, wanted.until)
        log = ReplicaLog(reader, screen, chosen)
        logs[reader] = log
        log.show_so_far(wanted.tail)
        if not follow:
            log.leave()
    try:
        if follow:
            pages = follow_logs(list(logs), until=wanted.until, patience=float("inf"))
            for reader, page in pages:
                logs[reader].show(page)
    finally:
        if screen is not None:
            screen.end()
    _explain(job, [log for log in logs.values() if log.silent])


def _explain(job: Job, silent: Iterable[ReplicaLog]) -> None:
    """Write which replicas have no log, and why.

    Raises:
        TransloadError: if a replica has run, and its log was removed.
    """
    gone = [log for log in silent if log.missing and _has_run(job, log.reader)]
    for log in silent:
        why = job.scheduler.why_no_log(job.app_id, log.reader.role, log.reader.replica)
        if why:
            note(f"{log.label} has no log: {why}")
    if gone:
        labels = ", ".join(log.label for log in gone)
        raise TransloadError(
            f"the log of {labels} cannot be read any more: {gone[0].missing} is not there"
        )


def _has_run(job: Job, reader: LogReader) -> bool:
    """Tell whether a replica has started, as far as its scheduler knows."""
    status = job.status()
    roles = () if status is None else status.roles
    own = [each for role in roles if role.role == reader.role for each in role.replicas]
    return any(each.id == reader.replica and each.start_time is not None for each in own)
