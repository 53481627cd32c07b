"""``transload describe``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from transload.cli._options import handle_argument, json_option

if TYPE_CHECKING:
    from transload.schedulers import AppDescription
    from transload.specs import Role


@click.command(short_help="Show the definition of an app.")
@handle_argument()
@json_option
def command(handle: str, as_json: bool) -> None:
    """Show an app as it was submitted, with its options; values that look secret are masked.

    The field `app` of the JSON form, written to a file, can be given to `transload run --stdin`.
    """
    from transload.cli._output import emit_json
    from transload.cli._session import description_of, find_target, open_runner
    from transload.plugins import get_plugins

    with open_runner() as runner:
        target = find_target(runner, handle)
        description = description_of(runner, target.handle)
    link = get_plugins().app_link(target.handle)
    if as_json:
        emit_json(_json(target.handle, description, link))
    else:
        _show(target.handle, description, link)


def _json(handle: str, description: AppDescription, link: str | None) -> dict[str, Any]:
    import json

    from transload.cli._report import app_json

    return {
        **app_json(handle, description.status),
        "app": None if description.app is None else json.loads(description.app.masked().to_json()),
        "session": description.session,
        "cfg": description.cfg,
        "digest": description.digest,
        "tracker_base": description.tracker_base,
        "created": description.created,
        "log_url": description.log_url,
        "link": link,
    }


def _show(handle: str, description: AppDescription, link: str | None) -> None:
    from transload.cli._output import emit_fields, state_text
    from transload.cli._quantities import time_text

    app = description.app
    emit_fields(
        [
            ("app", handle),
            ("name", "" if app is None else app.name),
            ("state", state_text(description.status.state)),
            ("submitted", time_text(description.created)),
            ("options", _pairs(description.cfg)),
            ("timeout", "" if app is None or app.timeout is None else f"{app.timeout:g} s"),
            ("results in", description.tracker_base or ""),
            ("logs in", description.log_url or ""),
            ("page", link or description.status.ui_url or ""),
            ("arguments", "" if app is None else _pairs(app.arguments)),
            ("metadata", "" if app is None else _pairs(app.metadata)),
            ("digest", description.digest or ""),
        ]
    )
    for role in app.roles if app is not None else ():
        _show_role(role)


def _show_role(role: Role) -> None:
    import shlex

    from transload.cli._output import emit, emit_fields
    from transload.specs import masked_env

    least = "" if role.min_replicas is None else f", at least {role.min_replicas} must end well"
    emit()
    emit_fields(
        [
            ("role", role.name),
            ("replicas", f"{role.num_replicas}{least}"),
            ("command", shlex.join([role.entrypoint, *role.args])),
            ("image", role.image),
            ("retries", f"{role.max_retries} by {role.retry_policy.value}" if role.max_retries else ""),
            ("resource", _resource(role)),
            ("ports", _pairs(role.port_map)),
            ("mounts", "; ".join(str(mount) for mount in role.mounts)),
            ("workspace", str(role.workspace) if role.workspace else ""),
            ("env", _pairs(masked_env(role.env))),
            ("secrets", _pairs(role.secrets)),
            ("metadata", _pairs(role.metadata)),
        ]
    )


def _resource(role: Role) -> str:
    values = {"cpu": role.resource.cpu, "gpu": role.resource.gpu, "memMB": role.resource.memMB}
    set_ones = {name: value for name, value in values.items() if value > 0}
    return _pairs({**set_ones, **role.resource.devices, **role.resource.capabilities})


def _pairs(values: Any) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items() if value is not None)
