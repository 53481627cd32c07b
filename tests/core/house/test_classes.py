"""Few classes take part in one run, from the call to the process and back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "classes.py"


def test_few_classes_take_part_in_a_run() -> None:
    """To follow `transload run` takes at most 28 classes, and an adapter's run 29.

    ARCHITECTURE.md lists them.
    """
    found = json.loads(
        subprocess.run(
            [sys.executable, SCRIPT], capture_output=True, check=True, timeout=100
        ).stdout
    )
    page = (SCRIPT.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for run in found.values():
        names = [name for each in run["classes"].values() for name in each]
        assert len(names) <= run["target"], names
        assert [name for name in names if f"`{name}`" not in page] == []
