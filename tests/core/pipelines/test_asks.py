"""Two different things that one unit of work asks for are never taken for each other."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.pipelines import FIRST_UNIT, Launch, ask_of, host_runner, unit_of
from transload.specs import AppDef, Role

ASKS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=6)


def units(asks: list[str], kept: list[str]) -> list[str]:
    """Return the units of what one try asks for in turn.

    Afterwards ``kept`` holds what all tries have asked for.
    """
    found = []
    for number, ask in enumerate(asks):
        unit = unit_of(ask, kept, asked_before=bool(number))
        if unit == FIRST_UNIT:
            kept[:1] = [ask]
        elif unit not in kept:
            kept.append(unit)
        found.append(unit)
    return found


@given(ASKS)
def test_one_try(asks: list[str]) -> None:
    """Within a try, equal asks are one unit, and different ones different units.

    The first is the identity's own.
    """
    found = units(asks, [])
    assert found[0] == FIRST_UNIT
    for ask, unit in zip(asks, found, strict=True):
        for other, another in zip(asks, found, strict=True):
            assert (ask == other) is (unit == another)


@given(ASKS, ASKS)
def test_a_later_try(before: list[str], after: list[str]) -> None:
    """A later try finds what the earlier ones asked for, whatever it begins with."""
    kept: list[str] = []
    unit_before = dict(zip(before, units(before, kept), strict=True))
    unit_after = dict(zip(after, units(after, kept), strict=True))
    assert len(set(unit_after.values())) == len(unit_after)
    if len(unit_before) > 1:
        for ask in unit_before.keys() & unit_after.keys():
            assert unit_before[ask] == unit_after[ask]


def test_the_one_job_of_a_task_was_edited() -> None:
    """An edited definition of a step with one job is still that job, which may be running."""
    assert unit_of("edited", ["first"], asked_before=False) == FIRST_UNIT
    assert unit_of("another", ["first"], asked_before=True) == "another"
    assert unit_of("another", ["first", "second"], asked_before=False) == "another"


def one(n: int = 1) -> AppDef:
    """Return an app."""
    return AppDef("one", [Role("main", "", entrypoint="echo", args=[str(n)])])


def closure(n: int) -> Any:
    """Return a component that has its argument in it."""

    def made() -> AppDef:
        return one(n)

    return made


def lambdas() -> list[Any]:
    """Return functions that only their code tells from one another."""
    return [lambda: one(7), lambda: one(8)]


def reporting() -> list[Any]:
    """Return components that ask where they report, by the same name and in the same place."""

    def made(number: int) -> Any:
        if number:
            return lambda tracker_base="": one(10)
        return lambda tracker_base="": one(11)

    found = [made(number) for number in range(2)]
    for each in found:
        each.__annotations__ = {"tracker_base": str, "return": AppDef}
    return found


DIFFERENT: list[dict[str, Any]] = [
    {"command": ["echo", "a"]},
    {"command": ["echo", "b"]},
    {"command": ["echo", "a"], "scheduler": "slurm"},
    {"command": ["echo", "a"], "cfg": {"x": 1}},
    {"command": ["echo", "a"], "tracker_base": "/b"},
    {"component": "utils.echo", "args": {"msg": "a"}},
    {"component": "utils.echo", "args": {"msg": "b"}},
    {"component": "utils.echo", "args": ["--msg", "b"]},
    {"component": one},
    {"component": closure(2)},
    {"component": closure(3)},
    {"component": one, "args": {"n": 4}},
    {"app": one(5)},
    {"app": one(6)},
    {"component": "x.py:nobody", "args": {"a": {1: 2, "b": {3}}}},
    {"component": one, "args": {"wrong": 1}},
    *[{"app": each} for each in lambdas()],
    *[{"app": closure(number)} for number in (12, 13)],
    *[{"component": each} for each in reporting()],
]


def test_what_is_asked_for() -> None:
    """Different launches are different asks, and equal ones equal asks.

    Wrong ones are refused later.
    """
    with host_runner("test") as runner:
        asks = [ask_of(Launch(**launch), runner) for launch in DIFFERENT]
        assert len(set(asks)) == len(asks)
        assert asks == [ask_of(Launch(**launch), runner) for launch in DIFFERENT]
        secret = Launch(command=["echo", "a"], cfg={"token": "x"})
        assert ask_of(secret, runner) == asks[0], "a secret may be renewed"


def test_equal_in_another_process() -> None:
    """An ask is the same text on every machine, sets and numbers included."""
    code = (
        "from transload.pipelines import Launch, ask_of, host_runner\n"
        "launch = Launch(component='a.py:b', args={'x': {'q', 'w', 'e'}, 'y': 0.1, 'z': [None, "
        "True]})\n"
        "print(ask_of(launch, host_runner('test')))"
    )
    found = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
        for _ in range(2)
    }
    assert len(found) == 1


def test_component_by_name_is_not_called(tmp_path: Any) -> None:
    """A component of a file is not run to find out what is asked for, nor is its place needed."""
    mark = tmp_path / "called"
    file = tmp_path / "mine.py"
    file.write_text(f"def mine(n: int):\n    open({str(mark)!r}, 'w')\n")

    def placed(tracker_base: str) -> AppDef:
        pytest.fail("it must not be called")

    with host_runner("test") as runner:
        asks = {ask_of(Launch(component=f"{file}:mine", args={"n": n}), runner) for n in (1, 2)}
        asks.add(ask_of(Launch(component=placed), runner))
    assert len(asks) == 3
    assert not mark.exists()
