"""Output has tables, colours, times and sizes, and a status line on a real terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.cli.commands.log import parse_when
from transload.cli.output import emit_fields, emit_table, has_colour, state_text
from transload.cli.screen import Screen
from transload.errors import SpecError
from transload.specs import AppState
from transload.specs.text import duration_text, parse_duration, parse_size, size_text


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It does."""
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A stream that is a terminal of a known kind."""
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 90), ("90s", 90), ("1.5h", 5400), ("1h30m", 5400), ("7d", 604800), ("200ms", 0.2)),
        *(("2:00:00", 7200), ("100:00:01", 360001), ("1-12:00:00", 129600)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Durations as people type them."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "h", "10 parsecs", "-5m", "1h 30", "ten", "2:00", "1:60:00"])
def test_bad_durations(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(SpecError, match="10m"):
        parse_duration(text)


@given(st.text(max_size=20))
def test_quantities_never_raise_anything_else(text: str) -> None:
    """Whatever is typed becomes a value or a SpecError."""
    for parse in (parse_duration, parse_size, lambda value: parse_when(value, "--since")):
        try:
            parse(text)
        except SpecError:
            pass


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59", "99999999999d", "yesterday"])
def test_times_out_of_range(text: str) -> None:
    """A time that no clock has is a time or a SpecError, in whatever time zone."""
    with contextlib.suppress(SpecError):
        assert parse_when(text, "--since").tzinfo is not None


def test_when() -> None:
    """A duration means so long ago, and an ISO time is itself, local where it has no zone."""
    now = datetime.now().astimezone()
    assert parse_when("10m", "--since", now) == now - timedelta(minutes=10)
    assert parse_when("2025-01-31T08:00:00+00:00", "--since").timestamp() == 1738310400
    assert parse_when("2025-01-31T08:00", "--since").tzinfo is not None


@pytest.mark.parametrize(
    ("text", "size"),
    [("512B", 512), ("0", 0), ("10K", 10240), ("1.5GiB", 1610612736), ("2mb", 2097152)],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes as people type them, in powers of 1024."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["8", "500", "1.5"])
def test_a_size_has_a_unit(text: str) -> None:
    """Nobody means bytes."""
    with pytest.raises(
        SpecError, match=f"--mem='{text}': must have a unit, such as {text}M or {text}G"
    ):
        parse_size(text, "--mem")


def test_texts() -> None:
    """Durations and sizes as people read them."""
    texts = [duration_text(value) for value in (0.04, 2.44, 42, 185, 7800, 273600)]
    assert texts == ["40 ms", "2.4 s", "42 s", "3 min 05 s", "2 h 10 min", "3 d 4 h"]
    assert [size_text(value) for value in (512, 1536, 5 << 30)] == ["512 B", "1.5 KiB", "5.0 GiB"]


def test_table_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """In a pipe a table has tabs, no headers or colours, and one line per row."""
    emit_table(("A", "B"), [("1", "two\twords\nlines"), ("3", state_text(AppState.FAILED))])
    emit_fields([("name", "x"), ("empty", "")])
    assert capsys.readouterr().out == "1\ttwo words lines\n3\tFAILED\nname\tx\n"


def test_table_on_a_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a table has headers, and columns aligned by the width of characters."""
    monkeypatch.setattr(
        sys, "stdout", terminal
    )  # here, for pytest changes it between fixtures and test
    emit_table(("A", "B", "C"), [("日本", state_text(AppState.FAILED), "x"), ("1", "RUNNING", "y")])
    lines = terminal.getvalue().splitlines()
    assert lines[0] == "\x1b[1mA     B        C\x1b[0m"
    assert lines[1] == "日本  \x1b[31mFAILED\x1b[0m   x"
    assert lines[2] == "1     RUNNING  y"


def test_table_on_a_narrow_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last column goes on below itself. Where there is no room at all, the terminal wraps."""
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "24")
    emit_table(("A", "B"), [("123456", "many words that do not fit")])
    assert terminal.getvalue().splitlines() == [
        "A       B",
        "123456  many words that",
        "        do not fit",
    ]
    monkeypatch.setenv("COLUMNS", "10")
    emit_table(("A", "B"), [("123456", "many words that do not fit")])
    assert terminal.getvalue().splitlines()[-1] == "123456  many words that do not fit"


def test_no_color(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """``NO_COLOR`` wins, ``FORCE_COLOR`` colours a pipe, a dumb terminal has none."""
    assert has_colour(terminal)
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert has_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(terminal)


def test_screen_keeps_the_status_line_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status line is cleared before each log line and drawn again behind it, cut to the
    width.
    """
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    stream = Terminal()
    screen = Screen(stream, stream, ["a/0", "bb/10"])
    screen.set_status("RUNNING 1/2 running and much more")
    screen.write_lines("a/0", ["one\n", "two"])
    screen.end()
    text = stream.getvalue()
    assert "\x1b[36ma/0  \x1b[0m one\n\x1b[36ma/0  \x1b[0m two\n" in text
    assert text.startswith("\r\x1b[KRUNNING 1/2 running\r\x1b[K")
    assert text.endswith("\r\x1b[K")


def _on_a_terminal(
    *args: str, timeout: float = 20.0, program: Sequence[str] = ("-m", "transload")
) -> tuple[int, str]:
    """Run the command line, or a program of Python, on a real pseudo-terminal.

    Return its exit code and all that it wrote.
    """
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    process = subprocess.Popen(
        [sys.executable, *program, *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        close_fds=True,
    )
    os.close(theirs)
    data = b""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the last writer has gone
                break
            if not block:
                break
            data += block
    os.close(ours)
    return process.wait(5), data.decode()


def test_run_on_a_terminal(component_file: str, transload_home: Any) -> None:
    """Colours, prefixes and a status line with the replicas, gone at the end."""
    code, text = _on_a_terminal(
        "run",
        component_file,
        "--replicas",
        "2",
        "--code",
        "import time; print('line'); time.sleep(1.3)",
    )
    assert code == 0, text
    assert "\x1b[36mtrain/0\x1b[0m line\r\n" in text
    assert "\x1b[33mtrain/1\x1b[0m line\r\n" in text
    assert "2/2 running" in text
    assert "\x1b[32mSUCCEEDED\x1b[0m after" in text
    last = text.split("\r\n")[-1]
    assert last == "" or last.endswith("\x1b[K")


LOUD = """
import logging, sys
from transload.cli import main
from transload.plugins import get_plugins, hookimpl

class Loud:
    @hookimpl
    def transload_app_event(self, event):
        logging.getLogger("mine").warning("seen")

get_plugins().register(Loud(), "loud")
sys.exit(main())
"""


def test_a_warning_does_not_run_into_the_status_line(
    plain_folder: str, transload_home: Any
) -> None:
    """What is logged while the status line is shown begins on a line of its own."""
    Path("loud.py").write_text(LOUD)
    code, text = _on_a_terminal("run", "--", "sleep", "1.2", program=["loud.py"])
    assert code == 0, text
    before = f"\n{text}".split("transload: mine: seen")[:-1]
    assert len(before) > 1
    assert any(shown.endswith("\r\x1b[K") for shown in before)
    assert all(shown.endswith(("\n", "\r\x1b[K")) for shown in before), text


def test_a_queue_says_why_it_waits(transload_home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler's own words stand in the terminal's line, or in a log as a line.

    With ``--json`` nothing is written over.
    """
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "1")
    command = sys.executable, "-m", "transload"
    holds = [*command, "run", "--gpu", "1", "--detach", "--app-id", "holder", "--", "sleep", "600"]
    subprocess.run(holds, check=True, stdout=subprocess.DEVNULL)
    waits = "run", "--gpu", "1", "--timeout", "3s", "--app-id"
    with ThreadPoolExecutor() as together:
        shown = together.submit(_on_a_terminal, *waits, "shown", "--", "true")
        plain = together.submit(_on_a_terminal, *waits, "plain", "--json", "--", "true")
    for (code, text), more in ((shown.result(), ()), (plain.result(), ("--json",))):
        assert code == 5, text
        line = "\r\x1b[K\x1b[33mPENDING\x1b[0m  0/1 running  0:0"
        assert (line in text) == (not more), text
        assert "waiting for 1 of 1 GPUs" in text
    done = subprocess.run(
        [*command, *waits, "log", "--", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 5 and "\x1b" not in done.stderr
    why = "holder has 0; 2 jobs wait before it"
    assert f"transload: PENDING: waiting for 1 of 1 GPUs: {why}\n" in done.stderr
    subprocess.run([*command, "cancel", "--wait", "log", "plain", "shown", "holder"], check=True)


def test_an_app_that_waits_too_long_is_cancelled(
    transload_home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--startup-timeout`` counts while a job is PENDING. What has begun to run is left alone."""
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "1")
    command = sys.executable, "-m", "transload"
    holds = [*command, "run", "--gpu", "1", "--detach", "--app-id", "holder", "--", "sleep", "600"]
    subprocess.run(holds, check=True, stdout=subprocess.DEVNULL)
    waits = [*command, "run", "--gpu", "1", "--startup-timeout", "1s", "--", "true"]
    done = subprocess.run(waits, capture_output=True, text=True, check=False, timeout=60)
    assert "it did not start within 1.0 s; cancelling it: waiting for 1 of 1 GPUs" in done.stderr
    assert "CANCELLED" in done.stderr and done.returncode not in (0, 5)
    subprocess.run([*command, "cancel", "--wait", "holder"], check=True)
    runs = [*command, "run", "--startup-timeout", "1s", "--", "sleep", "1.5"]
    assert subprocess.run(runs, capture_output=True, check=False, timeout=60).returncode == 0
