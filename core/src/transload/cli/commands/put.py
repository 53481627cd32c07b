"""``transload put``."""

from __future__ import annotations

import math

import click


@click.command(short_help="In a job: report results, as NAME=VALUE.")
@click.argument("results", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--key", metavar="KEY", help="Default: the replica's number, with several roles role/number.")
@click.option("--step", type=float, metavar="NUMBER", help="How far the job is: the results are points of curves too.")
@click.pass_context
def command(ctx: click.Context, results: tuple[str, ...], key: str | None, step: float | None) -> None:
    """Report results of the job that this shell belongs to; outside of a job nothing happens.

    A VALUE that reads as a number is one. Results that are not named keep what was reported before.
    """
    from transload.cli._output import note
    from transload.runtime._report import Reports
    from transload.runtime.tracking._format import check_results

    values: dict[str, int | float | str] = {}
    for text in results:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{text!r}: must be NAME=VALUE", ctx)
        values[name] = _value(value)
    if step is not None and not math.isfinite(step):
        raise click.UsageError(f"--step {step}: must be a finite number", ctx)
    reports = Reports()
    if reports.nowhere:
        note("this is no job of transload: nothing was reported")
    reports.add(check_results(values), step, key)


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
