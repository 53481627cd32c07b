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
from transload.runner.api import default_runner
from transload.schedulers.local import scheduler as local
from transload.specs import Workspace

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
    monkeypatch.setattr(local.LocalScheduler, "shares_disk", False)
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
        (lambda steps: (steps.late,), 4),
        (lambda steps: (steps.guarded, 3), 3),
        (lambda steps: (steps.Config(2.0).scaled, 3), 6.0),
        (lambda steps: (steps.Config(2.0), 3), 7.0),
    ],
    ids=range(9),
)
def test_the_folder_of_the_function_travels(
    steps: ModuleType, far: dict[str, Any], call: Callable[..., Any], value: Any
) -> None:
    """Its module and those beside it are found, of partial and cached functions, and methods."""
    fn, *args = call(steps)
    job = transload.submit(fn, *args, **far)
    assert job.result(timeout=60) == value


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda steps: (getattr, steps.Config(0.5), "rate"), 0.5),
        (lambda steps: (lambda config: config.kind.name, steps.Config(0.5)), "GOOD"),
        (lambda steps: (map_all, steps.train, [1, 2]), [12, 14]),
        (lambda steps: (lambda: steps.helpers.FACTOR,), 2),
    ],
    ids=range(4),
)
def test_modules_of_arguments_lie_in_a_workspace(
    steps: ModuleType, far: dict[str, Any], call: Callable[..., Any], value: Any
) -> None:
    """What a function gets from elsewhere is found in the workspace that was given."""
    fn, *args = call(steps)
    folders = {os.path.dirname(str(steps.__file__)): "", str(Path(__file__).parents[2]): "tests"}
    job = transload.submit(fn, *args, workspace=Workspace(folders), **far)
    assert job.result(timeout=60) == value


def map_all(fn: Callable[[int], int], items: list[int]) -> list[int]:
    """Call a function that is an argument."""
    return [fn(item) for item in items]


def test_an_object_comes_back_as_what_it_is(steps: ModuleType, far: dict[str, Any]) -> None:
    """Its class is that of the module here, not a copy."""
    config = transload.submit(steps.Config, 2.0, **far).result(timeout=60)
    assert type(config) is steps.Config and config == steps.Config(2.0)


def test_a_module_that_cannot_be_imported_travels_in_the_pickle(far: dict[str, Any]) -> None:
    """One that a program has made has no file. What cannot be pickled in it is named."""
    made = ModuleType("made_by_hand")
    source = "import threading\nLOCK = threading.Lock()\ndef guarded(n):\n    with LOCK: return n\n"
    exec(f"{source}def triple(n):\n    return 3 * n", vars(made))
    sys.modules["made_by_hand"] = made
    try:
        with pytest.raises(SpecError, match=r"guarded: cannot be pickled: .*_thread.lock"):
            transload.submit(made.guarded, 1, **far)
        assert default_runner().list("local") == []
        for options in (far, {}):
            assert transload.submit(made.triple, 3, **options).result(timeout=60) == 9
    finally:
        del sys.modules["made_by_hand"]


def test_a_package_travels_whole(
    tmp_path: Path, far: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a function in a package the package travels, with its data, and nothing beside it."""
    package = tmp_path / "code" / "mypackage"
    package.mkdir(parents=True)
    (tmp_path / "code" / "beside.txt").write_text("no")
    (package / "__init__.py").write_text("")
    (package / "data.txt").write_text("yes")
    (package / "steps.py").write_text(
        "import os\nfrom . import more\n"
        "def look():\n    here = os.path.dirname(__file__)\n"
        "    return more.ONE, open(f'{here}/data.txt').read(), os.path.exists(f'{here}/../beside.txt')\n"
    )
    (package / "more.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    steps = importlib.import_module("mypackage.steps")
    assert transload.submit(steps.look, **far).result(timeout=60) == (1, "yes", False)


def test_modules_on_this_disk_need_not_travel(steps: ModuleType) -> None:
    """A job on the same disk imports what this process does."""
    assert transload.submit(map_all, steps.guarded, [3]).result(timeout=60) == [3]
    kind = transload.submit(getattr, steps.SINGLETON, "__class__").result(timeout=60)
    assert kind is steps.Singleton


@pytest.mark.parametrize("name", ["call", "main", "library"])
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
