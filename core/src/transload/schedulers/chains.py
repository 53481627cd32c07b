"""Read the ids of jobs that are numbered in turn: ``train-0``, ``train-1`` and so on are a chain.

The jobs of one step of an orchestrator are such a chain.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["chain_and_number", "number_in_chain"]

_NUMBERED: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,8})\Z", re.DOTALL)


def chain_and_number(app_id: str) -> tuple[str, int] | None:
    """Return what comes before ``-<number>`` in a job's id, and the number.

    Returns:
        None if the id does not end in a number.
    """
    match = _NUMBERED.match(app_id)
    if match is None:
        return None
    return match.group(1), int(match.group(2))


def number_in_chain(chain: str, app_id: str) -> int | None:
    """Return the number of a job in a chain, or None if its id is not of that chain."""
    found = chain_and_number(app_id)
    if found is None or found[0] != chain:
        return None
    return found[1]
