"""Ids that are derived are valid, readable, the same everywhere, and differ if anything does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import SpecError
from transload.pipelines import Identity, app_id_of

TEXT = st.text(max_size=60)


def id_of(
    host: str, namespace: str, key: Sequence[str], generation: str | int, attempt: int
) -> str:
    """Return the id of an attempt of this identity."""
    return app_id_of(Identity(host, namespace, tuple(key), str(generation)), attempt)


PARTS = st.tuples(
    TEXT.filter(bool), TEXT, st.lists(TEXT, min_size=1, max_size=4), TEXT, st.integers(0, 1000)
)


@given(PARTS)
def test_any_identity_gives_a_valid_id(parts: tuple[str, str, list[str], str, int]) -> None:
    """Lower-case letters, digits and dashes, at most 40, starting with a letter, ending in a
    digest.
    """
    assert re.fullmatch(r"[a-z][a-z0-9-]{0,22}-[a-z2-7]{16}", id_of(*parts))


@given(PARTS, PARTS)
def test_any_difference_gives_another_id(
    one: tuple[str, str, list[str], str, int], other: tuple[str, str, list[str], str, int]
) -> None:
    """Equal arguments give equal ids, and only those."""
    assert (id_of(*one) == id_of(*other)) == (one == other)


def test_parts_do_not_run_together() -> None:
    """Moving a letter over a border between parts gives another id."""
    ids = {
        id_of("h", "ab", ["c", "d"], 0, 0),
        id_of("h", "a", ["bc", "d"], 0, 0),
        id_of("h", "ab", ["cd"], 0, 0),
        id_of("h", "ab", ["c"], "d", 0),
        id_of("h", "ab", ["c", "d"], 0, 1),
        id_of("h", "ab", ["c", "d"], 1, 0),
    }
    assert len(ids) == 6


def test_the_same_in_every_process() -> None:
    """No hash seed, locale or platform changes an id, nor may another version."""
    code = "from transload.pipelines import *; print(app_id_of(Identity('airflow', 'ns', ('dag', 'tränieren')), 2))"
    ids = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert (
        ids
        == {id_of("airflow", "ns", ["dag", "tränieren"], 0, 2)}
        == {"airflow-tr-nieren-qqzn63pk4oig7vfc"}
    )


def test_readable_part_is_the_last_one() -> None:
    """People see host and name of the unit of work."""
    assert id_of("prefect", "ns", ["flow", "train model"], 0, 0).startswith("prefect-train-model-")


@pytest.mark.parametrize(
    ("host", "identity", "attempt"), [("", "x", 0), ("h", [], 0), ("h", "x", -1), ("h", "x", True)]
)
def test_wrong_arguments_are_refused(host: str, identity: str, attempt: int) -> None:
    """An empty host or identity, or an attempt that is no count, is refused."""
    with pytest.raises(SpecError):
        id_of(host, "ns", identity, 0, attempt)
