"""List the commands with their one-line helps. A command is imported only to run it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import click

_SECTIONS: Final[dict[str, dict[str, str]]] = {
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

_HELPS: Final = {name: text for section in _SECTIONS.values() for name, text in section.items()}

_TOGETHER: Final = {
    **dict.fromkeys(("list", "status", "describe", "wait", "cancel", "delete"), "apps"),
    **dict.fromkeys(("results", "get"), "results"),
    **dict.fromkeys(("info", "config", "completion"), "installed"),
}
"""Modules with several commands. Every other command is in a module with its name."""

_NOT_LISTED: Final = {
    "runtime": "Print what a program without transload takes along to report.",
}
"""Commands of which pages tell, and messages."""

_USAGE: Final = "Usage: transload [--version] COMMAND [ARGUMENTS]...   (COMMAND --help says more)"
_CLOSING: Final = """\
A HANDLE is what `run` prints; for the default scheduler, the job id is enough.
Exit: 0 done, 1 failed, 2 mistake, 3 unreachable, 4 cancelled, 5 late, 6 unknown"""

SETTINGS: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""The settings of every command's context."""

COMPLETE: Final = "_TRANSLOAD_COMPLETE"
"""The variable with which a shell requests completions."""


def help_text() -> str:
    """Return the help of all commands, which fits on a screen of 80 by 24."""
    lines = [_USAGE]
    for title, section in _SECTIONS.items():
        lines += [f"{title}:", *(f"  {name:<11} {text}" for name, text in section.items())]
    plugins = _of_plugins()
    if plugins:
        lines.append(f"From plugins: {', '.join(plugins)}")
    return "\n".join([*lines, _CLOSING])


def names() -> list[str]:
    """Return the names of the built-in commands in the help's order, then those of plugins."""
    return [*_HELPS, *(name for name in _of_plugins() if name not in _HELPS)]


def load(name: str) -> click.Command | None:
    """Import the command with a name.

    Returns:
        The command, or None if there is none.

    Raises:
        PluginError: if a plugin's command cannot be imported, or is not a command of click.
    """
    import click

    helps = {**_HELPS, **_NOT_LISTED}
    if name in helps:
        from importlib import import_module

        module = vars(import_module(f"transload.cli.commands.{_TOGETHER.get(name, name)}")).values()
        command = next(
            each for each in module if isinstance(each, click.Command) and each.name == name
        )
        command.short_help = helps[name]
        return command
    if name not in _of_plugins():
        return None
    from transload.errors import PluginError
    from transload.plugins import get_plugins

    found = get_plugins().get("cli_commands", name)
    if not isinstance(found, click.Command):
        raise PluginError(
            f"command {name!r} of a plugin is a {type(found).__name__}, not a click.Command", name
        )
    return found


def _of_plugins() -> list[str]:
    # importing plugins takes time, and only third-party ones can have commands
    from transload.plugins.entry_points import third_party_installed

    if not third_party_installed():
        return []
    from transload.plugins import get_plugins

    return get_plugins().names("cli_commands")


def complete(instruction: str) -> int:
    """Answer a request of the script of ``transload completion``, and return the exit code."""
    import click
    from click.shell_completion import shell_complete

    from transload.errors import TransloadError

    # only the command in the line is imported, since the name is enough for all others
    found = {name: click.Command(name, short_help=_HELPS.get(name, "")) for name in names()}
    words = os.environ.get("COMP_WORDS", "").split()
    if len(words) > 1:
        with suppress(TransloadError):
            command = load(words[1])
            if command is not None:
                found[words[1]] = command
    options = [click.Option(["--version"], is_flag=True, help="Show the version.")]
    return shell_complete(
        click.Group("transload", found, params=options),
        dict(SETTINGS),  # click writes into it
        "transload",
        COMPLETE,
        instruction,
    )
