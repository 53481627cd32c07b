"""What is logged reads like the other lines of the command line."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from transload.cli.log_lines import LogLines, shown_log


def test_every_line_on_stderr_has_the_same_beginning(spawn: Any, plain_folder: str) -> None:
    """A warning of the core stands among the notes of the command line."""
    process = spawn("run", "--image", "alpine:3", "--", "true")
    _, err = process.communicate()
    assert "transload: image alpine:3 is not used: scheduler local" in err
    assert all(line.startswith("transload: ") for line in err.splitlines())


def test_other_libraries_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning of a library says whose it is, and what is less than a warning is not shown."""
    shown = LogLines(logging.WARNING)
    for name in ("urllib3.pool", "transload.kubernetes"):
        shown.handle(logging.LogRecord(name, logging.WARNING, "", 0, "try %s\nagain", (1,), None))
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(" try 1")[0] for line in said] == [
        "transload: urllib3.pool:",
        "transload:",
    ]


def test_the_log_is_left_as_it_was() -> None:
    """A program that calls the command line has its own last resort back."""
    before = logging.lastResort
    with shown_log():
        assert isinstance(logging.lastResort, LogLines)
    assert logging.lastResort is before
