"""Nothing is followed once a test is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from transload.schedulers import follower, watched


@pytest.fixture(autouse=True)
def _nothing_followed() -> Iterator[None]:
    """End what the test has subscribed to."""
    yield
    for each in list(follower._followers.values()):
        for subscription in each.subscriptions:
            subscription.close()
        each.thread.join(10)
    assert watched() == 0
