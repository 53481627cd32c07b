"""Validate values. Every error names the path, the value and what is allowed."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from transload.errors import SpecError

__all__ = [
    "as_list",
    "check_given",
    "check_json_dict",
    "check_number",
    "closest",
    "nearest",
    "shorten",
]


# texts, which the first use compiles, so that importing the specs costs less
ROLE_NAME = r"\w[\w.-]{0,127}\Z"
_DEEPEST = 100
_LONGEST_FILE_NAME = 255
_INFINITY = float("inf")
_LARGEST = 1e300
LARGEST_INT = (1 << 63) - 1
"""The largest whole number that is read where nothing smaller is said."""
LONGEST_S = 1e10
"""The longest duration, 317 years. A moment that far from now can still be shown as a date."""
LATEST = 1e11
"""The latest moment in seconds since the epoch that can be shown as a date."""
EMPTY = "must not be empty (is a variable not set?): leave it out for none"
_CONTROL = r"[\x00-\x1f\x7f]"


def refuse(path: str, value: object, allowed: str) -> NoReturn:
    """Raise SpecError saying where, what and what is allowed."""
    raise SpecError(f"{path}={shorten(value)}: {allowed}")


def shorten(value: object, limit: int = 120) -> str:
    """Return ``repr(value)``, cut in the middle to ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 20]}…{text[-15:]}"


def closest(word: str, words: list[str]) -> str | None:
    """Return the word that is most like a misspelt one, or None if none is like it.

    Of several that are equally like it, it is the shortest.
    """
    from difflib import SequenceMatcher, get_close_matches

    def rank(each: str) -> tuple[float, int]:
        return -SequenceMatcher(a=each, b=word).ratio(), len(each)

    close = get_close_matches(word, words)
    if close:
        return min(close, key=rank)
    parts = word.replace("-", "_").split("_")
    held = [each for each in words if each in parts]
    if len(held) == 1:
        return held[0]
    return None


def nearest(word: str, words: list[str]) -> str:
    """Return a hint that names the nearest valid word, or all valid words if none is near."""
    close = closest(word, words)
    if close is not None:
        return f"did you mean {close!r}?"
    return "must be one of: " + ", ".join(sorted(words)) if words else "none is allowed here"


def check_given(**values: object) -> None:
    """Refuse texts that are empty, as a variable that is not set makes them.

    Args:
        values: argument → value, of those that may be left out.

    Raises:
        SpecError: for the first that is an empty text.
    """
    for name, value in values.items():
        if isinstance(value, str) and not value.strip():
            refuse(name, value, EMPTY)


def check_str(value: object, path: str, *, empty: bool = True) -> None:
    """Refuse anything but a str without NUL bytes that can be written as bytes.

    Bytes of a file's name that are not UTF-8 may stand in it as Python has them.
    """
    if not isinstance(value, str):
        refuse(path, value, "must be a str")
    if not _has_bytes(value, "surrogateescape"):
        refuse(path, value, "holds half of a surrogate pair, which is no character")
    if "\x00" in value:
        refuse(path, value, "must not contain NUL")
    if not empty and not value:
        refuse(path, value, "must not be empty")


def _has_bytes(text: str, errors: str) -> bool:
    """Tell whether a text can be encoded."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def check_int(value: object, path: str, low: int, high: int | None = None) -> None:
    """Refuse anything but an int (not a bool) between ``low`` and ``high``."""
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(path, value, "must be an int")
    if value < low:
        refuse(path, value, f"must be {low} or more")
    if high is not None and value > high:
        refuse(path, value, f"must be {high} or less")


def check_number(
    value: object,
    path: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
) -> None:
    """Refuse anything but a finite int or float within the bounds, and an int that no float is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(path, value, "must be a number")
    if not -_INFINITY < value < _INFINITY:  # nor NaN
        refuse(path, value, "must be finite")
    if abs(value) > (_LARGEST if high is None else high):
        refuse(path, value, f"must be {_LARGEST if high is None else high:g} or less")
    if low is not None and value < low:
        refuse(path, value, f"must be {low} or more")
    if above is not None and value <= above:
        refuse(path, value, f"must be above {above}")


def check_seconds(
    value: object, path: str, *, low: float | None = None, above: float | None = None
) -> None:
    """Refuse anything but a number of seconds within the bounds, and of at most 317 years."""
    check_number(value, path, low=low, above=above, high=LONGEST_S)


def as_list(value: Any, path: str) -> list[Any]:
    """Return a list, or a tuple as a list.

    Raises:
        SpecError: for everything else, such as a str.
    """
    if isinstance(value, list):
        return value
    if isinstance(value, tuple):
        return list(value)
    refuse(path, value, "must be a list")


def check_dict(value: object, path: str) -> None:
    """Refuse anything but a dict with str keys."""
    if not isinstance(value, dict):
        refuse(path, value, "must be a dict")
    for key in value:
        if not isinstance(key, str):
            refuse(f"{path} key", key, "must be a str")


def check_json_dict(value: object, path: str) -> None:
    """Refuse anything but a dict of JSON values with str keys, naming the path inside it."""
    check_dict(value, path)
    for key, item in value.items():  # type: ignore[attr-defined]
        check_json(item, f"{path}[{key!r}]", 1)


def check_name(value: object, path: str) -> None:
    """Refuse a name of a job that could not be shown or used safely."""
    check_str(value, path, empty=False)
    name = str(value)
    if (
        len(name) > 200
        or not _has_bytes(name, "strict")
        or re.search(_CONTROL, name)
        or "/" in name
        or "\\" in name
        or name in {".", ".."}
        or name[0] == "-"
    ):
        refuse(
            path,
            name,
            "must be 1 to 200 printable characters without '/' or '\\', not '.' or '..', not "
            "starting '-'",
        )


def check_role_name(value: object, path: str) -> None:
    """Refuse a role name that is not a safe file name."""
    check_str(value, path, empty=False)
    if not re.match(ROLE_NAME, str(value)):
        refuse(
            path,
            value,
            "must be 1 to 128 letters, digits, '_', '.' or '-', starting with a letter, a digit or "
            "'_'",
        )
    if len(str(value).encode()) > _LONGEST_FILE_NAME:
        refuse(path, value, f"must be at most {_LONGEST_FILE_NAME} bytes in UTF-8")


def check_json(value: object, path: str, depth: int = 0) -> None:
    """Refuse a value that JSON cannot hold, and name the path inside it.

    A list that holds itself is such a value.
    """
    if value is None or isinstance(value, (str, int, float, bool)):
        return
    if depth > _DEEPEST:
        raise SpecError(f"{path[:40]}…: is nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        check_dict(value, path)
        for key, item in value.items():
            check_json(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            check_json(item, f"{path}[{index}]", depth + 1)
    else:
        refuse(path, value, "must be a JSON value (None, bool, int, float, str, list, dict)")
