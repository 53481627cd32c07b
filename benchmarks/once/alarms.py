"""Runs healthy jobs that are slow and are paused, and counts how many are said to have stalled.

    python alarms.py runner ENGINE JOBS SEED

ENGINE is ``local`` or ``docker``. Each job shows a sign of life now and then: a line of its log,
its progress, a file among its results. Between two signs it takes up to two thirds of the time
after which it would have stalled. A third of them is paused for longer than that time: its
processes are stopped, or its container is. A line of JSON says what was seen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from transload.runner import Runner, get_runner
from transload.specs import AppDef, AppState, BindMount, Resource, Role

STALL_S = 6.0
"""A job has stalled after this long without a sign of life."""
EPOCHS = 5
PAUSE_S = 9.0
LIMIT_S = 300.0
AT_ONCE = 10
SIGNS = {
    "log": "print('epoch', number, flush=True)",
    "progress": "Path(os.environ['TRANSLOAD_PROGRESS_FILE']).write_text('{\"step\": %d}' % number)",
    "result": "Path(os.environ['TRANSLOAD_OUTPUT_DIR'], f'epoch-{number}').write_text('done')",
}
PROGRAM = """
import os, time
from pathlib import Path
Path(os.environ["TRANSLOAD_OUTPUT_DIR"]).mkdir(parents=True, exist_ok=True)
Path(NOTE).write_text(str(os.getpid()))
for number in range(1, EPOCHS + 1):
    time.sleep(SECONDS)
    SIGN
"""


@dataclass
class Case:
    """What became of a job.

    Args:
        name: its name.
        sign: how it shows that it lives.
        paused: it was paused.
        alarms: states in which it was said to have stalled.
        state: how it ended.
    """

    name: str
    sign: str
    paused: bool = False
    alarms: int = 0
    state: str = ""


def pause(engine: str, ledger: Path, name: str) -> bool:
    """Pause a job for a while; return False if it had ended."""
    if engine == "docker":
        found = _docker("ps", "--quiet", "--filter", f"name=^{name}[.]").stdout.split()
        if not found:
            return False
        stopped = _docker("pause", *found).returncode == 0
        time.sleep(PAUSE_S)
        return stopped and _docker("unpause", *found).returncode == 0
    pid = int((ledger / name).read_text())
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(PAUSE_S)
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def _docker(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False)


def app_of(case: Case, engine: str, ledger: Path, seconds: float) -> AppDef:
    """Return a slow job."""
    values = {
        "NOTE": repr(str(ledger / case.name)),
        "EPOCHS": str(EPOCHS),
        "SECONDS": str(round(seconds, 2)),
        "SIGN": SIGNS[case.sign],
    }
    program = PROGRAM
    for name, text in values.items():
        program = program.replace(name, text)
    mounts = [BindMount(str(ledger), str(ledger))] if engine == "docker" else []
    role = Role(
        "slow",
        "",
        entrypoint=sys.executable,
        args=["-c", program],
        mounts=mounts,
        stall_after=STALL_S,
        resource=Resource(cpu=1, gpu=0, memMB=100),
    )
    return AppDef("slow", [role])


def play(runner: Runner, engine: str, ledger: Path, seed: int) -> Case:
    """Run a job, pause it perhaps, and look at every state that it shows."""
    chance = random.Random(seed)
    case = Case(f"slow-{seed}", chance.choice(list(SIGNS)))
    app = app_of(case, engine, ledger, chance.uniform(1.0, STALL_S * 2 / 3))
    handle = runner.run(app, engine, app_id=case.name)
    wants_pause = chance.random() < 1 / 3
    pausing: threading.Thread | None = None

    def pause_later() -> None:
        time.sleep(chance.uniform(0.0, 3.0))
        case.paused = pause(engine, ledger, case.name)

    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if wants_pause and pausing is None and (ledger / case.name).exists():
            pausing = threading.Thread(target=pause_later)
            pausing.start()
        status = runner.status(handle)
        if status is not None:
            case.alarms += status.is_stalled
            case.state = status.state.name
            if status.is_terminal():
                break
        time.sleep(0.3)
    if pausing is not None:
        pausing.join()
    return case


def main(host: str, engine: str, jobs: int, first: int) -> int:
    """Run the jobs; return 1 if there was an alarm, or a job did not end well."""
    # supervisors may still be writing when all jobs have ended
    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp", ignore_cleanup_errors=True) as home:
        os.environ["TRANSLOAD_HOME"] = home
        (ledger := Path(home) / "ledger").mkdir()
        with get_runner() as runner, ThreadPoolExecutor(AT_ONCE) as pool:
            seeds = range(first, first + jobs)
            cases = list(pool.map(lambda seed: play(runner, engine, ledger, seed), seeds))
    row = {
        "host": host,
        "engine": engine,
        "jobs": len(cases),
        "paused": sum(case.paused for case in cases),
        "alarms": sum(case.alarms > 0 for case in cases),
        "wrong_states": sum(case.state != AppState.SUCCEEDED.name for case in cases),
        "first_seed": first,
        "next_seed": first + jobs,
    }
    print(json.dumps(row), flush=True)
    wrong = [case for case in cases if case.alarms or case.state != AppState.SUCCEEDED.name]
    for case in wrong:
        print(case, file=sys.stderr, flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    raise SystemExit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
