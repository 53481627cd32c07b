"""Programs that no system could start are refused before a submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def script(path: Path, text: str) -> Path:
    """Write a script that may be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("line", ["#!/bin/sh", "#!/usr/bin/env python3", "#! /bin/sh -e"])
@pytest.mark.parametrize(
    "options",
    [
        ("--", "./run.sh"),
        ("--", "${img_root}/run.sh"),
        ("--workspace", ".", "--", "./run.sh"),
        ("-s", "scripted", "--workspace", ".", "--", "./run.sh"),
        ("--dry-run", "-s", "scripted", "--workspace", ".", "--", "./run.sh"),
        ("--env", "PATH=.", "--", "run.sh"),
    ],
    ids=["here", "by its root", "copied", "elsewhere", "dry-run", "on PATH"],
)
def test_a_script_with_the_line_ends_of_windows(
    invoke: Any, plain_folder: str, line: str, options: tuple[str, ...]
) -> None:
    """The program that its first line names is not there. The message says what to type."""
    script(Path(plain_folder) / "run.sh", f"{line}\r\necho hi\r\n")
    result = invoke("run", *options)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert "run.sh" in result.err
    assert "sed -i" in result.err
    assert invoke("list", "--json").json["apps"] == []


def test_a_script_that_the_shell_reads_may_have_any_line_ends(
    invoke: Any, plain_folder: str
) -> None:
    """Only the first line names a program, and only one that ends so is refused."""
    script(Path(plain_folder) / "late.sh", "#!/bin/sh\necho hi #\r\n")
    assert invoke("run", "--", "./late.sh").code == 0
