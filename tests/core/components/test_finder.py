"""Components are found by name, in files, in packages. Errors have file and line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transload.components import (
    ComponentInvalid,
    ComponentNotFound,
    as_component,
    broken_components,
    build,
    get_component,
    get_components,
    materialize,
)
from transload.errors import PluginError, SpecError
from transload.plugins import Plugins
from transload.specs import AppDef

pytestmark = pytest.mark.unit

HEAD = "from __future__ import annotations\nfrom transload.specs import AppDef, Role\n\n"
ONE = (
    HEAD
    + "def train(epochs: int = 1) -> AppDef:\n    '''Train.'''\n    return AppDef(f'train-{epochs}')\n"
)


def write(folder: Path, name: str, text: str) -> str:
    """Write a file and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_builtin_by_name() -> None:
    """A built-in component is found and called without loading any plugin, or what reads helps."""
    assert get_component("utils.echo").fn_name == "echo"
    code = (
        "import sys; from transload.components import materialize_appdef as m;"
        "m('utils.echo', ['--msg', 'x']);"
        "print([n for n in ('pluggy', 'argparse', 'importlib.metadata', 'fsspec', "
        "'docstring_parser') if n in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"


def test_all_components() -> None:
    """Every built-in has a name, a description and help for each parameter, and none is broken."""
    found = get_components()
    assert {
        "utils.echo",
        "utils.sh",
        "utils.python",
        "utils.binary",
    } <= set(found)
    assert {"utils.booth", "dist.ddp", "dist.spmd"} <= set(found)
    for name, component in found.items():
        assert component.name == name
        assert component.description, name
        assert all(component.helps[item.name] for item in component.parameters), name
    assert not [name for name in broken_components() if name.startswith(("utils.", "dist."))]


def test_file_and_function(tmp_path: Path) -> None:
    """FILE:FUNCTION, and FILE alone with one component."""
    path = write(
        tmp_path,
        "jobs.py",
        ONE + "\ndef _private() -> AppDef: ...\ndef other(x: int) -> int: ...\n",
    )
    for name in (f"{path}:train", path):
        component = get_component(name)
        assert component.name == name
        assert component.description == "Train."
        assert build(component, {"epochs": "3"}).name == "train-3"


def test_file_from_home_and_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is expanded, and a relative path starts at the current directory."""
    write(tmp_path, "sub/jobs.py", ONE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert get_component("~/sub/jobs.py:train").fn_name == "train"
    monkeypatch.chdir(tmp_path)
    assert get_component("sub/jobs.py").fn_name == "train"
    monkeypatch.chdir(tmp_path / "sub")
    assert get_component("jobs.py:train").fn_name == "train"


def test_several_or_no_components_in_a_file(tmp_path: Path) -> None:
    """Without a function the file must hold one component, or the error lists what there is."""
    two = write(tmp_path, "two.py", ONE + "def evaluate() -> AppDef:\n    return AppDef('e')\n")
    with pytest.raises(
        ComponentNotFound,
        match=r"holds 2 components, give one: .*two\.py:train, .*two\.py:evaluate",
    ):
        get_component(two)
    none = write(tmp_path, "none.py", "def train(): ...\n")
    with pytest.raises(ComponentNotFound, match=r"-> AppDef' \(its functions: train\)"):
        get_component(none)


def test_imported_components_do_not_count(tmp_path: Path) -> None:
    """A component that the file only imports is not the file's."""
    text = "from transload.components.utils import echo, sh\n" + ONE.replace(
        "from __future__ import annotations\n", ""
    )
    assert get_component(write(tmp_path, "x.py", text)).fn_name == "train"
    assert get_component(f"{tmp_path}/x.py:echo").fn_name == "echo"


def test_neighbours(tmp_path: Path) -> None:
    """A file imports its neighbours when read and when called, and leaves no trace of it."""
    write(tmp_path, "tl_neighbour.py", "from dataclasses import dataclass\nNAME = 'near'\n")
    write(tmp_path, "tl_late/__init__.py", "from tl_late.deep import VALUE\n")
    write(tmp_path, "tl_late/deep.py", "VALUE = 'late'\n")
    text = HEAD + (
        "from tl_neighbour import NAME\n"
        "def train() -> AppDef:\n"
        "    import tl_late, tl_neighbour\n"
        "    assert tl_neighbour.NAME is NAME\n"
        "    return AppDef(f'{NAME}-{tl_late.VALUE}')\n"
    )
    path = write(tmp_path, "train.py", text)
    before = list(sys.path)
    component = get_component(path)
    assert (build(component).name, build(component).name) == ("near-late", "near-late")
    assert sys.path == before
    assert not {"tl_neighbour", "tl_late", "tl_late.deep", "train"} & set(sys.modules)


def test_packages_beside_a_file(tmp_path: Path) -> None:
    """Packages of all kinds are neighbours, but a mere folder does not hide an installed package."""
    write(tmp_path, "tl_pack/__init__.py", "from . import inner\nimport tl_alone\n")
    write(tmp_path, "tl_pack/inner.py", "import tl_alone\nVALUE = tl_alone.VALUE\n")
    write(tmp_path, "tl_bare/mod.py", "from tl_pack.inner import VALUE\n")
    write(tmp_path, "tl_alone.py", "VALUE = 'alone'\n")
    write(tmp_path, "pytest/notes.txt", "")
    text = HEAD + (
        "import pytest, tl_bare.mod, tl_pack.inner\nfrom tl_pack import *\n"
        "from tl_pack import inner as again\n"
        "def train() -> AppDef:\n"
        "    assert again is tl_pack.inner and pytest.raises\n"
        "    return AppDef(tl_bare.mod.VALUE)\n"
        "def broken() -> AppDef:\n"
        "    import tl_pack.gone\n"
    )
    path = write(tmp_path, "train.py", text)
    assert build(f"{path}:train").name == "alone"
    with pytest.raises(SpecError, match="No module named 'tl_pack.gone'"):
        build(f"{path}:broken")


def test_a_link_has_the_neighbours_of_its_target(tmp_path: Path) -> None:
    """A component file that is a link imports what lies beside its target, as a script of Python
    does.
    """
    (tmp_path / "code").mkdir()
    write(tmp_path / "code", "tl_beside.py", "NAME = 'beside'\n")
    text = HEAD + "from tl_beside import NAME\ndef train() -> AppDef:\n    return AppDef(NAME)\n"
    write(tmp_path / "code", "train.py", text)
    (tmp_path / "link.py").symlink_to("code/train.py")
    component = get_component(str(tmp_path / "link.py"))
    assert build(component).name == "beside"
    assert component.folder == str(tmp_path / "code")


def test_path_is_clean_after_errors(tmp_path: Path) -> None:
    """A file that fails leaves path and modules as they were."""
    write(tmp_path, "tl_helper.py", "X = 1\n")
    path = write(tmp_path, "bad.py", HEAD + "import tl_helper\n1 / 0\ndef train() -> AppDef: ...\n")
    before = list(sys.path)
    with pytest.raises(ComponentInvalid, match=r"bad\.py:5: ZeroDivisionError: division by zero"):
        get_component(path)
    assert sys.path == before
    assert "tl_helper" not in sys.modules


def test_same_names_in_two_folders(tmp_path: Path) -> None:
    """Files of one name in two folders, with neighbours of one name, do not clash."""
    for folder in ("a", "b"):
        write(tmp_path, f"{folder}/tl_common.py", f"NAME = '{folder}'\n")
        body = (
            "import tl_common\ndef train() -> AppDef:\n"
            "    import tl_common as again\n    return AppDef(again.NAME)\n"
        )
        write(tmp_path, f"{folder}/train.py", HEAD + body)
    first, second = (get_component(f"{tmp_path}/{folder}/train.py") for folder in ("a", "b"))
    assert [build(first).name, build(second).name, build(first).name] == ["a", "b", "a"]


def test_neighbour_wins_over_a_loaded_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loaded module with a neighbour's name is neither used nor lost.

    The standard library stays.
    """
    write(tmp_path, "program/tl_settings.py", "NAME = 'program'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "program"))
    import tl_settings  # type: ignore[import-not-found]

    write(tmp_path, "job/tl_settings.py", "NAME = 'job'\n")
    write(tmp_path, "job/json.py", "raise RuntimeError('not me')\n")
    text = (
        HEAD
        + "import json, tl_settings\ndef train() -> AppDef:\n    return AppDef(tl_settings.NAME)\n"
    )
    assert build(get_component(write(tmp_path, "job/train.py", text))).name == "job"
    assert sys.modules["tl_settings"] is tl_settings
    assert tl_settings.NAME == "program"
    monkeypatch.delitem(sys.modules, "tl_settings")


def test_folder_already_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder is on the path anyway, its modules are the program's own and stay."""
    write(tmp_path, "tl_own.py", "NAME = 'own'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    text = HEAD + "import tl_own\ndef train() -> AppDef:\n    return AppDef(tl_own.NAME)\n"
    assert build(get_component(write(tmp_path, "train.py", text))).name == "own"
    assert "tl_own" in sys.modules
    assert str(tmp_path) in sys.path
    monkeypatch.delitem(sys.modules, "tl_own")


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    """A file, or its neighbour, that changed within the same second is seen."""
    path = write(tmp_path, "train.py", ONE)
    assert build(path).name == "train-1"
    write(tmp_path, "train.py", ONE.replace("train-", "TRAIN-"))
    assert build(path).name == "TRAIN-1"
    for name in ("one", "other"):
        write(tmp_path, "tl_name.py", f"NAME = '{name}'\n")
        text = HEAD + "import tl_name\ndef train() -> AppDef:\n    return AppDef(tl_name.NAME)\n"
        assert build(write(tmp_path, "train.py", text)).name == name


def test_dataclass_in_a_component_file(tmp_path: Path) -> None:
    """A dataclass and an Enum of the file, or of a neighbour, under deferred annotations, are read
    from text.
    """
    write(
        tmp_path,
        "tl_shapes.py",
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom enum import "
        "Enum\n"
        "class Kind(Enum):\n    A = 1\n@dataclass\nclass Shape:\n    size: int\n    kind: Kind = "
        "Kind.A\n",
    )
    text = HEAD + (
        "from dataclasses import dataclass\nfrom tl_shapes import Kind, Shape\n"
        "@dataclass\nclass Mine:\n    shape: Shape\n    n: int | None = None\n"
        "def train(shape: Shape, mine: Mine | None = None) -> AppDef:\n"
        "    return AppDef(f'{shape.size}-{shape.kind.name}-{mine.shape.size if mine else 0}')\n"
    )
    path = write(tmp_path, "train.py", text)
    assert materialize(path, ["--shape", "size=3,kind=A"]).name == "3-A-0"
    assert build(path, {"shape": {"size": 4}, "mine": {"shape": {"size": 5}}}).name == "4-A-5"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def train(:\n", r"x\.py:1: syntax error"),
        (
            "import transload\n\nimport no_such_thing\n",
            r"x\.py:3: ModuleNotFoundError: No module named 'no_such_thing'",
        ),
        ("import tl_broken\n", r"tl_broken\.py:2: syntax error"),
        ("import tl_raises\n", r"tl_raises\.py:2: ValueError: two lines"),
        ("import sys\nsys.exit(3)\n", r"ends the process \(exit 3\)"),
        ("x = '\0'\n", "x.py"),
        ("train = 5\n", "is a int, must be a function"),
        (
            HEAD + "def train(x) -> AppDef: ...\n",
            r"x\.py:4: component 'train': parameter 'x': must have a type",
        ),
        (
            "def train(x: int): ...\n",
            r"x\.py:1: component 'train': must be annotated to return an AppDef",
        ),
        ("def train(x: int) -> str: ...\n", "must be annotated to return an AppDef"),
        (
            HEAD + "def train(x: Foo) -> AppDef: ...\n",
            "annotation 'Foo' cannot be resolved: NameError",
        ),
    ],
)
def test_broken_files(tmp_path: Path, text: str, says: str) -> None:
    """Whatever is wrong with a file is one line with file and line of the user's own code."""
    write(tmp_path, "tl_broken.py", "x = 1\ny = = 2\n")
    write(tmp_path, "tl_raises.py", "\nraise ValueError('two\\nlines')\n")
    path = write(tmp_path, "x.py", text)
    with pytest.raises(ComponentInvalid, match=says) as caught:
        get_component(f"{path}:train")
    assert "\n" not in str(caught.value)


def test_return_annotation_known_to_the_type_checker_only(tmp_path: Path) -> None:
    """AppDef imported under TYPE_CHECKING is recognised by its name."""
    text = (
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from transload import specs\n"
        "def train(n: int = 1) -> specs.AppDef:\n    from transload.specs import AppDef\n"
        "    return AppDef(f'n{n + 1}')\n"
    )
    assert materialize(write(tmp_path, "x.py", text), ["--n", "4"]).name == "n5"


def test_missing_things(tmp_path: Path) -> None:
    """What does not exist is told with the nearest name."""
    path = write(tmp_path, "jobs.py", ONE)
    for name, says in (
        (f"{path}:trian", "has no function 'trian': did you mean 'train'"),
        (f"{tmp_path}/nope.py", "component file .*nope.py: No such file"),
        (f"{tmp_path}/nope.py:train", "No such file"),
        (f"{tmp_path}:train", "Is a directory"),
        ("utils.ecko", "did you mean 'utils.echo'"),
        ("no_such_package.mod:train", "no module named 'no_such_package'"),
        ("transload.components.utils:eco", "did you mean 'echo'"),
        ("transload.no_such:train", "no module named 'transload.no_such'"),
        ("my-file:train", "is not the name of a module"),
        ("", "must be a name"),
        (5, "must be a name"),
    ):
        with pytest.raises(ComponentNotFound, match=says):
            get_component(name)  # type: ignore[arg-type]


def test_package_module_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """package.module:function is found in the current directory too, and the path is clean
    afterwards.
    """
    write(tmp_path, "tl_pkg/__init__.py", "")
    write(tmp_path, "tl_pkg/jobs.py", ONE + "    \nclass Group:\n    train = staticmethod(train)\n")
    write(tmp_path, "tl_pkg/bad.py", "\nimport no_such_thing\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    try:
        assert build("tl_pkg.jobs:train", {"epochs": 2}).name == "train-2"
        assert build("tl_pkg.jobs:Group.train").name == "train-1"
        with pytest.raises(ComponentInvalid, match=r"bad\.py:2: ModuleNotFoundError"):
            get_component("tl_pkg.bad:train")
        with pytest.raises(ComponentInvalid, match="must be annotated"):
            get_component("os.path:join")
    finally:
        for name in [name for name in sys.modules if name.startswith("tl_pkg")]:
            del sys.modules[name]
    assert sys.path == before
    assert build("transload.components.utils:echo").name == "echo"


def test_as_component() -> None:
    """A name, a function and a component are all taken."""
    component = get_component("utils.echo")
    assert as_component(component) is component
    assert as_component("utils.echo") == component
    assert as_component(component.fn).name == "echo"


def _train(n: int = 1) -> AppDef:
    """Train as the team does."""
    return AppDef(f"team-{n}")


def test_components_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's component is found by name. A broken one is listed apart, and raises when used."""
    from transload.plugins import hookimpl, manager

    class Team:
        @hookimpl
        def transload_components(self, register) -> None:  # type: ignore[no-untyped-def]
            register("team.train", _train)
            register("team.gone", "no_such_module:train")
            register("team.untyped", lambda x: None)

    mine = Plugins(entry_points=[])
    mine.register(Team(), "team", "team-dist")
    monkeypatch.setattr(manager, "_plugins", mine)
    assert build("team.train", {"n": 2}).name == "team-2"
    assert "team.train" in get_components()
    assert "utils.echo" in get_components()
    broken = broken_components()
    assert set(broken) == {"team.gone", "team.untyped"}
    assert "no_such_module" in broken["team.gone"]
    with pytest.raises(
        PluginError,
        match=r"component 'team\.gone' of plugin 'team' cannot be loaded: ModuleNotFoundError",
    ):
        get_component("team.gone")
    with pytest.raises(ComponentNotFound, match=r"did you mean 'team\.train'"):
        get_component("team.trian")
