"""Long work shows its progress by a line that is rewritten, or by lines of the log."""

from __future__ import annotations

import io
import logging
import os
import sys
from pathlib import Path

import pytest

from transload.cli import main
from transload.cli.screen import Screen
from transload.runner import get_runner
from transload.runtime import progress_lines as module
from transload.runtime.progress_lines import changing_line, lines_to, pieces, progress
from transload.runtime.tracking import open_store
from transload.specs import AppDef, Role


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show each step."""
    for name in ("SILENT_S", "ON_SCREEN_S", "IN_LOG_S"):
        monkeypatch.setattr(module, name, 0.0)


def shown_on(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, plain: bool = False
) -> io.StringIO:
    """Have progress shown on a stream, of 30 columns where it is a terminal."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(module, "screen", Screen(io.StringIO(), stream, plain=plain))
    return stream


def test_a_line_on_the_terminal_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step replaces the line before, which never wraps, and is gone after a failure too."""
    terminal = shown_on(Terminal(), monkeypatch)
    with pytest.raises(OSError, match="gone"), progress("sending", 4 << 20) as step:
        step(1 << 20)
        step(2 << 20)
        raise OSError("gone")
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines == ["", "transload: sending: 1.0 of 4.", "transload: sending: 3.0 of 4.", ""]


def test_lines_of_a_command_whose_output_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be written over, each is a line of its own."""
    file = shown_on(io.StringIO(), monkeypatch)
    with progress("sending", 4 << 20) as step:
        step(1 << 20)
        step(2 << 20)
    assert file.getvalue().splitlines() == [
        "transload: sending: 1.0 of 4.0 MiB",
        "transload: sending: 3.0 of 4.0 MiB",
    ]


def test_lines_in_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """In an orchestrator they are lines of the log, without a total that is unknown."""
    with caplog.at_level(logging.INFO, "transload"), progress("pulling alpine") as step:
        step(1 << 19)
    assert caplog.messages == ["pulling alpine: 0.5 MiB"]


def test_lines_to_a_log_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An orchestrator's own log gets them for the time of a block, unless there is a screen."""
    lines: list[str] = []
    with caplog.at_level(logging.INFO, "transload"):
        with lines_to(lines.append), progress("pulling alpine") as step:
            step(1 << 19)
        assert (lines, caplog.messages) == (["pulling alpine: 0.5 MiB"], [])
        with progress("pulling alpine") as step:
            step(1 << 19)
        assert (len(lines), len(caplog.messages)) == (1, 1)
    shown = shown_on(io.StringIO(), monkeypatch)
    with lines_to(lines.append), progress("pulling alpine") as step:
        step(1 << 19)
    assert len(lines) == 1 and "pulling alpine" in shown.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_short_work_says_nothing(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO]
) -> None:
    """What is done in a moment is not shown."""
    for name in ("SILENT_S", "IN_LOG_S"):
        monkeypatch.setattr(module, name, 60.0)
    shown = shown_on(stream(), monkeypatch)
    with progress("sending", 1) as step:
        step(1)
    assert shown.getvalue() == ""


def test_rare_changes_are_all_shown_and_the_last_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal shows each change. A file gets what is due, and the last one at the end."""
    for name in ("SILENT_S", "ON_SCREEN_S", "IN_LOG_S"):
        monkeypatch.setattr(module, name, 60.0)
    for stream, wanted in (
        (Terminal(), "\r\x1b[Ktransload: 1/2\r\x1b[Ktransload: 2/2\r\x1b[Ktransload: 2/2\n"),
        (io.StringIO(), "transload: 2/2\n"),
    ):
        shown_on(stream, monkeypatch)
        with changing_line(rare=True) as show:
            show("1/2")
            show("2/2")
        assert stream.getvalue() == wanted


def test_a_file_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is sent from its beginning, in pieces, and what was sent of how much is shown."""
    log = shown_on(io.StringIO(), monkeypatch)
    content = b"x" * (5 << 19)
    file = io.BytesIO(content)
    file.read()
    assert b"".join(pieces(file, "uploading")) == content
    assert log.getvalue().splitlines()[-1] == "transload: uploading: 2.5 of 2.5 MiB"


@pytest.mark.parametrize("base", ["{}", "memory://progress"])
def test_each_store_tells_how_far_a_copy_is(base: str, tmp_path: Path) -> None:
    """What each store reports of a copy adds up to the file. A folder reports it in pieces."""
    store, content, told = open_store(base.format(tmp_path / "base")), os.urandom(5 << 19), []
    store.write("files/model.pt", content)
    store.fetch("files/model.pt", str(tmp_path / "model.pt"), told.append)
    assert (tmp_path / "model.pt").read_bytes() == content
    assert sum(told) == len(content) and (len(told) > 1 or "memory" in base)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_get_shows_how_far_it_is(
    more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Copying a file of a job shows lines beside the output, and none with --json."""
    program = "import os; open(os.environ['TRANSLOAD_OUTPUT_DIR'] + '/model.pt', 'wb').write(bytes(5 << 19))"
    with get_runner() as runner:
        handle = runner.run(
            AppDef("a", [Role("main", "", entrypoint=sys.executable, args=["-c", program])]),
            "local",
        )
        runner.wait(handle, timeout=60)
    assert main(["get", handle, "-o", str(tmp_path), *more]) == 0
    shown = capsys.readouterr().err
    assert (tmp_path / "model.pt").stat().st_size == 5 << 19
    assert (
        shown == "" if more else f"copying files of {handle.rpartition('/')[2]}: 2.5 MiB" in shown
    )
