"""Reading values that users typed: booleans and ``key=value`` lists."""

from __future__ import annotations

import re

from transload.errors import SpecError

_TRUE = {"true", "t", "yes", "y", "on", "1"}
_FALSE = {"false", "f", "no", "n", "off", "0"}
_PAIR = re.compile(r"(?:^|[,;])\s*([A-Za-z_][\w.-]*)=")


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
    """Split ``"A=1,B=x,y;C=2"`` into ``{"A": "1", "B": "x,y", "C": "2"}``.

    Pairs are delimited by ``,`` or ``;``; a delimiter that no ``key=`` follows belongs to the value. Quotes around a
    whole value are removed.

    Raises:
        SpecError: when the text does not start with ``key=``.
    """
    text = text.strip()
    if not text:
        return {}
    found = list(_PAIR.finditer(text))
    if not found or found[0].start() != 0:
        raise SpecError(f"{text!r}: must be of the form key=value[,key=value…]")
    pairs: dict[str, str] = {}
    for match, following in zip(found, [*found[1:], None], strict=True):
        value = text[match.end() : following.start() if following else len(text)].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        pairs[match.group(1)] = value
    return pairs


def split_list(text: str) -> list[str]:
    """Split a ``,`` or ``;`` delimited list; empty elements are dropped."""
    return [part.strip() for part in text.replace(";", ",").split(",") if part.strip()]
