"""A notice reaches the program of a pod, and gives it time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.specs import AppDef, AppState, Notice, Role
from transload_kubernetes.scheduler import create_scheduler


@pytest.mark.usefixtures("fake")
def test_a_program_saves_after_its_notice(tmp_path: Path, eventually: Any) -> None:
    """The signal that a cancel sends can be handled, and what the program does then is done."""
    begun = tmp_path / "begun"
    saved = tmp_path / "saved"
    command = f"trap 'touch {saved}; exit 0' TERM; touch {begun}; while :; do sleep 0.1; done"
    role = Role("main", "registry.example/shell:1", entrypoint="sh", args=["-c", command])
    role.notice = Notice(60)
    with Runner("tests", {"kubernetes": create_scheduler}) as runner:
        job = runner.job(runner.run(AppDef("notice", [role]), "kubernetes"))
        eventually(begun.exists, timeout=60)
        job.cancel()
        assert job.wait(timeout=60).state is AppState.CANCELLED
        eventually(saved.exists, timeout=30)
