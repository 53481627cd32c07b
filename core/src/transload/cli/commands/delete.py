"""``transload delete``."""

from __future__ import annotations

import click

from transload.cli._options import handle_argument, json_option


@click.command(short_help="Forget ended apps (--force: running ones too).")
@handle_argument(nargs=-1, required=True, metavar="HANDLE...")
@click.option("--force", is_flag=True, help="Also apps that have not ended.")
@json_option
def command(handle: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Forget apps: state, logs and results that lie in the app's own folder are gone afterwards.

    Refused for an app that has not ended, unless --force is given; then it is ended first.
    All handles are looked up before any app is touched.
    """
    from transload.cli._output import emit, emit_json
    from transload.cli._session import find_target, open_runner, status_of
    from transload.errors import SpecError

    with open_runner() as runner:
        handles = [find_target(runner, text).handle for text in handle]
        for each in handles:
            status = status_of(runner, each)
            if not status.is_terminal() and not force:
                raise SpecError(f"{each} is {status.state}: cancel it first, or give --force")
        for each in handles:
            runner.delete(each)
        if as_json:
            emit_json({"deleted": handles})
        else:
            for each in handles:
                emit(f"{each}\tdeleted")
