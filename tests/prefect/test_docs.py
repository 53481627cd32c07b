"""The pages' code runs as it stands there, with a real server."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.timeout(
    300
)  # a flow that Prefect runs in a process of its own, after a server's start
def test_what_the_page_shows_works(docs_page: str, host: Any, docs_reader: Any) -> None:
    """Every block of code of the page runs, in order, and prints what the page says that it
    prints.
    """
    docs_reader.read(docs_page)
