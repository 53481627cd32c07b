"""The command ``transload log``."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from transload.cli.options import WholeNumber, handle_argument, json_option
from transload.cli.output import SCHEMA, note, write
from transload.cli.quantities import parse_when
from transload.cli.screen import Screen
from transload.cli.session import description_of, find_job, open_runner
from transload.errors import SpecError, TransloadError, UnsupportedFeature
from transload.runner.logs import PAUSE_S, LineFilter, LogReader, Redraws, follow_logs
from transload.schedulers.api import LogPage, LogQuery, Stream, replicas_of
from transload.specs import nearest
from transload.specs.text import parse_number

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
        named = _split(handle)
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
            screen = Screen(sys.stdout, sys.stderr, labels)
        _show(job, replicas, wanted_lines, screen, follow=follow)


class _Named(NamedTuple):
    """The parts of the argument HANDLE[/ROLE[/K,K…]]."""

    handle: str
    role: str | None = None
    numbers: str | None = None


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


def _split(text: str) -> _Named:
    """Split ``HANDLE/ROLE/K,K`` into its parts."""
    scheme, separator, rest = text.partition("://")
    if separator:
        session, *parts = rest.split("/")
        handle = "/".join([f"{scheme}://{session}", *parts[:1]])
        extra = parts[1:]
    elif ":/" in text:  # a mistyped handle, not a job id and a role
        return _Named(text)
    else:
        handle, *extra = text.split("/")
    if len(extra) > 2:
        raise SpecError(f"{text!r}: must be of the form HANDLE[/ROLE[/K,K…]]")
    return _Named(handle, *[part or None for part in extra])


def _seconds(text: str | None, option: str, job: Job) -> float | None:
    """Return the time that an option names, in seconds since the epoch."""
    if not text:
        return None
    when = parse_when(text, option)
    if not job.scheduler.capabilities.since_until:
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


class _Log:
    """Shows one log, as JSON objects with the unchanged lines, or as text with a prefix.

    Args:
        reader: reads the log.
        chosen: the wanted lines.
        screen: the screen for text. None means JSON on stdout.
    """

    def __init__(self, reader: LogReader, chosen: LineFilter, screen: Screen | None) -> None:
        self.reader = reader
        self.label = f"{reader.role}/{reader.replica}"
        self._chosen = chosen
        self._screen = screen
        self._redraws = Redraws(PAUSE_S if screen is None else screen.redraw_pause)
        self._unfinished = ""
        self.silent = True
        """Whether the replica has written no line yet."""
        self.missing = ""
        """The file of the log, if there is none."""

    def show_so_far(self, tail: int | None) -> None:
        """Show the lines so far, in constant memory, or with `tail` only the last ones."""
        if tail is None:
            for page in self.reader.pages():
                self.show(self.lines_of(page))
            return
        last: deque[str] = deque(maxlen=tail)
        for page in self.reader.pages():
            last.extend(self.lines_of(page))
        self.show(list(last))

    def lines_of(self, page: LogPage) -> list[str]:
        """Return the lines of a page for display."""
        self.missing = page.missing
        if page.lines:
            self.silent = False
        lines = self._chosen.take(page)
        if self._screen is None:
            return lines
        self._unfinished = "".join(self._chosen.choose([page.unfinished]))
        found = self._redraws.take(lines, self._unfinished)
        if page.complete:
            found += self._redraws.rest()
        return found

    def show(self, lines: list[str]) -> None:
        """Write lines, and on a terminal the unfinished line below them."""
        if self._screen is None:
            _write_json(self.reader.role, self.reader.replica, lines)
            return
        self._screen.write_lines(self.label, lines)
        self._screen.set_live(self.label, self._redraws.live)

    def leave(self) -> None:
        """Write the unfinished line, because the command does not wait for its end."""
        if self._screen is None:
            return
        self._screen.set_live(self.label, "")
        if not self._redraws.idle:
            self._screen.write_lines(self.label, self._redraws.rest())
        elif self._unfinished.strip():
            self._screen.write_lines(self.label, [f"{self._unfinished}\n"])


def _write_json(role: str, k: int, lines: list[str]) -> None:
    head = {"schema": SCHEMA, "role": role, "replica": k}
    objects = [json.dumps({**head, "line": line.removesuffix("\n")}) for line in lines]
    write(sys.stdout, "".join(f"{each}\n" for each in objects), flush=True)


def _show(
    job: Job, replicas: Replicas, wanted: _Lines, screen: Screen | None, *, follow: bool
) -> None:
    """Show the log of each replica so far, then follow all of them, if requested."""
    logs: dict[LogReader, _Log] = {}
    for role, k in replicas:
        query = LogQuery(role, k, wanted.stream, since=wanted.since, until=wanted.until)
        reader = LogReader(job.scheduler, job.app_id, query)
        chosen = LineFilter(wanted.regex, wanted.since, wanted.until)
        log = _Log(reader, chosen, screen)
        logs[reader] = log
        log.show_so_far(wanted.tail)
        if not follow:
            log.leave()
    try:
        if follow:
            pages = follow_logs(list(logs), until=wanted.until, patience=float("inf"))
            for reader, page in pages:
                log = logs[reader]
                log.show(log.lines_of(page))
    finally:
        if screen is not None:
            screen.end()
    _explain(job, [log for log in logs.values() if log.silent])


def _explain(job: Job, silent: Iterable[_Log]) -> None:
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
