"""The top-level command: it knows the names and one-line helps of all others, and imports one only to run it."""

from __future__ import annotations

from typing import Any, Final

import click

from transload import __version__

_SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Run apps": {
        "run": "Run a command or a component as an app, and stay with it.",
        "wait": "Wait until an app has ended.",
        "cancel": "Ask apps to end.",
        "delete": "Forget ended apps: by handle, age or size.",
    },
    "Look at apps": {
        "list": "List apps.",
        "status": "Show what an app and its replicas are doing.",
        "log": "Show the logs of an app's replicas, or follow them.",
        "describe": "Show the definition of an app.",
        "results": "Show the results that an app reported.",
        "get": "Copy files that an app has made.",
        "put": "In a job: report results, as NAME=VALUE.",
        "tracker": "Look into trackers: runs, metadata, artifacts, lineage.",
    },
    "Look at what there is": {
        "components": "List, show and check components.",
        "info": "List schedulers, adapters and plugins, or explain one.",
        "config": "Show the settings in force and where each comes from.",
        "doctor": "Check what works here and what is missing.",
        "completion": "Print the completion script for a shell.",
    },
}

_HELPS: Final = {name: text for section in _SECTIONS.values() for name, text in section.items()}

_TOGETHER: Final = {
    **dict.fromkeys(("list", "status", "describe", "wait", "cancel", "delete"), "apps"),
    **dict.fromkeys(("results", "get", "put"), "results"),
    **dict.fromkeys(("info", "config", "doctor", "completion"), "installed"),
}
"""The modules that hold several commands; any other one is in a module of its name."""

ALIASES: Final = {"runopts": "info", "builtins": "components", "configure": "config"}
"""Names that TorchX uses, kept for those who come from there; not listed."""

_USAGE: Final = "Usage: transload [--version] COMMAND [ARGUMENTS]...   (COMMAND --help says more)"
_CLOSING: Final = """\
A HANDLE is what `run` prints; the app id alone does for the default scheduler.
Exit: 0 done, 1 failed, 2 mistake, 3 unreachable, 4 cancelled, 5 late, 6 unknown"""


class ReaderGone(Exception):
    """Whoever read our output has gone. (click exits with 1 for a BrokenPipeError: a failed app here.)"""


class LazyGroup(click.Group):
    """Commands by name; built-in ones live in ``transload.cli.commands``."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as exc:
            raise ReaderGone from exc

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the built-in names in the order of the help, then those of plugins."""
        return [*_HELPS, *(name for name in _plugin_names() if name not in _HELPS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in _HELPS:
            return _plugin_command(cmd_name)
        from importlib import import_module

        module = vars(import_module(f"transload.cli.commands.{_TOGETHER.get(name, name)}")).values()
        command = next(each for each in module if isinstance(each, click.Command) and each.name == name)
        command.short_help = _HELPS[name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name, or say which was probably meant."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            from transload.specs._check import nearest

            raise click.UsageError(f"no such command: {name!r}: {nearest(name, self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all of it on one screen of 80 by 24, without importing a command."""
        lines = [_USAGE]
        for title, section in _SECTIONS.items():
            lines += [f"{title}:", *(f"  {name:<11} {text}" for name, text in section.items())]
        plugins = _plugin_names()
        if plugins:
            lines.append(f"From plugins: {', '.join(plugins)}")
        formatter.write("\n".join([*lines, _CLOSING, ""]))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete names of commands, and options."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(n, help=_HELPS.get(n)) for n in self.list_commands(ctx) if n.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _plugin_names() -> list[str]:
    # importing the plugins costs their own imports; without third-party ones there can be no commands
    from transload._entry_points import third_party_installed

    if not third_party_installed():
        return []
    from transload.plugins import get_plugins

    return get_plugins().names("cli_commands")


def _plugin_command(name: str) -> click.Command | None:
    if name not in _plugin_names():
        return None
    from transload.errors import PluginError
    from transload.plugins import get_plugins

    command = get_plugins().get("cli_commands", name)
    if not isinstance(command, click.Command):
        raise PluginError(f"command {name!r} of a plugin is a {type(command).__name__}, not a click.Command", name)
    return command


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="transload", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Write a job once, run it on every engine."""
    if ctx.invoked_subcommand is None:
        # not left to click, whose releases differ in what they do
        click.echo(ctx.get_help(), err=True)
        ctx.exit(2)
