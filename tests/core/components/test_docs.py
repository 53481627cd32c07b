"""The examples of docs/guides/components.md work as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from transload.components import build, check, get_components, materialize
from transload.plugins.builtins import BUILTINS

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parents[3] / "docs" / "guides" / "components.md"


def test_example_component(tmp_path: Path) -> None:
    """The first example runs from a command line and from JSON, and the check finds nothing."""
    text = DOCS.read_text(encoding="utf-8")
    source = next(
        block
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        if "def train" in block
    )
    path = tmp_path / "train.py"
    path.write_text(source)
    role = materialize(str(path), ["--data", "/data", "--epochs", "5", "--", "--verbose"]).roles[0]
    assert role.args[-3:] == ["--epochs", "5", "--verbose"]
    values = {"data": "/data", "epochs": 5, "replicas": "4", "args": ["--verbose"]}
    assert build(str(path), values).roles[0].num_replicas == 4
    assert check(str(path)) == []


def test_every_builtin_is_in_the_table() -> None:
    """The table names each built-in component."""
    text = DOCS.read_text(encoding="utf-8")
    assert [
        name
        for name in BUILTINS["components"]
        if name not in get_components() or f"| `{name}` |" not in text
    ] == []
