"""The invented host: a workflow engine of one screen. In a real adapter this is Airflow, Prefect …
and not yours.

It runs steps one after the other, tries those again that failed, and passes a stop on to the step
that works.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class StepState(Enum):
    """What a step is doing."""

    WAITING = "waiting"
    ACTIVE = "active"
    DONE = "done"
    BROKEN = "broken"
    STOPPED = "stopped"


class Broken(Exception):
    """Raised by a step that failed; ``again`` says whether the engine may try it once more."""

    def __init__(self, message: str, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class Stopped(Exception):
    """Raised by a step that was stopped."""


@dataclass
class Context:
    """What the engine tells a step.

    Args:
        flow_run: id of the run of the flow.
        step: name of the step.
        round: counted up when a person runs the step again.
        began: when the flow run began.
        failures: how often the step has failed, in all rounds.
        log: takes a line for the step's log.
        on_stop: takes what is to be called when the step is stopped, by a person or because its
            machine is.
        stop_was_asked_for: tells whether it was a person.
    """

    flow_run: str
    step: str
    round: int
    began: str
    failures: int
    log: Callable[[str], None]
    on_stop: Callable[[Callable[[], None]], None]
    stop_was_asked_for: Callable[[], bool]


@dataclass
class Step:
    """A unit of work.

    Args:
        name: its name.
        work: does it.
        retries: how often the engine tries it again.
    """

    name: str
    work: Callable[[Context], Any]
    retries: int = 0
