"""Say how much travels with a job, where that is much."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from transload.cli.progress import say
from transload.specs import AppDef, Workspace
from transload.specs.text import size_text
from transload.workspace import IGNORE_FILES, file_sizes, left_out

LARGE: Final = 100 << 20
"""Bytes from which on a workspace is large."""

_MOST_NAMED: Final = 6
"""So many names of what is left out are said."""


def announce(app: AppDef, where: str) -> None:
    """Say in one line of each large workspace how much travels, and what is left out.

    Args:
        app: the job, as it is about to be submitted.
        where: the name of the scheduler that it goes to.
    """
    said: list[Workspace] = []
    for role in app.roles:
        if role.workspace and role.workspace not in said:
            said.append(role.workspace)
            sizes = list(file_sizes(role.workspace))
            if sum(sizes) >= LARGE:
                say(_line(role.workspace, sizes, where))


def _line(workspace: Workspace, sizes: Sequence[int], where: str) -> str:
    what = ", ".join(os.path.abspath(os.path.expanduser(each)) for each in workspace.projects)
    return (
        f"{what} travels to {where}: {size_text(sum(sizes))} in {len(sizes):,} files; "
        f"{_left_out(workspace)}; {IGNORE_FILES[0]} says what is left out"
    )


def _left_out(workspace: Workspace) -> str:
    names = sorted({name for project in workspace.projects for name in left_out(project)})
    if not names:
        return "nothing is left out"
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    if more > 0:
        shown += f" and {more} more"
    return f"left out: {shown}"
