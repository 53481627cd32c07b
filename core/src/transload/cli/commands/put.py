"""The command ``transload put``, which runs in jobs and does not import specs."""

from __future__ import annotations

import math
import re
from typing import Final

import click

from transload.cli.options import RealNumber
from transload.cli.output import note
from transload.errors import SpecError
from transload.runtime import (
    Reports,
    check_numbers,
    place_of_job,
    progress_writer,
)
from transload.runtime.tracking.format import check_key, check_results

_TYPES: Final[dict[str, type[int] | type[float] | type[str]]] = {
    "int": int,
    "float": float,
    "str": str,
}
_INT: Final = r"-?(?:0|[1-9][0-9]*)"
_FLOAT: Final = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


@click.command()
@click.argument("results", nargs=-1, metavar="NAME=VALUE...")
@click.option(
    "--key", metavar="KEY", help="Default: the replica's number, with several roles role/number."
)
@click.option(
    "--step",
    type=RealNumber(),
    metavar="NUMBER",
    help="How far the job is: the results are points of curves too.",
)
@click.option(
    "--progress",
    metavar="PART",
    help="How much of the work is done: 40%, or STEP/TOTAL such as 400/1000.",
)
@click.pass_context
def put(
    ctx: click.Context,
    results: tuple[str, ...],
    key: str | None,
    step: float | None,
    progress: str | None,
) -> None:
    """Report results of the job in which this runs. Outside of a job nothing happens.

    A VALUE that looks like a number is a number, unless that would change its text, as for 00501.
    NAME:str=VALUE is always a text. NAME:int=VALUE and NAME:float=VALUE must be numbers. Results
    that are not named keep their values.
    """
    if not results and progress is None:
        raise click.UsageError("give NAME=VALUE, or --progress", ctx)
    if progress is not None:
        _put_progress(ctx, progress)
    if not results:
        return
    values: dict[str, int | float | str] = {}
    for text in results:
        named = _named_value(text)
        if named is None:
            raise click.UsageError(
                f"{text!r}: must be NAME=VALUE, or NAME:str=VALUE for a text", ctx
            )
        name, value = named
        values[name] = value
    if step is not None and not math.isfinite(step):
        raise click.UsageError(f"--step {step}: must be a finite number", ctx)
    checked = check_results(values)
    if key is not None:
        check_key(key)
    place = place_of_job()
    if place is None:
        note("this does not run in a transload job; nothing was reported")
        return
    Reports(place).add(checked, step, key)


def _put_progress(ctx: click.Context, text: str) -> None:
    """Say how far the job is.

    Raises:
        click.UsageError: for a text that says no part of a whole.
    """
    numbers = _part_of_work(text)
    values, wrong = check_numbers(**numbers)
    if not numbers or wrong:
        raise click.UsageError(
            f"--progress {text!r}: must be 0% to 100%, or STEP/TOTAL such as 400/1000", ctx
        )
    writer = progress_writer()
    if writer is None:
        note("this is no job of transload: no progress was reported")
        return
    writer.add(values.get("step"), values.get("total"), values.get("fraction"), None)


def _part_of_work(text: str) -> dict[str, float]:
    """Return what ``40%`` or ``400/1000`` says, by the names of `progress`, else {}."""
    percent = re.fullmatch(rf"({_FLOAT})\s*%", text.strip())
    if percent is not None:
        return {"fraction": float(percent[1]) / 100}
    steps = re.fullmatch(rf"({_FLOAT})\s*/\s*({_FLOAT})", text.strip())
    if steps is not None:
        return {"step": float(steps[1]), "total": float(steps[2])}
    return {}


def _named_value(text: str) -> tuple[str, int | float | str] | None:
    """Return the name and the value of ``NAME=VALUE`` or ``NAME:TYPE=VALUE``, else None."""
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
    """Return a text as a number, if that has the same text again, else the text."""
    if re.fullmatch(_INT, text, re.ASCII):
        return int(text)
    if text.lower().lstrip("+-") in ("nan", "inf"):
        return float(text)
    if not re.fullmatch(_FLOAT, text, re.ASCII):
        return text
    number = float(text)
    too_large = math.isinf(number)
    too_small = number == 0 and re.search("[1-9]", re.split("[eE]", text)[0]) is not None
    if too_large or too_small:
        return text
    return number
