"""The rule for when somebody has asked to run a task again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import SpecError
from transload_airflow.generation import Marks, current_generation
from transload_testing.stores import MemoryStore

MARKS = st.builds(Marks, st.integers(0, 5), st.integers(0, 5), st.integers(0, 3))


@pytest.mark.parametrize(
    ("before", "after", "anew"),
    [
        ((1, 1, 0), (1, 1, 0), False),  # a retry, a deferral's return
        ((1, 1, 0), (2, 1, 1), True),  # cleared
        ((1, 1, 0), (2, 1, 0), True),  # cleared without the run
        ((1, 1, 0), (1, 0, 0), False),  # retries edited in the DAG file
        ((1, 1, 0), (1, 1, 1), False),  # a neighbour was cleared
        ((1, 1, 0), (1, 0, 1), True),  # cleared with retries edited: 1 try + 0 retries = 1 again
    ],
)
def test_rule(before: tuple[int, int, int], after: tuple[int, int, int], anew: bool) -> None:
    """A new generation begins if max_tries moved, or clear_number and retries both did."""
    assert Marks(*after).begins_anew(Marks(*before)) is anew


@given(st.lists(MARKS, min_size=1, max_size=8))
def test_generations_count_up(course: list[Marks]) -> None:
    """Each generation has a namespace and a number of its own. Equal marks give the same one."""
    store = MemoryStore()
    seen = []
    for marks in course:
        generation = current_generation(store, marks)
        assert current_generation(store, marks) == generation
        seen.append(generation)
    for earlier, later, marks, kept in zip(seen, seen[1:], course[1:], course, strict=False):
        assert (later[1] == earlier[1] + 1) is marks.begins_anew(kept)
        assert (later[0] != earlier[0]) is marks.begins_anew(kept)


def test_foreign_record_is_refused() -> None:
    """What is not ours in the store is an error, not a new job."""
    with pytest.raises(SpecError, match="task state store"):
        current_generation(MemoryStore({"something": 1}), Marks(0, 0, 0))
