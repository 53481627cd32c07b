"""Long work shows how far it is: by a line that is written over, or by lines of the log."""

from __future__ import annotations

import io
import logging

import pytest

from transload import progress as module
from transload.progress import progress


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show each step."""
    for name in ("SILENT_S", "ON_SCREEN_S", "IN_LOG_S"):
        monkeypatch.setattr(module, name, 0.0)


def test_a_line_on_the_terminal_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step writes over the line before; nothing is left, also when the work fails."""
    screen = io.StringIO()
    monkeypatch.setattr(module, "screen", screen)
    with pytest.raises(OSError, match="gone"), progress("sending", 4 << 20) as step:
        step(1 << 20)
        step(2 << 20)
        raise OSError("gone")
    lines = screen.getvalue().split("\r\x1b[K")
    assert lines == ["", "transload: sending: 1.0 of 4.0 MiB", "transload: sending: 3.0 of 4.0 MiB", ""]


def test_lines_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """Where there is no terminal, as in a host, they are lines of the log; a total that is unknown is left out."""
    with caplog.at_level(logging.INFO, "transload"), progress("pulling alpine") as step:
        step(1 << 19)
    assert caplog.messages == ["pulling alpine: 0.5 MiB"]


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done within a second is not shown."""
    screen = io.StringIO()
    monkeypatch.setattr(module, "screen", screen)
    monkeypatch.setattr(module, "SILENT_S", 60.0)
    with progress("sending", 1) as step:
        step(1)
    assert screen.getvalue() == ""
