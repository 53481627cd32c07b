"""Python functions run as jobs by `transload.submit` and `transload.map`."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import transload
from transload.errors import AppFailed, ConfigError, SpecError
from transload.runner.api import default_runner

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")


def add(a: int, b: int = 1) -> int:
    """Add, and say so."""
    print("adding", a, b)
    return a + b


def fail(text: str) -> None:
    """Raise."""
    raise KeyError(text)


def test_a_function_returns_its_value(tmp_path: Path) -> None:
    """A function and a closure of a module that is not installed run with arguments.

    The working directory is ours.
    """
    app = transload.submit(add, 2, kwargs={"b": 5}, name="adder")
    assert app.result(timeout=60) == 7 and list(app.logs()) == ["adding 2 5\n"]
    assert app.handle.startswith("local://transload/adder-")
    closed_over = {"x": [1, 2]}
    assert transload.submit(lambda: (closed_over, os.getcwd())).result(timeout=60) == (
        {"x": [1, 2]},
        os.getcwd(),
    )
    assert transload.submit(add, 1, tracker_base=str(tmp_path / "base")).result(timeout=60) == 2


def test_a_function_raises_its_exception() -> None:
    """The exception comes back with the place in a note, or as text if it cannot be sent."""
    app = transload.submit(fail, "what")
    with pytest.raises(KeyError, match="what") as caught:
        app.result(timeout=60)
    (note,) = caught.value.__notes__
    assert app.handle in note and "in fail" in note

    class Odd(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    def odd() -> None:
        raise Odd("strange")

    with pytest.raises(AppFailed, match="strange"):
        transload.submit(odd).result(timeout=60)
    with pytest.raises(SpecError, match="returned cannot be pickled"):
        transload.submit(lambda: threading.Lock()).result(timeout=60)


def test_a_function_that_is_killed() -> None:
    """A killed function has no result, and the failure says how it ended."""
    with pytest.raises(AppFailed, match="SIGKILL|signal 9"):
        transload.submit(lambda: os.kill(os.getpid(), 9)).result(timeout=60)


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and nothing is started."""
    with pytest.raises(SpecError, match="add: cannot be pickled: TypeError"):
        transload.submit(add, threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="3: must be a function"):
        transload.submit(3)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="parallelism=0: must be 1 or more"):
        transload.map(add, [1], parallelism=0)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ConfigError, match="pip install cloudpickle"):
        transload.submit(add, 1)
    assert default_runner().list("local") == []


def test_another_version_of_python_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled code of another version of Python is refused by name."""
    with monkeypatch.context() as patched:
        patched.setattr(sys, "version_info", (3, 8, 0))
        app = transload.submit(add, 1)
    here = "{}.{}".format(*sys.version_info[:2])
    with pytest.raises(
        SpecError, match=rf"sent from Python 3\.8, and runs in Python {here}: they must be the same"
    ):
        app.result(timeout=60)


def cleared() -> int:
    """Clear the variables of the process."""
    os.environ.clear()
    return 1


def only_its_own() -> Any:
    """Keep one variable, and return what is no JSON."""
    os.environ.clear()
    os.environ["PATH"] = "/usr/bin"
    return {2}


def patched() -> int:
    """Clear them for a while."""
    with mock.patch.dict(os.environ, {}, clear=True):
        return 3


@pytest.mark.parametrize(("fn", "value"), [(cleared, 1), (only_its_own, {2}), (patched, 3)])
def test_a_function_may_clear_its_variables(fn: Any, value: object) -> None:
    """Its value comes back all the same."""
    assert transload.submit(fn).result(timeout=60) == value


def test_the_error_of_a_function_that_cleared_its_variables() -> None:
    """So does its exception."""

    def raises() -> None:
        os.environ.clear()
        raise LookupError("found nothing")

    with pytest.raises(LookupError, match="found nothing"):
        transload.submit(raises).result(timeout=60)


def test_map_keeps_the_order_and_ends_what_is_left() -> None:
    """Results keep the order of the items, so many at a time. After a failure nothing runs on."""
    assert list(transload.map(add, range(5), parallelism=2)) == [1, 2, 3, 4, 5]

    def wait_or_fail(n: int) -> int:
        if n == 0:
            raise ValueError("first")
        time.sleep(60)
        return n

    with pytest.raises(ValueError, match="first"):
        list(transload.map(wait_or_fail, range(3), parallelism=3))
    for row in default_runner().list("local"):
        assert transload.attach(row.app_handle).wait(timeout=60).is_terminal()


def test_a_map_that_is_left_ends_its_jobs() -> None:
    """The jobs of a reader that stops early end, also one that is just being submitted."""
    found = transload.map(wait_unless_first, range(3), parallelism=3)
    assert next(found) == 0
    found.close()  # type: ignore[attr-defined]
    rows = default_runner().list("local")
    assert len(rows) <= 3
    assert all(transload.attach(row.app_handle).wait(timeout=60) for row in rows)


def wait_unless_first(n: int) -> int:
    """Return 0 at once, and the others after a minute."""
    time.sleep(60 * n)
    return n


def test_threads_submit_functions_of_a_module_that_is_nowhere() -> None:
    """Threads take turns in pickling, as cloudpickle is set for the whole process."""
    made = ModuleType("made_by_hand")
    exec("def triple(n): return 3 * n", vars(made))
    sys.modules["made_by_hand"] = made
    try:
        found = list(transload.map(made.triple, range(6), parallelism=6))
    finally:
        del sys.modules["made_by_hand"]
    assert found == [0, 3, 6, 9, 12, 15]
