"""Writing SVG: elements with everything escaped. Colours come from the page's style sheet, by
class.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from transload_report.words import clean

__all__ = ["element", "number", "picture", "text_width"]

_CHARACTER = (
    6.6  # width of a character at 12 px, in px; sans-serif fonts differ, so it is a generous one
)


def element(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return one element.

    Args:
        name: its name.
        children: what is in it: texts, which are escaped, and elements.
        attributes: attribute → value; None leaves it out; ``cls`` is ``class``, and ``_`` in a name
            is ``-``.
    """
    given = "".join(
        f' {"class" if key == "cls" else key.replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(
        str(child) if isinstance(child, Markup) else str(escape(clean(child))) for child in children
    )
    return Markup(f"<{name}{given}>{inside}</{name}>" if inside else f"<{name}{given}/>")  # noqa: S704 - all escaped


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
        title: what it is.
        description: what is to be seen in it, in words.
        parts: the elements.
        key: tells it from the other pictures of the page.
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
    """Return a coordinate as short text: one decimal at most."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"


def text_width(text: str) -> float:
    """Return about how wide a text of 12 px is, in px."""
    return len(text) * _CHARACTER


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else str(escape(clean(str(value))))
