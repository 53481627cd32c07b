"""``.torchxconfig`` (INI) becomes ``transload.toml``."""

from __future__ import annotations

import configparser
import json
from typing import Any

from transload.errors import SpecError, TransloadError
from transload.runner import Runner
from transload_torchx.sources import Left

SCHEDULERS = {"local_cwd": "local_cwd", "local_docker": "docker"}
"""Section of TorchX → our scheduler, where the name is another."""
OTHERWISE = {("kubernetes", "queue"): "named a queue of Volcano; here it would be one of Kueue"}
"""(Scheduler, option) of an equal name → why its value is not taken over."""


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
    at = {
        section: number
        for number, line in enumerate(text.split("\n"), 1)
        for section in [line.strip()]
    }
    top: list[str] = []
    tables: dict[str, list[str]] = {}
    left: list[Left] = []
    for section in ini.sections():
        line, values = at.get(f"[{section}]", 0), dict(ini[section])
        if section == "cli:run":
            for key, value in values.items():
                if key in ("scheduler", "workspace"):
                    top.append(f"{key} = {json.dumps(SCHEDULERS.get(value, value))}")
                elif key == "component":
                    top.append(
                        f"# component = {json.dumps(value)}  (name it: transload run {value})"
                    )
                    left.append(
                        Left(line, f"[cli:run] {key} = {value}: name it on the command line")
                    )
                else:
                    left.append(
                        Left(line, f"[cli:run] {key} = {value}: name it on the command line")
                    )
        elif section.startswith("component:"):
            name = json.dumps(section.removeprefix("component:"))
            tables[f"component.{name}"] = [
                f"{key} = {json.dumps(value)}" for key, value in values.items()
            ]
        elif section == "torchx:tracker":
            for name in values:
                tables.setdefault(f"tracker.{name}", [])
        elif section.startswith("tracker:"):
            name = section.removeprefix("tracker:")
            tables[f"tracker.{name}"] = [
                f"{key} = {json.dumps(value)}" for key, value in values.items()
            ]
        else:
            name = SCHEDULERS.get(section, section)
            tables[f"schedulers.{name}"] = _options(name, values, runner, line, left)
    body = ["\n".join(top)] if top else []
    body += ["\n".join([f"[{name}]", *rows]) for name, rows in tables.items()]
    return "\n\n".join(body) + "\n", left


def _options(
    name: str, values: dict[str, str], runner: Runner, line: int, left: list[Left]
) -> list[str]:
    """Return the lines of a scheduler's table; an option that it does not take becomes a
    comment.
    """
    try:
        opts = runner.scheduler_run_opts(name)
    except TransloadError as exc:
        left.append(Left(line, f"[{name}]: {exc}"))
        return [f"# {key} = {json.dumps(value)}" for key, value in values.items()]
    rows = []
    for key, text in values.items():
        try:
            if (name, key) in OTHERWISE:
                raise SpecError(OTHERWISE[name, key])
            value: Any = None if text in ("None", "") else opts.parse(key, text)
        except TransloadError as exc:
            left.append(Left(line, f"[{name}] {key} = {text}: {exc}"))
            rows.append(f"# {key} = {json.dumps(text)}")
            continue
        if value is not None:
            rows.append(f"{key} = {_toml(value)}")
    return rows


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)} = {json.dumps(item)}" for key, item in value.items())
            + "}"
        )
    return json.dumps(value)
