"""``transload completion``."""

from __future__ import annotations

import click

from transload.cli._options import json_option


@click.command(short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def command(ctx: click.Context, shell: str, as_json: bool) -> None:
    r"""Print the script that makes SHELL complete commands, schedulers, components and handles.

    \b
    bash:  eval "$(transload completion bash)"        in ~/.bashrc
    zsh:   eval "$(transload completion zsh)"         in ~/.zshrc
    fish:  transload completion fish > ~/.config/fish/completions/transload.fish
    """
    from click.shell_completion import get_completion_class

    from transload.cli._output import emit, emit_json

    cls = get_completion_class(shell)
    if cls is None:  # pragma: no cover - click knows all three
        raise click.UsageError(f"{shell}: not a shell that can be completed", ctx)
    script = cls(ctx.find_root().command, {}, "transload", "_TRANSLOAD_COMPLETE").source()
    if as_json:
        emit_json({"shell": shell, "script": script})
    else:
        emit(script)
