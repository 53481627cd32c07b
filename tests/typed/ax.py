"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.specs import AppDef
from transload_ax import Outcome, TransloadRunner, make_experiment, run_experiment


def component(lr: float) -> AppDef:
    """Return nothing of interest."""
    raise NotImplementedError


runner: TransloadRunner = TransloadRunner("base", component, {}, scheduler="local")
experiment = make_experiment(component, ["lr:float:0.1:1"], "loss", "base", minimize=True)
assert_type(run_experiment(experiment, trials=4, parallel=2), Outcome)
