"""The commands ``transload status``, ``describe``, ``wait``, ``cancel``, ``delete``."""

from __future__ import annotations

import sys
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import click

from transload.cli.options import (
    duration,
    handle_argument,
    json_option,
    long_duration,
    scheduler_option,
)
from transload.cli.output import (
    emit,
    emit_fields,
    emit_json,
    emit_table,
    is_terminal,
    note,
    pairs_text,
    state_text,
)
from transload.cli.screen import open_screen
from transload.cli.session import (
    description_of,
    find_job,
    open_runner,
    seen,
    status_of,
)
from transload.cli.show import (
    app_json,
    interruptions_text,
    limit_text,
    progress_text,
    segment_text,
    show_end,
    time_text,
)
from transload.cli.wait import AppWait
from transload.errors import AppNotFound, SchedulerUnavailable, SpecError, TransloadError
from transload.keeper.failures import error_line
from transload.plugins import get_plugins
from transload.runner.logs import silent_for
from transload.runner.provenance import cancelling_as_user
from transload.schedulers.asked import asked_in_words
from transload.specs import (
    NONE,
    AppStatus,
    exit_text,
    is_started,
    masked_url,
    masked_values,
    nearest,
)
from transload.specs.own_programs import shown_command
from transload.specs.text import duration_text, parse_size, size_text, usage_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from transload.runner import Job, Runner
    from transload.schedulers import AppDescription, CheckpointFolder, SchedulerBase
    from transload.specs import ReplicaStatus, Role, RoleStatus

_LONGEST_ENGINE: Final = 200  # characters for a person
_SILENT_S: Final = 60.0  # from which on it is shown that a replica writes nothing


@click.command()
@handle_argument()
@click.option(
    "--role",
    "roles",
    multiple=True,
    metavar="NAME",
    help="Only this role; may be given several times.",
)
@json_option
def status(handle: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Show the state of a job and its replicas.

    The columns are replica, state, exit code, time, restarts, host, memory and CPU time. Exits
    with 0 if the status could be read, whatever it is. The exit code of `wait` depends on the state.
    """
    with open_runner() as runner:
        job = find_job(runner, handle)
        description = seen(job)
        found = description.status
        if roles:
            found.roles = _chosen(found, roles)
        silent = _silent_for(job, found)
        if not as_json:
            _show_status(job.handle, found, silent, description.asked)
            return
        shown = app_json(job.handle, found)
        shown["asked"] = dict(description.asked)
        shown["silent_for"] = {f"{role}/{k}": round(s, 1) for (role, k), s in silent.items()}
        emit_json(shown)


def _silent_for(job: Job, status: AppStatus) -> Mapping[tuple[str, int], float]:
    """Return for how long replicas have written nothing, or {} where their logs cannot be read."""
    try:
        return silent_for(job.scheduler, job.app_id, status)
    except TransloadError:
        return {}


def _silence_text(silent: Mapping[tuple[str, int], float]) -> str:
    """Return which replicas have written nothing for a minute or more, the longest first."""
    long = sorted((-seconds, name) for name, seconds in silent.items() if seconds >= _SILENT_S)
    if not long:
        return ""
    if len(long) == len(silent):
        return f"for {duration_text(-long[-1][0])}"
    named = [f"{role}/{k} for {duration_text(-seconds)}" for seconds, (role, k) in long[:3]]
    if len(long) > 3:
        named.append(f"{len(long) - 3} more")
    return ", ".join(named)


def _chosen(status: AppStatus, roles: tuple[str, ...]) -> list[RoleStatus]:
    known = [role.role for role in status.roles]
    for name in roles:
        if name not in known:
            raise SpecError(f"role {name!r} does not exist: {nearest(name, known)}")
    return [role for role in status.roles if role.role in roles]


def _show_status(
    handle: str,
    status: AppStatus,
    silent: Mapping[tuple[str, int], float],
    asked: Mapping[str, Any],
) -> None:
    error = ""
    if status.structured_error_msg != NONE:
        error = error_line(status.structured_error_msg)
    bar = None
    if is_terminal(sys.stdout):
        bar = sys.stdout
    is_cancelling = status.cancel_requested and not status.is_terminal()
    fields = [
        ("job", handle),
        ("state", state_text(status.state)),
        ("why", status.msg),
        ("error", error),
        ("limit", limit_text(status)),
        ("segment", segment_text(status)),
        ("progress", progress_text(status, bar)),
        ("no output", _silence_text(silent)),
        ("warning", status.late_for_limit(time.time())),
        ("restarts", str(status.num_restarts or "")),
        ("interruptions", interruptions_text(status)),
        ("cancel", "requested" if is_cancelling else ""),
        ("engine", _engine_text(status)),
        ("page", status.ui_url or ""),
        *asked_in_words(asked).items(),
    ]
    emit_fields(fields)
    replicas = [replica for role in status.roles for replica in role.replicas]
    if replicas:
        if is_terminal(sys.stdout):
            emit()
        heads = ("REPLICA", "STATE", "EXIT", "TOOK", "RESTARTS", "HOST", "MEMORY", "CPU")
        emit_table(heads, map(_replica, replicas))


def _engine_text(status: AppStatus) -> str:
    """Return the names by which its engine's tools know a job. A long list is cut here alone."""
    text = pairs_text(status.engine)
    return text if len(text) <= _LONGEST_ENGINE else f"{text[:_LONGEST_ENGINE]}…"


def _replica(replica: ReplicaStatus) -> tuple[str, ...]:
    took = ""
    code = ""
    # the times and the exit code of one that waits again are those of its last attempt
    if replica.start_time is not None and is_started(replica.state):
        took = duration_text((replica.end_time or time.time()) - replica.start_time)
    if replica.exit_code is not None and is_started(replica.state):
        code = exit_text(replica.exit_code).removeprefix("exit code ")
    memory, cpu = usage_texts(replica.usage)
    return (
        f"{replica.role}/{replica.id}",
        state_text(replica.state),
        code,
        took,
        str(replica.restarts or ""),
        replica.hostname,
        memory,
        cpu,
    )


@click.command()
@handle_argument()
@json_option
def describe(handle: str, as_json: bool) -> None:
    """Show the definition and the options of a job. Values that look secret are masked.

    `transload run --stdin` accepts the field `app` of the JSON output.
    """
    with open_runner() as runner:
        job = find_job(runner, handle)
        description = description_of(job)
        checkpoints = _checkpoints_of(job, description)
    link = get_plugins().app_link(job.handle)
    if not as_json:
        _show_description(job.handle, description, link, checkpoints)
        return
    app = None
    if description.app is not None:
        app = description.app.masked().to_dict()
    emit_json(
        {
            **app_json(job.handle, description.status),
            "app": app,
            "session": description.session,
            "cfg": masked_values(description.cfg),
            "digest": description.digest,
            "tracker_base": description.tracker_base and masked_url(description.tracker_base),
            "parent_run_id": description.parent_run_id,
            "created": description.created,
            "log_url": description.log_url,
            "link": link,
            "checkpoints": [vars(folder) for folder in checkpoints],
            "asked": dict(description.asked),
        }
    )


def _checkpoints_of(job: Job, description: AppDescription) -> Sequence[CheckpointFolder]:
    """Return the folders of checkpoints of a job, or none where they cannot be looked at now."""
    if description.checkpoints is None:
        return ()
    try:
        return job.scheduler.checkpoints(description.app_id)
    except (AppNotFound, SchedulerUnavailable) as exc:
        note(f"its checkpoints: {exc}")
        return ()


def _checkpoints_text(folder: CheckpointFolder) -> str:
    """Return where the checkpoints of a role are, their size and age."""
    known = []
    if folder.size is not None:
        known.append(size_text(folder.size))
    if folder.changed is not None:
        age = duration_text(max(0.0, time.time() - folder.changed))
        known.append(f"changed {age} ago")
    more = f" ({', '.join(known)})" if known else ""
    return f"{folder.role}: {folder.path}{more}"


def _show_description(
    handle: str,
    description: AppDescription,
    link: str | None,
    checkpoints: Sequence[CheckpointFolder],
) -> None:
    fields = {
        "job": handle,
        "name": "",
        "state": state_text(description.status.state),
        "why": description.status.msg,
        "submitted": time_text(description.created),
        "options": pairs_text(masked_values(description.cfg)),
        "timeout": "",
        "segment": "",
        "progress": _progress_with_rate(description.status),
        "interruptions": interruptions_text(description.status),
        "limit": limit_text(description.status),
        "results in": masked_url(description.tracker_base or ""),
        "derives from": description.parent_run_id or "",
        "logs in": description.log_url or "",
        "checkpoints": "; ".join(map(_checkpoints_text, checkpoints)),
        "engine": _engine_text(description.status),
        "page": link or description.status.ui_url or "",
        "arguments": "",
        "metadata": "",
        "digest": description.digest or "",
        **asked_in_words(description.asked),
    }
    if description.app is None:
        emit_fields(fields.items())
        return
    app = description.app.masked()
    fields["name"] = app.name
    fields["arguments"] = pairs_text(app.arguments)
    fields["metadata"] = pairs_text(app.metadata)
    if app.timeout is not None:
        fields["timeout"] = f"{app.timeout:g} s"
    if app.segment is not None:
        fields["segment"] = segment_text(description.status, app.segment)
    emit_fields(fields.items())
    for role in app.roles:
        _show_role(role)


def _progress_with_rate(status: AppStatus) -> str:
    """Return ``71 %, step 710/1000, 12 min left, 2.5 steps a second``, or what is known of it."""
    if status.progress is None:
        return ""
    return ", ".join(filter(None, [progress_text(status), status.progress.rate_text()]))


def _notice_text(role: Role) -> str:
    if role.notice is None:
        return ""
    return f"{role.notice.signal}, {duration_text(role.notice.seconds)} before the end"


def _stall_text(role: Role) -> str:
    if role.stall_after is None:
        return ""
    text = f"after {duration_text(role.stall_after)} without a sign of life"
    if role.on_stall == "dump":
        text += f", and gets {role.stall_signal} then"
    return text


def _show_role(role: Role) -> None:
    replicas = str(role.num_replicas)
    if role.min_replicas is not None:
        replicas = f"{replicas}, at least {role.min_replicas} must succeed"
    retries = ""
    if role.max_retries:
        retries = f"{role.max_retries} by {role.retry_policy.value}"
    numbers = {"cpu": role.resource.cpu, "gpu": role.resource.gpu, "memMB": role.resource.memMB}
    wanted = {name: value for name, value in numbers.items() if value > 0}
    resource = {**wanted, **role.resource.devices, **role.resource.capabilities}
    emit()
    emit_fields(
        [
            ("role", role.name),
            ("replicas", replicas),
            ("command", shown_command(role.entrypoint, role.args)),
            ("image", role.image),
            ("environment", str(role.environment or "")),
            ("retries", retries),
            ("interruptions", str(role.interruptions_allowed or "")),
            ("notice", _notice_text(role)),
            ("stalled", _stall_text(role)),
            ("resource", pairs_text(resource)),
            ("ports", pairs_text(role.port_map)),
            ("mounts", "; ".join(str(mount) for mount in role.mounts)),
            ("workspace", str(role.workspace or "")),
            ("env", pairs_text(role.env)),
            ("secrets", pairs_text(role.secrets)),
            ("metadata", pairs_text(role.metadata)),
        ]
    )


@click.command()
@handle_argument()
@click.option("--timeout", type=duration, help="Longest wait (10m); the job goes on afterwards.")
@click.option(
    "--patience",
    type=duration,
    default=300.0,
    help="Unreachable timeout: give up after this long in UNKNOWN; default: 5m.",
)
@json_option
def wait(handle: str, timeout: float | None, patience: float, as_json: bool) -> int:
    """Wait until a job has ended. The exit code depends on its state, as for `run`.

    Ctrl-C leaves, and the job goes on.
    """
    with open_runner() as runner:
        job = find_job(runner, handle)
        status_of(job)
        screen = open_screen(as_json=as_json)
        outcome = AppWait(job, screen, SimpleQueue(), timeout, patience).wait()
        show_end(job, outcome, as_json, patience)
        return outcome.code


@click.command()
@handle_argument(nargs=-1, required=True, metavar="HANDLE...")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait until they have ended.")
@click.option("--timeout", type=duration, help="Longest wait for --wait (10m).")
@json_option
@click.pass_context
def cancel(
    ctx: click.Context,
    handle: tuple[str, ...],
    wait_for_end: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Cancel jobs, whose states change soon after. A job that has ended does not change.

    All handles are checked before the first job is cancelled.
    """
    if timeout is not None and not wait_for_end:
        raise click.UsageError("--timeout only goes with --wait", ctx)
    with open_runner() as runner:
        jobs = [find_job(runner, text) for text in handle]
        for job in jobs:
            status_of(job)
        grouped: dict[SchedulerBase, list[str]] = {}
        for job in jobs:
            grouped.setdefault(job.scheduler, []).append(job.app_id)
        with cancelling_as_user(runner.settings):
            for scheduler, app_ids in grouped.items():
                scheduler.cancel(app_ids)
        if wait_for_end:
            for job in jobs:
                job.wait_if_there(timeout)
        statuses = [(job.handle, job.status()) for job in jobs]
        if as_json:
            emit_json({"apps": [app_json(each, found) for each, found in statuses]})
            return
        for each, found in statuses:
            emit(f"{each}\t{_state_after_cancel(found)}")


def _state_after_cancel(status: AppStatus | None) -> str:
    if status is None:
        return "gone"
    if status.is_terminal():
        return str(status.state)
    return f"{status.state}, asked to end"


@click.command()
@handle_argument(nargs=-1, metavar="[HANDLE]...")
@click.option(
    "--force", is_flag=True, help="Also delete jobs that have not ended (only with handles)."
)
@click.option(
    "--older-than",
    type=long_duration,
    metavar="DURATION",
    help="Jobs that ended at least this long ago (7d).",
)
@click.option(
    "--larger-than",
    metavar="SIZE",
    help="The oldest jobs, until the others take at most this size (10G).",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@scheduler_option("Scheduler if there are no handles; default: the configured one, else local.")
@json_option
@click.pass_context
def delete(
    ctx: click.Context,
    /,
    handle: tuple[str, ...],
    force: bool,
    older_than: float | None,
    larger_than: str | None,
    dry_run: bool,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Delete jobs with their states, logs, and the results in their own folders.

    Give handles, or --older-than and --larger-than for all ended jobs of a scheduler. A job that
    has not ended is refused. With --force it is ended first. All handles are checked before the
    first job is deleted.
    """
    by_rule = older_than is not None or larger_than is not None
    if by_rule == bool(handle):
        raise click.UsageError(
            "give one or more HANDLEs, or --older-than, --larger-than or both", ctx
        )
    if by_rule and force:
        raise click.UsageError(
            "--force only goes with handles; the rules only delete ended jobs", ctx
        )
    if scheduler is not None and handle:
        raise click.UsageError(
            "--scheduler only goes with --older-than and --larger-than; a handle has its scheduler",
            ctx,
        )
    size = None
    if larger_than is not None:
        size = parse_size(larger_than, "--larger-than")
    with open_runner() as runner:
        if by_rule:
            deleted = _prune(runner, scheduler, older_than, size, dry_run=dry_run)
        else:
            deleted = _delete(runner, handle, force, dry_run)
    if as_json:
        emit_json({"dry_run": dry_run, "deleted": deleted})
        return
    done = "would be deleted" if dry_run else "deleted"
    for each in deleted:
        emit(f"{each}\t{done}")
    if by_rule:
        note(f"{len(deleted)} jobs {done}")


def _prune(
    runner: Runner,
    scheduler: str | None,
    older_than: float | None,
    max_size: int | None,
    *,
    dry_run: bool,
) -> list[str]:
    """Delete ended jobs of a scheduler by age and size, and return their handles."""
    backend = runner.scheduler(scheduler)
    handles = {row.app_id: row.app_handle for row in runner.list(backend.name)}
    deleted = backend.prune(older_than=older_than, max_size=max_size, dry_run=dry_run)
    return [handles.get(app_id, app_id) for app_id in deleted]


def _delete(runner: Runner, texts: tuple[str, ...], force: bool, dry_run: bool) -> list[str]:
    """Delete the named jobs, unless one of them has not ended, and return their handles."""
    jobs = [find_job(runner, text) for text in texts]
    for job in jobs:
        found = status_of(job)
        if not found.is_terminal() and not force:
            raise SpecError(f"{job.handle} is {found.state}; cancel it first, or use --force")
    if not dry_run:
        for job in jobs:
            job.delete()
    return [job.handle for job in jobs]
