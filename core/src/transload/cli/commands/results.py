"""``transload results`` and ``get``."""

from __future__ import annotations

import click

from transload.cli.options import handle_argument, json_option
from transload.cli.output import emit, emit_json, emit_table, note, value_text, visible
from transload.cli.screen import show_progress
from transload.cli.session import description_of, find_job, open_runner
from transload.errors import SpecError
from transload.runner import AppResults
from transload.runner.results import fetch_checkpoints, fetch_outputs


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
    if key is not None and name is None:
        raise click.UsageError("--key goes with --value NAME", ctx)
    with open_runner() as runner:
        job = find_job(runner, handle)
        description_of(job)
        found = job.results(shared=shared)
    if name is not None:
        value = found.value(name, key)
        if as_json:
            emit_json({"handle": job.handle, "name": name, "value": value})
        else:
            emit(str(value))
    elif as_json:
        emit_json(found.to_dict())
    else:
        _show(job.handle, found)


def _show(handle: str, found: AppResults) -> None:
    """Write results, metadata and artifacts as a table, and to stderr what is wrong with them."""
    rows = []
    for key, values in found.results.items():
        rows += [(key, name, value) for name, value in values.items()]
    rows += [("(metadata)", name, value) for name, value in found.metadata.items()]
    rows += [("(artifact)", name, item.get("path", "")) for name, item in found.artifacts.items()]
    if rows:
        cells = [(visible(key), visible(name), value_text(value)) for key, name, value in rows]
        emit_table(("KEY", "RESULT", "VALUE"), cells)
    for collided, writers in found.collisions.items():
        note(f"key {collided}: written by {', '.join(writers)}; what the last one wrote is shown")
    for line in found.refusals():
        note(f"not read: {line}")
    if found.results:
        return
    if found.refused:
        note(f"{handle} reported nothing that can be read")
    else:
        note(found.explain())


@click.command()
@handle_argument(nargs=1, metavar="HANDLE")
@click.argument("pattern", default="*")
@click.option(
    "-o", "--output", "folder", default=".", metavar="FOLDER", help="Where to; default: here."
)
@click.option("--force", is_flag=True, help="Replace files that are there already.")
@click.option("--checkpoints", is_flag=True, help="Copy its checkpoints instead.")
@json_option
def get(
    handle: str, pattern: str, folder: str, force: bool, checkpoints: bool, as_json: bool
) -> None:
    """Copy files that an app has made in TRANSLOAD_OUTPUT_DIR; PATTERN says which, as in "*.pt".

    Only regular files are copied, and no link is followed out of the app's folder; what is left out
    is named.
    """
    if not as_json:
        show_progress()
    with open_runner() as runner:
        job = find_job(runner, handle)
        description = description_of(job)
        refused: list[str] = []
        if checkpoints:
            copied = fetch_checkpoints(
                job.scheduler,
                description.app_id,
                pattern,
                folder,
                replace=force,
                refuse=refused.append,
            )
        else:
            copied = fetch_outputs(
                job.scheduler,
                description,
                pattern,
                folder,
                replace=force,
                refuse=refused.append,
            )
    for line in refused:
        note(f"not copied: {line}")
    if as_json:
        emit_json({"handle": job.handle, "files": copied})
        return
    if not copied and checkpoints:
        raise SpecError(f"{job.handle} has kept no checkpoint {pattern!r}")
    if not copied:
        raise SpecError(
            f"{job.handle} has made no file {pattern!r}: `transload results` lists those that "
            "it has"
        )
    for path in copied:
        emit(path)
