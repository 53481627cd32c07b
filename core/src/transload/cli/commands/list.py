"""The command ``transload list``."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import click

from transload.cli.filters import Filter, order, read_filter
from transload.cli.options import WholeNumber, json_option, long_duration, scheduler_option
from transload.cli.output import emit_json, emit_table, note, pairs_text, state_text
from transload.cli.session import SESSION
from transload.cli.show import left_text, progress_text
from transload.errors import SchedulerUnavailable, SpecError, TransloadError
from transload.runner import get_runner, load_settings
from transload.runner.results import collect_results
from transload.schedulers.asked import asked_words
from transload.schedulers.folder.scheduler import FolderScheduler
from transload.specs import AppStatus, masked_values, nearest, parse_app_handle
from transload.specs.serialization import to_value
from transload.specs.text import duration_text, named, size_text

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.schedulers import AppDescription, ListAppResponse
    from transload.specs import Resource

_STATES = ["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"]
STATE: Final = click.Choice(_STATES, case_sensitive=False)
_LONGEST: Final = 5.0
"""Seconds for which a list waits for the schedulers, where several are asked."""


@dataclass
class _Listed:
    """A job of the list, of which more is read once a column or filter needs it."""

    row: ListAppResponse
    scheduler: str
    described: AppDescription | None
    runner: Runner

    def value(self, name: str) -> Any:
        """Return what a column shows of this job, or None if it has no such value.

        A name is one of `_OWN`, else that of an argument, of who asked (`asked_words`), or of a
        result.
        """
        if name in _OWN:
            return _OWN[name][1](self)
        for known in (self.arguments, self.asked):
            if known.get(name) is not None:
                return known[name]
        return self.results.get(name)

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of its component, or of its command: ``--NAME VALUE``."""
        app = None if self.described is None else self.described.app
        return {} if app is None else masked_values(app.arguments)

    @cached_property
    def asked(self) -> Mapping[str, Any]:
        """Who asked for it, by dotted names."""
        return {} if self.described is None else asked_words(self.described.asked)

    @cached_property
    def results(self) -> Mapping[str, Any]:
        """Its results: the key ``final``, else replica 0 of the first role, else the last one."""
        if self.described is None:
            return {}
        backend = self.runner.scheduler(self.scheduler)
        try:
            found = collect_results(self.row.app_handle, backend, self.described, {}, outputs=False)
        except (TransloadError, OSError):
            return {}
        values: dict[str, Any] = {}
        for key in (*found.results, found.first, "final"):
            values |= found.results.get(key, {})
        return values

    @property
    def why(self) -> str | None:
        """Why it is in its state, as its status says: what failed, or who cancelled it."""
        said = None if self.described is None else self.described.status.msg
        return " ".join(said.split()) if said else None

    @property
    def elapsed(self) -> float | None:
        """Seconds from its first start to its end, or to now."""
        if self.described is None:
            return None
        replicas = [each for role in self.described.status.roles for each in role.replicas]
        times = [each.start_time for each in replicas]
        times += [attempt.start_time for each in replicas for attempt in each.earlier]
        starts = [each for each in times if each is not None]
        if not starts:
            return None
        ends = [replica.end_time or 0.0 for replica in replicas]
        over = self.described.status.is_terminal()
        return max(0.0, (max(ends) if over and max(ends) else time.time()) - min(starts))

    def hours(self, of: Callable[[Resource], float]) -> float | None:
        """Return the hours of what it asked for: how many CPUs or GPUs × its elapsed time."""
        app = None if self.described is None else self.described.app
        if app is None or self.elapsed is None:
            return None
        count = sum(role.num_replicas * max(0, of(role.resource)) for role in app.roles)
        return count * self.elapsed / 3600


def _disk(listed: _Listed) -> int | None:
    """Return the bytes of a job's folder, logs and results included, if its scheduler has one."""
    backend = listed.runner.scheduler(listed.scheduler)
    return backend.size_of(listed.row.app_id) if isinstance(backend, FolderScheduler) else None


def _age(listed: _Listed) -> float | None:
    created = listed.row.created
    return None if created is None else max(0.0, time.time() - created)


_OWN: Final[Mapping[str, tuple[str, Callable[[_Listed], Any]]]] = {
    "age": ("AGE", _age),
    "cpu_hours": (
        "CPU HOURS (ASKED × ELAPSED)",
        lambda listed: listed.hours(lambda asked: asked.cpu),
    ),
    "disk": ("DISK", _disk),
    "elapsed": ("ELAPSED", lambda listed: listed.elapsed),
    "gpu_hours": (
        "GPU HOURS (ASKED × ELAPSED)",
        lambda listed: listed.hours(lambda asked: asked.gpu),
    ),
    "name": ("NAME", lambda listed: listed.row.name),
    "scheduler": ("SCHEDULER", lambda listed: listed.scheduler),
    "session": ("SESSION", lambda listed: listed.row.session),
    "state": ("STATE", lambda listed: listed.row.state.name),
    "why": ("WHY", lambda listed: listed.why),
}
"""Names of columns that every job has: their heads, and how they are read."""

_IN_A_ROW: Final = {"age", "disk", "name", "scheduler", "session", "state"}
"""Those for which no job has to be described."""


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str]:
    """Read ``a,b``, the value of an option."""
    if value is None:
        return []
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise click.BadParameter(f"{value!r}: a name is missing: must be NAME,NAME", ctx, param)
    return list(dict.fromkeys(names))


@click.command("list")
@scheduler_option("Only the jobs of this scheduler; default: of all configured ones.")
@click.option("--state", "states", multiple=True, type=STATE, help="Only jobs in this state.")
@click.option(
    "--name",
    metavar="PATTERN",
    help="Only jobs with this name; it may have the wildcards * and ? ('train*').",
)
@click.option("--since", type=long_duration, help="Only jobs submitted this long ago at most (2d).")
@click.option(
    "--where",
    "filters",
    multiple=True,
    type=read_filter,
    metavar="'NAME OP VALUE'",
    help="Only jobs with such an argument, result or who asked: 'loss<0.3', user=me.",
)
@click.option(
    "--columns",
    metavar="NAME,…",
    callback=_names,
    help="Also show these: arguments, results, "
    + ", ".join(name for name in _OWN if name not in ("age", "name", "scheduler", "state"))
    + ".",
)
@click.option(
    "--sort",
    metavar="NAME",
    default="age",
    help="By a column, -NAME: the largest first; default: age, the newest first.",
)
@click.option("-n", "--limit", type=WholeNumber(min=1), metavar="N", help="Only the first N.")
@click.option(
    "--arguments",
    is_flag=True,
    help="Also show the arguments of each job: those of its component, or --NAME VALUE.",
)
@json_option
def list_jobs(
    scheduler: str | None,
    states: tuple[str, ...],
    name: str | None,
    since: float | None,
    filters: tuple[Filter, ...],
    columns: list[str],
    sort: str,
    limit: int | None,
    arguments: bool,
    as_json: bool,
) -> None:
    """List the handle, state, age, scheduler and name of jobs, newest first.

    Every other command takes the handle. Each scheduler with a table in the settings is asked, and
    the default one; one that has not answered after 5 seconds is named.
    """
    filters = tuple(map(_of_state, filters))
    by = sort.removeprefix("-")
    used = [*columns, by, *(each.name for each in filters)]
    with contextlib.ExitStack() as held:
        answers = _ask([scheduler] if scheduler else _configured(), held)
        rows = [row for found in answers.rows.values() for row in found]
        rows = _chosen(rows, states, name, since)
        listed = _read(answers, rows, arguments or not _IN_A_ROW.issuperset(used))
        for each, why in answers.unreachable.items():
            note(f"jobs of {each} are missing: {why}")
        jobs = [job for job in listed if all(each.holds(job.value(each.name)) for each in filters)]
        _refuse_unknown(used, listed)
        jobs.sort(key=lambda job: order(job.value(by)), reverse=sort.startswith("-"))
        jobs.sort(key=lambda job: job.value(by) is None)  # those without the value are the last
        jobs = jobs[:limit]
        if as_json:
            shown = [_to_json(job, columns, arguments) for job in jobs]
            emit_json({"apps": shown, "unreachable": answers.unreachable})
            return
        _show(jobs, columns, arguments)


def _of_state(wanted: Filter) -> Filter:
    """Return a filter that names a state as rows do: ``state=failed`` is that of ``--state``.

    Raises:
        SpecError: if it names none.
    """
    if wanted.name != "state":
        return wanted
    value = wanted.value.upper()
    if value not in _STATES:
        raise SpecError(f"state{wanted.operator}{wanted.value}: {nearest(value, _STATES)}")
    return wanted._replace(value=value)


def _configured() -> list[str]:
    settings = load_settings()
    return list(dict.fromkeys(["local", settings.scheduler, *settings.scheduler_tables()]))


@dataclass
class _Answers:
    """What the schedulers said, by their names."""

    rows: dict[str, list[ListAppResponse]] = field(default_factory=dict)
    unreachable: dict[str, str] = field(default_factory=dict)
    runners: dict[str, Runner] = field(default_factory=dict)


def _ask(schedulers: Sequence[str], held: contextlib.ExitStack) -> _Answers:
    """Return the jobs of schedulers, which are asked at once.

    Each has a runner of its own, since closing that of one that hangs would hang.

    Raises:
        TransloadError: what the only scheduler raises.
    """
    answers = _Answers()
    answers.runners = {name: get_runner(SESSION) for name in schedulers}
    if len(schedulers) == 1:
        (name,) = schedulers
        answers.rows[name] = held.enter_context(answers.runners[name]).list(name)
        return answers
    said: SimpleQueue[tuple[str, list[ListAppResponse] | Exception]] = SimpleQueue()

    def ask(name: str) -> None:
        try:
            said.put((name, answers.runners[name].list(name)))
        except Exception as exc:
            said.put((name, exc))

    for name in schedulers:  # one that hangs does not keep this process from ending
        threading.Thread(target=ask, args=(name,), daemon=True).start()
    ends = time.monotonic() + _LONGEST
    missing = list(schedulers)
    while missing:
        try:
            name, found = said.get(timeout=max(0.0, ends - time.monotonic()))
        except Empty:
            silent = dict.fromkeys(missing, f"it has not answered for {_LONGEST:.0f} s")
            answers.unreachable |= silent
            break
        missing.remove(name)
        held.enter_context(answers.runners[name])
        if isinstance(found, Exception):
            answers.unreachable[name] = str(found)
        else:
            answers.rows[name] = found
    return answers


def _chosen(
    rows: list[ListAppResponse], states: Sequence[str], name: str | None, since: float | None
) -> list[ListAppResponse]:
    if states:
        rows = [row for row in rows if row.state.name in states]
    if name is not None:
        wanted = named((row.name for row in rows), name)
        rows = [row for row in rows if row.name in wanted]
    if since is not None:
        earliest = time.time() - since
        rows = [row for row in rows if row.created is not None and row.created >= earliest]
    return rows


def _read(answers: _Answers, rows: list[ListAppResponse], described: bool) -> list[_Listed]:
    """Return the jobs of rows, described by one question to each scheduler if that is wanted.

    Jobs of a scheduler that cannot be asked then are missing, unless it is the only one.
    """
    by_scheduler: dict[str, list[ListAppResponse]] = {}
    for row in rows:
        name = parse_app_handle(row.app_handle).scheduler_backend
        by_scheduler.setdefault(name, []).append(row)
    jobs = []
    for name, mine in by_scheduler.items():
        runner = answers.runners[name]
        known: Mapping[str, AppDescription | None] = {}
        if described:
            try:
                known = runner.scheduler(name).describe([row.app_id for row in mine])
            except SchedulerUnavailable as exc:
                if len(answers.runners) == 1:
                    raise
                answers.unreachable[name] = str(exc)
                continue
        jobs += [_Listed(row, name, known.get(row.app_id), runner) for row in mine]
    return jobs


def _refuse_unknown(names: Sequence[str], jobs: Sequence[_Listed]) -> None:
    """Refuse a name that no job has, where there are jobs.

    Raises:
        SpecError: with the nearest name.
    """
    for name in names:
        if name in _OWN or not jobs or any(job.value(name) is not None for job in jobs):
            continue
        known = {*_OWN}
        for job in jobs:
            known |= {*job.arguments, *job.asked, *job.results}
        raise SpecError(f"{name!r}: no job has that: {nearest(name, sorted(known))}")


def _to_json(job: _Listed, columns: Sequence[str], arguments: bool) -> dict[str, Any]:
    row = job.row
    shown: dict[str, Any] = {
        "handle": row.app_handle,
        "app_id": row.app_id,
        "name": row.name,
        "state": row.state.name,
        "created": row.created,
    }
    if row.progress is not None:
        shown["progress"] = to_value(row.progress)
    if arguments:
        shown["arguments"] = job.arguments
    if columns:
        shown["columns"] = {name: job.value(name) for name in columns}
    return shown


def _show(jobs: Sequence[_Listed], columns: Sequence[str], arguments: bool) -> None:
    heads = ["HANDLE", "STATE", "AGE", "SCHEDULER", "NAME"]
    states = {state: state_text(state) for state in {job.row.state for job in jobs}}
    cells = [
        [
            job.row.app_handle,
            states[job.row.state],
            _text("age", job),
            job.scheduler,
            job.row.name,
        ]
        for job in jobs
    ]
    if any(job.row.progress is not None for job in jobs):
        heads.append("PROGRESS")
        for job, texts in zip(jobs, cells, strict=True):
            texts.append(_progress(job.row))
    for name in columns:
        heads.append(_OWN[name][0] if name in _OWN else name)
        for job, texts in zip(jobs, cells, strict=True):
            texts.append(_text(name, job))
    if arguments:
        heads.append("ARGUMENTS")
        for job, texts in zip(jobs, cells, strict=True):
            texts.append(pairs_text(job.arguments, " "))
    emit_table(heads, cells)


def _text(name: str, job: _Listed) -> str:
    """Return what a column shows for a person."""
    value = job.value(name)
    if value is None:
        return ""
    if name in ("age", "elapsed"):
        return duration_text(value)
    if name == "disk":
        return size_text(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _progress(row: ListAppResponse) -> str:
    """Return how far a job of a list is, such as ``71 %, 12 min 05 s left``."""
    if row.progress is None:
        return ""
    status = AppStatus(row.state, progress=row.progress)
    parts = [row.progress.percent_text(), left_text(status)]
    text = ", ".join(part for part in parts if part)
    return text or progress_text(status)
