"""docs/reference/command-line.md has each command, option and exit code."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from transload.cli import ExitCode
from transload.cli.application import COMMANDS, SECTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "command-line.md").read_text()


@pytest.mark.parametrize("name", [name for section in SECTIONS.values() for name in section])
def test_commands_are_documented(name: str) -> None:
    """Each command has its row."""
    assert f"| `{name}" in PAGE


@pytest.mark.parametrize("name", ["run", "log"])
def test_options_are_documented(name: str) -> None:
    """Each option of the two large commands is in their tables."""
    command = COMMANDS.get_command(click.Context(COMMANDS), name)
    assert command is not None
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert f"`{max(parameter.opts, key=len)}" in PAGE or f"`{parameter.opts[0]}" in PAGE, (
                parameter.opts
            )


@pytest.mark.parametrize("code", list(ExitCode))
def test_exit_codes_are_documented(code: ExitCode) -> None:
    """Each exit code has its row."""
    assert f"\n| {int(code)} | " in PAGE
