"""What `benchmarks/once` counts of trainings that are interrupted."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("sklearn")

ONCE = Path(__file__).parents[3] / "benchmarks" / "once"
MODULES = ("interruptions", "harness", "training", "checkpoints", "model", "warm")


@pytest.fixture
def interruptions(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, imported as its program does it, and forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [str(ONCE), *sys.path])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield importlib.import_module("interruptions")
    for name in MODULES:
        sys.modules.pop(name, None)


def _notes() -> list[dict[str, Any]]:
    """Return what three attempts wrote.

    The first was killed after step 7, two steps after its checkpoint. The second saved and stopped.
    """
    attempts = [
        ("a", "0", "0", range(1, 8), 5),
        ("b", "1", "0", range(6, 10), 9),
        ("c", "1", "1", range(10, 13), 10),
    ]
    lines: list[dict[str, Any]] = []
    for attempt, retries, interruptions, steps, saved in attempts:
        lines.append({"attempt": attempt, "born": "x", "retries": retries})
        lines[-1]["interruptions"] = interruptions
        for step in steps:
            lines.append({"attempt": attempt, "step": step})
            if step == saved:
                lines.append({"attempt": attempt, "saved": step})
    lines.append({"attempt": "c", "weights": "same"})
    return [{**line, "at": number} for number, line in enumerate(lines)]


def test_steps_are_counted(interruptions: ModuleType) -> None:
    """The two steps after the checkpoint were done again, with one retry and one interruption."""
    case = interruptions.Case(seed=0, heeds=True)
    interruptions.count(case, _notes(), "same")
    assert (case.repeated, case.lost, case.worst) == (2, 2, 2)
    assert (case.retries, case.interruptions, case.second) == (1, 1, 0)
    assert case.equal


def test_what_must_not_be_is_seen(interruptions: ModuleType) -> None:
    """Other weights, an attempt that nobody accounts for, and a start from the beginning."""
    notes = _notes()
    notes[0]["retries"] = notes[-1]["weights"] = "0"
    again = [{"attempt": "d", "born": "x", "retries": "1", "interruptions": "1", "at": 90}]
    again += [{"attempt": "d", "step": step, "at": 90 + step} for step in (1, 2)]
    case = interruptions.Case(seed=0, heeds=True)
    interruptions.count(case, [*notes, *again], "same")
    assert (case.repeated, case.second, case.equal) == (4, 1, False)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_trainings_on_this_machine(interruptions: ModuleType, transload_home: Path) -> None:
    """In segments with a notice no step is done twice, and the weights are the same."""
    cases, success = interruptions.cell("runner", "local", range(2), heeds=True)
    assert [case.state for case in cases] == [success] * 2, cases
    assert sum(case.interruptions for case in cases) > 0
    assert [(case.repeated, case.retries, case.second) for case in cases] == [(0, 0, 0)] * 2
    assert all(case.equal for case in cases)
