"""The page of kills shows what was counted last of each cell."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def count() -> ModuleType:
    """``benchmarks/once/count.py``."""
    if not (ROOT / ".git").exists():
        pytest.skip("rows carry a commit, and this is no clone")
    path = ROOT / "benchmarks" / "once" / "count.py"
    spec = importlib.util.spec_from_file_location("once_count", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _row(count: ModuleType, **more: Any) -> dict[str, Any]:
    cell = {"host": "ax", "engine": "local", "tool": "transload", "struck": "process"}
    sums = dict.fromkeys(count.COUNTED, 1)
    return {**cell, **sums, "seconds": [1.0], "first_seed": 0, "next_seed": 1, **more}


def test_the_page_shows_the_rows(count: ModuleType) -> None:
    """All tables and the sentence of docs/explanation/comparison.md are those of ``docs/once.json``."""
    kept = json.loads(count.FILE.read_text(encoding="utf-8"))
    ours = [row for row in kept["rows"] if row["tool"].startswith("transload")]
    theirs = [row for row in kept["rows"] if row not in ours]
    page = count.PAGE.read_text(encoding="utf-8")
    for rows in (ours, theirs):
        assert count._table(rows) in page
    interruptions = (kept["interruptions"], count.INTERRUPTION_CELL, count.INTERRUPTION_COUNTS)
    alarms = (kept["alarms"], count.ALARM_CELL, count.ALARM_COUNTS)
    for what in (interruptions, alarms):
        assert count._plain_table(*what) in page
    assert count._of_older(kept["older"]) in page
    assert count.in_a_sentence(ours) in count.SUMMARY.read_text(encoding="utf-8")


def test_a_row_stands_until_its_cell_is_counted_at_another_commit(
    count: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the same commit rows are added up. At another one the new row stands alone."""
    monkeypatch.setattr(count, "HEAD", "aaaaaaa")
    rows, older = count.add([], [], _row(count))
    rows, older = count.add(rows, older, _row(count, engine="slurm"))
    rows, older = count.add(rows, older, _row(count, first_seed=1))
    assert [(row["engine"], row["kills"]) for row in rows] == [("local", 2), ("slurm", 1)]
    assert older == []
    monkeypatch.setattr(count, "HEAD", "bbbbbbb")
    rows, older = count.add(rows, older, _row(count, first_seed=2))
    found = [(row["engine"], row["kills"], row["commit"]) for row in rows]
    assert found == [("local", 1, "bbbbbbb"), ("slurm", 1, "aaaaaaa")]
    assert [(each["engine"], each["kills"]) for each in older] == [("local", 2)]
    rows, older = count.add(rows, older, _row(count, engine="slurm", kills=3))
    assert [(each["engine"], each["kills"]) for each in older] == [("local", 2), ("slurm", 1)]


def test_what_people_use_otherwise_is_added_up_over_commits(
    count: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of ours does not change what others' tools do."""
    monkeypatch.setattr(count, "HEAD", "aaaaaaa")
    rows, older = count.add([], [], _row(count, host="submitit", tool="submitit"))
    monkeypatch.setattr(count, "HEAD", "bbbbbbb")
    rows, older = count.add(rows, older, _row(count, host="submitit", tool="submitit"))
    assert [row["kills"] for row in rows] == [2]
    assert older == []


def test_rows_on_interruptions(count: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at one commit are added up, but for the worst, and so are another tool's rows.

    A row of another commit stands alone.
    """

    def row(host: str, worst: int) -> dict[str, Any]:
        sums = dict.fromkeys(count.INTERRUPTION_COUNTS, 1)
        seeds = {"first_seed": worst, "next_seed": worst + 1}
        return {
            "host": host,
            "engine": "slurm",
            "notice": "heeded",
            **sums,
            "worst": worst,
            **seeds,
        }

    monkeypatch.setattr(count, "HEAD", "aaaaaaa")
    shape = (count.INTERRUPTION_CELL, count.INTERRUPTION_COUNTS)
    rows: list[dict[str, Any]] = []
    for host in ("runner", "submitit"):
        rows = count.add_plain(rows, row(host, 4), *shape)
        rows = count.add_plain(rows, row(host, 2), *shape)
    found = [(each["host"], each["jobs"], each["worst"], each["first_seed"]) for each in rows]
    assert found == [("runner", 2, 4, 2), ("submitit", 2, 4, 2)]
    monkeypatch.setattr(count, "HEAD", "bbbbbbb")
    for host in ("runner", "submitit"):
        rows = count.add_plain(rows, row(host, 3), *shape)
    assert [(each["host"], each["jobs"], each["worst"]) for each in rows] == [
        ("runner", 1, 3),
        ("submitit", 3, 4),
    ]
