"""Which modules travel with a Python function, and which of the user's it finds where it runs."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import transload
from transload.errors import SpecError
from transload.runner import functions as _functions
from transload.schedulers.local import scheduler as local

cloudpickle = pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")

STEPS = """
import dataclasses
import enum
import functools
import threading
import helpers
from package.inner import shift

LOCK = threading.Lock()

class Kind(enum.Enum):
    GOOD = 1

@dataclasses.dataclass
class Config:
    rate: float
    kind: Kind = Kind.GOOD
    def scaled(self, by):
        return self.rate * by
    def __call__(self, by):
        return self.scaled(by) + 1

class Singleton:
    def __reduce__(self):
        return "SINGLETON"

SINGLETON = Singleton()

def train(a, b=0):
    return helpers.double(a) + shift(b)

def guarded(a):
    with LOCK:
        return a

@functools.lru_cache(maxsize=7)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

def late():
    import later
    return later.FOUR

def size():
    return fib.cache_parameters()["maxsize"], fib(3)
"""
HELPERS = """
import steps

FACTOR = 2

def double(n):
    return FACTOR * n + (0 if steps.Kind.GOOD else 1)
"""


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of a user, with another one that knows it, and a package."""
    folder = tmp_path / "code"
    (folder / "package").mkdir(parents=True)
    (folder / "steps.py").write_text(STEPS)
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "later.py").write_text("FOUR = 4\n")
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "inner.py").write_text("BY = 10\ndef shift(n):\n    return n + BY\n")
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield importlib.import_module("steps")
    assert cloudpickle.list_registry_pickle_by_value() == set()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("steps", "helpers", "package"):
            del sys.modules[name]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `submit` takes for jobs that see no file of ours, as on another machine."""
    seen = local.LocalScheduler.capabilities._replace(shares_disk=False)
    monkeypatch.setattr(local.LocalScheduler, "capabilities", seen)
    return {
        "env": {"PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"},
        "scheduler": "local",
    }


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda steps: (steps.train, 1), 12),
        (lambda steps: (functools.partial(steps.train, 1), 5), 17),
        (lambda steps: (functools.partial(functools.partial(steps.train, b=5), 1),), 17),
        (lambda steps: (steps.fib, 10), 55),
        (lambda steps: (steps.size,), (7, 2)),
        (lambda steps: (functools.cache(lambda n: steps.train(n)), 1), 12),
        (lambda steps: (steps.Config(2.0).scaled, 3), 6.0),
        (lambda steps: (steps.Config(2.0), 3), 7.0),
        (lambda steps: (getattr, steps.Config(0.5), "rate"), 0.5),
        (lambda steps: (lambda config: config.kind.name, steps.Config(0.5)), "GOOD"),
        (
            lambda steps: (
                lambda configs: [each.scaled(2) for each in configs["all"]],
                {"all": [steps.Config(1)]},
            ),
            [2],
        ),
        (lambda steps: (map_all, steps.train, [1, 2]), [12, 14]),
        (lambda steps: lambda: steps.helpers.FACTOR, 2),
    ],
    ids=range(13),
)
def test_modules_travel(
    steps: ModuleType, far: dict[str, Any], call: Callable[..., Any], value: Any
) -> None:
    """Modules of partial or cached functions, of objects, and among the arguments travel."""
    made = call(steps)
    fn, *args = made if isinstance(made, tuple) else (made,)
    app = transload.submit(fn, *args, **far)
    assert app.result(timeout=60) == value


def map_all(fn: Callable[[int], int], items: list[int]) -> list[int]:
    """Call a function that is an argument."""
    return [fn(item) for item in items]


def test_an_object_comes_back_as_what_it_is(steps: ModuleType, far: dict[str, Any]) -> None:
    """Its class is that of the module here, not a copy."""
    config = transload.submit(steps.Config, 2.0, **far).result(timeout=60)
    assert type(config) is steps.Config and config == steps.Config(2.0)


def test_what_cannot_travel_is_named(far: dict[str, Any]) -> None:
    """A module without a name to import it by is pickled, and a bad value in it is named."""
    made = ModuleType("made_by_hand")
    source = "import functools, threading\nLOCK = threading.Lock()\ndef guarded(n):\n    with LOCK: return n\n"
    exec(f"{source}class Named:\n    pass\nNAMED = Named()", vars(made))
    sys.modules["made_by_hand"] = made
    try:
        with pytest.raises(
            SpecError, match=r"guarded: cannot be pickled: .*_thread.lock.* travel.* made_by_hand"
        ):
            transload.submit(made.guarded, 1, **far)
        made.NAMED.__module__ = "made_by_hand"
        named = functools.partial(made.Named)
        assert transload.submit(named, **far).result(timeout=60) is not None
    finally:
        del sys.modules["made_by_hand"]
    assert _functions.default_runner().list("local")


def test_modules_of_a_workspace_need_not_travel(steps: ModuleType, far: dict[str, Any]) -> None:
    """Modules of a workspace are imported there, so that a lock in them makes no trouble."""
    folder = os.path.dirname(str(steps.__file__))
    app = transload.submit(map_all, steps.guarded, [3], workspace=folder, **far)
    assert app.result(timeout=60) == [3]
    kind = transload.submit(type, steps.SINGLETON, workspace=folder, **far).result(timeout=60)
    assert kind is steps.Singleton, "the class itself comes back"


def test_modules_on_this_disk_need_not_travel(steps: ModuleType) -> None:
    """A job on the same disk imports what this process does. A module of another file travels."""
    assert transload.submit(map_all, steps.guarded, [3]).result(timeout=60) == [3]
    assert (
        transload.submit(getattr, steps.SINGLETON, "__class__").result(timeout=60)
        is steps.Singleton
    )
    other = ModuleType("made_by_hand")
    exec("def triple(n): return 3 * n", vars(other))
    sys.modules["made_by_hand"] = other
    try:
        assert transload.submit(map_all, other.triple, [3]).result(timeout=60) == [9]
    finally:
        del sys.modules["made_by_hand"]


@pytest.mark.parametrize("name", ["call", "main", "modules", "library"])
@pytest.mark.parametrize("where", ["here", "workspace", "far"])
def test_a_module_with_a_common_name(
    tmp_path: Path,
    name: str,
    where: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user's module is found whatever it is called, as no name of ours can collide."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / f"{name}.py").write_text("MINE = True\n")

    def ask() -> bool:
        return bool(importlib.import_module(name).MINE)

    options: dict[str, Any] = request.getfixturevalue("far") if where == "far" else {}
    if where == "here":
        monkeypatch.syspath_prepend(str(folder))
    else:
        options["workspace"] = str(folder)
    assert transload.submit(ask, **options).result(timeout=60) is True
