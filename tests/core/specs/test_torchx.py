"""The specs have names, fields, defaults and texts of TorchX 0.7.0, if it is installed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from transload import specs

pytestmark = pytest.mark.unit

# kept out on purpose: an experiment of one scheduler, gone from later versions
DROPPED = {"Role": {"base_image"}}
CLASSES = ["AppDef", "Role", "Resource", "BindMount", "VolumeMount", "DeviceMount"]
CLASSES += ["AppStatus", "RoleStatus", "ReplicaStatus", "runopt"]


@pytest.fixture(scope="module")
def theirs(torchx: Callable[[str], Any]) -> Any:
    """TorchX's specs."""
    return torchx("torchx.specs")


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
    """Every name that TorchX's specs export is here, but for its decorators of AWS and its
    linter.
    """
    public = {name for name in theirs.__all__ if not name.startswith("_")}
    assert {name for name in public if not hasattr(specs, name)} - {
        "AWS_NAMED_RESOURCES",
        "GENERIC_NAMED_RESOURCES",
    } == set()


def test_methods(theirs: Any) -> None:
    """Same methods with the same parameters."""
    for name in ("runopts", "AppStatus", "macros.Values", "Resource", "Role"):
        mine: Any = specs
        other: Any = theirs
        for part in name.split("."):
            mine, other = getattr(mine, part), getattr(other, part)
        for method in [key for key, value in vars(other).items() if not key.startswith("_")]:
            thing = getattr(other, method)
            if callable(thing):
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
    """States, statuses and handles read the same."""
    for state in theirs.AppState:
        assert (str(specs.AppState(state.value)), repr(specs.AppState(state.value))) == (
            str(state),
            repr(state),
        )
    # with replicas, theirs shows Python's own marks for an object
    made = [module.AppStatus(module.AppState.RUNNING, 1, "m") for module in (specs, theirs)]
    assert repr(made[0]) == repr(made[1])
    error = '{"message": {"message": "out of memory", "errorCode": 1}, "ended": null}'
    made = [
        module.AppStatus(module.AppState.FAILED, 1, "m", error, "http://x")
        for module in (specs, theirs)
    ]
    assert repr(made[0]) == repr(made[1])
    assert specs.make_app_handle("a", "b", "c") == theirs.make_app_handle("a", "b", "c")
    assert tuple(specs.parse_app_handle("a://b/c")) == tuple(theirs.parse_app_handle("a://b/c"))
    assert repr(specs.AppDryRunInfo(5, str)) == repr(theirs.AppDryRunInfo(5, str))


def test_options_read_the_same(theirs: Any) -> None:
    """The same option text is parsed alike."""
    parsed = []
    for module in (specs, theirs):
        opts = module.runopts()
        opts.add("q", type_=str, help="h", default="x")
        opts.add("n", type_=int, help="h", required=True)
        opts.add(
            "l", type_=list[str] if module is specs else __import__("typing").List[str], help="h"
        )
        parsed.append(dict(opts.cfg_from_str("q=a,n=3,l=x,y")))
    assert parsed[0] == parsed[1]


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
