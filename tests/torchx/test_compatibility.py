"""Names, parameters, defaults and texts are those of TorchX 0.7.0, where that is installed."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import shlex
import typing
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from transload import runner, specs
from transload.components import get_component, materialize_appdef

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "coming-from-torchx.md").read_text()
RENAMED = re.findall(r"^\| `(torchx\.[\w.]+)` \| `(transload\.[\w.]+)` \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def torchx() -> Callable[[str], Any]:
    """Import a module of TorchX 0.7.0 by ``torchx(module)``, or skip where it is missing."""
    try:
        if version("torchx") != "0.7.0":
            pytest.skip("not run: torchx: another version than 0.7.0 is installed")
    except PackageNotFoundError:
        pytest.skip("not run: torchx: not installed")

    def load(module: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)

    return load


@pytest.fixture(scope="module")
def theirs(torchx: Callable[[str], Any]) -> Any:
    """TorchX's specs."""
    return torchx("torchx.specs")


# -- the runner


def _compare(mine: Any, other: Any) -> None:
    """Check that each parameter of theirs is here, in its place and with its default.

    Those of ours come after, and need no value.
    """
    parameters = inspect.signature(other).parameters.values()
    there = [item for item in parameters if item.name != "scheduler_params"]
    known = {item.name for item in there}
    ours = []
    for item in inspect.signature(mine).parameters.values():
        if item.kind is item.KEYWORD_ONLY and item.name not in known:
            assert item.default is not item.empty, item
        else:
            ours.append(item)
    assert [item.name for item in ours[: len(there)] if item.kind is not item.VAR_POSITIONAL] == [
        item.name for item in there if item.kind is not item.VAR_POSITIONAL
    ]
    for item, old in zip(ours, there, strict=False):
        assert item.kind is old.kind, item
        if old.default is not old.empty and old.name != "wait_interval":  # of no effect here
            assert item.default == old.default, item
    for item in ours[len(there) :]:
        assert item.kind is item.VAR_KEYWORD or item.default is not item.empty, item


def test_runner(torchx: Callable[[str], Any]) -> None:
    """Every public method is here and takes what theirs takes, and so does `get_runner`."""
    module = torchx("torchx.runner")
    _compare(runner.get_runner, module.get_runner)
    _compare(runner.Runner, module.Runner)
    for name, thing in vars(module.Runner).items():
        if callable(thing) and not name.startswith("_"):
            _compare(getattr(runner.Runner, name), thing)


# -- the specs

# kept out on purpose: an experiment of one scheduler, gone from later versions
DROPPED = {"Role": {"base_image"}}
CLASSES = ["AppDef", "Role", "Resource", "BindMount", "VolumeMount", "DeviceMount"]
CLASSES += ["AppStatus", "RoleStatus", "ReplicaStatus"]


@pytest.mark.parametrize("name", CLASSES)
def test_fields(theirs: Any, name: str) -> None:
    """The same fields stand in the same order with the same defaults, and ours come after."""
    mine = {field.name: field for field in dataclasses.fields(getattr(specs, name))}
    other = [
        field
        for field in dataclasses.fields(getattr(theirs, name))
        if field.name not in DROPPED.get(name, ())
    ]
    assert list(mine)[: len(other)] == [field.name for field in other]
    for field in other:
        default = mine[field.name].default
        if field.default is not dataclasses.MISSING and field.name != "retry_policy":
            assert default == field.default, field.name
        if field.default_factory is not dataclasses.MISSING:
            factory = mine[field.name].default_factory
            assert callable(factory)
            assert (
                repr(factory()).split("tags=")[0].rstrip(", ")
                in repr(field.default_factory()) + ")"
            ), field.name


@pytest.mark.parametrize("name", ["RetryPolicy", "AppState"])
def test_enums(theirs: Any, name: str) -> None:
    """The same members have the same values, and ours may be more."""
    mine = {item.name: item.value for item in getattr(specs, name)}
    assert {item.name: item.value for item in getattr(theirs, name)}.items() <= mine.items()


def test_exported_names(theirs: Any) -> None:
    """Every name that TorchX's specs export is here, but for those that have another name or home,
    and the page says which.
    """
    missing = {name for name in theirs.__all__ if not hasattr(specs, name)}
    assert missing - {"AWS_NAMED_RESOURCES", "GENERIC_NAMED_RESOURCES"} == {
        "ALL",
        "get_type_name",
        "runopt",
        "runopts",
        "UnknownAppException",
        "materialize_appdef",
    }


def test_methods_of_specs(theirs: Any) -> None:
    """Same methods with the same parameters."""
    for name in ("AppStatus", "macros.Values", "Resource", "Role"):
        mine: Any = specs
        other: Any = theirs
        for part in name.split("."):
            mine, other = getattr(mine, part), getattr(other, part)
        for method in [key for key, value in vars(other).items() if not key.startswith("_")]:
            thing = getattr(other, method)
            if callable(thing) and (name, method) != ("AppStatus", "format"):  # TorchX's own text
                assert list(inspect.signature(getattr(mine, method)).parameters) == list(
                    inspect.signature(thing).parameters
                ), f"{name}.{method}"


def test_named_resources(theirs: Any) -> None:
    """Same names, same sizes."""
    known = {**theirs.GENERIC_NAMED_RESOURCES, **theirs.AWS_NAMED_RESOURCES}
    assert len(known) > 30
    for name in known:
        mine, other = specs.named_resources[name], theirs.named_resources[name]
        assert (mine.cpu, mine.gpu, mine.memMB) == (other.cpu, other.gpu, other.memMB), name
        assert (mine.capabilities, mine.devices) == (other.capabilities, other.devices), name


def test_text_forms(theirs: Any) -> None:
    """States and handles read the same."""
    for state in theirs.AppState:
        assert (str(specs.AppState(state.value)), repr(specs.AppState(state.value))) == (
            str(state),
            repr(state),
        )
    assert specs.make_app_handle("a", "b", "c") == theirs.make_app_handle("a", "b", "c")
    assert tuple(specs.parse_app_handle("a://b/c")) == tuple(theirs.parse_app_handle("a://b/c"))
    assert repr(specs.AppDryRunInfo(5, str)) == repr(theirs.AppDryRunInfo(5, str))


def test_macros(theirs: Any) -> None:
    """Same tokens, same fields of Values, and one more."""
    for name in ("img_root", "app_id", "replica_id", "rank0_env"):
        assert getattr(specs.macros, name) == getattr(theirs.macros, name)
    fields = [
        field.name
        for field in dataclasses.fields(theirs.macros.Values)
        if field.name != "base_img_root"
    ]
    assert [field.name for field in dataclasses.fields(specs.macros.Values)] == [
        *fields,
        "output_dir",
    ]


def test_bools_and_dollars(torchx: Callable[[str], Any]) -> None:
    """``yes`` is false in TorchX and true here.

    ``$$`` is an escape there and the user's own here.
    """
    assert torchx("torchx.util.types").decode("yes", bool) is False
    assert specs.parse_bool("yes") is True
    values = {"img_root": "", "app_id": "id", "replica_id": "0", "rank0_env": "R"}
    assert torchx("torchx.specs").macros.Values(**values).substitute("$$ $app_id") == "$ id"
    assert specs.macros.Values(**values).substitute("$$ $app_id") == "$$ $app_id"


def test_what_is_accepted_there_and_refused_here(theirs: Any) -> None:
    """A negative resource, two roles of one name, a text for ``min_replicas``."""

    def wrong(module: Any) -> list[Any]:
        role = module.Role("x", "image", entrypoint="true")
        return [
            lambda: module.Resource(cpu=-5, gpu=0, memMB=1),
            lambda: module.Role("x", "image", "python"),
            lambda: module.AppDef("a", [role, role]),
        ]

    for make in wrong(theirs):
        make()
    for make in wrong(specs):
        with pytest.raises(specs.SpecError):
            make()


# -- components

CALLS: list[tuple[str, list[str]]] = [
    ("utils.echo", ["--msg", "hi", "--num_replicas", "2"]),
    ("utils.touch", ["--file", "a"]),
    (
        "utils.sh",
        ["--env", "A=1,B=2,3", "--mounts", "type=volume,src=a,dst=/b", "echo", "it's", "--x"],
    ),
    ("utils.sh", ["--", "echo", "--", "-n"]),
    ("utils.python", ["-m", "a.b", "--cpu", "3", "--", "--lr", "1"]),
    ("utils.python", ["--script", "a.py", "--name", "n", "--", "-c"]),
    ("utils.binary", ["--entrypoint", "ls", "--memMB", "5", "--", "-l"]),
    ("utils.copy", ["--src", "a", "--dst", "b"]),
    ("utils.booth", ["--x1", "1", "--x2", "2.5"]),
    ("dist.ddp", ["--script", "a/b.py", "-j", "1x4", "--", "--lr", "a b"]),
    (
        "dist.ddp",
        ["-m", "a.b", "-j", "2:4x2", "--name", "e/r", "--debug", "True", "-h", "gpu.large"],
    ),
    (
        "dist.ddp",
        ["-m", "a.b", "-j", "2x2", "--rdzv_backend", "static", "--rdzv_port", "5", "--tee", "1"],
    ),
    ("dist.ddp", ["-m", "a.b", "-j", "3"]),
    ("dist.spmd", ["-m", "a.b", "-h", "aws_p4d.24xlarge", "-j", "2"]),
]


def of_torchx(torchx: Callable[[str], Any], name: str) -> Any:
    """Return TorchX's function."""
    module, _, fn = name.partition(".")
    return getattr(torchx(f"torchx.components.{module}"), fn)


def ours(name: str) -> Any:
    """Return our function."""
    return get_component(name).fn


def renamed(value: Any) -> Any:
    """Return a value of TorchX's as it is called here."""
    if isinstance(value, str):
        words = (
            ("torchx.apps.utils.", "transload.components.programs."),
            ("TORCHX", "TRANSLOAD"),
            ("torchx", "transload"),
        )
        for old, new in words:
            value = value.replace(old, new)
        value = value.replace(
            "transload.components.programs.copy_main", "transload_torchx.copy_main"
        )
        return value.replace("$$", "$")  # there, a dollar is doubled for its templates
    if isinstance(value, dict):
        return {renamed(key): renamed(item) for key, item in value.items()}
    return [renamed(item) for item in value] if isinstance(value, (list, tuple)) else value


def words_of(args: list[str]) -> list[str]:
    """Return the words of a shell's arguments that start torchrun, sorted, without what is ours
    alone.
    """
    before, ours_alone, command = args[1].rpartition("exec torchrun")
    if ours_alone:
        port = re.search(r"^port=(\d+)$", before, re.MULTILINE)
        command = "torchrun " + command.replace("$port", port[1] if port else "29500").replace(
            '"$@"', shlex.join(args[3:])
        )
        command = re.sub(r" --rdzv_conf \S+ == 0\)\)", "", command)
    return sorted(shlex.split(command))


@pytest.mark.parametrize("name", sorted({name for name, _ in CALLS}))
def test_signatures(torchx: Callable[[str], Any], name: str) -> None:
    """Same parameters in the same order, of the same kinds, types and defaults."""
    mine, other = inspect.signature(ours(name)), inspect.signature(of_torchx(torchx, name))
    assert list(mine.parameters) == list(other.parameters)
    hints, other_hints = (
        typing.get_type_hints(ours(name)),
        typing.get_type_hints(of_torchx(torchx, name)),
    )
    for key, parameter in other.parameters.items():
        assert mine.parameters[key].kind is parameter.kind
        if (name, key) == ("dist.spmd", "h"):  # gpu.small there: a GPU that nobody asked for
            assert (mine.parameters[key].default, hints[key]) == (None, str | None)
            continue
        if key not in ("image", "rdzv_port"):  # 29500 for all there
            assert mine.parameters[key].default == renamed(parameter.default), key
        assert hints[key] == _modern(other_hints[key]), key


def _modern(tp: Any) -> Any:
    """Return ``List[str]`` as ``list[str]``, and so on."""
    args = tuple(_modern(item) for item in typing.get_args(tp))
    origin = typing.get_origin(tp)
    if origin is typing.Union:
        return args[0] | args[1]
    return origin[args if len(args) > 1 else args[0]] if origin else tp


@pytest.mark.parametrize(
    ("name", "argv"), CALLS, ids=[f"{name} {' '.join(argv)}" for name, argv in CALLS]
)
def test_apps(torchx: Callable[[str], Any], name: str, argv: list[str]) -> None:
    """The same command line makes the same app, save for names and doubled dollars."""
    builders = torchx("torchx.specs.builders")
    other = builders.materialize_appdef(of_torchx(torchx, name), argv)
    mine = materialize_appdef(ours(name), argv)
    assert mine.name == renamed(other.name)
    for left, right in zip(mine.roles, other.roles, strict=True):
        for field in dataclasses.fields(right):
            if field.name in ("image", "base_image", "resource", "mounts", "retry_policy"):
                continue
            mine_is, theirs_is = (
                getattr(left, field.name),
                renamed(getattr(right, field.name)),
            )
            if name.startswith("dist.") and field.name == "args":
                mine_is, theirs_is = [words_of(args) for args in (mine_is, theirs_is)]
            if name.startswith("dist.") and field.name == "port_map":
                assert (
                    not mine_is or mine_is == theirs_is
                )  # a port that is chosen, or of one host, is not mapped
                continue
            assert mine_is == theirs_is, field.name
        for field in dataclasses.fields(right.resource):
            assert getattr(left.resource, field.name) == getattr(right.resource, field.name), (
                field.name
            )
        assert [repr(item) for item in left.mounts] == [repr(item) for item in right.mounts]
        assert left.retry_policy.value == right.retry_policy.value


# -- the page


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_modules_that_are_renamed(torchx: Callable[[str], Any], old: str, new: str) -> None:
    """Both modules can be imported, and differ in the first word only."""
    assert old.partition(".")[2] == new.partition(".")[2]
    importlib.import_module(new)
    torchx(old)


def test_schedulers_that_are_gone(torchx: Callable[[str], Any]) -> None:
    """TorchX has those that the page calls gone, and the page leaves none out."""
    have = set(torchx("torchx.schedulers").DEFAULT_SCHEDULER_MODULES)
    line = next(line for line in PAGE.splitlines() if line.startswith("| schedulers `"))
    assert have - set(re.findall(r"`(\w+)`", line)) == {
        "local_docker",
        "local_cwd",
        "slurm",
        "kubernetes",
    }
