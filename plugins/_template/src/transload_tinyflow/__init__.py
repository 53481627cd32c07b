"""Jobs as steps of Tinyflow, the invented host of this template."""

from __future__ import annotations

from transload_tinyflow.adapter import step_from_app
from transload_tinyflow.states import STATES

__all__ = ["STATES", "step_from_app"]
