"""The command ``transload report``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from transload.cli.options import WholeNumber, complete_handles
from transload.cli.session import description_of, find_job, full_handle, open_runner
from transload.errors import ConfigError
from transload_report.app_page import app_report
from transload_report.collect import LINES, collect_app, collect_lineage, collect_runs
from transload_report.experiments import collect_experiment
from transload_report.lineage_picture import lineage_svg
from transload_report.other_pages import lineage_report, runs_report, search_report
from transload_report.place import own_settings, page_path, write_page

if TYPE_CHECKING:
    from transload.runner import Runner

_EPILOG = """
\b
  transload report HANDLE -o report.html          one job
  transload report HANDLE HANDLE HANDLE           several jobs, side by side
  transload report --all -s slurm                 all jobs of a scheduler
  transload report --search NAME                  a search, by its name, tracker base or file of Ax
  transload report --lineage HANDLE               the origin of a run, and the runs that used it
  transload report --lineage HANDLE -o FILE.svg   only the picture of it

Without -o, the page of one job is kept where orchestrators find it and link to it. Other pages go to report.html.
"""


@click.command(epilog=_EPILOG, short_help="Write a page about jobs, a search or a lineage.")
@click.argument("handles", nargs=-1, metavar="[HANDLE]...", shell_complete=complete_handles)
@click.option("-o", "--output", metavar="FILE", help="File to write; - for stdout.")
@click.option(
    "--search",
    metavar="WHERE",
    help="Show a search, by its name, tracker base or file of Ax.",
)
@click.option("--lineage", metavar="RUN", help="Show the lineage of a run.")
@click.option("--all", "everything", is_flag=True, help="Show all jobs of a scheduler.")
@click.option(
    "-s",
    "--scheduler",
    metavar="NAME",
    help="Scheduler for --all; default: the configured one.",
)
@click.option("--title", metavar="TEXT", default="", help="Headline of a page about several jobs.")
@click.option(
    "--lines",
    type=WholeNumber(0, 1000),
    help="Number of last log lines for each replica of one job; default: 20.",
)
@click.pass_context
def command(
    ctx: click.Context,
    handles: tuple[str, ...],
    output: str | None,
    search: str | None,
    lineage: str | None,
    everything: bool,
    scheduler: str | None,
    title: str,
    lines: int | None,
) -> None:
    """Write one self-contained page with timeline, states, results, last log lines and lineage."""
    wanted = [bool(handles), search is not None, lineage is not None, everything]
    if sum(wanted) != 1:
        raise click.UsageError(
            "give one or more handles, or one of --search, --lineage, --all", ctx
        )
    if scheduler and not everything:
        raise click.UsageError("--scheduler only goes with --all", ctx)
    several = everything or len(handles) > 1
    if title and not several:
        raise click.UsageError("--title only goes with --all, or with several handles", ctx)
    if lines is not None and (several or not handles):
        raise click.UsageError("--lines only goes with one handle", ctx)
    with open_runner() as runner:
        own_settings(runner.settings)  # reports a mistake in the settings before anything is read
        target = _target(runner, handles, output)
        if search is not None:
            page = search_report(collect_experiment(search))
        elif lineage is not None:
            is_picture = target is not None and target.suffix == ".svg"
            page = _lineage_page(runner, lineage, picture=is_picture)
        elif several:
            page = _runs_page(runner, handles, scheduler, title)
        else:
            page = _app_page(runner, handles[0], LINES if lines is None else lines)
    if target is None:
        sys.stdout.write(page)
    else:
        click.echo(str(write_page(page, target, make_folder=output is None)))


def _target(runner: Runner, handles: Sequence[str], output: str | None) -> Path | None:
    """Return the file to write, or None for stdout."""
    if output == "-":
        return None
    if output is not None:
        return Path(output)
    if len(handles) == 1:
        return page_path(full_handle(handles[0]), runner.settings)
    return Path("report.html")


def _app_page(runner: Runner, text: str, lines: int) -> str:
    job = find_job(runner, text)
    description_of(job)  # its error suggests the nearest job
    return app_report(collect_app(runner, job.handle, lines=lines))


def _runs_page(runner: Runner, handles: Sequence[str], scheduler: str | None, title: str) -> str:
    jobs = [find_job(runner, handle) for handle in handles]
    for job in jobs:
        description_of(job)
    found = [job.handle for job in jobs]
    if not found:
        name = scheduler or runner.settings.scheduler
        found = [row.app_handle for row in runner.list(name)]
        title = title or f"All jobs of {name}"
    return runs_report(collect_runs(runner, found, title=title))


def _lineage_page(runner: Runner, run_id: str, *, picture: bool) -> str:
    if not runner.settings.trackers():
        raise ConfigError(
            "no tracker is configured: set [tracker.NAME] in transload.toml, or TRANSLOAD_TRACKERS"
        )
    data = collect_lineage(runner, run_id)
    if data is None:
        raise ConfigError(
            f"run {run_id!r} has no lineage: no configured tracker knows a link or an artifact of "
            "it (jobs record them themselves, with transload.tracker.AppRun.run_from_env())"
        )
    if picture:
        return lineage_svg(data.lineage)
    return lineage_report(data)
