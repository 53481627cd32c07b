"""``transload cancel``."""

from __future__ import annotations

import click

from transload.cli._options import Duration, handle_argument, json_option


@click.command(short_help="Ask apps to end.")
@handle_argument(nargs=-1, required=True, metavar="HANDLE...")
@click.option("--wait", "wait_for_end", is_flag=True, help="Wait until they have ended.")
@click.option("--timeout", type=Duration(), help="With --wait: wait this long at most (10m).")
@json_option
@click.pass_context
def command(
    ctx: click.Context, handle: tuple[str, ...], wait_for_end: bool, timeout: float | None, as_json: bool
) -> None:
    """Ask apps to end; the state follows. An app that has ended stays as it is.

    All handles are looked up before any app is asked.
    """
    from transload.cli._output import emit, emit_json
    from transload.cli._report import app_json
    from transload.cli._session import find_target, open_runner, status_of

    if timeout is not None and not wait_for_end:
        raise click.UsageError("--timeout goes with --wait", ctx)
    with open_runner() as runner:
        handles = [find_target(runner, text).handle for text in handle]
        for each in handles:
            status_of(runner, each)
        for each in handles:
            runner.cancel(each)
        if wait_for_end:
            for each in handles:
                runner.wait(each, timeout=timeout)
        statuses = [(each, runner.status(each)) for each in handles]
        if as_json:
            emit_json({"apps": [app_json(each, status) for each, status in statuses]})
            return
        for each, status in statuses:
            state = "gone" if status is None else str(status.state)
            ended = status is None or status.is_terminal()
            emit(f"{each}\t{state if ended else f'{state}, asked to end'}")
