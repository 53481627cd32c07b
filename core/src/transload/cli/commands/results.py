"""The commands ``transload results`` and ``transload get``."""

from __future__ import annotations

import click

from transload.cli.options import handle_argument, json_option
from transload.cli.output import emit, emit_json, emit_table, note, value_text, visible
from transload.cli.screen import open_screen
from transload.cli.session import description_of, find_job, open_runner
from transload.errors import SpecError
from transload.runner import AppResults
from transload.runner.results import fetch_checkpoints, fetch_outputs


@click.command()
@handle_argument()
@click.option("--value", "name", metavar="NAME", help="Write only the value of this result.")
@click.option("--key", metavar="KEY", help="Key of the result for --value.")
@click.option(
    "--shared", is_flag=True, help="Also show results in its --tracker-base that name no job."
)
@json_option
@click.pass_context
def results(
    ctx: click.Context, handle: str, name: str | None, key: str | None, shared: bool, as_json: bool
) -> None:
    """Show a job's results so far, and its metadata and artifacts in the configured trackers."""
    if key is not None and name is None:
        raise click.UsageError("--key only goes with --value NAME", ctx)
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
    """Write results, metadata and artifacts as a table, and problems with them to stderr."""
    rows = []
    for key, values in found.results.items():
        rows += [(key, name, value) for name, value in values.items()]
    rows += [("(metadata)", name, value) for name, value in found.metadata.items()]
    rows += [("(artifact)", name, item.get("path", "")) for name, item in found.artifacts.items()]
    if rows:
        cells = [(visible(key), visible(name), value_text(value)) for key, name, value in rows]
        emit_table(("KEY", "RESULT", "VALUE"), cells)
    for collided, writers in found.collisions.items():
        note(f"key {collided}: written by {', '.join(writers)}; the last one's values are shown")
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
    "-o",
    "--output",
    "folder",
    default=".",
    metavar="FOLDER",
    help="Folder for the copies; default: the current one.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@click.option("--checkpoints", is_flag=True, help="Copy its checkpoints in place of its files.")
@json_option
def get(
    handle: str, pattern: str, folder: str, force: bool, checkpoints: bool, as_json: bool
) -> None:
    """Copy files that a job has made in TRANSLOAD_OUTPUT_DIR. PATTERN selects some: a name, or "*.pt".

    Only regular files are copied, and links that lead out of the job's folder are not followed.
    Files that are left out are listed.
    """
    open_screen(as_json=as_json)
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
            f"{job.handle} has no file {pattern!r}; `transload results` lists the files that it has"
        )
    for path in copied:
        emit(path)
