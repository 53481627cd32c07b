"""Components, sizes and commands that have TorchX's names, and come with this plugin alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transload.cli import main
from transload.components import materialize
from transload.specs import Role, named_resources
from transload_torchx import copy_main


def role_of(component: str, *argv: str) -> Role:
    """Return the only role of a component."""
    (role,) = materialize(component, list(argv)).roles
    return role


def run_role(role: Role) -> subprocess.CompletedProcess[str]:
    """Run what a role would run, with this interpreter for ``python``."""
    assert role.entrypoint == "python"
    command = [sys.executable, *role.args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_touch() -> None:
    """It is the program of that name."""
    role = role_of("utils.touch", "--file", "/x y")
    assert (role.entrypoint, role.args) == ("touch", ["/x y"])


def test_copy_runs(tmp_path: Path) -> None:
    """The copied file is the same, and missing folders are made.

    A mistake is one line, status 1.
    """
    source = tmp_path / "a.bin"
    source.write_bytes(bytes(range(256)) * 1000)
    target = tmp_path / "new" / "folder" / "b.bin"
    done = run_role(role_of("utils.copy", "--src", str(source), "--dst", f"file://{target}"))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes() == source.read_bytes()
    for src in (tmp_path / "none", tmp_path):
        failed = run_role(role_of("utils.copy", "--src", str(src), "--dst", str(target)))
        assert failed.returncode == 1
        assert failed.stderr.startswith("copy: ")
        assert failed.stderr.count("\n") == 1


def test_copy_between_storages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From one kind of storage to another, and back."""
    source = tmp_path / "a.txt"
    source.write_text("text")
    there, again = "memory://tl-copy/deep/a.txt", "memory://tl-copy/b.txt"
    assert copy_main.main(["--src", str(source), "--dst", there]) == 0
    assert copy_main.main(["--src", there, "--dst", again]) == 0
    assert copy_main.main(["--src", again, "--dst", str(tmp_path / "b.txt")]) == 0
    assert (tmp_path / "b.txt").read_text() == "text"
    assert copy_main.main(["--src", "nonsense://x", "--dst", str(tmp_path / "c")]) == 1
    assert "nonsense" in capsys.readouterr().err


def test_sizes_of_aws() -> None:
    """A size of AWS is a named resource."""
    assert named_resources["aws_p4d.24xlarge"].gpu == 8


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["builtins"], "utils.copy"),
        (["configure"], "scheduler\tlocal"),
        (["runopts", "local"], "log_dir"),
    ],
)
def test_commands(
    words: list[str],
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Those who come from TorchX may type its commands."""
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert shown in capfd.readouterr().out
