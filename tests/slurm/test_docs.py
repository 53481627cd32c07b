"""What the pages show is so: their code is run as it stands there, on a real cluster."""

from __future__ import annotations

from typing import Any


def test_what_the_page_shows_works(docs_page: str, cluster: Any, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, in a cluster that has the partition which the pages name."""
    docs_reader.read(docs_page)
