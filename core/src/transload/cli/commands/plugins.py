"""``transload plugins``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from transload.cli._options import json_option

if TYPE_CHECKING:
    from transload.plugins import PluginInfo

_COLOURS = {"loaded": "green", "disabled": "dim", "broken": "red"}


@click.command(short_help="List plugins; broken ones with the reason.")
@json_option
def command(as_json: bool) -> None:
    """List plugins with what they register; a broken one with its traceback.

    TRANSLOAD_DISABLE_PLUGINS=NAME,NAME keeps plugins from being loaded.
    """
    from transload.cli._output import emit, emit_json, emit_table, paint
    from transload.plugins import get_plugins

    infos = get_plugins().infos()
    if as_json:
        emit_json({"plugins": [_json(info) for info in infos]})
        return
    rows = [(info.name, paint(info.status, _COLOURS[info.status]), _origin(info), _provides(info)) for info in infos]
    emit_table(("PLUGIN", "STATUS", "FROM", "PROVIDES"), rows)
    for info in infos:
        if info.status == "broken":
            emit()
            emit(paint(f"{info.name} ({info.value}) is broken:", "red"))
            emit("\n".join(f"    {line}" for line in info.error.rstrip().splitlines()))


def _origin(info: PluginInfo) -> str:
    return f"{info.dist} {info.version}".strip() or "built in"


def _provides(info: PluginInfo) -> str:
    return "; ".join(f"{kind.replace('_', ' ')}: {', '.join(names)}" for kind, names in info.provides.items())


def _json(info: PluginInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "value": info.value,
        "distribution": info.dist or None,
        "version": info.version or None,
        "status": info.status,
        "error": info.error or None,
        "provides": info.provides,
    }
