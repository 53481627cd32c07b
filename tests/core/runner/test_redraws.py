"""Progress bars are lines that a program draws over itself, shown in time and at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.runner.logs import Redraws, drawn
from transload.schedulers.api import LogQuery, Stream
from transload.schedulers.folder.logs import read_log
from transload_testing.steps import PlainStep


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain\n", "plain\n"),
        ("windows\r\n", "windows\n"),
        ("\r10%\r100%\n", "100%\n"),
        ("10%\r100%\r\n", "100%\n"),
        ("10%\r   \r\n", "10%\n"),
        ("\r\n", "\n"),
        ("10%\r20%\r", "20%"),
        ("no end", "no end"),
    ],
)
def test_what_a_terminal_shows_in_the_end(line: str, shown: str) -> None:
    """The text behind the last carriage return is what is left of a line."""
    assert drawn(line) == shown


class Clock:
    """Seconds that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now


@pytest.mark.parametrize("at_start", [True, False])
def test_a_bar_is_a_line_now_and_then(at_start: bool) -> None:
    """The first state is shown, then one every five seconds, and the last one, none twice."""
    clock = Clock()
    redraws = Redraws(5.0, clock)
    found = redraws.take(["begin\n"])
    for second in range(13):
        clock.now = 100.0 + second
        state = f"{second}/12"
        if at_start:
            found += redraws.take(["\r"], state)
        else:
            found += redraws.take([f"{state}\r"])
        assert redraws.live == state
    found += redraws.take(["12/12\n" if at_start else "\n", "end\n"])
    shown = ["begin\n", "0/12\n", "5/12\n", "10/12\n", "12/12\n", "end\n"]
    assert [line for line in found if line != "1/12\n"] == shown or found == shown
    assert redraws.rest() == []
    assert redraws.live == ""


def test_a_terminal_gets_only_what_is_left() -> None:
    """Where the state is redrawn in place, no state becomes a line but the last."""
    redraws = Redraws(float("inf"))
    assert redraws.take(["1%\r", "2%\r"], "3%") == []
    assert redraws.live == "3%"
    assert redraws.take(["3%\r"]) == []
    assert redraws.rest() == ["3%\n"]


def test_an_unfinished_line_is_no_line_yet() -> None:
    """What has neither newline nor carriage return is shown on a terminal, and is not a line."""
    redraws = Redraws()
    assert redraws.take(["a\n"], "Password: ") == ["a\n"]
    assert redraws.live == "Password: "
    assert redraws.take(["Password: x\n"]) == ["Password: x\n"]


@given(
    st.lists(st.text(st.sampled_from("ab1 "), max_size=3).map(lambda text: f"{text}\n"), max_size=6)
)
def test_lines_without_a_carriage_return_stay_as_they_are(lines: list[str]) -> None:
    """Nothing is lost, added or changed where nothing is drawn over."""
    redraws = Redraws()
    assert redraws.take(lines) + redraws.rest() == lines


@given(
    st.lists(st.sampled_from(["1%\r", "\r2%", "x\n", "\n", "\r\n", "tail"]), max_size=8), st.data()
)
def test_pieces_of_a_growing_log_are_all_of_it(texts: list[str], data: st.DataObject) -> None:
    """However a log grows, its pages make up the same text, and a state is handed out before its
    line has an end.
    """
    import tempfile

    whole = "".join(texts)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stdout.log"
        cursor: str | None = None
        found: list[str] = []
        written = 0
        while written < len(whole):
            written = data.draw(st.integers(written + 1, len(whole)))
            log.write_bytes(whole[:written].encode())
            page = read_log(folder, LogQuery("main", 0, Stream.STDOUT, cursor, 1 << 18), False)
            cursor = page.cursor
            found += page.lines
            assert "".join(found) + page.unfinished == whole[:written]
            assert "\r" not in page.unfinished.removesuffix("\r")
        found += read_log(folder, LogQuery("main", 0, Stream.STDOUT, cursor, 1 << 18), True).lines
        assert "".join(found) == whole


WAIT = "while not os.path.exists(sys.argv[1]): time.sleep(0.05)"
BAR = r"""
import sys, time
print("begin", flush=True)
for step in range(40):
    sys.stderr.write(f"\r{step}/39 done")
    sys.stderr.flush()
    time.sleep(0.05)
if sys.argv[1:]:
    input()
sys.stderr.write("\n")
print("end", flush=True)
"""


def transload(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    command = [sys.executable, "-m", "transload", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, **more)


def test_run_shows_a_bar_to_a_pipe(transload_home: Path) -> None:
    """`run` writes the first state, one every few seconds, and the last, each on its line."""
    done = transload("run", "--no-prefix", "--", sys.executable, "-c", BAR)
    lines = done.stdout.splitlines()
    assert lines[0] == "begin"
    assert set(lines[-2:]) == {"end", "39/39 done"}
    assert len(lines) <= 4
    assert "\r" not in done.stdout


def test_log_shows_the_line_that_is_not_finished(
    transload_home: Path, tmp_path: Path, eventually: Any
) -> None:
    """`log` of a running job ends with its unfinished line, else with the last state."""
    program = f"import os\n{BAR}".replace("input()", WAIT)
    gate = tmp_path / "gate"
    handle = transload(
        "run", "--detach", "--", sys.executable, "-c", program, str(gate)
    ).stdout.strip()
    wanted = "begin\n39/39 done\n"
    eventually(lambda: transload("log", "--no-prefix", handle).stdout == wanted, 40.0)
    gate.touch()
    transload("wait", handle)
    assert sorted(transload("log", "--no-prefix", handle).stdout.splitlines()) == [
        "39/39 done",
        "begin",
        "end",
    ]


def test_orchestrators_get_a_bar_as_lines(transload_home: Path) -> None:
    """What an orchestrator's log shows of a bar are states, the last one among them."""
    from transload.pipelines import ExecutionOptions, Identity, Launch, host_runner

    lines: list[str] = []
    with host_runner("bars") as runner:
        execution = PlainStep(
            runner,
            Launch(command=[sys.executable, "-c", BAR]),
            Identity("bars", ("one",), ("bar",)),
            ExecutionOptions(),
            said=lines.append,
        )
        execution.run()
    lines = [line.partition(" ")[2] for line in lines if "/0 " in line]
    assert "39/39 done" in lines
    assert len(lines) <= 5
    assert not any("\r" in line for line in lines)
