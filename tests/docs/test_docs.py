"""The pages' code runs as it stands there."""

from __future__ import annotations

from typing import Any

import pytest


def test_what_the_page_shows_works(docs_page: str, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, and prints what the page says that it
    prints.
    """
    docs_reader.read(docs_page)


def test_the_readme_works_with_all_plugins(
    docs_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise for somebody who has installed all of them."""
    monkeypatch.delenv("TRANSLOAD_DISABLE_PLUGINS")
    docs_reader.read("README.md")
