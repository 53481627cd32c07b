"""The built-in components against those of TorchX 0.7.0, where that is installed."""

from __future__ import annotations

import inspect
import re
import shlex
import typing
from collections.abc import Callable
from typing import Any

import pytest

from transload.components import materialize_appdef
from transload.components.builtin import dist, utils
from transload.components.programs.record import START
from transload.components.programs.torchrun import RECORDED

pytestmark = pytest.mark.unit

NAMES = [
    "utils.echo",
    "utils.touch",
    "utils.sh",
    "utils.python",
    "utils.binary",
    "utils.copy",
    "utils.booth",
]
NAMES += ["dist.ddp", "dist.spmd"]
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


@pytest.fixture(scope="module")
def theirs(torchx: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return TorchX's function, by ``theirs(name)``."""

    def find(name: str) -> Any:
        module, _, fn = name.partition(".")
        return getattr(torchx(f"torchx.components.{module}"), fn)

    return find


def ours(name: str) -> Any:
    """Return our function."""
    module, _, fn = name.partition(".")
    return getattr({"utils": utils, "dist": dist}[module], fn)


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
        # there, a dollar is doubled for its templates
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {renamed(key): renamed(item) for key, item in value.items()}
    return [renamed(item) for item in value] if isinstance(value, (list, tuple)) else value


def bare(value: Any) -> Any:
    """Return a value of ours without what has a Python program write its error file."""
    if not isinstance(value, list):
        return value
    return value[2:] if value[:2] == ["-c", START] else value


def words_of(command: str) -> list[str]:
    """Return the words of a shell command that starts torchrun, sorted, without what is ours
    alone.
    """
    before, ours_alone, command = command.rpartition(RECORDED)
    if ours_alone:
        port = re.search(r"^port=(\d+)$", before, re.MULTILINE)
        command = "torchrun " + command.replace("$port", port[1] if port else "29500").replace(
            '"$@"', ""
        )
        command = re.sub(r" --rdzv_conf \S+ == 0\)\)", "", command)
    return sorted(shlex.split(command))


@pytest.mark.parametrize("name", NAMES)
def test_signatures(theirs: Callable[[str], Any], name: str) -> None:
    """Same parameters in the same order, of the same kinds, types and defaults."""
    mine, other = inspect.signature(ours(name)), inspect.signature(theirs(name))
    assert list(mine.parameters) == list(other.parameters)
    hints, other_hints = typing.get_type_hints(ours(name)), typing.get_type_hints(theirs(name))
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
def test_apps(
    torchx: Callable[[str], Any], theirs: Callable[[str], Any], name: str, argv: list[str]
) -> None:
    """The same command line makes the same app, save for names, doubled dollars and who writes the
    error file.
    """
    import dataclasses

    builders = torchx("torchx.specs.builders")
    other = builders.materialize_appdef(theirs(name), argv)
    mine = materialize_appdef(ours(name), argv)
    assert mine.name == renamed(other.name)
    for left, right in zip(mine.roles, other.roles, strict=True):
        for field in dataclasses.fields(right):
            if field.name in ("image", "base_image", "resource", "mounts", "retry_policy"):
                continue
            mine_is, theirs_is = (
                bare(getattr(left, field.name)),
                renamed(getattr(right, field.name)),
            )
            if name.startswith("dist.") and field.name == "args":
                mine_is, theirs_is = [words_of(args[1]) for args in (mine_is, theirs_is)]
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
