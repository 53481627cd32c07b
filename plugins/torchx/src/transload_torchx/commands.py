"""Find commands and packages of TorchX in scripts and lists, and say what to write instead.

They are listed by line, and never changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from transload_torchx.sources import Left

_SCRIPTS: Final = (".sh", ".bash")
_LISTS: Final = re.compile(r"(pyproject\.toml|setup\.cfg|requirements.*\.txt)\Z")
"""Names of files that list packages, or declare entry points."""

_COMMAND: Final = re.compile(
    r"\btorchx\s+(run|status|log|list|describe|cancel|tracker|runopts|builtins|configure)\b"
)
_ENTRY_POINTS: Final = re.compile(r"^\[(?:project\.entry-points\.)?[\"']?torchx\.(\w+)[\"']?\]")
_PACKAGE: Final = re.compile(r"(?<![\w./:\[-])torchx(?![\w.:/])")
_HOOKS: Final = {
    "schedulers": "transload_schedulers",
    "components": "transload_components",
    "named_resources": "transload_named_resources",
    "tracker": "transload_trackers",
}
"""Last part of a group of entry points of TorchX → our hook."""


def is_listed(name: str) -> bool:
    """Tell whether commands or packages of TorchX are looked for in a file of that name."""
    return Path(name).suffix in _SCRIPTS or _LISTS.match(name) is not None


def left_lines(name: str, text: str) -> list[Left]:
    """Return the lines of a file that name a command or package of TorchX, with what to write.

    Args:
        name: the name of the file, without folders.
        text: what is in it.
    """
    what_of = _package_line if _LISTS.match(name) else _command_line
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        what = what_of(line)
        if what is not None:
            found.append(Left(number, what))
    return found


def _command_line(line: str) -> str | None:
    found = _COMMAND.search(line)
    if found is None or line.lstrip().startswith("#"):
        return None
    word = found[1]
    if word != "run":
        return f"torchx {word}: write transload {word}"
    return (
        "torchx run: write transload run, with the same options; it stays until the job has ended, "
        "as --wait does, and --detach makes it return"
    )


def _package_line(line: str) -> str | None:
    group = _ENTRY_POINTS.match(line.strip())
    if group is not None:
        hook = _HOOKS.get(group[1], "transload_…")
        return (
            f"entry points torchx.{group[1]}: write one entry point of the group transload, a "
            f"module with the hook {hook}"
        )
    if _PACKAGE.search(line) is None or line.lstrip().startswith("#"):
        return None
    return "torchx: write transload, and its plugins such as transload-slurm"
