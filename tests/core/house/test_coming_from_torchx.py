"""What docs/guides/coming-from-torchx.md says of both sides, where TorchX 0.7.0 is installed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "coming-from-torchx.md").read_text()
RENAMED = re.findall(r"^\| `(torchx\.[\w.]+)` \| `(transload\.[\w.]+)` \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("old", "new"), RENAMED)
def test_modules_that_are_renamed(torchx: Callable[[str], Any], old: str, new: str) -> None:
    """Both modules can be imported, and differ in the first word only."""
    assert old.partition(".")[2] == new.partition(".")[2]
    importlib.import_module(new)
    torchx(old)


def test_the_table_of_modules_is_read() -> None:
    """The pattern above still finds the table."""
    assert len(RENAMED) >= 9


def test_bools_and_dollars(torchx: Callable[[str], Any]) -> None:
    """``yes`` is false in TorchX and true here.

    ``$$`` is an escape there and the user's own here.
    """
    theirs = torchx("torchx.util.types").decode
    assert theirs("yes", bool) is False
    from transload.specs import macros, parse_bool

    assert parse_bool("yes") is True
    values = {"img_root": "", "app_id": "id", "replica_id": "0", "rank0_env": "R"}
    assert torchx("torchx.specs").macros.Values(**values).substitute("$$ $app_id") == "$ id"
    assert macros.Values(**values).substitute("$$ $app_id") == "$$ $app_id"


def test_what_is_accepted_there_and_refused_here(torchx: Callable[[str], Any]) -> None:
    """A negative resource, two roles of one name, a text for ``min_replicas``."""
    from transload import specs as mine

    theirs = torchx("torchx.specs")

    def wrong(module: Any) -> list[Any]:
        role = module.Role("x", "image", entrypoint="true")
        return [
            lambda: module.Resource(cpu=-5, gpu=0, memMB=1),
            lambda: module.Role("x", "image", "python"),
            lambda: module.AppDef("a", [role, role]),
        ]

    for make in wrong(theirs):
        make()
    for make in wrong(mine):
        with pytest.raises(mine.SpecError):
            make()


def test_lineage_is_not_there(torchx: Callable[[str], Any], tmp_path: Path) -> None:
    """TorchX's fsspec tracker has the method and raises NotImplementedError."""
    import fsspec

    tracker = torchx("torchx.tracker.backend.fsspec").FsspecTracker(
        fsspec.filesystem("file"), str(tmp_path)
    )
    with pytest.raises(NotImplementedError):
        tracker.lineage("run")


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
