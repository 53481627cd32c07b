"""Write SVG elements with all texts escaped.

Colours come from the classes in the page's style sheet.
"""

from __future__ import annotations

from collections.abc import Iterable
from unicodedata import east_asian_width

from markupsafe import Markup, escape

from transload_report.words import clean

__all__ = ["element", "fitted", "number", "picture", "text_width"]

_CHARACTER = 6.6  # width of a character at 12 px, in px, generous because fonts differ
_WIDE_CHARACTER = 12.5  # that of an East Asian one, and of three dots


def element(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return one element.

    Args:
        name: its name.
        children: its contents, which are elements, and texts that are escaped.
        attributes: attribute → value. None leaves it out. ``cls`` is written ``class``, and ``_`` in
            a name is written ``-``.
    """
    given = [
        f' {_attribute_name(key)}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    start = f"{name}{''.join(given)}"
    inside = "".join(_child(child) for child in children)
    if not inside:
        return Markup(f"<{start}/>")  # noqa: S704 - all escaped
    return Markup(f"<{start}>{inside}</{name}>")  # noqa: S704 - all escaped


def _attribute_name(key: str) -> str:
    if key == "cls":
        return "class"
    return key.replace("_", "-")


def _child(child: str | Markup) -> str:
    if isinstance(child, Markup):
        return str(child)
    return str(escape(clean(child)))


def picture(
    width: float,
    height: float,
    title: str,
    description: str,
    parts: Iterable[Markup],
    key: str,
    cls: str = "plot",
) -> Markup:
    """Return a whole picture with its text alternative.

    Args:
        width: in px.
        height: in px.
        title: its title.
        description: its contents in words.
        parts: the elements.
        key: a text that no other picture of the page has.
        cls: class of the picture.
    """
    return element(
        "svg",
        element("title", title, id=f"{key}-title"),
        element("desc", description, id=f"{key}-desc"),
        *parts,
        cls=cls,
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=number(width),
        height=number(height),
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
    )


def number(value: float) -> str:
    """Return a coordinate as a short text with at most one decimal."""
    if value % 1 == 0:
        return f"{value:.0f}"
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text_width(text: str) -> float:
    """Return the approximate width of a text of 12 px, in px."""
    wide = sum(east_asian_width(char) in "WF" or char == "…" for char in text)
    return (len(text) - wide) * _CHARACTER + wide * _WIDE_CHARACTER


def fitted(text: str, room: float) -> str:
    """Return a text of 12 px, cut with ``…`` to a width in px if it is longer."""
    if text_width(text) <= room:
        return text
    cut = text
    while cut and text_width(f"{cut}…") > room:
        cut = cut[:-1]
    return f"{cut.rstrip()}…"


def _value(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return str(escape(clean(str(value))))
