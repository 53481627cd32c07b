"""Recordings of terminals, from real runs; `make_pictures.py` asks for them.

A recording is an SVG that shows each line when it came, with pauses cut to a second; it moves in
any browser, and asks the network for nothing. Each line is a command that was typed to a shell, or
what programs printed then on a terminal of 100 columns.

- ``run``: `transload run` with live progress.
- ``kill``: a task of a real Airflow trains; its process is killed by SIGKILL; the retry finds the
  job, which went on.
- ``preempted``: a training that is interrupted several times, and ends; then the same one
  undisturbed.
- ``docker``, ``slurm``, ``kubernetes``: `transload run` on that engine; pictures that stand still,
  as the next one.
- ``kfp``: what KFP's runner prints of the example, without the executor's input.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import runpy
import shlex
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDE, HIGH, MARGIN = 8.4, 20, 16
PAUSE_S, HOLD_S = 1.0, 4.0
COLUMNS = 100
"""How wide a terminal is."""
EXAMPLE = "examples/digits/component.py --replicas 2"
KFP_SHOWS = "INFO - [^S]|trainer/|\\[transload\\] local|    (handle|accuracy):"
PROGRESS = re.compile(r"transload: \d+ %, step ")
COLOURS = {"": "#d4d4d4", "$": "#7ec699", "!": "#ff7b72", "*": "#79c0ff"}
DAG = """
import datetime as dt, sys
from airflow.sdk import DAG
from transload_airflow import TransloadOperator
with DAG(
    "training",
    schedule=None,
    start_date=dt.datetime(2024, 1, 1),
    catchup=False,
    is_paused_upon_creation=False,
):
    TransloadOperator(
        task_id="train",
        component={component!r},
        component_args={{"replicas": 2, "epochs": 12, "hidden": 6000, "batch": 4, "lr": 0.003}},
        scheduler="local",
        retries=2,
        retry_delay=dt.timedelta(seconds=10),
    )
"""
AIRFLOW_LOG = (
    "tail -qF attempt={1,2}.log 2>/dev/null | jq --unbuffered -r .event "
    "| grep -E '^(job|trainer)' &"
)
"""Shows the lines of the job in the log of both attempts of a task."""

Line = tuple[float, str, str]
"""When it came (seconds), how it is shown (a key of `COLOURS`), and its text."""


def record(name: str, folder: Path) -> None:
    """Make one of them; the folder is for what the run leaves behind."""
    recorders = {
        "run": record_run,
        "kill": record_kill,
        "kfp": record_kfp,
        "preempted": record_preempted,
    }
    lines = recorders[name](folder) if name in recorders else record_engine(name)
    (IMAGES / f"recording-{name}.svg").write_text(
        render(lines, still=name not in ("run", "kill", "preempted")), encoding="utf-8"
    )


def record_run(_folder: Path) -> list[Line]:
    """Run the first example as the command line shows it."""
    terminal = Terminal(ROOT)
    terminal.type(f"transload run {EXAMPLE} --epochs 8")
    return terminal.lines


def record_preempted(_folder: Path) -> list[Line]:
    """Run the two commands of the page of examples/preempted; without the lines on progress."""
    page = (ROOT / "examples" / "preempted" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (transload run .*examples/preempted.*)$", page, re.MULTILINE)
    terminal = Terminal(ROOT)
    for command in commands[:2]:
        terminal.type(command)
    return [line for line in terminal.lines if not PROGRESS.match(line[2])]


def record_engine(engine: str) -> list[Line]:
    """Run the first example on an engine."""
    terminal = Terminal(ROOT)
    terminal.type(f"transload run -s {engine} {EXAMPLE} --epochs 4")
    return terminal.lines


def record_kfp(folder: Path) -> list[Line]:
    """Run the example with KFP's runner."""
    (folder / "examples").symlink_to(ROOT / "examples")
    terminal = Terminal(folder)
    program = "python3 examples/everywhere/show.py kfp"
    terminal.type(f"{program} 2>&1 | grep -E {shlex.quote(KFP_SHOWS)}", shown=program)
    return terminal.lines


def record_kill(folder: Path) -> list[Line]:
    """Kill the process of a training task of Airflow, and follow what its log and its state say."""
    show = runpy.run_path(str(ROOT / "examples" / "everywhere" / "show.py"))
    dags = folder / "dags"
    dags.mkdir()
    component = f"{ROOT / 'examples' / 'digits' / 'component.py'}:digits"
    (dags / "training.py").write_text(DAG.format(component=component))
    with show["airflow_server"](folder, dags) as (url, token):
        dag = f"{url}/api/v2/dags/training"
        task = f"{dag}/dagRuns/first/taskInstances/train"

        def state() -> tuple[str, int]:
            found = show["call"](task, token=token) or {}
            return found.get("state") or "", found.get("try_number") or 0

        show["wait_for"](lambda: show["call"](dag, token=token), "the DAG is known")
        logs = folder / "airflow" / "logs" / "dag_id=training" / "run_id=first" / "task_id=train"
        logs.mkdir(parents=True)
        terminal = Terminal(logs)
        terminal.type("airflow dags trigger training --run-id first > /dev/null")
        with terminal.following(AIRFLOW_LOG):
            show["wait_for"](lambda: terminal.count("epoch") >= 4, "it trains")
            process = _task_process(show["call"](task, token=token)["id"])
            terminal.type(f"kill -9 {process}      # the process of the task", kind="!")
            show["wait_for"](lambda: state() == ("up_for_retry", 1), "the task is to be retried")
            terminal.type("airflow tasks state training train first 2> /dev/null")
            show["wait_for"](lambda: state()[0] in ("success", "failed"), "the task has ended")
            show["wait_for"](lambda: terminal.count("held-out"), "its last line is shown")
        terminal.type("airflow tasks state training train first 2> /dev/null")
        terminal.type("transload list")
        return terminal.lines


class Terminal:
    """A terminal of a shell, and all that was typed and printed there.

    Args:
        folder: The folder of the shell.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[Line] = []
        self._began = time.monotonic()

    def type(self, command: str, *, shown: str = "", kind: str = "$") -> None:
        """Run a command to its end.

        Args:
            command: What the shell is given.
            shown: What is shown in its place.
            kind: How it is shown, a key of `COLOURS`.
        """
        self._note(kind, f"$ {shown or command}")
        with self._started(command) as (process, reader):
            reader()
            process.wait()

    @contextmanager
    def following(self, command: str) -> Iterator[None]:
        """Have a command run in the background, as its last character `&` says."""
        self._note("$", f"$ {command}")
        with self._started(command.removesuffix("&")) as (process, reader):
            thread = threading.Thread(target=reader)
            thread.start()
            try:
                yield
            finally:
                os.killpg(process.pid, 15)
                process.wait()
                thread.join()

    def count(self, text: str) -> int:
        """Return how many lines have this text."""
        return sum(text in line for _, _, line in self.lines)

    @contextmanager
    def _started(
        self, command: str
    ) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
        """Start a command on a terminal of its own; give it, and what notes its lines to the end."""
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        process = subprocess.Popen(
            ["/bin/bash", "-c", command],
            cwd=self.folder,
            env=os.environ | {"TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        with open(ours, "rb") as output:
            yield process, lambda: self._read(output)

    def _read(self, output: Any) -> None:
        try:
            for line in output:
                text = re.sub(r"\x1b\[[\d;]*m", "", line.decode().rstrip())
                self._note("*" if text.startswith("transload:") else "", text)
        except OSError:
            return  # Linux's answer when no program has the terminal any more

    def _note(self, kind: str, text: str) -> None:
        """Keep a line, broken as a terminal does."""
        when = time.monotonic() - self._began
        for begin in range(0, max(1, len(text)), COLUMNS):
            self.lines.append((when, kind, text[begin : begin + COLUMNS]))


def _task_process(task: str) -> int:
    """Return the process that runs a task instance: Airflow puts its id into the title."""
    for entry in Path("/proc").iterdir():
        try:
            if (
                entry.name.isdigit()
                and f"airflow worker -- {task}".encode() in (entry / "cmdline").read_bytes()
            ):
                return int(entry.name)
        except OSError:
            continue
    raise SystemExit("the process of the task was not found")


def render(lines: list[Line], *, still: bool) -> str:
    """Return lines as a terminal: all of them, then each when it came (or still); longer pauses are
    cut.
    """
    shown, clock, before = [], 0.0, 0.0
    for when, kind, text in sorted(lines, key=lambda line: line[0]):
        clock += min(PAUSE_S, max(0.0, when - before))
        before = max(before, when)
        shown.append((clock, kind, text))
    total = HOLD_S + clock
    width = int(max(len(text) for _, _, text in shown) * WIDE + 2 * MARGIN)
    height = len(shown) * HIGH + 2 * MARGIN
    gone = 100 * HOLD_S / total  # who only glances at it sees all of it
    body = []
    for number, (at, kind, text) in enumerate(shown):
        back = max(gone + 0.02, gone + 100 * at / total)
        moves = (
            f"<style>@keyframes l{number}{{0%,{gone:.2f}%{{opacity:1}}{gone + 0.01:.2f}%,{back:.2f}%{{opacity:0}}"
            f"{back + 0.01:.2f}%,100%{{opacity:1}}}}#l{number}{{animation:l{number} {total:.1f}s "
            f"infinite}}</style>"
        )
        body.append(
            f"{'' if still else moves}"
            f'<text id="l{number}" x="{MARGIN}" y="{MARGIN + (number + 0.7) * HIGH:.0f}" '
            f'fill="{COLOURS[kind]}" '
            f'xml:space="preserve">{escape(text)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" '
        'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" role="img">'
        f'<rect width="100%" height="100%" rx="8" fill="#1e1e1e"/>{"".join(body)}</svg>\n'
    )
