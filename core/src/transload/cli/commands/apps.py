"""``transload list``, ``status``, ``describe``, ``wait``, ``cancel`` and ``delete``."""

from __future__ import annotations

import shlex
import sys
import time
from fnmatch import fnmatch
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

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
from transload.cli.quantities import duration_text, time_text, usage_texts
from transload.cli.session import app_json, description_of, find_target, open_runner, status_of
from transload.errors import SpecError
from transload.specs import (
    NONE,
    AppStatus,
    exit_text,
    masked_url,
    masked_values,
    nearest,
    parse_app_handle,
)
from transload.specs.text import parse_size

if TYPE_CHECKING:
    from transload.runner import Runner
    from transload.schedulers import AppDescription, ListAppResponse
    from transload.specs import ReplicaStatus, Role, RoleStatus

_STATES = ["SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "UNKNOWN"]
_STATE = click.Choice(_STATES, case_sensitive=False)


@click.command("list")
@scheduler_option("Whose apps; default: the configured scheduler, else local.")
@click.option("--state", "states", multiple=True, type=_STATE, help="Only apps in it.")
@click.option(
    "--name",
    metavar="PATTERN",
    help="Only apps of this name; * and ? stand for any text ('train*').",
)
@click.option(
    "--sort",
    type=click.Choice(["age", "name", "state"]),
    default="age",
    help="Default: newest first.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N.")
@click.option("--arguments", is_flag=True, help="Also what each was called with.")
@json_option
def list_apps(scheduler: str | None, as_json: bool, **options: Any) -> None:
    """List apps, newest first: handle, state, age, scheduler, name. The handle can be given to
    every other command.
    """
    states, name, sort = options["states"], options["name"], options["sort"]
    with open_runner() as runner:
        found = [
            row
            for row in runner.list(scheduler)
            if (not states or row.state.name in states)
            and (name is None or fnmatch(row.name, name))
        ]
        if sort != "age":  # as the scheduler lists them: equal ones stay newest first
            found.sort(key=lambda row: row.name if sort == "name" else row.state.name)
        rows = found[: options["limit"]]
        called = (
            [_arguments(runner, row.app_handle) for row in rows] if options["arguments"] else None
        )
    if as_json:
        more = [
            {} if called is None else {"arguments": called[index]} for index in range(len(rows))
        ]
        emit_json(
            {"apps": [{**_row_json(row), **extra} for row, extra in zip(rows, more, strict=True)]}
        )
        return
    cells = [_row(row) for row in rows]
    headers = ["HANDLE", "STATE", "AGE", "SCHEDULER", "NAME"]
    if called is not None:
        headers.append("ARGUMENTS")
        cells = [[*row, pairs_text(given, " ")] for row, given in zip(cells, called, strict=True)]
    emit_table(headers, cells)


def _arguments(runner: Runner, handle: str) -> dict[str, object]:
    app = runner.describe(handle)
    return app.masked().arguments if app is not None else {}


def _row_json(row: ListAppResponse) -> dict[str, object]:
    known = {"handle": row.app_handle, "app_id": row.app_id, "name": row.name}
    return {**known, "state": row.state.name, "created": row.created}


def _row(row: ListAppResponse) -> list[str]:
    age = "" if row.created is None else duration_text(max(0.0, time.time() - row.created))
    return [
        row.app_handle,
        state_text(row.state),
        age,
        parse_app_handle(row.app_handle).scheduler_backend,
        row.name,
    ]


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
    """Show what an app and its replicas are doing.

    Exits with 0 whenever the status could be read, whatever it is; `wait` exits by the state.
    """
    with open_runner() as runner:
        target = find_target(runner, handle)
        found = status_of(runner, target.handle)
        if roles:
            found.roles = _chosen(found, roles)
        if as_json:
            emit_json(app_json(target.handle, found))
        else:
            _show_status(target.handle, found)


def _chosen(status: AppStatus, roles: tuple[str, ...]) -> list[RoleStatus]:
    known = [role.role for role in status.roles]
    for name in roles:
        if name not in known:
            raise SpecError(f"role {name!r} does not exist: {nearest(name, known)}")
    return [role for role in status.roles if role.role in roles]


def _show_status(handle: str, status: AppStatus) -> None:
    from transload.retries import error_line

    fields = [
        ("app", handle),
        ("state", state_text(status.state)),
        ("why", status.msg),
        (
            "error",
            "" if status.structured_error_msg == NONE else error_line(status.structured_error_msg),
        ),
        ("restarts", str(status.num_restarts or "")),
        ("cancel", "requested" if status.cancel_requested and not status.is_terminal() else ""),
        ("page", status.ui_url or ""),
    ]
    emit_fields(fields)
    replicas = [replica for role in status.roles for replica in role.replicas]
    if replicas:
        if is_terminal(sys.stdout):
            emit()
        heads = ("REPLICA", "STATE", "EXIT", "TOOK", "RESTARTS", "HOST", "MEMORY", "CPU")
        emit_table(heads, map(_replica, replicas))


def _replica(replica: ReplicaStatus) -> tuple[str, ...]:
    took = ""
    if replica.start_time is not None:
        took = duration_text((replica.end_time or time.time()) - replica.start_time)
    code = (
        "" if replica.exit_code is None else exit_text(replica.exit_code).removeprefix("exit code ")
    )
    known = (
        f"{replica.role}/{replica.id}",
        state_text(replica.state),
        code,
        took,
        str(replica.restarts or ""),
    )
    return *known, replica.hostname, *usage_texts(replica.usage)


@click.command()
@handle_argument()
@json_option
def describe(handle: str, as_json: bool) -> None:
    """Show an app as it was submitted, with its options; values that look secret are masked.

    The field `app` of the JSON form, written to a file, can be given to `transload run --stdin`.
    """
    from transload.plugins import get_plugins

    with open_runner() as runner:
        target = find_target(runner, handle)
        description = description_of(runner, target.handle)
    link = get_plugins().app_link(target.handle)
    if not as_json:
        _show_description(target.handle, description, link)
        return
    shown = {
        **app_json(target.handle, description.status),
        "app": None if description.app is None else description.app.masked().to_dict(),
    }
    for name in ("session", "cfg", "digest", "tracker_base", "parent_run_id", "created", "log_url"):
        shown[name] = getattr(description, name)
    shown["cfg"] = masked_values(description.cfg)
    shown["tracker_base"] = description.tracker_base and masked_url(description.tracker_base)
    emit_json({**shown, "link": link})


def _show_description(handle: str, description: AppDescription, link: str | None) -> None:
    app = None if description.app is None else description.app.masked()
    timeout = None if app is None else app.timeout
    emit_fields(
        [
            ("app", handle),
            ("name", "" if app is None else app.name),
            ("state", state_text(description.status.state)),
            ("why", description.status.msg),
            ("submitted", time_text(description.created)),
            ("options", pairs_text(masked_values(description.cfg))),
            ("timeout", "" if timeout is None else f"{timeout:g} s"),
            ("results in", masked_url(description.tracker_base or "")),
            ("derives from", description.parent_run_id or ""),
            ("logs in", description.log_url or ""),
            ("page", link or description.status.ui_url or ""),
            ("arguments", "" if app is None else pairs_text(app.arguments)),
            ("metadata", "" if app is None else pairs_text(app.metadata)),
            ("digest", description.digest or ""),
        ]
    )
    for role in [] if app is None else app.roles:
        _show_role(role)


def _show_role(role: Role) -> None:
    least = "" if role.min_replicas is None else f", at least {role.min_replicas} must end well"
    numbers = {"cpu": role.resource.cpu, "gpu": role.resource.gpu, "memMB": role.resource.memMB}
    needs = {name: value for name, value in numbers.items() if value > 0}
    emit()
    emit_fields(
        [
            ("role", role.name),
            ("replicas", f"{role.num_replicas}{least}"),
            ("command", shlex.join([role.entrypoint, *role.args])),
            ("image", role.image),
            (
                "retries",
                f"{role.max_retries} by {role.retry_policy.value}" if role.max_retries else "",
            ),
            (
                "resource",
                pairs_text({**needs, **role.resource.devices, **role.resource.capabilities}),
            ),
            ("ports", pairs_text(role.port_map)),
            ("mounts", "; ".join(str(mount) for mount in role.mounts)),
            ("workspace", str(role.workspace) if role.workspace else ""),
            ("env", pairs_text(role.env)),
            ("secrets", pairs_text(role.secrets)),
            ("metadata", pairs_text(role.metadata)),
        ]
    )


@click.command()
@handle_argument()
@click.option("--timeout", type=duration, help="Wait this long at most (10m); the app goes on.")
@click.option(
    "--patience",
    type=duration,
    default=300.0,
    show_default="5m",
    help="Give up after that much UNKNOWN.",
)
@json_option
def wait(handle: str, timeout: float | None, patience: float, as_json: bool) -> int:
    """Wait until an app has ended, and exit as `run` does: by its state.

    Ctrl-C leaves; the app goes on.
    """
    from transload.cli.screen import Screen
    from transload.cli.wait import AppWait, report_end

    with open_runner() as runner:
        target = find_target(runner, handle)
        status_of(runner, target.handle)
        screen = Screen(sys.stdout, sys.stderr, plain=as_json)
        outcome = AppWait(runner, target, screen, SimpleQueue(), timeout, patience).wait()
        report_end(runner, target, outcome, as_json)
        return outcome.code


@click.command()
@handle_argument(nargs=-1, required=True, metavar="HANDLE...")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait until they have ended.")
@click.option("--timeout", type=duration, help="With --wait: wait this long at most (10m).")
@json_option
@click.pass_context
def cancel(
    ctx: click.Context,
    handle: tuple[str, ...],
    wait_for_end: bool,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Ask apps to end; the state follows. An app that has ended stays as it is.

    All handles are looked up before any app is asked.
    """
    if timeout is not None and not wait_for_end:
        raise click.UsageError("--timeout goes with --wait", ctx)
    with open_runner() as runner:
        handles = [find_target(runner, text).handle for text in handle]
        for each in handles:
            status_of(runner, each)
        for each in handles:
            runner.cancel(each)
        if wait_for_end:
            for each in handles:
                runner.wait(each, timeout=timeout)
        statuses = [(each, runner.status(each)) for each in handles]
        if as_json:
            emit_json({"apps": [app_json(each, found) for each, found in statuses]})
            return
        for each, found in statuses:
            ended = found is None or found.is_terminal()
            emit(
                f"{each}\t{'gone' if found is None else found.state}{'' if ended else ', asked to end'}"
            )


@click.command()
@handle_argument(nargs=-1, metavar="[HANDLE]...")
@click.option("--force", is_flag=True, help="With handles: also apps that have not ended.")
@click.option("--older-than", type=long_duration, help="Those that ended this long ago (7d).")
@click.option(
    "--larger-than",
    metavar="SIZE",
    help="The oldest, until the rest takes no more than this (10G).",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@scheduler_option(
    "With --older-than, --larger-than: whose apps; default: the configured one, else local."
)
@json_option
@click.pass_context
def delete(
    ctx: click.Context, /, handle: tuple[str, ...], force: bool, dry_run: bool, **options: Any
) -> None:
    """Forget apps: state, logs and results that lie in the app's own folder are gone afterwards.

    Give handles, or --older-than and --larger-than for all ended apps of a scheduler. An app that
    has not ended is refused, unless --force is given; then it is ended first. All handles are
    looked up before any app is touched.
    """
    older_than, larger_than, scheduler = (
        options["older_than"],
        options["larger_than"],
        options["scheduler"],
    )
    by_rule = older_than is not None or larger_than is not None
    if by_rule == bool(handle):
        raise click.UsageError(
            "give one or more HANDLEs, or --older-than, --larger-than or both", ctx
        )
    if by_rule and force:
        raise click.UsageError("--force goes with handles: the rules take ended apps only", ctx)
    if scheduler is not None and handle:
        raise click.UsageError(
            "--scheduler goes with --older-than and --larger-than: a handle names its own", ctx
        )
    size = None if larger_than is None else parse_size(larger_than, "--larger-than")
    from transload.runner.function_keys import forget_keys

    with open_runner() as runner:
        if by_rule:
            backend = runner.scheduler(scheduler)
            known = {row.app_id: row.app_handle for row in runner.list(backend.name)}
            found = backend.prune(older_than=older_than, max_size=size, dry_run=dry_run)
            if not dry_run:
                forget_keys(backend, found)
            deleted = [known.get(app_id, app_id) for app_id in found]
        else:
            deleted = _delete(runner, handle, force, dry_run)
    if options["as_json"]:
        emit_json({"dry_run": dry_run, "deleted": deleted})
        return
    done = "would be deleted" if dry_run else "deleted"
    for each in deleted:
        emit(f"{each}\t{done}")
    if by_rule:
        note(f"{len(deleted)} apps {done}")


def _delete(runner: Runner, texts: tuple[str, ...], force: bool, dry_run: bool) -> list[str]:
    handles = [find_target(runner, text).handle for text in texts]
    for each in handles:
        found = status_of(runner, each)
        if not found.is_terminal() and not force:
            raise SpecError(f"{each} is {found.state}: cancel it first, or give --force")
    for each in [] if dry_run else handles:
        runner.delete(each)
    return handles
