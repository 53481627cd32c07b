"""A follower of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from transload.following import Follower


@pytest.fixture
def follower() -> Iterator[Follower]:
    """A follower of the test's own; it leaves no thread behind."""
    made = Follower()
    yield made
    made.close()
    assert made.watched == 0
