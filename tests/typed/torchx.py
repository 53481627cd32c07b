"""What a user's type checker sees of the installed wheel. Mypy reads it, nothing runs."""

from __future__ import annotations

from typing import assert_type

from transload.runner import Runner
from transload_torchx import Left, convert_settings, convert_source


def moved(source: str, settings: str, runner: Runner) -> None:
    """Return types of what moves components and settings."""
    assert_type(convert_source(source), tuple[str, list[Left]])
    assert_type(convert_settings(settings, runner), tuple[str, list[Left]])
