"""How a state looks: a sign besides the colour, for all who do not see the colour. Total."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from transload.specs import AppState

__all__ = ["SIGNS"]

SIGNS: Final[Mapping[AppState, str]] = {
    AppState.UNSUBMITTED: "○",
    AppState.SUBMITTED: "◔",
    AppState.PENDING: "◑",
    AppState.RUNNING: "▶",
    AppState.SUCCEEDED: "✓",
    AppState.FAILED: "✕",
    AppState.CANCELLED: "■",
    AppState.UNKNOWN: "?",
}
"""State → the sign that stands beside its name."""
