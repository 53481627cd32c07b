"""``transload status``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from transload.cli._options import handle_argument, json_option

if TYPE_CHECKING:
    from transload.specs import AppStatus, ReplicaStatus, RoleStatus


@click.command(short_help="Show what an app and its replicas are doing.")
@handle_argument()
@click.option("--role", "roles", multiple=True, metavar="NAME", help="Only this role; may be given several times.")
@json_option
def command(handle: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Show what an app and its replicas are doing.

    Exits with 0 whenever the status could be read, whatever it is; `wait` exits by the state.
    """
    from transload.cli._output import emit_json
    from transload.cli._report import app_json
    from transload.cli._session import find_target, open_runner, status_of

    with open_runner() as runner:
        target = find_target(runner, handle)
        status = status_of(runner, target.handle)
        if roles:
            status.roles = _chosen(status, roles)
        if as_json:
            emit_json(app_json(target.handle, status))
        else:
            _show(target.handle, status)


def _chosen(status: AppStatus, roles: tuple[str, ...]) -> list[RoleStatus]:
    from transload.errors import SpecError
    from transload.specs._check import nearest

    known = [role.role for role in status.roles]
    for name in roles:
        if name not in known:
            raise SpecError(f"role {name!r} does not exist: {nearest(name, known)}")
    return [role for role in status.roles if role.role in roles]


def _show(handle: str, status: AppStatus) -> None:
    from transload.attempts import error_line
    from transload.cli._output import emit, emit_fields, emit_table, is_terminal, state_text
    from transload.specs import NONE

    fields = [
        ("app", handle),
        ("state", state_text(status.state)),
        ("why", status.msg),
        ("error", "" if status.structured_error_msg == NONE else error_line(status.structured_error_msg)),
        ("restarts", str(status.num_restarts or "")),
        ("cancel", "requested" if status.cancel_requested and not status.is_terminal() else ""),
        ("page", status.ui_url or ""),
    ]
    emit_fields(fields)
    replicas = [replica for role in status.roles for replica in role.replicas]
    if replicas:
        import sys

        if is_terminal(sys.stdout):
            emit()
        heads = ("REPLICA", "STATE", "EXIT", "TOOK", "RESTARTS", "HOST", "MEMORY", "CPU")
        emit_table(heads, [_row(replica) for replica in replicas])


def _row(replica: ReplicaStatus) -> tuple[str, ...]:
    from transload.cli._output import state_text
    from transload.cli._quantities import duration_text, usage_texts
    from transload.specs import exit_text

    took = ""
    if replica.start_time is not None:
        took = duration_text((replica.end_time or time.time()) - replica.start_time)
    code = "" if replica.exit_code is None else exit_text(replica.exit_code).removeprefix("exit code ")
    label = f"{replica.role}/{replica.id}"
    return (
        label,
        state_text(replica.state),
        code,
        took,
        str(replica.restarts or ""),
        replica.hostname,
        *usage_texts(replica.usage),
    )
