"""Fixtures for the tests of transload-report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from transload.runner import Runner, get_runner

sys.path.insert(0, str(Path(__file__).parent))  # the samples

from report_samples import Page


@pytest.fixture
def parse() -> Callable[[str], Page]:
    """Parse a page by ``parse(html)``, and check what holds for every page."""

    def parsed(html: str) -> Page:
        page = Page(html)
        page.check()
        return page

    return parsed


@pytest.fixture
def runner(transload_home: Path) -> Iterator[Runner]:
    """A runner in a state folder of its own."""
    with get_runner() as made:
        yield made
