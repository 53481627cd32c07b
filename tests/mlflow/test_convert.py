"""Records as tags: pure, no MLflow needed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload_mlflow.convert import digest, read, record_tag, shown_metric, shown_tag

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
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
    """Records are sorted by time; a tag that is cut, or somebody else's, is passed over."""
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


@pytest.mark.parametrize("name", ["", "a/b", "mlflow.user", "transload.x", "ü", " a", "a.", "x" * 101, "a\nb", "a:b"])
def test_names_that_are_not_shown(name: str) -> None:
    """A name that MLflow forbids, keeps for itself, or could mistake for a folder is not shown."""
    assert shown_tag(name, 1) is None
    assert shown_metric(name, 1) is None


def test_shown_values() -> None:
    """Texts are shown as they are, other values as JSON, long ones cut; only true numbers are metrics."""
    assert shown_tag("a", "text") == ("a", "text")
    assert shown_tag("a.b-c d", {"x": None}) == ("a.b-c d", '{"x": null}')
    assert len(shown_tag("a", "x" * 9999)[1]) == 500  # type: ignore[index]
    assert [shown_metric("a", value) for value in (1, 2.5, True, "3", None, math.nan, math.inf, 10**400)] == [
        1.0,
        2.5,
        *[None] * 6,
    ]
