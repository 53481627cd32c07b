"""``transload get``."""

from __future__ import annotations

import click

from transload.cli._options import handle_argument, json_option


@click.command(short_help="Copy files that an app has made.")
@handle_argument(nargs=1, metavar="HANDLE")
@click.argument("pattern", default="*")
@click.option("-o", "--output", "folder", default=".", metavar="FOLDER", help="Where to; default: here.")
@json_option
def command(handle: str, pattern: str, folder: str, as_json: bool) -> None:
    """Copy files that an app has made in TRANSLOAD_OUTPUT_DIR; PATTERN says which, as in "*.pt"."""
    from transload.cli._output import emit, emit_json
    from transload.cli._session import description_of, find_target, open_runner
    from transload.errors import SpecError

    with open_runner() as runner:
        target = find_target(runner, handle)
        description_of(runner, target.handle)
        copied = runner.fetch(target.handle, pattern, folder)
    if as_json:
        emit_json({"handle": target.handle, "files": copied})
    elif not copied:
        raise SpecError(f"{target.handle} has made no file {pattern!r}: `transload results` lists those that it has")
    for path in [] if as_json else copied:
        emit(path)
