"""Every script is on the page of the benchmarks, with the figures that it printed."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
FIELDS = {
    "figure": str,
    "unit": str,
    "transload": (int, float),
    "peer": (int, float),
    "ratio": (int, float),
}
FIELDS |= {"target": (int, float), "better": str, "met": bool}
NO_SCRIPTS = {"measure", "run_all", "scale", "classes", "kubernetes_real"}
"""What all of them import, what runs them, a simulation with a page of its own, and a count that
needs no clock."""


@pytest.fixture(scope="module")
def plots() -> ModuleType:
    """``docs/make_plots.py``."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("make_plots")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def collector(plots: ModuleType) -> Any:
    """``benchmarks/run_all.py``."""
    return plots.collector()


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What ``docs/benchmarks.json`` holds."""
    store: dict[str, Any] = json.loads(
        (ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8")
    )
    return store


def test_every_script_is_collected(collector: Any, found: dict[str, Any]) -> None:
    """Each script of benchmarks/ is run by ``nox -s benchmarks``, and its figures are kept."""
    scripts = {path.stem for path in ROOT.glob("benchmarks/*.py")} - NO_SCRIPTS
    assert set(collector.SCRIPTS) == scripts == set(found)
    assert {script.group for script in collector.SCRIPTS.values()} == set(collector.GROUPS)


def test_one_schema(found: dict[str, Any]) -> None:
    """Each script says where it ran and what it compares with, and each figure is complete."""
    for name, data in found.items():
        assert {"python", "cores", "system"} <= set(data["machine"]), name
        assert data["peer"] and isinstance(data["peer"], str), name
        assert data["rows"], name
        for row in data["rows"]:
            assert all(isinstance(row.get(key), kind) for key, kind in FIELDS.items()), (name, row)
            assert math.isfinite(row["transload"]) and row["better"] in ("lower", "higher"), (
                name,
                row,
            )
            ratio = row["transload"] / row["peer"] if row["peer"] else math.inf
            assert row["met"] == (
                ratio <= row["target"] if row["better"] == "lower" else ratio >= row["target"]
            )


def test_the_page_is_fresh(collector: Any, found: dict[str, Any]) -> None:
    """The tables are those of benchmarks.json.

    ``python benchmarks/run_all.py none`` writes them.
    """
    text = collector.PAGE.read_text(encoding="utf-8")
    assert collector.page(found, text) == text


@pytest.mark.parametrize("group", ["core", "hosts"])
def test_the_pictures_are_fresh(group: str, plots: ModuleType) -> None:
    """Each picture has the figures with their values. ``docs/make_plots.py`` writes them."""
    picture = ElementTree.parse(ROOT / "docs" / "images" / f"benchmarks-{group}.svg")
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    rows = plots.rows(group)
    assert len(rows) > 10
    assert sorted(text for text in texts if text.endswith("]")) == sorted(
        row["label"] for row in rows
    )
    for row in rows:
        assert f"{row['share']:.2g}" in texts, row["figure"]
