"""The pages' code runs as it stands there, on a real engine."""

from __future__ import annotations

from typing import Any

from transload.runner import Runner


def test_what_the_page_shows_works(
    docs_page: str, runner: Runner, engine: Any, busybox: str, docs_reader: Any
) -> None:
    """Every block of code of the page runs, in order, with a stand-in for the image."""
    engine.client.tag(busybox, "alpine", "3")
    docs_reader.read(docs_page)
