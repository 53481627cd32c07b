"""Marks: what stands in an app's texts for a value that is known only when the pipeline runs."""

from __future__ import annotations

import re
from typing import Final

_MARK: Final = re.compile("\ue000late:([^\ue000\ue001]*)\ue001")
Piece = str | tuple[str]
"""A piece of a text: literal, or ``(name,)`` of what stands there at run time."""


def mark(name: str) -> str:
    """Return the text that stands for the value of ``name``."""
    return f"\ue000late:{name}\ue001"


def pieces(text: str) -> tuple[Piece, ...]:
    """Split a text at its marks."""
    # every second one is a name, and literal texts may be empty
    found = [(each,) if index % 2 else each for index, each in enumerate(_MARK.split(text))]
    return tuple(each for each in found if each)


def has_mark(text: str) -> bool:
    """Tell whether a text depends on a value that is known only when the pipeline runs."""
    return _MARK.search(text) is not None
