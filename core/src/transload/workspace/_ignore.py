"""Which files of a workspace stay at home."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from transload.errors import ConfigError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILES: Final = (".transloadignore", ".dockerignore")
"""Names of the ignore file, in a project's folder; the first that exists counts. Its language is that of .gitignore."""

ALWAYS: Final = (".git", "__pycache__", "*.pyc", ".venv", ".nox", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache")
"""What never travels, unless a rule such as ``!.git`` brings it back."""


def ignore_rules(folder: str) -> GitIgnoreSpec:
    """Return the rules of a project's folder: `ALWAYS`, then those of its ignore file.

    Raises:
        ConfigError: if the ignore file cannot be read, or holds a pattern that is none.
    """
    from pathspec import GitIgnoreSpec

    for name in IGNORE_FILES:
        path = os.path.join(folder, name)
        try:
            with open(path, encoding="utf-8") as file:
                return GitIgnoreSpec.from_lines([*ALWAYS, *file])
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as exc:
            raise ConfigError(f"{path}: cannot be read: {exc}") from exc
    return GitIgnoreSpec.from_lines(ALWAYS)
