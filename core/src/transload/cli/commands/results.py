"""``transload results``."""

from __future__ import annotations

import click

from transload.cli._options import handle_argument, json_option


@click.command(short_help="Show the results that an app reported.")
@handle_argument()
@click.option("--value", "name", metavar="NAME", help="Write only the value of this result.")
@click.option("--key", metavar="KEY", help="With --value: the key that it was reported under.")
@click.option("--shared", is_flag=True, help="Also what in its --tracker-base is of no run.")
@json_option
@click.pass_context
def command(ctx: click.Context, handle: str, name: str | None, key: str | None, shared: bool, as_json: bool) -> None:
    """Show what an app reported so far: results by key, metadata and artifacts of configured trackers."""
    from transload.cli._output import emit, emit_json, emit_table, note, visible
    from transload.cli._report import value_text
    from transload.cli._session import description_of, find_target, open_runner

    if key is not None and name is None:
        raise click.UsageError("--key goes with --value NAME", ctx)
    with open_runner() as runner:
        target = find_target(runner, handle)
        description_of(runner, target.handle)
        results = runner.results(target.handle, shared=shared)
    if name is not None:
        value = results.value(name, key)
        if as_json:
            emit_json({"handle": target.handle, "name": name, "value": value})
        else:
            emit(str(value))
    elif as_json:
        emit_json(results.to_dict())
    else:
        rows = [(k, n, value_text(value)) for k, values in results.results.items() for n, value in values.items()]
        rows += [("(metadata)", n, value_text(value)) for n, value in results.metadata.items()]
        rows += [("(artifact)", n, value_text(artifact.get("path", ""))) for n, artifact in results.artifacts.items()]
        if rows:
            emit_table(("KEY", "RESULT", "VALUE"), [(visible(k), visible(n), value) for k, n, value in rows])
        for collided, writers in results.collisions.items():
            note(f"key {collided}: written by {', '.join(writers)}; what the last one wrote is shown")
        if not results.results:
            note(results.explain())
