"""Run the command line, with one line for a user's mistake and an exit code for each end.

A command is imported only when it is used.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import click

from transload import __version__
from transload.cli.exit_codes import ExitCode, exit_code_for
from transload.cli.output import (
    OutputFailed,
    emit,
    note,
    note_error,
    safe_streams,
    silence,
    write,
)
from transload.errors import PluginError, SubmitError, TransloadError

SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Run jobs": {
        "run": "Run a command or a component as a job, and wait for it.",
        "wait": "Wait until a job has ended.",
        "cancel": "Cancel jobs.",
        "delete": "Delete ended jobs by handle, age or size.",
    },
    "Look at jobs": {
        "list": "List jobs.",
        "status": "Show the state of a job and its replicas.",
        "log": "Show or follow the logs of a job's replicas.",
        "describe": "Show the definition of a job.",
        "exec": "Run a command where a replica of a job runs.",
        "signal": "Send a signal to the replicas of a job.",
        "results": "Show the results of a job.",
        "get": "Copy the files of a job.",
        "put": "Report results from within a job, as NAME=VALUE.",
        "tracker": "Show runs, metadata, artifacts and lineage in trackers.",
    },
    "Look at the installation": {
        "components": "List, show and check components.",
        "info": "List schedulers, adapters and plugins, or explain one.",
        "config": "Show the current settings and the source of each.",
        "doctor": "Check what works here and what is missing.",
        "completion": "Print the completion script for a shell.",
    },
}
"""The commands in the order of the help, each with its one line."""

_HELPS: Final = {name: text for section in SECTIONS.values() for name, text in section.items()}

_NOT_LISTED: Final = {
    "runtime": "Print what a program without transload takes along to report.",
}
"""Commands of which pages tell, and messages."""

_MODULES: Final = {
    **dict.fromkeys(("status", "describe", "wait", "cancel", "delete"), "apps"),
    **dict.fromkeys(("signal", "exec"), "inside"),
    "get": "results",
    **dict.fromkeys(("info", "config", "completion"), "installed"),
}
"""Command → its module, where that does not have its name."""

_USAGE: Final = "Usage: transload [--version] COMMAND [ARGUMENTS]...   (COMMAND --help says more)"
_CLOSING: Final = """\
A HANDLE is what `run` prints; for the default scheduler, the job id is enough.
Exit: 0 done, 1 failed, 2 mistake, 3 unreachable, 4 cancelled, 5 late, 6 unknown"""

COMPLETE: Final = "_TRANSLOAD_COMPLETE"
"""The variable with which a shell requests completions."""

_NOT_OURS: Final = (errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE)
"""Errors of a disk that is read-only, full or broken, which are not the command's fault."""


class Commands(click.Group):
    """The commands of this package, and those of plugins. Each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the help's order, then those of plugins."""
        return [*_HELPS, *(name for name in _of_plugins() if name not in _HELPS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, whose options refuse a text that is empty.

        Raises:
            PluginError: if a plugin's command cannot be imported, or is not a command of click.
        """
        command = _load(cmd_name)
        if command is not None:
            _refuse_empty_texts(command)
        return command

    def get_help(self, ctx: click.Context) -> str:
        """Return the help of all commands, which fits on a screen of 80 by 26."""
        lines = [_USAGE]
        for title, section in SECTIONS.items():
            lines += [f"{title}:", *(f"  {name:<11} {text}" for name, text in section.items())]
        plugins = _of_plugins()
        if plugins:
            lines.append(f"From plugins: {', '.join(plugins)}")
        return "\n".join([*lines, _CLOSING])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and its arguments.

        Raises:
            click.UsageError: for an unknown command, with what to install or the nearest name.
        """
        name, *rest = args
        command = self.get_command(ctx, name)
        if command is not None:
            # for the text of that option click looks for translations, which costs more than all
            # others together
            command.add_help_option = any(word.startswith("-") and "h" in word for word in rest)
        elif not ctx.resilient_parsing:
            raise click.UsageError(f"no such command: {name!r}: {self._hint(ctx, name)}", ctx)
        return name, command, rest

    def _hint(self, ctx: click.Context, name: str) -> str:
        from transload.plugins import get_plugins

        return get_plugins().hint("cli_commands", name, self.list_commands(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete the names of commands, none of which is imported for that."""
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=_HELPS.get(name)) for name in names), *options]


def _load(name: str) -> click.Command | None:
    """Import the command with a name, and return it, or None if there is none."""
    text = _HELPS.get(name) or _NOT_LISTED.get(name)
    if text is not None:
        module = import_module(f"transload.cli.commands.{_MODULES.get(name, name)}")
        found = [each for each in vars(module).values() if isinstance(each, click.Command)]
        command = next(each for each in found if each.name == name)
        command.short_help = text
        return command
    if name not in _of_plugins():
        return None
    from transload.plugins import get_plugins

    plugged = get_plugins().get("cli_commands", name)
    if not isinstance(plugged, click.Command):
        raise PluginError(
            f"command {name!r} of a plugin is a {type(plugged).__name__}, not a click.Command",
            name,
        )
    return plugged


def _of_plugins() -> list[str]:
    # importing plugins takes time, and only third-party ones can have commands
    from transload.plugins.entry_points import third_party_installed

    if not third_party_installed():
        return []
    from transload.plugins import get_plugins

    return get_plugins().names("cli_commands")


def _refuse_empty_texts(command: click.Command) -> None:
    from transload.cli.options import GIVEN_TEXT

    if isinstance(command, click.Group):
        for each in command.commands.values():
            _refuse_empty_texts(each)
    for param in command.params:
        if isinstance(param, click.Option) and param.type is click.STRING and param.default != "":
            param.type = GIVEN_TEXT


def _writes(text: Callable[[click.Context], str]) -> Callable[..., None]:
    """Return the callback of an option that writes a text and ends the command."""

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            emit(text(ctx))
            ctx.exit()

    return show


def _flag(names: Sequence[str], text: str, show: Callable[[click.Context], str]) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, callback=_writes(show), help=text)


COMMANDS: Final = Commands(
    "transload",
    add_help_option=False,
    params=[
        _flag(["--version"], "Show the version.", lambda _: f"transload {__version__}"),
        _flag(["-h", "--help"], "Show the commands.", lambda ctx: ctx.get_help()),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def run_main(args: Sequence[str] | None) -> int:
    """Run the command line, as `transload.cli.main` describes it."""
    words = sys.argv[1:] if args is None else list(args)
    with safe_streams():
        try:
            try:
                return _run(words)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            silence(sys.stdout)
        except OSError as exc:
            silence(sys.stdout)
            note_error(f"the output cannot be written: {exc.strerror}")
        return ExitCode.PIPE


def _run(args: list[str]) -> int:
    """Run a command, and return its exit code. Errors of the output are raised."""
    try:
        return _invoke(args)
    except (OutputFailed, BrokenPipeError):
        raise
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.LEFT
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.exceptions.NoArgsIsHelpError as exc:
        write(sys.stderr, f"{exc.format_message()}\n")
        return ExitCode.MISTAKE
    except click.ClickException as exc:
        note_error(_with_advice(exc))
        return ExitCode.MISTAKE
    except TransloadError as exc:
        if os.environ.get("TRANSLOAD_DEBUG", "") not in ("", "0"):
            _print_traceback()
        _show(exc)
        return exit_code_for(exc)
    except OSError as exc:
        if isinstance(exc, FileNotFoundError) and _is_nowhere():
            note_error("the working directory has been removed: change to another one")
            return ExitCode.MISTAKE
        if exc.errno in _NOT_OURS:
            note_error(f"{exc.filename or 'a file'}: {exc.strerror}")
            return ExitCode.UNAVAILABLE
        return _own_defect(exc)
    except Exception as exc:
        return _own_defect(exc)


def _invoke(args: list[str]) -> int:
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(COMMANDS, {}, COMMANDS.name or "", COMPLETE, instruction)
    from transload.cli.log_lines import shown_log

    with shown_log(), COMMANDS.make_context(COMMANDS.name, args, obj=args.copy()) as context:
        result = COMMANDS.invoke(context)
    return result if isinstance(result, int) else ExitCode.OK


def _with_advice(error: click.ClickException) -> str:
    """Return what is wrong with a command line, and where to see what is right."""
    message = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{message} (see `{error.ctx.command_path} --help`)"
    return message


def _show(error: TransloadError) -> None:
    """Write what went wrong.

    The last line says it, below what a program wrote that failed.
    """
    text = str(error)
    if isinstance(error, SubmitError) and error.lines:
        for line in error.lines:
            note(line)
        text = text.partition("\n")[0]
    note_error(text)


def _own_defect(error: Exception) -> int:
    _print_traceback()
    note_error(
        f"internal error: {type(error).__name__}: {error} (a defect of transload; please report "
        "the traceback)"
    )
    return ExitCode.INTERNAL


def _is_nowhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _print_traceback() -> None:
    import traceback

    traceback.print_exc()
