"""What the hosts of the table share: the job, the engines to run it on, and how a cell is told."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from job import ARGUMENTS, COMPONENT

__all__ = ["ARGUMENTS", "COMPONENT", "ENDLESS", "ENGINES", "EXAMPLE", "FAILING", "TESTS", "Cell"]
__all__ += ["cancelled", "jobs", "tried_again", "until"]

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "everywhere"
TESTS = ROOT / "tests"
ENDLESS, FAILING = (
    f"{Path(__file__).with_name('short.py')}:{name}" for name in ("endless", "failing")
)
ENGINES = os.environ["EVERYWHERE_ENGINES"].split()
signal.signal(
    signal.SIGTERM, lambda *_: sys.exit("terminated")
)  # so that servers are stopped on the way out


def until(condition: Callable[[], T], what: str, timeout: float = 180) -> T:
    """Return the first answer that is not empty; ends this program when there is none in time."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > end:
            sys.exit(f"{what}: not within {timeout} s")
        time.sleep(0.2)
    return found


def jobs(session: str, engine: str, word: str) -> list[str]:
    """Return the states of a host's apps on an engine with a word in their names; other hosts use
    the engine, too.
    """
    from transload.runner import get_runner
    from transload.specs import parse_app_handle

    with get_runner(session) as runner:
        found = {
            parse_app_handle(each.app_handle).app_id: each.state.name
            for each in runner.list(engine)
        }
    return [state for app_id, state in found.items() if f"{session}-" in app_id and word in app_id]


def cancelled(session: str, engine: str, word: str = "endless") -> str:
    """Return how the app with a word in its name ended, once it has."""
    ended = ("CANCELLED", "FAILED", "SUCCEEDED")
    return until(
        lambda: [each for each in jobs(session, engine, word) if each in ended], "the app's end"
    )[0]


def tried_again(session: str, engine: str) -> str:
    """Return how many apps the failing unit had, and how they ended."""
    states = jobs(session, engine, "failing")
    return f"{len(states)} {'/'.join(sorted(set(states)))}"


class Cell:
    """One host on one engine.

    Args:
        host: the host.
        engine: where the job runs.
    """

    def __init__(self, host: str, engine: str) -> None:
        self._said: dict[str, object] = {"host": host, "engine": engine}
        self._began = time.monotonic()
        self._also: dict[str, str] = {}

    def also(self, **said: str) -> None:
        """Note what became of a job that the host cancelled (``cancel``) and of one that it tried
        again (``retry``), and from where else than its own process the host waited (``waiter``);
        what cannot be begins with a dash.
        """
        self._also |= said

    def emit(
        self, handle: str, state: str, host_state: str, accuracy: float, log: str | None
    ) -> None:
        """Print the cell as a line of stdout.

        Args:
            handle: of the app.
            state: how the app ended.
            host_state: what the host itself says of its unit of work.
            accuracy: as the host hands it on.
            log: what the host shows of the app's lines; None where the host shows none.
        """
        lines = (
            None
            if log is None
            else sum("epoch" in line and "loss" in line for line in log.splitlines())
        )
        seconds = round(time.monotonic() - self._began, 1)
        told = {
            "handle": handle,
            "state": state,
            "said": host_state,
            "accuracy": accuracy,
            "lines": lines,
        }
        print(json.dumps({**self._said, **told, "seconds": seconds, **self._also}), flush=True)
