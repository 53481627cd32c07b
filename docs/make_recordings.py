"""Recordings of terminals, from real runs; `make_pictures.py` asks for them.

A recording is an SVG that shows each line when it came, with pauses cut to a second; it moves in
any browser, and asks the network for nothing.

- ``run``: `transload run` with live progress.
- ``kill``: a task of a real Airflow trains; its process is killed by SIGKILL; the retry finds the
  job, which went on.
- ``preempted``: a training that is interrupted several times, and ends; then the same one
  undisturbed.
- ``docker``, ``slurm``, ``kubernetes``: `transload run` on that engine; pictures that stand still,
  as the next one.
- ``kfp``: what `quickstart.py --host kfp` shows, without the executor's input.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDE, HIGH, MARGIN = 8.4, 20, 16
PAUSE_S, HOLD_S = 1.0, 4.0
COLUMNS = 100
"""How wide a terminal is."""
KFP_SAYS = re.compile(r"^\$|INFO - [^S]|trainer/|\[transload\] local|    (handle|accuracy):")
PROGRESS = re.compile(r"transload: \d+ %, step ")
COLOURS = {"": "#d4d4d4", "$": "#7ec699", "!": "#ff7b72", "*": "#79c0ff"}
DAG = """
import datetime as dt, sys
from airflow.sdk import DAG
from transload_airflow import TransloadOperator
with DAG("training", schedule=None, start_date=dt.datetime(2024, 1, 1), catchup=False):
    TransloadOperator(
        task_id="train",
        component={component!r},
        component_args={{"replicas": 2, "epochs": 15, "hidden": 1024, "batch": 4, "lr": 0.02}},
        scheduler="local",
        retries=2,
        retry_delay=dt.timedelta(seconds=1),
    )
"""

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
    command = [
        "transload",
        "run",
        "examples/digits/component.py",
        "--replicas",
        "2",
        "--epochs",
        "8",
    ]
    return _terminal(" ".join(command), [sys.executable, "-m", *command], ROOT)


def record_preempted(_folder: Path) -> list[Line]:
    """Run the two commands of the page of examples/preempted; without the lines on progress."""
    page = (ROOT / "examples" / "preempted" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (transload run .*examples/preempted.*)$", page, re.MULTILINE)
    lines: list[Line] = []
    for command in commands[:2]:
        began = lines[-1][0] + PAUSE_S if lines else 0.0
        program = [sys.executable, "-m", *command.split()]
        found = _terminal(command, program, ROOT)
        for when, kind, text in found:
            if not PROGRESS.match(text):
                lines += [(began + when, kind, part) for part in _wrapped(text)]
    return lines


def _wrapped(text: str) -> list[str]:
    """Break a line as a terminal does."""
    return [text[begin : begin + COLUMNS] for begin in range(0, max(1, len(text)), COLUMNS)]


def record_engine(engine: str) -> list[Line]:
    """Run the first example on an engine."""
    command = [
        "transload",
        "run",
        "-s",
        engine,
        "examples/digits/component.py",
        "--replicas",
        "2",
        "--epochs",
        "4",
    ]
    return _terminal(" ".join(command), [sys.executable, "-m", *command], ROOT)


def record_kfp(folder: Path) -> list[Line]:
    """Run the example of the README by KFP's runner."""
    program = [sys.executable, str(ROOT / "examples" / "everywhere" / "show.py"), "kfp"]
    lines = _terminal("python3 quickstart.py --host kfp", program, folder)
    return [
        (when, "*" if "INFO" in text else kind, text[:84])
        for when, kind, text in lines
        if KFP_SAYS.search(text)
    ]


def _terminal(shown: str, program: list[str], folder: Path) -> list[Line]:
    """Run a program, and note when each of its lines came."""
    lines: list[Line] = [(0.0, "$", f"$ {shown}")]
    began = time.monotonic()
    with subprocess.Popen(
        program, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            text = re.sub(r"\x1b\[[\d;]*m", "", line.rstrip())
            lines.append(
                (time.monotonic() - began, "*" if text.startswith("transload:") else "", text)
            )
    return lines


def record_kill(folder: Path) -> list[Line]:
    """Kill the process of a training task of Airflow, and follow what its log and its state say."""
    show = runpy.run_path(str(ROOT / "examples" / "everywhere" / "show.py"))
    call, dags = show["call"], folder / "dags"
    dags.mkdir()
    component = f"{ROOT / 'examples' / 'digits' / 'component.py'}:digits"
    (dags / "training.py").write_text(DAG.format(component=component))
    with show["airflow_server"](folder, dags) as (url, token):
        dag = f"{url}/api/v2/dags/training"
        show["wait_for"](lambda: call(dag, token=token), "the DAG is known")
        call(dag, {"is_paused": False}, token=token, method="PATCH")
        began = time.monotonic()
        lines: list[Line] = [(0.0, "$", "$ airflow dags trigger training")]
        run = call(f"{dag}/dagRuns", {"logical_date": None}, token=token)["dag_run_id"]
        task = f"{dag}/dagRuns/{run}/taskInstances/train"
        seen: set[tuple[int, float, str]] = set()
        killed, state = False, ""
        while state not in ("success", "failed"):
            time.sleep(0.2)
            now = time.monotonic() - began
            said = call(task, token=token) or {}
            number = max(1, said.get("try_number") or 1)
            if said.get("state") not in (None, state):
                state = said["state"]
                lines.append((now, "*", f"task train: {state.replace('_', ' ')}, try {number}"))
            for attempt in range(1, number + 1):
                for when, text in _log(call, task, attempt, token):
                    if (attempt, when, text) not in seen:
                        seen.add((attempt, when, text))
                        came = max(now - 1, when - _epoch(began))
                        lines += [(came, "", part) for part in _wrapped(text)]
            if not killed and sum("epoch" in text for _, _, text in lines) >= 4:
                killed = True
                pid = _task_process(said["id"])
                os.kill(pid, signal.SIGKILL)
                lines.append(
                    (
                        time.monotonic() - began,
                        "!",
                        f"$ kill -9 {pid}      # the process of the task",
                    )
                )
        lines.append((time.monotonic() - began, "$", "$ transload list"))
        jobs = subprocess.run(
            [sys.executable, "-m", "transload", "list"], capture_output=True, text=True, check=True
        ).stdout
        for line in jobs.splitlines():
            lines.append((time.monotonic() - began, "", "  ".join(line.split("\t"))))
    return lines


def _epoch(began: float) -> float:
    return time.time() - (time.monotonic() - began)


def _log(call: Any, task: str, attempt: int, token: str) -> list[tuple[float, str]]:
    """Return the lines of the job in the log of a try, with the moment at which each was
    written.
    """
    content = (call(f"{task}/logs/{attempt}?full_content=true", token=token) or {}).get(
        "content"
    ) or []
    found = []
    for entry in content if isinstance(content, list) else []:
        text = str(entry.get("event", ""))
        if entry.get("timestamp") and text.startswith(("trainer/", "job ")):
            found.append((dt.datetime.fromisoformat(entry["timestamp"]).timestamp(), text))
    return found


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
