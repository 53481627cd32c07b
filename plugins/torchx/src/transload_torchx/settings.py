"""``.torchxconfig`` (INI) becomes ``transload.toml``."""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from typing import Any

from transload.errors import SpecError, TransloadError
from transload.runner import Runner
from transload.tracker import check_trackers
from transload_torchx.sources import Left

SCHEDULERS = {"local_cwd": "local_cwd", "local_docker": "docker"}
"""Section of TorchX → our scheduler, where the name is another."""
OTHERWISE = {
    ("kubernetes", "queue"): "named a queue of Volcano; here it would be one of Kueue",
    ("slurm", "nomem"): "leave it out; a role with memMB=-1 asks for no memory",
}
"""(Scheduler, option) → why its value is not taken over."""


def convert_settings(text: str, runner: Runner) -> tuple[str, list[Left]]:
    """Return the settings as TOML, and what is left to do by hand.

    Args:
        text: the INI file.
        runner: knows the schedulers that are installed here, and their options.

    Raises:
        configparser.Error: if it is no INI file.
    """
    ini = configparser.ConfigParser(interpolation=None)
    ini.optionxform = str  # type: ignore[assignment,method-assign]
    ini.read_string(text)
    line_of = {line.strip(): number for number, line in enumerate(text.split("\n"), 1)}
    top: list[str] = []
    tables: dict[str, list[str]] = {}
    left: list[Left] = []
    tracker_lines: dict[str, int] = {}
    for section in ini.sections():
        line = line_of.get(f"[{section}]", 0)
        values = dict(ini[section])
        kind, colon, name = section.partition(":")
        if section == "cli:run":
            top += _run_settings(values, line, left)
        elif section == "torchx:tracker":
            for tracker in values:
                tables.setdefault(f"tracker.{tracker}", [])
                tracker_lines.setdefault(tracker, line)
        elif kind == "component" and colon:
            tables[f"component.{json.dumps(name)}"] = _rows(values)
        elif kind == "tracker" and colon:
            tables[f"tracker.{name}"] = _rows(values)
            tracker_lines[name] = line
        else:
            scheduler = SCHEDULERS.get(section, section)
            tables[f"schedulers.{scheduler}"] = _options(scheduler, values, runner, line, left)
    for name, line in tracker_lines.items():
        config = ini.get(f"tracker:{name}", "config", fallback=None)
        why = _why_not_built(name, config)
        if why is not None:
            left.append(Left(line, f"[tracker:{name}]: {why}"))
            commented = [f"# {row}" for row in tables[f"tracker.{name}"]]
            tables[f"tracker.{name}"] = commented or ["# no configuration"]
    parts = ["\n".join(_table(table, rows)) for table, rows in tables.items()]
    if top:
        parts.insert(0, "\n".join(top))
    return "\n\n".join(parts) + "\n", left


def _why_not_built(name: str, config: str | None) -> str | None:
    """Return why no job could have that tracker, or None if it can be built here."""
    try:
        check_trackers({name: config})
    except TransloadError as exc:
        return str(exc)
    return None


def _table(name: str, rows: list[str]) -> list[str]:
    """Return the lines of a table. One with comments alone is a comment too."""
    if rows and all(row.startswith("#") for row in rows):
        return [f"# [{name}]", *rows]
    return [f"[{name}]", *rows]


def _rows(values: Mapping[str, str]) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]


def _run_settings(values: Mapping[str, str], line: int, left: list[Left]) -> list[str]:
    """Return the lines of ``[cli:run]``. What has no place in the settings is left."""
    rows = []
    for key, value in values.items():
        if key in ("scheduler", "workspace"):
            rows.append(f"{key} = {json.dumps(SCHEDULERS.get(value, value))}")
            continue
        if key == "component":
            rows.append(f"# component = {json.dumps(value)}  (name it: transload run {value})")
        left.append(Left(line, f"[cli:run] {key} = {value}: name it on the command line"))
    return rows


def _options(
    name: str, values: Mapping[str, str], runner: Runner, line: int, left: list[Left]
) -> list[str]:
    """Return the lines of a scheduler's table.

    An option that the scheduler does not take becomes a comment.
    """
    try:
        opts = runner.scheduler_run_opts(name)
        known = opts.table()
    except TransloadError as exc:
        left.append(Left(line, f"[{name}]: {exc}"))
        return [f"# {row}" for row in _rows(values)]
    rows = []
    for given, text in values.items():
        key = given
        if given not in known and given.replace("-", "_") in known:
            key = given.replace("-", "_")
        if text in ("None", "") and (name, key) not in OTHERWISE:
            continue
        try:
            if (name, key) in OTHERWISE:
                raise SpecError(OTHERWISE[name, key])
            value = opts.read_one(key, text)
        except TransloadError as exc:
            left.append(Left(line, f"[{name}] {key} = {text}: {exc}"))
            rows.append(f"# {key} = {json.dumps(text)}")
            continue
        if value is not None:
            rows.append(f"{key} = {_toml(value)}")
    return rows


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    items = [f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items()]
    return f"{{{', '.join(items)}}}"
