"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from transload.specs import AppDef
from transload_kfp import (
    AppComponent,
    component_from_app,
    launcher_from_app,
)


def component(lr: float = 0.1) -> AppDef:
    """Return nothing of interest."""
    raise NotImplementedError


one: AppComponent = component_from_app(component, inputs={"lr": float}, results={"accuracy": float})
many: AppComponent = launcher_from_app(component, scheduler="kubernetes", image="launcher:1")
text: str = one.dry_run()
