"""Which files of a workspace stay at home."""

from __future__ import annotations

import os
import re
from typing import Final

from transload.errors import ConfigError

IGNORE_FILES: Final = (".transloadignore", ".dockerignore")
"""Names of the ignore file, in a project's folder; the first that exists counts."""

ALWAYS: Final = (".git", "__pycache__", "*.pyc", ".venv", ".nox", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache")
"""What never travels, unless a rule such as ``!.git`` brings it back."""


class IgnoreRules:
    """Rules in the form that ``.gitignore`` made common: one pattern a line, the last that matches decides.

    ``*`` and ``?`` match within one part of a path, ``**`` across parts; a pattern with a ``/`` that is not at its end
    is anchored to the project's folder, one without matches at any depth; a trailing ``/`` matches folders only; ``!``
    brings back what an earlier pattern ignored (not below an ignored folder); ``#`` starts a comment.

    Args:
        lines: the patterns.
    """

    def __init__(self, lines: list[str]) -> None:
        self._rules: list[tuple[re.Pattern[str], bool, bool]] = []
        for line in lines:
            text = line.rstrip("\n").strip()
            if text and not text.startswith("#"):
                self._rules.append(_rule(text))

    @staticmethod
    def of_folder(folder: str) -> IgnoreRules:
        """Return the rules of a project's folder: `ALWAYS`, then those of its ignore file.

        Raises:
            ConfigError: if the ignore file cannot be read.
        """
        for name in IGNORE_FILES:
            path = os.path.join(folder, name)
            try:
                with open(path, encoding="utf-8") as file:
                    return IgnoreRules([*ALWAYS, *file])
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as exc:
                raise ConfigError(f"{path}: cannot be read: {exc}") from exc
        return IgnoreRules(list(ALWAYS))

    def ignored(self, path: str, is_folder: bool) -> bool:
        """Tell whether a path (relative, ``/`` between parts) stays at home."""
        result = False
        for pattern, folders_only, keep in self._rules:
            if (is_folder or not folders_only) and pattern.match(path):
                result = not keep
        return result


def _rule(text: str) -> tuple[re.Pattern[str], bool, bool]:
    keep = text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.rstrip("/")
    anchored = "/" in text
    text = text.removeprefix("/").removeprefix("./")
    body = "".join(_PARTS.get(part, re.escape(part)) for part in _SPLIT.split(text) if part)
    return re.compile(("" if anchored else "(?:.*/)?") + body + r"\Z", re.DOTALL), folders_only, keep


_SPLIT = re.compile(r"(/\*\*/|\*\*/|/\*\*|\*\*|\*|\?)")
_PARTS: Final = {"/**/": "/(?:.*/)?", "**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
