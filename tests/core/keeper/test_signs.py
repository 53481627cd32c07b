"""What progress means, how much time is left, and when a replica has stalled."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.keeper.signs import (
    MOST_POINTS,
    ProgressMeter,
    Silence,
    furthest_behind,
    newest_change,
    read_bar,
    read_report,
)
from transload.specs import Progress

pytestmark = pytest.mark.unit


def report(**values: object) -> dict[str, Any]:
    """Return what is read of a line with these values."""
    return read_report(json.dumps(values).encode() + b"\n", 100.0)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"fraction": 0.4}, {"fraction": 0.4}),
        ({"fraction": 1.4}, {}),
        ({"fraction": -0.1}, {}),
        ({"fraction": math.nan, "step": 3}, {"step": 3}),
        ({"fraction": math.inf}, {}),
        ({"step": 10, "total": 0}, {"step": 10}),
        ({"step": -1, "total": 10}, {"total": 10}),
        ({"step": 30, "total": 20}, {"step": 30, "total": 20, "fraction": 1.0}),
        ({"step": 5, "total": 20}, {"step": 5, "total": 20, "fraction": 0.25}),
        ({"fraction": True, "step": "7", "text": 3}, {}),
        ({"text": " epoch\x1b[2J 3\n of  9 "}, {"text": "epoch[2J 3 of 9"}),
        ({"step": 10**400}, {}),
        ({"eta_seconds": 12, "fraction": 0.5}, {"eta_seconds": 12, "fraction": 0.5}),
    ],
)
def test_values_that_make_no_sense_are_left_out(
    said: dict[str, object], found: dict[str, object]
) -> None:
    """Each bad value has a defined answer, and costs nothing beside it."""
    expected = {**found, "at": 100.0} if found else {}
    assert report(**said) == expected


@pytest.mark.parametrize(
    ("data", "step"),
    [
        (b'{"step": 1}\n{"step": 2}\n', 2),
        (b'{"step": 1}\n{"step": 2', 1),
        (b'{"step": 3}', 3),
        (b'{"step": 4}\n[1]\nnonsense\n\xff\n', 4),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_the_last_whole_line_counts(data: bytes, step: int | None) -> None:
    """Lines may be added or the file replaced. A line that is half written is not read."""
    assert read_report(data, 1.0).get("step") == step


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (b" 45%|####  | 9/20 [00:10<00:12,  1.1it/s]", {"fraction": 0.45, "step": 9, "total": 20}),
        (b"a\r  5%|  | 1/20 [00\r10%|#  | 2/20 [00:01", {"fraction": 0.1, "step": 2, "total": 20}),
        (b"x\nEpoch 1:   3%|  | 1.2k/40.0k [00:01<", {"fraction": 0.03, "text": "Epoch 1"}),
        (b"100%|####| 20/20 [00:10<00:00]\nsaved\n", {"fraction": 1.0, "step": 20, "total": 20}),
        (b"300%|####| 60/20 [00:10<00:00]", {"fraction": 1.0, "step": 60, "total": 20}),
        (b"99it [00:10, 9.1it/s]", {}),
        (b" 45%|####  | 9/20", {}),
        (b"disk 45%|full", {}),
        (b"%|", {}),
        (b"", {}),
    ],
)
def test_progress_bars(written: bytes, found: dict[str, object]) -> None:
    """The last whole bar of an output counts, with its title."""
    expected = {**found, "at": 100.0} if found else {}
    assert read_bar(written, 100.0) == expected


@given(st.binary(max_size=300))
def test_any_bytes_are_read(data: bytes) -> None:
    """Whatever a job writes there, nothing is raised."""
    assert set(read_report(data, 1.0)) <= {
        "fraction",
        "step",
        "total",
        "eta_seconds",
        "text",
        "at",
    }
    assert set(read_bar(b"1%|" + data, 1.0)) <= {"fraction", "step", "total", "text", "at"}


def test_time_left_from_the_last_minutes() -> None:
    """The rate of the last five minutes counts, not that of the beginning."""
    meter = ProgressMeter()
    for minute in range(61):
        meter.update({"fraction": minute / 600, "at": 60.0 * minute})
    for second in range(1, 301):
        meter.update({"fraction": 0.1 + second / 1000, "at": 3600.0 + second})
    assert meter.latest["eta_seconds"] == pytest.approx(600, rel=0.01)


def test_a_pause_does_not_slow_the_rate() -> None:
    """An hour in which the replica waited for another machine is no hour of slow work."""
    meter = ProgressMeter()
    meter.update({"fraction": 0.0, "at": 0.0})
    meter.update({"fraction": 0.1, "at": 100.0})
    meter.pause()
    meter.update({"fraction": 0.2, "at": 3700.0})
    assert meter.latest["eta_seconds"] == pytest.approx(800)
    meter.update({"fraction": 0.4, "at": 3800.0})
    assert meter.latest["eta_seconds"] == pytest.approx(300)


def test_time_left_after_an_interruption() -> None:
    """Steps that are done again begin anew, with the rate from before until it is known again."""
    meter = ProgressMeter()
    for step in range(11):
        meter.update({"step": step, "fraction": step / 100, "at": float(step)})
    assert meter.latest["eta_seconds"] == pytest.approx(90)
    meter.update({"step": 5, "fraction": 0.05, "at": 500.0})
    assert meter.latest["eta_seconds"] == pytest.approx(95)
    assert meter.largest_step == 10
    meter.update({"step": 6, "fraction": 0.06, "at": 502.0})
    assert meter.latest["eta_seconds"] == pytest.approx(188)


def test_a_history_is_bounded() -> None:
    """Of a hundred thousand reports few stay, from the first to the last, evenly in time."""
    meter = ProgressMeter()
    for second in range(100_000):
        meter.update({"fraction": second / 100_000, "at": 1000.0 + second})
        assert len(meter.latest.get("history", [])) <= MOST_POINTS
    history = meter.latest["history"]
    times = [at for at, _ in history]
    assert len(history) >= MOST_POINTS // 2
    assert times[0] == 1000.0
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= 2 * min(gaps)
    assert times[-1] >= 101_000 - max(gaps)
    assert all(done == pytest.approx((at - 1000) / 100_000) for at, done in history)


def test_a_history_goes_on_after_an_interruption() -> None:
    """Another process continues a history. Values may fall, and a false end is left out."""
    first = ProgressMeter()
    assert first.update({"fraction": 0.1, "step": 1, "at": 1.0})
    assert "history" not in first.latest
    assert first.update({"fraction": 0.4, "step": 4, "at": 2.0})
    assert first.update({"fraction": 1.0, "step": 4, "at": 3.0})
    second = ProgressMeter(json.loads(json.dumps(first.latest)))
    second.update({"fraction": 0.3, "step": 3, "at": 60.0})
    assert second.latest["history"] == [[1.0, 0.1], [2.0, 0.4], [60.0, 0.3]]
    second.update({"step": 5, "at": 61.0})
    second.update({"step": 6, "at": 62.0})
    assert second.latest["history"] == [[61.0, 5], [62.0, 6]]


@pytest.mark.parametrize(
    "history", [3, [3], [[1]], [[1, "x"]], [[1, None]], [[math.nan, 1]], [[1, 10**400]]]
)
def test_a_damaged_history(history: Any) -> None:
    """A damaged history is left out, and a reader of a status ignores what is no point."""
    meter = ProgressMeter({"fraction": 0.5, "history": history})
    meter.update({"fraction": 0.6, "at": 1.0})
    meter.update({"fraction": 0.7, "at": 2.0})
    assert meter.latest["history"] == [[1.0, 0.6], [2.0, 0.7]]
    found = Progress.from_value({"fraction": 0.5, "history": history})
    assert found is not None
    assert found.history == []


def test_what_repeats_itself_is_nothing_new() -> None:
    """The same values again change nothing, and a program's own estimate is kept."""
    meter = ProgressMeter()
    assert not meter.update({})
    assert meter.update({"fraction": 0.5, "at": 1.0})
    assert meter.update({"fraction": 0.6, "at": 2.0})
    assert not meter.update({"fraction": 0.6, "at": 3.0})
    assert meter.update({"fraction": 0.6, "eta_seconds": 7, "at": 4.0})
    assert meter.latest["eta_seconds"] == 7


def test_progress_of_a_job_is_that_of_its_slowest_replica() -> None:
    """Of several that report, the one furthest behind counts, else the last that reported."""
    fast: dict[str, Any] = {"fraction": 0.9, "at": 1.0}
    slow: dict[str, Any] = {"fraction": 0.2, "at": 0.0}
    assert furthest_behind([fast, {}, slow, {"step": 1, "at": 5.0}]) == slow
    assert furthest_behind([{"step": 1, "at": 5.0}, {"step": 9, "at": 4.0}]) == {
        "step": 1,
        "at": 5.0,
    }
    assert furthest_behind([]) == {}


def test_silence_is_counted_in_slices() -> None:
    """A replica stalls once, after the whole time, and a sign of life begins anew."""
    silence = Silence(10.0)
    silence.begin(0.0)
    looks = [silence.look(float(second)) for second in range(1, 12)]
    assert looks == [False] * 9 + [True, False]
    silence.begin(20.0)
    assert not silence.stalled
    silence.stop()
    assert silence.due == math.inf


def test_time_in_which_nobody_could_look_is_not_counted() -> None:
    """What stalls is not the machine that was held up."""
    silence = Silence(10.0)
    silence.begin(0.0)
    assert not silence.look(10_000.0)
    assert not silence.look(10_007.0)
    assert not silence.stalled


def test_newest_change(tmp_path: Path) -> None:
    """Files of folders below count, and links are not followed."""
    assert newest_change(str(tmp_path / "none")) == (0, 0.0)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("x")
    os.utime(tmp_path / "a" / "file", (1, 4_000_000_000))
    (tmp_path / "loop").symlink_to(tmp_path)
    assert newest_change(str(tmp_path)) == (3, 4_000_000_000.0)
