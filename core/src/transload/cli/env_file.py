"""Read variables from the command line and from ``.env`` files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from transload.errors import SpecError

_NAME: Final = "[A-Za-z_][A-Za-z0-9_.-]*"
_BLANK: Final = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|\Z)")
_ENTRY: Final = re.compile(
    rf"""[^\S\n]*(?:export[^\S\n]+)?(?P<name>{_NAME})[^\S\n]*=[^\S\n]*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^'"\n][^\n]*?|))
    [^\S\n]*(?:(?<=\s)\#[^\n]*)?(?:\n|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"""\\(["$`\\])""")
"""Characters that a backslash escapes within double quotes, as in a shell."""


def read_env_file(path: str) -> dict[str, str]:
    r"""Return the variables of a file of lines ``NAME=VALUE``.

    A line may start with ``export``, and ``#`` starts a comment. Quotes work like in a shell. Within
    double quotes, ``\"``, ``\\``, ``\$`` and `` \` `` are escapes, and any other backslash is kept. A
    value in quotes may have several lines. Nothing is expanded.

    Raises:
        SpecError: if the file cannot be read, or a line has another form.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as exc:
        raise SpecError(f"--env-file {path}: cannot be read: {exc}") from exc
    found = {}
    position = 0
    while position < len(text):
        blank = _BLANK.match(text, position)
        if blank is not None:
            position = blank.end()
            continue
        match = _ENTRY.match(text, position)
        if match is None:  # the line is not shown, because it may contain a secret
            number = text.count("\n", 0, position) + 1
            raise SpecError(f"{path}:{number}: must be NAME=VALUE, with quotes closed")
        found[match["name"]] = _value_of(match)
        position = match.end()
    return found


def _value_of(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPE.sub(r"\1", match["double"])
    if match["single"] is not None:
        return match["single"]
    return match["plain"]


def read_env(pairs: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Return the variables of files and of ``NAME=VALUE`` texts.

    Later ones replace earlier ones, and texts replace those of files.
    """
    found: dict[str, str] = {}
    for path in files:
        found.update(read_env_file(path))
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals and re.fullmatch(_NAME, name):
            raise SpecError(
                f"--env {name!r}: must be NAME=VALUE; to pass the variable as it is set here, write "
                f"--pass-env {name}"
            )
        if not re.fullmatch(_NAME, name):
            raise SpecError(
                f"--env {name!r}: must be NAME=VALUE, the name of letters, digits, _, . and -"
            )
        found[name] = value
    return found
