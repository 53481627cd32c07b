"""Read what a backend calls the node of a task: its place in the run, and the number of its try.

Argo's name of a node is, for example,
``loop-z28kb(0).root(0).for-loop-2(0).iteration-item(4:0.5)(0).sh(0).executor(1)``: the Workflow, a
pipeline, a loop, its item number 4 with its value, a task. After each comes the number of the try.
"""

from __future__ import annotations

import os
import re
from typing import Final

NODE: Final = "TRANSLOAD_KFP_NODE"
"""The variable of a task in which the name of its node is."""

FIELD: Final = "metadata.annotations['workflows.argoproj.io/node-name']"
"""The field of its pod from which that comes."""

_TRY = re.compile(r"\((\d+)\)(?=\.|$)")


def place_of(node: str) -> str:
    """Return what every try of one task shares, and no other task of the run.

    >>> place_of("loop-z28kb(0).root(0).for-loop-2(0).iteration-item(4:0.5)(0).sh(0).executor(1)")
    'root.for-loop-2.iteration-item(4:0.5).sh.executor'
    """
    _, _, place = _TRY.sub("", node).partition(".")
    return place


def tries_of(node: str) -> list[int]:
    """Return the number of the try of each part, which grow with each retry of the backend.

    >>> tries_of("files-zbwdn(0).root(0).sh(0).executor(2)")
    [0, 0, 0, 2]
    """
    return [int(each) for each in _TRY.findall(node)]


def node_of_task() -> str:
    """Return the name of this task's node, or ``""`` where no backend says it."""
    return os.environ.get(NODE, "")
