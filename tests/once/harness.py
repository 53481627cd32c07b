"""Kills hosts at random moments, lets them try again, and counts: how often did the job run, what was lost?

What is killed is the host's process that looks after the app: by SIGKILL, or frozen and thawed. The job notes its birth
in a folder that nobody else writes. Everything random follows from a seed, so each case can be played again.
"""

from __future__ import annotations

import collections
import importlib.util
import random
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transload.specs import AppDef, AppState, BindMount, Role
from transload_testing import AdapterConformance
from transload_testing.adapter_driver import AdapterDriver, HostJob, Observed

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
SECONDS, LINES = 1.5, 15
"""How long a job lives, and how many lines it prints."""
LIMIT_S = 300.0
LATE_S = 2.5
"""A kill may come that long after the unit was begun: before its submit, in its life, or after its end."""


@dataclass
class Case:
    """What became of one unit of work.

    Args:
        seed: what it follows from.
        kills: moments (seconds after the last start) and ways.
        births: how often the job was started.
        left: processes of the job that are there after the end.
        state: the host's last word.
        results: the job's number arrived.
        lost: lines that the host does not show.
        repeated: lines that it shows more than once.
        seconds: from the last kill to the final state.
    """

    seed: int
    kills: list[tuple[float, str]] = field(default_factory=list)
    births: int = 0
    left: int = 0
    state: str | None = None
    results: bool = False
    lost: int = 0
    repeated: int = 0
    seconds: float = 0.0

    def wrong(self, success: str) -> list[str]:
        """Return what must not be, in words; a line that is shown again is no fault after a kill."""
        found = {
            f"{self.births} jobs": self.births != 1,
            f"{self.left} processes left": self.left > 0,
            f"state {self.state}": self.state != success,
            "no results": not self.results,
            f"{self.lost} lines lost": self.lost > 0,
        }
        return [text for text, so in found.items() if so]


def suite_of(host: str) -> AdapterConformance:
    """Return the conformance suite of a host, which knows how to drive it, and its words for states."""
    folder = TESTS / host
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"conformance_of_{host}", folder / "test_conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suites = [each for name, each in vars(module).items() if name.startswith("Test")]
    suite: AdapterConformance = suites[-1]()
    return suite


def app_of(ledger: Path, unit: str, engine: str) -> str:
    """Return the app of a unit, as JSON."""
    words = [str(HERE / "job.py"), str(ledger), unit, str(SECONDS), str(LINES)]
    mounts = [] if engine in ("local", "slurm", "hpc") else [BindMount(str(ledger), str(ledger))]
    role = Role("main", str(HERE), entrypoint=sys.executable, args=words, mounts=mounts)
    return AppDef("once", [role]).to_json()


def play(driver: AdapterDriver, engine: str, ledger: Path, seed: int, kills: int = 1) -> Case:
    """Begin a unit of work, kill its host as the seed says, and count."""
    chance, unit = random.Random(seed), f"unit-{seed}"
    case = Case(seed, [(chance.uniform(0, LATE_S), chance.choice(("kill", "kill", "freeze"))) for _ in range(kills)])
    began = time.monotonic()
    driver.start(app_of(ledger, unit, engine), HostJob(name=unit, scheduler=engine))
    for moment, way in case.kills:
        time.sleep(moment)
        if driver.observe().state is not None:
            break
        if way == "freeze":
            _freeze(driver, chance.uniform(0.2, 2.0))
        else:
            driver.crash()
            driver.restart()
        began = time.monotonic()
    seen = _ended(driver)
    case.state, case.seconds = seen.state, round(time.monotonic() - began, 2)
    case.results = "'lines': " + str(LINES) in str(seen.results)
    case.births = len(list(ledger.glob(f"born.{unit}.*")))
    case.left = _processes(unit, str(ledger))
    shown = collections.Counter(line.split("line ", 1)[1] for line in seen.logs if f" of {unit}" in line)
    case.lost = sum(f"{number} of {unit}" not in shown for number in range(LINES))
    case.repeated = sum(count - 1 for count in shown.values())
    return case


def _ended(driver: AdapterDriver) -> Observed:
    """Return what the host shows once it has ended; as it was, if it does not end in time."""
    end = time.monotonic() + LIMIT_S
    while (seen := driver.observe()).state is None and time.monotonic() < end:
        if not seen.alive and (seen := driver.observe()).state is None:
            driver.restart()  # the host has it tried again
        time.sleep(0.05)
    return seen


def _freeze(driver: Any, seconds: float) -> None:
    """Stop the host's process for a while, as a machine does that swaps, or is moved."""
    process = driver._process
    try:
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGCONT)


def _processes(unit: str, ledger: str) -> int:
    """Return how many processes of a unit's job there are; those of an ended job get a moment to vanish."""
    end = time.monotonic() + 3
    while True:
        found = 0
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            found += unit.encode() in words and ledger.encode() in words and b"job.py" in b"".join(words[:2])
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def cell(host: str, engine: str, seeds: range, kills: int = 1, at_once: int = 5) -> tuple[list[Case], list[str]]:
    """Play a range of seeds, some at once; return the cases, and what was wrong with which."""
    with tempfile.TemporaryDirectory(prefix="tl-once-") as name:
        folder = Path(name)
        (ledger := folder / "ledger").mkdir()
        suite = suite_of(host)
        success = str(suite.state_map[AppState.SUCCEEDED])

        def one(seed: int) -> Case:
            driver = suite.make_driver(folder / str(seed), {})
            try:
                return play(driver, engine, ledger, seed, kills)
            finally:
                driver.close()

        with ThreadPoolExecutor(at_once) as pool:
            cases = list(pool.map(one, seeds))
    return cases, [f"seed {case.seed}: {text} ({case})" for case in cases for text in case.wrong(success)]
