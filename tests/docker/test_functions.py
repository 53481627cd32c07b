"""A Python function runs in a container without anything of ours or cloudpickle in its image."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.runner import Runner

pytest.importorskip("cloudpickle")


def test_a_function_in_a_container(runner: Runner, python_image: str) -> None:
    """A function's value or exception comes back. It runs in the default image."""

    def place(name: str) -> tuple[str, int]:
        if name == "nobody" or "transload" in sys.modules:
            raise LookupError(name)
        return name, os.getpid()

    options: dict[str, Any] = {
        "scheduler": "docker",
        "runner": runner,
        "cfg": {"image": python_image},
    }
    options["env"] = {"PATH": os.path.dirname(sys.executable)}  # where that image has its Python
    name, pid = transload.submit(place, "here", **options).result(timeout=90)
    assert name == "here" and pid < 100
    with pytest.raises(LookupError, match="nobody"):
        transload.submit(place, "nobody", **options).result(timeout=90)


def test_modules_travel_into_a_container(
    runner: Runner, python_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function's module and one that it uses travel into a container."""
    (tmp_path / "training_steps.py").write_text(
        "import functools, threading, training_helpers\nLOCK = threading.Lock()\n"
        "@functools.cache\ndef train(a, b):\n    with LOCK:\n        return "
        "training_helpers.add(a, b)\n"
    )
    (tmp_path / "training_helpers.py").write_text("def add(a, b):\n    return a + b\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    steps = importlib.import_module("training_steps")
    options: dict[str, Any] = {
        "scheduler": "docker",
        "runner": runner,
        "cfg": {"image": python_image},
    }
    options["env"] = {"PATH": os.path.dirname(sys.executable)}
    assert transload.submit(functools.partial(steps.train, 1), 2, **options).result(timeout=90) == 3
