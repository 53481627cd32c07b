"""Lines by pattern, as every scheduler takes them."""

from __future__ import annotations

import pytest

from transload.errors import SpecError
from transload.schedulers import line_search


def test_lines_in_which_it_is_found() -> None:
    """Anywhere in the line, the newline counting as its end; without a pattern all lines are wanted."""
    lines = ["loss 0.5\n", "done\n", "no loss"]
    assert list(filter(line_search("loss"), lines)) == ["loss 0.5\n", "no loss"]
    assert list(filter(line_search("^done$"), lines)) == ["done\n"]
    assert list(filter(line_search(None), lines)) == lines


def test_a_bad_pattern_is_an_error_of_the_call() -> None:
    """It is refused at once, and shown."""
    with pytest.raises(SpecError, match=r"regex='\('"):
        line_search("(")
