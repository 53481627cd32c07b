"""Records become tags, without MLflow."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload_mlflow.convert import (
    digest,
    read,
    record_tag,
    shown_metric,
    shown_results,
    shown_tag,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.text(max_size=300), JSON)
def test_record_comes_back(name: str, value: object) -> None:
    """Any name and any JSON value come back from a tag whose name MLflow allows."""
    key, text = record_tag("metadata", name, {"t": 1, "name": name, "value": value})
    assert len(key) < 100
    assert key.replace(".", "").isalnum()
    text.encode()
    assert read({key: text, "transload.artifact.x": "{}", "lr": "1"}, "metadata") == [
        {"t": 1, "name": name, "value": value}
    ]


def test_records_come_in_order_and_damaged_ones_do_not_count() -> None:
    """Records are sorted by time, and a tag that is cut or somebody else's is ignored."""
    tags = {
        "transload.metadata.a": '{"t":2,"name":"a"}',
        "transload.metadata.b": '{"t":1,"name":"b"}',
        "transload.metadata.c": '{"t":3,"na',
        "transload.metadata.d": "[1]",
        "transload.metadata.e": "{}",
    }
    assert [record["name"] for record in read(tags, "metadata")] == ["b", "a"]


def test_digest_keeps_texts_apart() -> None:
    """The border between two texts counts."""
    assert digest("ab", "c") != digest("a", "bc") != digest("abc")


@pytest.mark.parametrize(
    "name", ["", "a/b", "mlflow.user", "transload.x", "ü", " a", "a.", "x" * 101, "a\nb", "a:b"]
)
def test_names_that_are_not_shown(name: str) -> None:
    """A name that MLflow forbids, keeps for itself, or could mistake for a folder is not shown."""
    assert shown_tag(name, 1) is None
    assert shown_metric(name, 1) is None


def test_shown_values() -> None:
    """Texts are shown as they are, other values as JSON, cut if long.

    Only true numbers are metrics.
    """
    assert shown_tag("a", "text") == ("a", "text")
    assert shown_tag("a.b-c d", {"x": None}) == ("a.b-c d", '{"x": null}')
    assert len(shown_tag("a", "x" * 9999)[1]) == 500  # type: ignore[index]
    assert [
        shown_metric("a", value) for value in (1, 2.5, True, "3", None, math.nan, math.inf, 10**400)
    ] == [
        1.0,
        2.5,
        *[None] * 6,
    ]


def test_what_is_shown_results_results() -> None:
    """The last value follows its curve, and ``final`` follows all. No value is dropped silently."""
    results = {
        "final": {"loss": 0.2},
        "0": {"loss": 0.3, "note": "text", "bad": math.nan, "huge": 10**400, "a=b": 1},
        "worker/1": {"loss": 0.4},
        "..": {"x": 1},
    }
    steps = {
        "0": {"loss": {2.5: 0.5, 1.0: 0.9}, "gone": {1.0: 1.0}},
        "worker/1": {"loss": {7.0: 0.4, 1e300: 0.4}},
    }
    shown = shown_results(results, steps)
    assert [point for point in shown.points if point[0] == "loss"] == [
        ("loss", 0.9, 1),
        ("loss", 0.5, 2),
        ("loss", 0.3, 2),
        ("loss", 0.2, 2),
    ]
    rest = [point for point in shown.points if point[0] != "loss"]
    assert rest == [("gone", 1.0, 1), ("worker/1.loss", 0.4, 7), ("worker/1.loss", 0.4, 2**53)]
    assert (shown.tags["note"], shown.tags["bad"], len(shown.tags["huge"])) == ("text", "NaN", 401)
    assert shown.refused == ["a=b", "...x"]


@given(st.text(max_size=260), st.floats())
def test_every_name_is_taken_or_refused_as_mlflow_does(name: str, value: float) -> None:
    """What is not refused is taken by MLflow itself, in time and place."""
    validation = pytest.importorskip("mlflow.utils.validation")
    shown = shown_results({"final": {name: value}}, {})
    assert len(shown.points) + len(shown.tags) + len(shown.refused) == 1
    for full, number, step in shown.points:
        validation._validate_metric(full, number, 0, step)
    for full, text in shown.tags.items():
        validation._validate_tag(full, text)
