"""A Python function in a container: nothing of ours, and no cloudpickle, need be in its image."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

import transload
from transload.runner import Runner

pytest.importorskip("cloudpickle")


def place(name: str) -> tuple[str, int]:
    """Say where this runs."""
    if name == "nobody" or "transload" in sys.modules:
        raise LookupError(name)
    return name, os.getpid()


def test_a_function_in_a_container(runner: Runner, python_image: str) -> None:
    """Its module travels, its value comes back, its exception too; the image is the scheduler's default one."""
    options: dict[str, Any] = {"scheduler": "docker", "runner": runner, "cfg": {"image": python_image}}
    options["env"] = {"PATH": os.path.dirname(sys.executable)}  # where that image has its Python
    name, pid = transload.submit(place, "here", **options).result(timeout=90)
    assert name == "here" and pid < 100
    with pytest.raises(LookupError, match="nobody"):
        transload.submit(place, "nobody", **options).result(timeout=90)
