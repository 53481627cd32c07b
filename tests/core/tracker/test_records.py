"""The record files of ``FsspecTracker``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.runtime.tracking import TrackingError
from transload.tracker.backend.records import compact, encode, header, latest_time, merge, run_id_of

pytestmark = pytest.mark.unit

LOG = (
    header("run") + encode({"t": 5, "metadata": {"a": 1}}) + encode({"t": 9, "metadata": {"a": 2}})
)


def _metadata(*files: tuple[str, bytes]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in merge("run", files):
        found.update(record.get("metadata", {}))
    return found


@pytest.mark.parametrize("cut", range(len(LOG)))
def test_cut_anywhere(cut: int) -> None:
    """However much of a file is there, only whole lines count, and nothing raises."""
    lines = LOG[:cut].count(b"\n")
    assert _metadata(("w", LOG[:cut])) == ([{}, {}, {"a": 1}, {"a": 2}][lines])


def test_damaged_line_costs_only_itself() -> None:
    """A line that a broken disk or file system has spoilt does not hide the others."""
    damaged = (
        LOG
        + b'{"t":10,"meta\x00\x00\x00\n[1]\n7\n{"no":"time"}\n'
        + encode({"t": 11, "metadata": {"b": 3}})
    )
    assert _metadata(("w", damaged)) == {"a": 2, "b": 3}


def test_unknown_records_are_passed_over() -> None:
    """What a newer version adds to this schema does not disturb."""
    assert _metadata(("w", LOG + encode({"t": 10, "note": {"by": "2.0"}, "more": 1}))) == {"a": 2}


def test_newer_schema_is_refused() -> None:
    """A file of a schema that this version does not know is an error that names it."""
    with pytest.raises(TrackingError, match=r"there/w\.jsonl: schema 2"):
        merge("run", [("there/w.jsonl", b'{"t":0,"schema":2,"run_id":"run"}\n')])


def test_foreign_files_are_passed_over() -> None:
    """A file of another run or another program does not count."""
    other = header("other") + encode({"t": 99, "metadata": {"a": 99}})
    junk = b'{"t":1,"metadata":{"a":98}}\n'
    assert _metadata(("a", other), ("b", LOG), ("c", junk), ("d", b""), ("e", b"\xff\n")) == {
        "a": 2
    }


def test_order_is_by_time_then_by_writer() -> None:
    """Records of all writers are put in one order, the same whichever way the files are listed."""
    one = (
        header("run")
        + encode({"t": 1, "metadata": {"a": "one"}})
        + encode({"t": 8, "metadata": {"b": "one"}})
    )
    two = (
        header("run")
        + encode({"t": 2, "metadata": {"a": "two"}})
        + encode({"t": 8, "metadata": {"b": "two"}})
    )
    assert (
        _metadata(("1", one), ("2", two))
        == _metadata(("2", two), ("1", one))
        == {"a": "two", "b": "two"}
    )


def test_run_id_of() -> None:
    """The run of a file is read from its first line, if that is whole."""
    assert run_id_of(LOG, "w") == "run"
    assert run_id_of(LOG[:10], "w") is None
    assert run_id_of(b"", "w") is None


def test_latest_time() -> None:
    """The time of the last whole line is found at the end of a file, if enough of it is read."""
    assert latest_time(LOG) == 9
    assert latest_time(LOG[:-1]) == 5
    assert latest_time(LOG[-10:]) is None
    assert latest_time(b"") is None
    nested = LOG + encode({"t": 12, "metadata": {"x": {"t": 77}}})
    assert latest_time(nested) == 12
    assert latest_time(nested[nested.index(b'{"t":77') :]) is None


RECORDS = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)).map(
            lambda values: {"metadata": values}
        ),
        st.tuples(st.sampled_from("ab"), st.integers(0, 9)).map(
            lambda a: {"artifact": {"name": a[0], "path": str(a[1])}}
        ),
        st.tuples(st.sampled_from("ab"), st.sampled_from(["x", None])).map(
            lambda s: {"source": {"run_id": s[0], "artifact_name": s[1]}}
        ),
        st.just({"note": 1}),
    ),
    max_size=30,
)


def _state(data: bytes) -> tuple[Any, ...]:
    records = merge("run", [("w", data)])
    metadata: dict[str, Any] = {}
    for record in records:
        metadata.update(record.get("metadata", {}))
    artifacts = {
        record["artifact"]["name"]: record["artifact"] for record in records if "artifact" in record
    }
    sources = {json.dumps(record["source"]) for record in records if "source" in record}
    return metadata, artifacts, sources, sum("note" in record for record in records)


@given(RECORDS)
def test_compaction_changes_no_answer(records: list[dict[str, Any]]) -> None:
    """A compacted file says the same in no more lines, its last time included."""
    data = header("run") + b"".join(
        encode({"t": t, **record}) for t, record in enumerate(records, 1)
    )
    shorter, lines = compact(data)
    assert _state(shorter) == _state(data)
    assert shorter.count(b"\n") == lines + 1 <= len(records) + 1
    assert run_id_of(shorter, "w") == "run"
