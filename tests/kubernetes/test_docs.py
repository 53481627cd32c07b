"""The pages' code runs as it stands there, on the simulated cluster.

A real one has no image that these pages name, and nothing is pulled here.
"""

from __future__ import annotations

from typing import Any


def test_what_the_page_shows_works(docs_page: str, fake: Any, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, and prints what the page says that it
    prints.
    """
    docs_reader.read(docs_page)
