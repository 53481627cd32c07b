"""Reading values that users typed: booleans, sizes and ``key=value`` lists."""

from __future__ import annotations

import re

from transload.errors import SpecError

_TRUE = {"true", "t", "yes", "y", "on", "1"}
_FALSE = {"false", "f", "no", "n", "off", "0"}
_SIZE = r"(?i)(\d+(?:\.\d+)?)\s*([KMGTP]?)(i?B?)\Z"
SIZE_UNITS = "KMGTP"
_PAIR = r"""(?s)\s*([^\s=,;]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|(.*?))\s*(?=\Z|[,;]\s*(?:\Z|[^\s=,;]+\s*=))"""


def parse_bool(text: str, path: str = "value") -> bool:
    """Return the bool that ``text`` spells: true/false, yes/no, on/off, t/f, y/n, 1/0, in any case.

    Raises:
        SpecError: for any other text.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise SpecError(f"{path}={text!r}: must be true or false (also yes/no, on/off, 1/0)")


def split_pairs(text: str) -> dict[str, str]:
    """Split ``A=1,B=x,y;C='a,D=b'`` into pairs; a delimiter that no ``key=`` follows belongs to the value.

    Raises:
        SpecError: for a text of another form.
    """
    pairs: dict[str, str] = {}
    position = 0
    while text[position:].strip(" ,;"):
        match = re.compile(_PAIR).match(text, position)
        if match is None:
            raise SpecError(f"{text!r}: must be of the form key=value[,key=value…]")
        pairs[match.group(1)] = next((item for item in match.groups()[1:] if item is not None), "")
        position = match.end() + 1
    return pairs


def split_list(text: str) -> list[str]:
    """Split a ``,`` or ``;`` delimited list; empty elements are dropped."""
    return [part.strip() for part in text.replace(";", ",").split(",") if part.strip()]


def parse_size(text: str, what: str = "size") -> int:
    """Return bytes from ``512``, ``10M`` or ``1.5GiB`` (units are powers of 1024).

    Raises:
        SpecError: for any other text.
    """
    match = re.match(_SIZE, text.strip())
    if match is None:
        raise SpecError(f"{what}={text!r}: must be a size such as 500M or 10G")
    unit = match.group(2).upper()
    return int(float(match.group(1)) * 1024 ** (SIZE_UNITS.index(unit) + 1 if unit else 0))
