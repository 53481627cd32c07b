"""The runner has methods, parameters and defaults of TorchX 0.7.0, if it is installed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from transload import runner

METHODS = [
    "__init__",
    "__enter__",
    "__exit__",
    "close",
    "run",
    "run_component",
    "dryrun",
    "dryrun_component",
]
METHODS += ["schedule", "name", "status", "wait", "cancel", "stop", "describe", "list", "log_lines"]
METHODS += ["scheduler_backends", "scheduler_run_opts"]
IGNORED = {"wait_interval"}  # accepted, and of no effect: its default says so


@pytest.fixture(scope="module")
def theirs(torchx: Callable[[str], Any]) -> Any:
    """TorchX's runner."""
    return torchx("torchx.runner")


def _compare(mine: Any, other: Any) -> None:
    """Check that each parameter of theirs is here, in its place and with its default.

    Those of ours come after, and need no value.
    """
    there = list(inspect.signature(other).parameters.values())
    known = {item.name for item in there}
    ours = []
    for item in inspect.signature(mine).parameters.values():
        if item.kind is item.KEYWORD_ONLY and item.name not in known:
            assert item.default is not item.empty, item
        else:
            ours.append(item)
    assert [item.name for item in ours[: len(there)] if item.kind is not item.VAR_POSITIONAL] == [
        item.name for item in there if item.kind is not item.VAR_POSITIONAL
    ]
    for item, old in zip(ours, there, strict=False):
        assert item.kind is old.kind, item
        if old.default is not old.empty and old.name not in IGNORED:
            assert item.default == old.default, item
    for item in ours[len(there) :]:
        assert item.kind is item.VAR_KEYWORD or item.default is not item.empty, item


@pytest.mark.parametrize("name", METHODS)
def test_methods(theirs: Any, name: str) -> None:
    """Every public method is here and takes what theirs takes."""
    if name == "__exit__":
        assert callable(runner.Runner.__exit__)
        return
    _compare(getattr(runner.Runner, name), getattr(theirs.Runner, name))


def test_no_method_is_left_out(theirs: Any) -> None:
    """The list above is theirs."""
    public = {
        name
        for name, thing in vars(theirs.Runner).items()
        if callable(thing) and not name.startswith("_")
    }
    assert public <= set(METHODS)


def test_get_runner(theirs: Any) -> None:
    """The function that everybody calls first."""
    _compare(runner.get_runner, theirs.get_runner)
