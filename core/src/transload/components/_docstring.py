"""Reading a docstring: the description, and the help of each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

_SECTIONS: Final = (
    "args|arguments|parameters|params|keyword args|keyword arguments|other parameters|returns?|yields?|raises|"
    "examples?|notes?|attributes|see also|references|todo|warnings?|warns|methods"
)
_SECTION = re.compile(rf"({_SECTIONS}):\s*\Z", re.IGNORECASE)
_ARGS: Final = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
_ITEM = re.compile(r"(\s+)\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(.*)\Z")
_FIELD = re.compile(r":(\w+)((?:\s+[^:\s]+)*)\s*:(.*)\Z")
_PARAM_FIELDS: Final = {"param", "parameter", "arg", "argument", "key", "keyword"}
# these end the description, as the sections about values do; examples and notes are part of it
_ENDING: Final = _ARGS | {"return", "returns", "yield", "yields", "raises"}


def read_docstring(fn: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function and the help of its parameters, both as plain text.

    Google style (``Args:``) and reST fields (``:param name:``) are understood. No docstring is ``("", {})``.
    """
    return parse_docstring(inspect.getdoc(fn) or "")


def parse_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description and the help of each parameter in a docstring that is already dedented."""
    description: list[str] = []
    helps: dict[str, list[str]] = {}
    section = ""
    indent = 0
    current: list[str] | None = None
    for line in text.splitlines():
        heading = _SECTION.match(line)
        if heading is not None:
            section, indent, current = heading.group(1).lower(), 0, None
            if section not in _ENDING:
                description.append(line)
            continue
        field = _FIELD.match(line)
        if field is not None:
            words = field.group(2).split()
            section = "fields"
            is_param = field.group(1).lower() in _PARAM_FIELDS and bool(words)
            current = helps.setdefault(words[-1].lstrip("*"), []) if is_param else None
            if current is not None:
                current.append(field.group(3))
            continue
        if section in _ARGS and line[:1].isspace():
            item = _ITEM.match(line)
            if item is not None and (indent == 0 or len(item.group(1)) <= indent):
                indent = len(item.group(1))
                current = helps.setdefault(item.group(2), [])
                current.append(item.group(3))
            elif current is not None:
                current.append(line)
        elif section == "fields":
            if current is not None:
                current.append(line)
        elif section not in _ENDING or (line and not line[:1].isspace()):
            if section in _ENDING:
                section = ""
            description.append(line)
    joined = {name: " ".join(" ".join(lines).split()) for name, lines in helps.items()}
    return re.sub(r"\n{3,}", "\n\n", "\n".join(description)).strip(), joined
