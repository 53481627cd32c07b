"""The page of error messages shows what the code says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
SOURCES = sorted(ROOT.glob("core/src/**/*.py")) + sorted(ROOT.glob("plugins/*/src/**/*.py"))


def _texts() -> str:
    """Return all sources, with texts that are split over lines joined, and without values."""
    text = "\n".join(path.read_text() for path in SOURCES)
    joined = re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)
    return joined + re.sub(r"\{[^{}]*\}", "…", joined)


def test_every_message_of_the_page_is_one_of_the_code() -> None:
    """Each part of a message between values stands in a source."""
    messages = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert len(messages) > 20
    texts = _texts()
    for message in messages:
        for part in message.split("…"):
            assert part.strip(" .[]?") in texts, f"{message!r}: {part!r}"
