"""Ids that are derived are valid, readable, the same everywhere, and differ if anything does."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import SpecError
from transload.pipelines import Identity, app_id_of, chain_of

pytestmark = pytest.mark.unit

TEXT = st.text(max_size=60)
PARTS = st.lists(TEXT, min_size=1, max_size=4).filter(any).map(tuple)
IDENTITIES = st.builds(Identity, TEXT.filter(bool), PARTS, PARTS)
NUMBERS = st.integers(0, 99_999)


@given(IDENTITIES, NUMBERS)
def test_any_identity_gives_a_valid_id(identity: Identity, number: int) -> None:
    """Lower-case letters, digits and dashes, at most 40, starting with a letter: chain and number."""
    app_id = app_id_of(identity, number)
    assert re.fullmatch(r"[a-z][a-z0-9-]*-[a-z2-7]{13}-[0-9]{1,5}", app_id)
    assert len(app_id) <= 40
    assert app_id == f"{chain_of(identity)}-{number}"


@given(IDENTITIES, IDENTITIES)
def test_any_difference_gives_another_chain(one: Identity, other: Identity) -> None:
    """Equal identities give equal chains, and only those."""
    assert (chain_of(one) == chain_of(other)) == (one == other)


def test_parts_do_not_run_together() -> None:
    """Moving a letter over a border between parts gives another chain."""
    chains = {
        chain_of(Identity("h", ("ab",), ("c", "d"))),
        chain_of(Identity("h", ("a",), ("bc", "d"))),
        chain_of(Identity("h", ("ab",), ("cd",))),
        chain_of(Identity("h", ("ab", "c"), ("d",))),
        chain_of(Identity("h", ("ab",), ("c", "", "d"))),
        chain_of(Identity("h", ("", "ab"), ("c", "d"))),
    }
    assert len(chains) == 6


def test_the_same_in_every_process() -> None:
    """No hash seed, locale or platform changes an id, nor may another version."""
    code = (
        "from transload.pipelines import *; "
        "print(app_id_of(Identity('airflow', ('ns', 'dag'), ('tränieren', '-1', '')), 2))"
    )
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
    identity = Identity("airflow", ("ns", "dag"), ("tränieren", "-1", ""))
    assert ids == {app_id_of(identity, 2)} == {"airflow-tr-nieren-zcdhiv22i3onv-2"}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("flow", "train model"), "prefect-train-model"),
        (("train", "-1", ""), "prefect-train"),
        (("7", "0_1"), "prefect-0-1"),
        (("日本語",), "prefect"),
    ],
)
def test_the_last_readable_part_is_shown(path: tuple[str, ...], shown: str) -> None:
    """People see the host and a name of the step: of its parts the last one that says something."""
    assert re.fullmatch(rf"{shown}-[a-z2-7]{{13}}", chain_of(Identity("prefect", ("ns",), path)))


@pytest.mark.parametrize(
    "identity",
    [
        Identity("", ("run",), ("step",)),
        Identity("h", (), ("step",)),
        Identity("h", ("", ""), ("step",)),
        Identity("h", ("run",), ()),
        Identity("h", ("run",), ("",)),
        Identity("h", "run", ("step",)),  # type: ignore[arg-type]
        Identity("h", ("run",), ("step", 3)),  # type: ignore[arg-type]
    ],
)
def test_an_identity_that_is_empty_is_refused(identity: Identity) -> None:
    """No host, run or path, or something else than texts in them."""
    with pytest.raises(SpecError, match="identity: (host|run|path)="):
        chain_of(identity)


@pytest.mark.parametrize("number", [-1, True, 100_000, "0", 1.0])
def test_a_wrong_number_is_refused(number: int) -> None:
    """What counts no job of a chain."""
    with pytest.raises(SpecError, match="number="):
        app_id_of(Identity("h", ("run",), ("step",)), number)
