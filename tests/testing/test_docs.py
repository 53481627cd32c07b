"""The pages' code runs as it stands there, in this environment."""

from __future__ import annotations

from typing import Any


def test_what_the_page_shows_works(docs_page: str, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, and prints what the page says that it
    prints.
    """
    docs_reader.read(docs_page)
