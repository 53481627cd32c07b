"""What a distribution requires is bounded, and each version is said once."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
FOLDERS = [
    ROOT / "core",
    *sorted(path.parent for path in ROOT.glob("plugins/[!_]*/pyproject.toml")),
]
each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def project(folder: Path) -> dict[str, Any]:
    """Return the `[project]` table."""
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


def requirements(folder: Path) -> list[Requirement]:
    """Return what the distribution requires, extras included."""
    table = project(folder)
    extras = [line for lines in table.get("optional-dependencies", {}).values() for line in lines]
    return [Requirement(line) for line in [*table.get("dependencies", ()), *extras]]


@each
def test_requirements_have_bounds_and_no_pins(folder: Path) -> None:
    """Each requirement has a lower bound, any upper bound is a major version, and none is a pin."""
    for wanted in requirements(folder):
        bounds = {clause.operator: clause.version for clause in wanted.specifier}
        assert ">=" in bounds, str(wanted)
        assert set(bounds) <= {">=", "<"}, str(wanted)
        assert re.fullmatch(r"[1-9]\d*|0\.\d+", bounds.get("<", "1")), str(
            wanted
        )  # below 1, each minor may break
