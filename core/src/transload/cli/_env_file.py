"""Variables from the command line and from ``.env`` files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from transload.errors import SpecError

_NAME: Final = "[A-Za-z_][A-Za-z0-9_.-]*"
_LINE: Final = re.compile(
    rf"""\s*(?:export\s+)?(?P<name>{_NAME})\s*=\s*
    (?:'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|(?P<plain>[^'"].*?|))\s*(?:(?<=\s)\#.*)?\Z""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(.)")


def read_env_file(path: str) -> dict[str, str]:
    r"""Return the variables of a file of lines ``NAME=VALUE``.

    ``export`` may stand in front, ``#`` begins a comment, values may be quoted; ``\n`` is a newline between double
    quotes. Nothing is expanded.

    Raises:
        SpecError: if it cannot be read, or has another line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise SpecError(f"--env-file {path}: cannot be read: {exc}") from exc
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:  # the line is not shown: it may hold a secret
            raise SpecError(f"{path}:{number}: must be NAME=VALUE, with quotes closed")
        quoted = match["double"]
        if quoted is not None:
            found[match["name"]] = _ESCAPE.sub(lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), quoted)
        else:
            found[match["name"]] = match["single"] if match["single"] is not None else match["plain"]
    return found


def read_env(pairs: Iterable[str], files: Iterable[str]) -> dict[str, str]:
    """Return the variables of files and of ``NAME=VALUE`` texts; later ones win, and texts over files."""
    found: dict[str, str] = {}
    for path in files:
        found.update(read_env_file(path))
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(_NAME, name):
            raise SpecError(f"--env {name!r}: must be NAME=VALUE, the name of letters, digits, _, . and -")
        found[name] = value
    return found
