"""The overlay merges as a strategic merge patch does."""

from __future__ import annotations

import pytest

from transload.errors import SpecError
from transload_kubernetes.overlay import merge


def test_named_lists_merge() -> None:
    """Containers and variables are found by name, other lists are replaced, None deletes."""
    pod = {
        "containers": [{"name": "main", "args": ["a"], "env": [{"name": "A", "value": "1"}]}],
        "x": 1,
    }
    over = {
        "containers": [{"name": "main", "args": ["b"], "env": [{"name": "B", "value": "2"}]}],
        "x": None,
    }
    merged = merge(pod, over, "o")
    assert merged == {
        "containers": [
            {
                "name": "main",
                "args": ["b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            }
        ]
    }
    assert pod["x"] == 1


def test_directives() -> None:
    """Elements can be deleted and mappings replaced, and added containers come last."""
    pod = {"containers": [{"name": "a"}, {"name": "b"}], "selector": {"x": "1"}}
    over = {
        "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}],
        "selector": {"$patch": "replace", "y": "2"},
    }
    assert merge(pod, over, "o") == {
        "containers": [{"name": "b"}, {"name": "c"}],
        "selector": {"y": "2"},
    }


def test_an_element_without_its_key_is_refused() -> None:
    """An element that cannot be matched is refused by its path."""
    with pytest.raises(SpecError, match=r"o\.containers\[0\]"):
        merge({}, {"containers": [{"image": "x"}]}, "o")
