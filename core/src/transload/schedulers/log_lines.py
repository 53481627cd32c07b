"""What every ``log_iter`` does with lines, wherever they come from."""

from __future__ import annotations

import re
from collections.abc import Callable

from transload.errors import SpecError

__all__ = ["line_search"]


def line_search(regex: str | None) -> Callable[[str], object]:
    """Return what is true of wanted lines: of all without a ``regex``, else of those in which it is found.

    To be called before ``log_iter`` returns, so that a bad regex is an error of the call.

    Raises:
        SpecError: for a bad regex.
    """
    if regex is None:
        return lambda line: True
    try:
        return re.compile(regex).search
    except re.error as exc:
        raise SpecError(f"regex={regex!r}: {exc}") from exc
