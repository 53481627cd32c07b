"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.specs import AppDef
from transload_ax import TransloadMetric, TransloadRunner


def component(lr: float) -> AppDef:
    """Return nothing of interest."""
    raise NotImplementedError


runner: TransloadRunner = TransloadRunner("base", component, {}, scheduler="local", gpu=1)
assert_type(runner.dry_run({"lr": 0.5}), str)
metric: TransloadMetric = TransloadMetric("loss", lower_is_better=True)
