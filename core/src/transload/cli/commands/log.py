"""``transload log``."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from transload.cli.options import handle_argument, json_option
from transload.cli.output import SCHEMA, note, write
from transload.cli.quantities import parse_when
from transload.cli.screen import Screen
from transload.cli.session import description_of, find_target, open_runner
from transload.errors import SpecError, UnsupportedFeature
from transload.runner.logs import LineFilter, LogReader, follow_logs
from transload.runner.redraws import PAUSE_S, Redraws
from transload.schedulers.api import LogPage, LogQuery, Stream, replicas_of
from transload.specs import nearest

if TYPE_CHECKING:
    from transload.cli.session import Target

Replicas = list[tuple[str, int]]


@click.command()
@handle_argument(metavar="HANDLE[/ROLE[/K,K…]]")
@click.option("-f", "--follow", is_flag=True, help="Go on until the replicas have ended.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="NAME",
    help="Only this role; may be given several times.",
)
@click.option("--replica", "numbers", metavar="K,K…", help="Only these replicas of each role.")
@click.option("--regex", metavar="REGEX", help="Only lines in which it is found.")
@click.option("--since", metavar="WHEN", help="Only lines since then: 10m (ago) or an ISO time.")
@click.option("--until", metavar="WHEN", help="Only lines before then.")
@click.option("--stream", "--streams", type=click.Choice(["stdout", "stderr", "combined"]), default="combined",
              show_default=True, help="Which output.")  # fmt: skip
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(min=0),
    metavar="N",
    help="Begin with the last N lines of each.",
)
@click.option("--no-prefix", is_flag=True, help="Show lines without ROLE/REPLICA in front.")
@json_option
def log(handle: str, **options: Any) -> None:
    """Show the logs of an app's replicas, one after the other, or follow all of them at once.

    Ctrl-C leaves; the app goes on. With --json, each line of output is an object of its own.
    """
    with open_runner() as runner:
        handle, in_path = _split(handle)
        target = find_target(runner, handle)
        span = _span(options, target)
        everything = replicas_of(description_of(runner, target.handle))
        replicas = _choose(everything, options["roles"], options["numbers"], in_path)
        screen = None if options["as_json"] else _screen(replicas, options)
        _show(target, replicas, options, span, screen)


def _split(text: str) -> tuple[str, tuple[str | None, str | None]]:
    """Split ``HANDLE/ROLE/K,K`` into the handle and (role, numbers)."""
    scheme, sep, rest = text.partition("://")
    if not sep and ":/" in text:  # a mistyped handle, not an app id and a role
        return text, (None, None)
    parts = (rest if sep else text).split("/")
    count = 2 if sep else 1
    extra = [part or None for part in parts[count:]]
    if len(extra) > 2:
        raise SpecError(f"{text!r}: must be of the form HANDLE[/ROLE[/K,K…]]")
    role, numbers = [*extra, None, None][:2]
    return f"{scheme}{sep}{'/'.join(parts[:count])}" if sep else parts[0], (role, numbers)


def _span(options: dict[str, Any], target: Target) -> list[float | None]:
    """Return the span of time that is asked for, in seconds since the epoch."""
    LineFilter(options["regex"])  # refuses what is none
    since = parse_when(options["since"], "--since") if options["since"] else None
    until = parse_when(options["until"], "--until") if options["until"] else None
    if (since or until) and not target.scheduler.capabilities.since_until:
        raise UnsupportedFeature(
            f"--since, --until: scheduler {target.scheduler.name!r} keeps no times of lines"
        )
    if since and until and since >= until:
        raise SpecError(f"--until={options['until']!r}: must be after --since={options['since']!r}")
    return [None if at is None else at.timestamp() for at in (since, until)]


def _choose(
    everything: Replicas,
    roles: tuple[str, ...],
    numbers: str | None,
    in_path: tuple[str | None, str | None],
) -> Replicas:
    """Return the replicas that are asked for."""
    known = list(dict.fromkeys(role for role, _ in everything))
    wanted = [*roles, *([in_path[0]] if in_path[0] else [])]
    for role in wanted:
        if role not in known:
            raise SpecError(f"role {role!r} does not exist: {nearest(role, known)}")
    chosen = [(role, k) for role, k in everything if not wanted or role in wanted]
    text = in_path[1] if numbers is None else numbers
    if text is None:
        return chosen
    try:
        ks = {int(part) for part in text.split(",")}
    except ValueError:
        raise SpecError(
            f"--replica={text!r}: must be numbers of replicas, such as 0 or 0,2"
        ) from None
    for k in sorted(ks):
        if not any(number == k for _, number in chosen):
            high = max((number for _, number in chosen), default=-1)
            raise SpecError(f"replica {k} does not exist: must be from 0 to {high}")
    return [(role, k) for role, k in chosen if k in ks]


def _screen(replicas: Replicas, options: dict[str, Any]) -> Screen:
    labels = [] if options["no_prefix"] else [f"{role}/{k}" for role, k in replicas]
    return Screen(sys.stdout, sys.stderr, labels)


class _Log:
    """Shows one log: as JSON objects, line by line as the program wrote it, or as text behind a
    prefix.

    Args:
        reader: reads the log.
        chosen: which lines are shown.
        screen: where to show text; None: JSON to stdout.
    """

    def __init__(self, reader: LogReader, chosen: LineFilter, screen: Screen | None) -> None:
        self.reader = reader
        self._label = f"{reader.role}/{reader.replica}"
        self._chosen = chosen
        self._screen = screen
        self._redraws = Redraws(PAUSE_S if screen is None else screen.redraw_pause)
        self._unfinished = ""

    def lines_of(self, page: LogPage) -> list[str]:
        """Return what is shown of a page."""
        lines = self._chosen.take(page)
        if self._screen is None:
            return lines
        self._unfinished = "".join(self._chosen.choose([page.unfinished]))
        found = self._redraws.take(lines, self._unfinished)
        return found + self._redraws.rest() if page.complete else found

    def show(self, lines: list[str]) -> None:
        """Write lines, and on a terminal the one that is not finished below them."""
        if self._screen is None:
            _write_json(self.reader.role, self.reader.replica, lines)
            return
        self._screen.write_lines(self._label, lines)
        self._screen.set_live(self._label, self._redraws.live)

    def leave(self) -> None:
        """Write the line that is not finished: nobody waits for its end."""
        if self._screen is None:
            return
        self._screen.set_live(self._label, "")
        if self._redraws.idle:
            lines = [f"{self._unfinished}\n"] if self._unfinished.strip() else []
        else:
            lines = self._redraws.rest()
        self._screen.write_lines(self._label, lines)


def _write_json(role: str, k: int, lines: list[str]) -> None:
    head = {"schema": SCHEMA, "role": role, "replica": k}
    text = "".join(
        f"{json.dumps({**head, 'line': line.removesuffix(chr(10))})}\n" for line in lines
    )
    write(sys.stdout, text, flush=True)


def _show(
    target: Target,
    replicas: Replicas,
    options: dict[str, Any],
    span: list[float | None],
    screen: Screen | None,
) -> None:
    """Show what each replica has written so far, in constant memory; then, if asked, all of them
    until they end.
    """
    since, until = span
    tail = options["tail"]
    stream = Stream(options["stream"])
    logs: dict[LogReader, _Log] = {}
    silent: dict[LogReader, None] = {}  # in order
    for role, k in replicas:
        reader = LogReader(
            target.scheduler, target.app_id, LogQuery(role, k, stream, since=since, until=until)
        )
        log = logs[reader] = _Log(reader, LineFilter(options["regex"], since, until), screen)
        last: deque[str] = deque(maxlen=tail)
        silent[reader] = None
        for page in reader.pages():
            if page.lines:
                silent.pop(reader, None)
            if tail is None:
                log.show(log.lines_of(page))
            else:
                last.extend(log.lines_of(page))
        log.show(list(last))
        if not options["follow"]:
            log.leave()
    try:
        if options["follow"]:
            for reader, page in follow_logs(list(logs), until=until, patience=float("inf")):
                logs[reader].show(logs[reader].lines_of(page))
                if page.lines:
                    silent.pop(reader, None)
    finally:
        if screen is not None:
            screen.end()
    _explain(target, silent)


def _explain(target: Target, silent: Iterable[LogReader]) -> None:
    """Say of which replicas there is no log, and why."""
    for reader in silent:
        why = target.scheduler.why_no_log(target.app_id, reader.role, reader.replica)
        if why:
            note(f"{reader.role}/{reader.replica} has no log: {why}")
