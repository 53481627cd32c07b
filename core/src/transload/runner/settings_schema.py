"""The JSON Schema of ``transload.toml``, with which an editor completes and checks it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_origin

from transload.errors import TransloadError
from transload.runner.api import Runner
from transload.runner.config import Settings
from transload.specs import runopts
from transload.specs.settings import SETTINGS

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_TYPES: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    list: {"type": "array", "items": {"type": "string"}},
    dict: {"type": "object", "additionalProperties": {"type": "string"}},
}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}


@dataclass(frozen=True)
class SchedulerOptions:
    """The settings of a kind of scheduler.

    Attributes:
        connection: which cluster it is.
        run: how jobs run there.
    """

    connection: runopts
    run: runopts


def schema_text(schedulers: Iterable[str]) -> str:
    """Return the JSON Schema of the settings, indented.

    Args:
        schedulers: names of the schedulers whose options it has. What cannot be loaded is left out.
    """
    found = {}
    with Runner("schema", settings=Settings({}, {})) as runner:
        for name in schedulers:
            try:
                connection = runner.scheduler(name).connection_opts()
                found[name] = SchedulerOptions(connection, runner.scheduler_run_opts(name))
            except TransloadError:
                continue
    return json.dumps(settings_schema(found), indent=2)


def settings_schema(schedulers: Mapping[str, SchedulerOptions]) -> dict[str, Any]:
    """Return the JSON Schema of the settings.

    Args:
        schedulers: the kinds of schedulers that are known, by name.
    """
    kinds = sorted(schedulers)
    tables = {name: _table(schedulers[name]) for name in kinds}
    by_kind = [
        {
            "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
            "then": {"$ref": f"#/$defs/{name}"},
        }
        for name in kinds
    ]
    cluster = {
        "type": "object",
        "description": "A cluster under a name that you choose.",
        "properties": {"kind": {"enum": kinds, "description": "The scheduler that runs there."}},
        "required": ["kind"],
        "allOf": by_kind,
    }
    properties = {
        "scheduler": _text("The scheduler that is used where none is named."),
        "workspace": _text("The local folder that travels with a job."),
        "tracker_base": _text("Where jobs report results: a folder or fsspec URL."),
        "pass_env": {
            **_TYPES[list],
            "description": "Variables of the submitter that jobs get, by patterns such as HF_*.",
        },
        "job": {
            "type": "object",
            "description": "What is set in all jobs that leave it open.",
            "properties": {
                name: {"description": setting.help}
                for name, setting in SETTINGS.items()
                if name != "role"
            },
            "additionalProperties": False,
        },
        "schedulers": {
            "type": "object",
            "description": "Settings of schedulers, and clusters by name.",
            "properties": {name: {"$ref": f"#/$defs/{name}"} for name in kinds},
            "additionalProperties": cluster,
        },
        "component": {
            "type": "object",
            "description": "Defaults of the arguments of components, and settings of their jobs.",
            "additionalProperties": {"type": "object"},
        },
        "tracker": {
            "type": "object",
            "description": "The trackers that every job gets.",
            "additionalProperties": {
                "type": "object",
                "properties": {"config": _text("The configuration text of the tracker.")},
                "additionalProperties": False,
            },
        },
        "plugins": {
            "type": "object",
            "description": "Settings of plugins, by name.",
            "additionalProperties": {"type": "object"},
        },
    }
    return {
        "$schema": DRAFT,
        "title": "transload.toml",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": tables,
    }


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _table(options: SchedulerOptions) -> dict[str, Any]:
    """Return the schema of the table of a scheduler, or of a cluster of that kind."""
    properties: dict[str, Any] = {
        "kind": {"type": "string"},
        "secrets": {**_TEXTS, "description": "Connection settings by reference: env:NAME."},
    }
    for opts in (options.connection, options.run):
        for name, opt in opts:
            kind = get_origin(opt.opt_type) or opt.opt_type
            entry = {**_TYPES[kind], "description": opt.help}
            if opt.default is not None:
                entry["default"] = opt.default
            properties[name] = entry
    return {"type": "object", "properties": properties, "additionalProperties": False}
