"""Show the programs that transload itself puts into commands by name, not by their text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from transload.specs.secrets import masked_args

__all__ = ["OWN_PROGRAMS", "shown_args", "shown_command"]

OWN_PROGRAMS: Final[dict[str, str]] = {}
"""What is shown in place of each program's text."""


def shown_args(args: Sequence[str]) -> list[str]:
    """Return a command's words for display, with secrets masked and our own programs by name."""
    return masked_args([_shortened(word) for word in args])


def shown_command(entrypoint: str, args: Sequence[str]) -> str:
    """Return a command in one text, quoted for a shell, as `shown_args` shows its words."""
    return shlex.join([entrypoint, *shown_args(args)])


def _shortened(word: str) -> str:
    for text, shown in OWN_PROGRAMS.items():
        word = word.replace(text, shown)
    return word
