"""Has one host run many units of work at once, and measures what that costs it; rounds of it are a
soak.

    python load.py HOST ENGINE UNITS [MINUTES]

HOST is ``airflow`` (one DAG, all tasks deferred in one triggerer), ``prefect`` (one flow and one
server) or ``ax`` (one experiment, all trials at once). Prints a line of JSON for each round; with
MINUTES rounds go on for so long. Exit 1 if a unit ended otherwise than it should, or if memory or
descriptors at a round's end grew from the second third to the last.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOKEN = "TRANSLOAD_LOAD"
MAY_GROW = {"after_mb": 1.04, "after_fds": 1.1, "after_processes": 1.1}
"""A tenth of all the memory would hide a hundred KB for each app in ten minutes of twenty at a
time."""
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Meter(threading.Thread):
    """Sums what all processes of this run use, once a second; jobs are none, for they do not get
    its mark.

    Attributes:
        peak: the largest sums so far: ``mb`` (resident), ``fds``, ``processes``.
    """

    def __init__(self, mark: str) -> None:
        super().__init__(daemon=True)
        self._mark = f"{TOKEN}={mark}".encode()
        self._cpu: dict[int, float] = {}
        self.peak: dict[str, float] = {}
        self.now: dict[str, float] = {}
        self._rpcs = 0

    def run(self) -> None:
        """Look, until the program ends."""
        while True:
            self.look()
            time.sleep(1)

    def look(self) -> None:
        """Add up once."""
        found = {"mb": 0.0, "fds": 0.0, "processes": 0.0}
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or self._mark not in (entry / "environ").read_bytes():
                    continue
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                self._cpu[int(entry.name)] = (int(words[11]) + int(words[12])) / TICKS
                found["mb"] += int((entry / "statm").read_text().split()[1]) * PAGE / 1e6
                found["fds"] += len(os.listdir(entry / "fd"))
                found["processes"] += 1
            except OSError:
                continue
        self.now = found
        self.peak = {name: max(value, self.peak.get(name, 0)) for name, value in found.items()}

    def cpu(self) -> float:
        """Return the seconds of CPU so far, of ended processes too (as last seen)."""
        return sum(self._cpu.values())


def requests(engine: str) -> int | None:
    """Return how many requests Slurm's controller has served so far; None elsewhere."""
    if engine != "slurm":
        return None
    said = subprocess.run(["sdiag"], capture_output=True, text=True, check=True).stdout
    lines = said.partition("message type")[2].partition("by user")[0].splitlines()
    return sum(int(line.partition("count:")[2].split()[0]) for line in lines if "count:" in line)


def burst(host: Any, number: int, units: int, engine: str, meter: Meter) -> dict[str, Any]:
    """Run many units at once; return what became of them, and what it cost."""
    meter.peak = {}
    began, cpu, asked = time.monotonic(), meter.cpu(), requests(engine)
    right = host.many(number, units)
    seconds = time.monotonic() - began
    meter.look()
    served = None if asked is None else round((requests(engine) - asked) / seconds * 60)
    return {
        "round": number,
        "units": units,
        "right": right,
        "seconds": round(seconds, 1),
        "cpu": round(meter.cpu() - cpu, 1),
        "requests_a_minute": served,
        **{f"peak_{name}": round(value) for name, value in meter.peak.items()},
        **{f"after_{name}": round(value) for name, value in meter.now.items()},
    }


def grown(rounds: list[dict[str, Any]]) -> list[str]:
    """Return what is larger after the rounds of the last third than after those of the second; the
    first warms up.
    """
    third = len(rounds) // 3
    if not third:
        return []
    found = []
    for name, most in MAY_GROW.items():
        before, last = (
            statistics.median(each[name] for each in part)
            for part in (rounds[third : 2 * third], rounds[2 * third :])
        )
        if last > before * most:
            found.append(f"{name}: {before} → {last}")
    return found


def main(name: str, engine: str, units: int, minutes: float) -> int:
    """Run it in a process that bears the mark; return its exit code."""
    folder = tempfile.mkdtemp(prefix="tl-", dir="/tmp")
    environment = {**os.environ, "TRANSLOAD_HOME": f"{folder}/home", TOKEN: uuid.uuid4().hex}
    code = "import sys; sys.path.insert(0, sys.argv[1]); import load; sys.exit(load.rounds_of(*sys.argv[2:]))"
    words = [sys.executable, "-c", code, str(HERE), name, engine, str(units), str(minutes), folder]
    try:
        return subprocess.run(words, env=environment, check=False).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rounds_of(name: str, engine: str, wanted: str, minutes: str, folder: str) -> int:
    """Start the host; run rounds; say how they went."""
    meter, units = Meter(os.environ[TOKEN]), int(wanted)
    rounds: list[dict[str, Any]] = []
    host = importlib.import_module(f"load_{name}").Host(Path(folder), engine)
    try:
        host.start()
        meter.start()
        end = time.monotonic() + float(minutes) * 60
        while not rounds or time.monotonic() < end:
            rounds.append(burst(host, len(rounds), units, engine, meter))
            said = {"host": name, "engine": engine, **rounds[-1], "load": round(os.getloadavg()[0])}
            print(json.dumps(said), flush=True)
    finally:
        host.stop()
    bad = grown(rounds) + [
        f"round {each['round']}: {each['right']} right" for each in rounds if each["right"] < units
    ]
    print("\n".join(bad), file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float((*sys.argv[4:], "0")[0]))
    )
