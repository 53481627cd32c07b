"""The JSON of each command has exactly the members that docs/reference/command-line.md lists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from transload.tracker import FsspecTracker

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "command-line.md"
APP = ["handle", "scheduler", "app_id", "state", "status"]


def _shapes() -> dict[str, list[str]]:
    """Return the documented members of each command's document, its lists' members not included."""
    section = PAGE.read_text().partition("## JSON")[2].partition("\n## ")[0]
    shapes: dict[str, list[str]] = {}
    for commands, shape in re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE):
        outer = re.split(r"\[\]`(?: of|:)", re.sub(r"\([^)]*\)", "", shape))[0] + "`"
        names = [*(APP if shape.startswith("*job*") else []), *re.findall(r"`(\w+)", outer)]
        for command in re.findall(r"`([^`]+)`", commands):
            shapes[command] = sorted({*names, "schema"})
    return shapes


@pytest.fixture
def lines(started: Any, invoke: Any, component_file: str, tmp_path: Path) -> dict[str, list[str]]:
    """A command line for each documented document, on an app that has ended."""
    handle = started(
        "import json, os\n"
        "open(os.environ['TRANSLOAD_OUTPUT_DIR'] + '/made', 'w').close()\n"
        "with open(os.environ['TRANSLOAD_TRACKER_BASE'] + '/k.json', 'w') as file:\n"
        "    json.dump({'schema': 1, 'key': 'k', 'results': {'acc': 1}}, file)"
    )
    assert invoke("wait", handle).code == 0
    base = str(tmp_path / "runs")
    FsspecTracker(None, base).add_metadata("r", x=1)
    found = {
        "run": ["run", "--wait", component_file],
        "wait": ["wait", handle],
        "run --detach": ["run", "--detach", component_file],
        "run --dry-run": ["run", "--dry-run", component_file],
        "cancel": ["cancel", handle],
        "get": ["get", handle, "--output", str(tmp_path)],
        "results --value": ["results", handle, "--value", "acc"],
        "components show": ["components", "show", "utils.echo"],
        "components check": ["components", "check", component_file],
        "completion": ["completion", "bash"],
    }
    found |= {name: [name, handle] for name in ("status", "describe", "results")}
    found |= {name: [name] for name in ("list", "components", "info", "config", "doctor")}
    found["tracker runs"] = ["tracker", "--base", base, "runs"]
    for name in ("metadata", "artifacts", "lineage"):
        found[f"tracker {name}"] = ["tracker", "--base", base, name, "r"]
    return found | {"delete": ["delete", handle]}  # the last


def test_members_are_those_of_the_page(lines: dict[str, list[str]], invoke: Any) -> None:
    """For each row of the table (``log``, whose documents are lines, is tested elsewhere)."""
    shapes = _shapes()
    assert set(shapes) - {"log"} == set(lines)
    shown = {}
    for name, line in lines.items():
        # the options of run come before the component, whose arguments follow it
        result = (
            invoke(line[0], "--json", *line[1:]) if line[0] == "run" else invoke(*line, "--json")
        )
        assert result.code == 0, f"{name}: {result.err}"
        shown[name] = sorted(result.json)
    assert shown == {name: shapes[name] for name in lines}
