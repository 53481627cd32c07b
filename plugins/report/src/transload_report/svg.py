"""Writing SVG: elements with everything escaped. Colours come from the page's style sheet, by
class.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from transload_report.words import clean

__all__ = ["element", "number", "picture", "text_width"]

_CHARACTER = 6.6  # width of a character at 12 px, in px; a generous one, as fonts differ


def element(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return one element.

    Args:
        name: its name.
        children: what is in it: texts, which are escaped, and elements.
        attributes: attribute → value; None leaves it out; ``cls`` is ``class``, and ``_`` in a name
            is ``-``.
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
    if value % 1 == 0:
        return f"{value:.0f}"
    return f"{value:.1f}".rstrip("0").rstrip(".")


def text_width(text: str) -> float:
    """Return about how wide a text of 12 px is, in px."""
    return len(text) * _CHARACTER


def _value(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return str(escape(clean(str(value))))
