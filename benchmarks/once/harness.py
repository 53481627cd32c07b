"""Kills hosts at random moments, lets them try again, and counts: how often did the job run, what
was lost?

What is killed is the host's process that looks after the app: by SIGKILL, by a SIGTERM that nobody
asked for, or frozen and thawed. The job notes its birth in a folder that nobody else writes.
Everything random follows from a seed, so each case can be played again.
"""

from __future__ import annotations

import collections
import importlib.metadata
import importlib.util
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transload.specs import AppDef, AppState, BindMount, Resource, Role
from transload_testing import AdapterConformance
from transload_testing.adapter_driver import AdapterDriver, HostJob, Observed

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from warm import warm_up, warmed

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "tests"
SECONDS, LINES = 1.5, 15
"""How long a job lives, and how many lines it prints."""
LIMIT_S = 300.0
GRACE_S = 10.0
"""Seconds that a process has after a SIGTERM, before the machine that is stopped kills it."""
LATE_S = 1.0
"""Half of the kills come at most that long after the unit was begun, about its submit; the others
after its job was, at most that long after the job's end."""


DISTRIBUTIONS = {
    "airflow": "apache-airflow",
    "ax": "ax-platform",
    "kfp": "kfp",
    "prefect": "prefect",
}
WAYS = ("kill", "kill", "freeze")
"""Ways to strike, as likely as they stand here."""
ASKING = ("airflow", "ax", "prefect")
"""Hosts of ours that cancel by SIGTERM only if somebody asked for it: one that nobody asked for is
a strike, too."""


@dataclass
class Case:
    """What became of one unit of work.

    Args:
        seed: what it follows from.
        kills: moments (seconds after the last start) and ways.
        births: how often the job was started.
        second: how many of them began while another lived, or after one was done.
        left: processes of the job that are there after the end.
        state: the host's last word.
        results: the job's number arrived.
        lost: lines that the host does not show.
        repeated: lines that it shows more than once.
        seconds: from the last kill to the final state.
        in_life: kills that came while a job lived.
        cleared: somebody had the unit run again.
        error: what the host says of its failure.
    """

    seed: int
    kills: list[tuple[float, str]] = field(default_factory=list)
    births: int = 0
    second: int = 0
    left: int = 0
    state: str | None = None
    results: bool = False
    lost: int = 0
    repeated: int = 0
    seconds: float = 0.0
    in_life: int = 0
    cleared: bool = False
    error: str = ""

    def wrong(self, success: str, *, lost_jobs: bool = False) -> list[str]:
        """Return what must not be, in words; a line that is shown again is no fault after a kill.

        Args:
            success: the host's word for it.
            lost_jobs: what was struck may have ended a job, which is then run again, of right.
        """
        found = {
            f"{self.births} jobs": self.births == 0 or (self.births > 1 and not lost_jobs),
            f"{self.second} too many": self.second > 0,
            f"{self.left} processes left": self.left > 0,
            f"state {self.state}": self.state != success,
            "no results": not self.results,
            f"{self.lost} lines lost": self.lost > 0,
        }
        return [text for text, so in found.items() if so]


def made_by(host: str) -> tuple[Callable[[Path], AdapterDriver], str]:
    """Return what makes drivers of a host, and its word for a success."""
    suite = suite_of(host)
    return lambda folder: warmed(suite.make_driver(folder, {})), str(
        suite.state_map[AppState.SUCCEEDED]
    )


def suite_of(host: str) -> AdapterConformance:
    """Return the conformance suite of a host, which knows how to drive it, and its words for
    states.
    """
    folder = TESTS / host
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(
        f"conformance_of_{host}", folder / "test_conformance.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suites = [each for name, each in vars(module).items() if name.startswith("Test")]
    suite: AdapterConformance = suites[-1]()
    return suite


def words_of(ledger: Path, unit: str, python: str = sys.executable) -> list[str]:
    """Return the command of a unit's job."""
    return [python, str(HERE / "job.py"), str(ledger), unit, str(SECONDS), str(LINES)]


def app_of(ledger: Path, unit: str, engine: str, retries: int = 0) -> str:
    """Return the app of a unit, as JSON; the scheduler starts it again so often."""
    words = words_of(ledger, unit)[1:]
    mounts = [] if engine in ("local", "slurm", "hpc") else [BindMount(str(ledger), str(ledger))]
    role = Role(
        "main", str(HERE), entrypoint=sys.executable, args=words, mounts=mounts, max_retries=retries
    )
    if engine in ("slurm", "hpc"):
        role.resource = Resource(cpu=1, gpu=0, memMB=200)  # else a job takes a whole node
    return AppDef("once", [role]).to_json()


def ways_of(host: str) -> tuple[str, ...]:
    """Return the ways in which the process of a host is struck."""
    return (*WAYS, "term") if host in ASKING else WAYS


def play(
    driver: Any, engine: str, ledger: Path, seed: int, kills: int = 1, ways: Sequence[str] = WAYS
) -> Case:
    """Begin a unit of work, kill its host as the seed says, and count."""
    chance, unit = random.Random(seed), f"unit-{seed}"
    case = Case(seed)
    began = time.monotonic()
    driver.start(app_of(ledger, unit, engine), HostJob(name=unit, scheduler=engine))
    for _ in range(kills):
        after_birth, way = chance.random() < 0.5, chance.choice(ways)
        moment = chance.uniform(0, LATE_S + (SECONDS if after_birth else 0))
        while (
            after_birth
            and not born(unit, ledger)
            and (seen := driver.observe()).alive
            and not seen.state
        ):
            time.sleep(0.02)
        time.sleep(moment)
        if driver.observe().state is not None:
            break
        case.kills.append((round(moment, 2), f"{way} after {'birth' if after_birth else 'start'}"))
        case.in_life += lives(unit, ledger)
        if way == "freeze":
            freeze([driver._process], chance.uniform(0.2, 2.0))
        else:
            if way == "term":
                terminate(driver)
            driver.crash()
            driver.restart()
        began = time.monotonic()
    seen = _ended(driver)
    case.seconds = round(time.monotonic() - began, 2)
    count(case, seen, ledger, unit)
    return case


def count(case: Case, seen: Observed, ledger: Path, unit: str) -> None:
    """Put into the case what the ledger, this machine and the host show of a unit that has
    ended.
    """
    case.state, case.error = seen.state, seen.error
    case.results = re.search(rf"['\"]lines['\"]: {LINES}\b", str(seen.results)) is not None
    case.births, case.second = _births(unit, ledger, once=not case.cleared)
    case.left = _processes(unit, str(ledger))
    count_lines(case, seen, unit)


def count_lines(case: Case, seen: Observed, unit: str) -> None:
    """Put into the case what the host shows of the lines of a unit."""
    shown = collections.Counter(
        line.split("line ", 1)[1] for line in seen.logs if f" of {unit}" in line
    )
    case.lost = sum(f"{number} of {unit}" not in shown for number in range(LINES))
    case.repeated = sum(count - 1 for count in shown.values())


def born(unit: str, ledger: Path) -> bool:
    """Return whether a job of the unit has begun."""
    return bool(_files("born", unit, ledger))


def lives(unit: str, ledger: Path) -> bool:
    """Return whether a job of the unit has begun that is not done."""
    return len(_files("born", unit, ledger)) > len(_files("done", unit, ledger))


def _files(kind: str, unit: str, ledger: Path) -> list[Path]:
    return list(ledger.glob(f"{kind}.{unit}.*"))


def _births(unit: str, ledger: Path, *, once: bool) -> tuple[int, int]:
    """Return how often a job was started, and how often needlessly: while another lived, or after
    it was done, if it is to be done ``once``.
    """
    spans = []
    for birth in _files("born", unit, ledger):
        name = birth.name.partition(".")[2]
        done = (ledger / f"done.{name}").exists()
        last = ledger / f"alive.{name}"
        spans.append(
            (birth.stat().st_mtime, (last if last.exists() else birth).stat().st_mtime, done)
        )
    spans.sort()
    second = sum(
        any((done and once) or last > begin for _, last, done in spans[:k])
        for k, (begin, _, _) in enumerate(spans)
    )
    return len(spans), second


def _ended(driver: AdapterDriver) -> Observed:
    """Return what the host shows once it has ended; as it was, if it does not end in time."""
    end = time.monotonic() + LIMIT_S
    while (seen := driver.observe()).state is None and time.monotonic() < end:
        if not seen.alive and (seen := driver.observe()).state is None:
            driver.restart()  # the host has it tried again
        time.sleep(0.05)
    return seen


def freeze(processes: list[Any], seconds: float) -> None:
    """Stop processes for a while, as a machine does that swaps, or is moved."""
    try:
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def terminate(driver: AdapterDriver) -> None:
    """End a host's process by SIGTERM, as a machine that is stopped does; one that does not end is
    killed later.
    """
    driver.terminate()
    end = time.monotonic() + GRACE_S
    while driver.observe().alive and time.monotonic() < end:
        time.sleep(0.05)


def _processes(unit: str, ledger: str) -> int:
    """Return how many processes of a unit's job there are; those of an ended job get a moment to
    vanish.
    """
    end = time.monotonic() + 3
    while True:
        found = 0
        for entry in Path("/proc").iterdir():
            try:
                words = (
                    (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                )
            except OSError:
                continue
            found += (
                unit.encode() in words
                and ledger.encode() in words
                and b"job.py" in b"".join(words[:2])
            )
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def cell(
    host: str, engine: str, seeds: range, kills: int = 1, at_once: int = 5
) -> tuple[list[Case], list[str]]:
    """Play a range of seeds, some at once; return the cases, and what was wrong with which."""
    warm_up(host, engine)
    make, success = made_by(host)
    with tempfile.TemporaryDirectory(prefix="tl-once-") as name:
        folder = Path(name)
        (ledger := folder / "ledger").mkdir()

        def one(seed: int) -> Case:
            driver = make(folder / str(seed))
            try:
                return play(driver, engine, ledger, seed, kills, ways_of(host))
            finally:
                driver.close()

        with ThreadPoolExecutor(at_once) as pool:
            try:
                cases = list(pool.map(one, seeds))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return cases, [
        f"seed {case.seed}: {text} ({case})" for case in cases for text in case.wrong(success)
    ]


def row_of(
    host: str, engine: str, tool: str, struck: str, cases: list[Case], success: str
) -> dict[str, Any]:
    """Return what was counted in a cell.

    Args:
        host: the host.
        engine: where the jobs ran.
        tool: what started them.
        struck: ``process`` (the one that looks after the app), ``whole`` (any part of host and
            engine) or ``clear`` (a person has each unit run again).
        cases: what became of the units.
        success: the host's word for it.
    """
    lost_jobs = struck != "process"
    return {
        "host": host,
        "version": importlib.metadata.version(DISTRIBUTIONS[host]),
        "engine": engine,
        "tool": tool,
        "struck": struck,
        "kills": len(cases),
        "in_life": sum(case.in_life for case in cases),
        "second_jobs": sum(case.second for case in cases),
        "run_again": sum(max(0, case.births - 1 - case.second) for case in cases),
        "never_ran": sum(case.births == 0 for case in cases),
        "left": sum(case.left for case in cases),
        "no_results": sum(not case.results for case in cases),
        "wrong_states": sum(case.state != success for case in cases),
        "lost": sum(case.lost for case in cases),
        "repeated": sum(case.repeated for case in cases),
        "wrong_cases": sum(bool(case.wrong(success, lost_jobs=lost_jobs)) for case in cases),
        "seconds": sorted(case.seconds for case in cases),
    }
