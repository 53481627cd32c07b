"""Read the inline metadata of a script, which say what packages it needs.

The format is that of the PyPA specification "Inline script metadata" (PEP 723). It is a block of
comment lines between ``# /// script`` and ``# ///``, whose content is TOML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SpecError
from transload.specs import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Header", "read_header"]


_BLOCK: Final = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
"""The reference expression of the specification."""

_BEGIN: Final = r"(?m)^# /// script[ \t]*$"
_MARK: Final = b"# /// script"
_KEYS: Final = {"dependencies": list, "requires-python": str, "tool": dict}
_LARGEST: Final = 1 << 20  # bytes of a script, since a person writes no longer one


@dataclass(frozen=True)
class Header:
    """What the inline metadata of a script says.

    Args:
        path: the script.
        line: number of the block's first line.
        text: the TOML of the block.
        table: its values.
        interpreter: words of the script's first line, if that names what runs it (``#!``).
    """

    path: str
    line: int
    text: str
    table: Mapping[str, Any] = field(default_factory=dict)
    interpreter: Sequence[str] = ()

    @property
    def dependencies(self) -> list[str]:
        """Return the packages that the script needs."""
        return list(self.table.get("dependencies", ()))

    @property
    def requires_python(self) -> str:
        """Return the versions of Python that it runs with, or ``""`` for any."""
        return str(self.table.get("requires-python", ""))

    def tool(self, name: str) -> dict[str, Any]:
        """Return the table of a tool (``[tool.NAME]``), or an empty one if there is none.

        Raises:
            SpecError: if it is no table.
        """
        found = self.table.get("tool", {}).get(name, {})
        if not isinstance(found, dict):
            raise SpecError(f"{self.path}:{self.line_of(name)}: tool.{name}: must be a table")
        return found

    def line_of(self, word: str) -> int:
        """Return the number of the first line of the block that holds a word, else the block's."""
        for number, line in enumerate(self.text.splitlines(), self.line + 1):
            if word in line:
                return number
        return self.line


def read_header(path: str) -> Header | None:
    """Return the inline metadata of a script, or None if it has none.

    Args:
        path: the file. One that cannot be read, or is no text, has none.

    Raises:
        SpecError: if it has some that cannot be read, with file and line.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST)
    except OSError:
        return None
    if _MARK not in data:
        return None
    return parse_header(data.decode("utf-8-sig", "replace"), path)


def parse_header(text: str, path: str) -> Header | None:
    """Return the inline metadata in the text of a script, or None if it has none.

    The errors are those of `read_header`.
    """
    text = text.replace("\r\n", "\n")
    begins = [_line_at(text, found.start()) for found in re.finditer(_BEGIN, text)]
    blocks = [each for each in re.finditer(_BLOCK, text) if each["type"] == "script"]
    if not begins:
        return None
    if not blocks:
        raise SpecError(
            f"{path}:{begins[0]}: the header that begins here does not end: each of its lines must "
            "begin with '#', and the last must be '# ///'"
        )
    line = _line_at(text, blocks[0].start())
    if len(blocks) > 1:
        second = _line_at(text, blocks[1].start())
        raise SpecError(f"{path}:{second}: a second header; a script has one (the first: {line})")
    lines = [_uncommented(each) for each in blocks[0]["content"].splitlines()]
    toml = "\n".join(lines) + "\n"
    interpreter: list[str] = []
    if text.startswith("#!"):
        interpreter = text[2:].partition("\n")[0].split()
    header = Header(path, line, toml, _parsed(toml, path, line), interpreter)
    _check(header)
    return header


def _line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _uncommented(line: str) -> str:
    return line[2:] if line.startswith("# ") else line[1:]


def _parsed(toml: str, path: str, line: int) -> dict[str, Any]:
    """Return the values of the block, whose TOML begins on the line after ``line``."""
    import tomllib

    try:
        return tomllib.loads(toml)
    except RecursionError as exc:
        raise SpecError(f"{path}:{line}: the header is nested too deep") from exc
    except ValueError as exc:
        why = str(exc)
        found = re.search(r" \(at line (\d+), column \d+\)$", why)
        number = line + 1
        if found is not None:
            number = line + int(found[1])
            why = why[: found.start()]
        elif why.endswith(" (at end of document)"):
            number = line + toml.count("\n")
            why = why[: -len(" (at end of document)")]
        raise SpecError(f"{path}:{number}: the header is not TOML: {why}") from exc


def _check(header: Header) -> None:
    """Refuse unknown keys and wrong types."""
    for key, value in header.table.items():
        where = f"{header.path}:{header.line_of(key)}: {key}"
        if key not in _KEYS:
            raise SpecError(f"{where}: unknown key of a header: {nearest(key, list(_KEYS))}")
        if not isinstance(value, _KEYS[key]):
            kinds = {list: "a list of texts", str: "a text", dict: "a table"}
            raise SpecError(f"{where}={value!r}: must be {kinds[_KEYS[key]]}")
    for each in header.dependencies:
        if not isinstance(each, str):
            where = f"{header.path}:{header.line_of('dependencies')}"
            raise SpecError(f"{where}: dependencies: {each!r}: must be a text")
