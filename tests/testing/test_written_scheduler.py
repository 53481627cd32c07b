"""The scheduler in the page for authors of schedulers is short, and passes the suite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "writing-a-scheduler.md"


def test_the_scheduler_of_the_page_passes_the_suite(tmp_path: Path) -> None:
    """What the page shows, saved as it says, keeps the contract in about 200 lines."""
    files = dict(
        re.findall(
            r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
        )
    )
    assert set(files) == {"tiny_scheduler.py", "test_tiny.py"}
    assert files["tiny_scheduler.py"].count("\n") < 220
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'base'}",
    ]
    done = subprocess.run(
        [*command, "test_tiny.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[4-9]\d passed", done.stdout), done.stdout
