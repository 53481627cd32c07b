"""The sign of each state, for readers who cannot see its colour. The table covers all states."""

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
"""State → the sign beside its name."""
