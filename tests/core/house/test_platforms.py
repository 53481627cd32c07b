"""What is said of macOS is one true sentence, wherever it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SENTENCE = "macOS should work, but was not tried"


@pytest.mark.parametrize(
    "path",
    [
        "quickstart.py",
        "docs/start/tutorial.md",
        "docs/schedulers/local.md",
        "core/src/transload/__init__.py",
    ],
)
def test_macos(path: str) -> None:
    """No page or message promises macOS, which nobody has tried."""
    text = (ROOT / path).read_text()
    assert SENTENCE in text
    for promise in ("Linux or macOS", "Linux and macOS"):
        assert promise not in text
