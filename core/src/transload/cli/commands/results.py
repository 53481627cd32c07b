"""``transload results``, ``get`` and ``put``; the last one runs within jobs, and imports no
spec.
"""

from __future__ import annotations

import math
import re
from typing import Final

import click

from transload.cli.options import handle_argument, json_option
from transload.cli.output import emit, emit_json, emit_table, note, value_text, visible
from transload.errors import SpecError

_TYPES: Final[dict[str, type[int] | type[float] | type[str]]] = {
    "int": int,
    "float": float,
    "str": str,
}
_INT: Final = r"-?(?:0|[1-9][0-9]*)"
_FLOAT: Final = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


@click.command()
@handle_argument()
@click.option("--value", "name", metavar="NAME", help="Write only the value of this result.")
@click.option("--key", metavar="KEY", help="With --value: the key that it was reported under.")
@click.option("--shared", is_flag=True, help="Also what in its --tracker-base is of no run.")
@json_option
@click.pass_context
def results(
    ctx: click.Context, handle: str, name: str | None, key: str | None, shared: bool, as_json: bool
) -> None:
    """Show what an app reported so far: results by key, metadata and artifacts of configured
    trackers.
    """
    from transload.cli.session import description_of, find_target, open_runner

    if key is not None and name is None:
        raise click.UsageError("--key goes with --value NAME", ctx)
    with open_runner() as runner:
        target = find_target(runner, handle)
        description_of(runner, target.handle)
        found = runner.results(target.handle, shared=shared)
    if name is not None:
        value = found.value(name, key)
        if as_json:
            emit_json({"handle": target.handle, "name": name, "value": value})
        else:
            emit(str(value))
    elif as_json:
        emit_json(found.to_dict())
    else:
        rows = [
            (k, n, value_text(value))
            for k, values in found.results.items()
            for n, value in values.items()
        ]
        rows += [("(metadata)", n, value_text(value)) for n, value in found.metadata.items()]
        rows += [
            ("(artifact)", n, value_text(artifact.get("path", "")))
            for n, artifact in found.artifacts.items()
        ]
        if rows:
            emit_table(
                ("KEY", "RESULT", "VALUE"),
                [(visible(k), visible(n), value) for k, n, value in rows],
            )
        for collided, writers in found.collisions.items():
            note(
                f"key {collided}: written by {', '.join(writers)}; what the last one wrote is shown"
            )
        for line in found.refusals():
            note(f"not read: {line}")
        if not found.results:
            note(
                found.explain()
                if not found.refused
                else f"{target.handle} reported nothing that can be read"
            )


@click.command()
@handle_argument(nargs=1, metavar="HANDLE")
@click.argument("pattern", default="*")
@click.option(
    "-o", "--output", "folder", default=".", metavar="FOLDER", help="Where to; default: here."
)
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@json_option
def get(handle: str, pattern: str, folder: str, force: bool, as_json: bool) -> None:
    """Copy files that an app has made in TRANSLOAD_OUTPUT_DIR; PATTERN says which, as in "*.pt".

    Only regular files are copied, and no link is followed out of the app's folder; what is left out
    is named.
    """
    from transload.cli.screen import show_progress
    from transload.cli.session import description_of, find_target, open_runner
    from transload.runner.results import fetch_outputs

    if not as_json:
        show_progress()
    with open_runner() as runner:
        target = find_target(runner, handle)
        description_of(runner, target.handle)
        refused: list[str] = []
        found = runner._found(target.handle)
        copied = fetch_outputs(*found, pattern, folder, replace=force, refuse=refused.append)
    for line in refused:
        note(f"not copied: {line}")
    if as_json:
        emit_json({"handle": target.handle, "files": copied})
    elif not copied:
        raise SpecError(
            f"{target.handle} has made no file {pattern!r}: `transload results` lists those that "
            "it has"
        )
    for path in [] if as_json else copied:
        emit(path)


@click.command()
@click.argument("results", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option(
    "--key", metavar="KEY", help="Default: the replica's number, with several roles role/number."
)
@click.option(
    "--step",
    type=float,
    metavar="NUMBER",
    help="How far the job is: the results are points of curves too.",
)
@click.pass_context
def put(ctx: click.Context, results: tuple[str, ...], key: str | None, step: float | None) -> None:
    """Report results of the job that this shell belongs to; outside of a job nothing happens.

    A VALUE that reads as a number is one, but for what a number would change, such as 00501.
    NAME:str=VALUE is always a text; NAME:int=VALUE and NAME:float=VALUE are numbers or refused.
    Results that are not named keep what was reported before.
    """
    from transload.runtime.reporting import Reports
    from transload.runtime.tracking.format import check_results

    values: dict[str, int | float | str] = {}
    for text in results:
        named = _named_value(text)
        if named is None:
            raise click.UsageError(
                f"{text!r}: must be NAME=VALUE, or NAME:str=VALUE for a text", ctx
            )
        values[named[0]] = named[1]
    if step is not None and not math.isfinite(step):
        raise click.UsageError(f"--step {step}: must be a finite number", ctx)
    reports = Reports()
    if reports.nowhere:
        note("this is no job of transload: nothing was reported")
    reports.add(check_results(values), step, key)


def _named_value(text: str) -> tuple[str, int | float | str] | None:
    """Return name and value of ``NAME=VALUE`` or ``NAME:TYPE=VALUE``; None if the text is
    neither.
    """
    name, equals, value = text.partition("=")
    plain, colon, kind = name.rpartition(":")
    if not equals or not name:
        return None
    if not colon or kind not in _TYPES:
        return name, _value(value)
    if not plain:
        return None
    try:
        return plain, _TYPES[kind](value)
    except ValueError as exc:
        raise SpecError(f"{text!r}: {value!r} is not of type {kind}") from exc


def _value(text: str) -> int | float | str:
    """Return the number that a text spells, if the number says all that the text does; else the
    text.
    """
    if re.fullmatch(_INT, text, re.ASCII):
        return int(text)
    if text.lower().lstrip("+-") in ("nan", "inf"):
        return float(text)
    if not re.fullmatch(_FLOAT, text, re.ASCII):
        return text
    number = float(text)
    too_large = math.isinf(number)
    too_small = number == 0 and re.search("[1-9]", re.split("[eE]", text)[0]) is not None
    return text if too_large or too_small else number
