"""``transload config``."""

from __future__ import annotations

from typing import Any

import click

from transload.cli._options import json_option


@click.command(short_help="Show the settings in force and where each comes from.")
@click.argument("key", required=False)
@json_option
def command(key: str | None, as_json: bool) -> None:
    """Show the settings in force, each with the file or environment variable it comes from, or only KEY."""
    from transload.cli._output import emit_json, emit_table
    from transload.errors import ConfigError
    from transload.runner import load_settings
    from transload.specs._check import nearest

    found = load_settings().all()
    if key is not None:
        chosen = [item for item in found if item.key == key or item.key.startswith(f"{key}.")]
        if not chosen:
            raise ConfigError(f"{key!r} is not set: {nearest(key, [item.key for item in found])}")
        found = chosen
    if as_json:
        rows = [{"key": item.key, "value": _shown(item.key, item.value), "source": item.source} for item in found]
        emit_json({"settings": rows})
    else:
        emit_table(("SETTING", "VALUE", "FROM"), [(i.key, str(_shown(i.key, i.value)), i.source) for i in found])


def _shown(key: str, value: Any) -> Any:
    """Return a value for display: one whose name looks secret is masked, and so are passwords in URLs."""
    from transload.specs import MASK, looks_secret, masked_url

    if value and any(looks_secret(part) for part in key.split(".")[1:] or [key]):
        return MASK
    return masked_url(value) if isinstance(value, str) else value
