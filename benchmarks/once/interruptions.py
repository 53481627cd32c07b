"""Interrupts trainings at random moments, and counts what that costs: steps that are done again,
retries that are spent, weights that differ from those of an undisturbed training.

    python interruptions.py HOST ENGINE JOBS SEED

HOST is ``runner`` (our own, no orchestrator), ``airflow``, ``prefect`` or ``submitit``. Half of the
trainings heed their notice; the others keep a checkpoint every few steps and nothing else. How they
are interrupted depends on the engine:

- ``local``: the job has segments, as a queue would give them.
- ``docker``: ``docker stop`` of the container.
- ``slurm``: ``scontrol requeue`` of the job, ours and submitit's alike.

With an orchestrator its process is killed as well, once for each training. Everything random
follows from a seed. A line of JSON is printed for each kind of training.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import training

from transload.runner import Runner, get_runner
from transload.specs import AppDef, BindMount, Notice, Resource, Role
from transload_testing.adapter_driver import HostJob

EVERY = 5
"""Steps between two checkpoints."""
STRIKES = 3
"""So often each training is struck on Docker and Slurm."""
LATE_S = 2.0
"""A strike comes at most that long after the first step of an attempt."""
NOTICE_S = 20.0
MARGIN_S = 3.0
"""A busy machine may take that much longer to start a training than it did a moment ago."""
LIMIT_S = 420.0
AT_ONCE = 4
RETRIES = 20


@dataclass
class Case:
    """What became of one training.

    Args:
        seed: what it follows from.
        heeds: the program saves its work after a notice.
        strikes: how often it was struck from outside.
        state: the last word of the host; None if it did not end in time.
        interruptions: how often it was started again without spending a retry.
        retries: how often it was started again as after a failure.
        second: attempts that nobody can account for.
        repeated: steps that were done again.
        lost: steps that were done after the latest checkpoint when an attempt ended.
        worst: the largest number of such steps in one attempt.
        equal: its weights are those of an undisturbed training, to the last bit.
        seconds: until its end.
        error: what the host says of a failure.
    """

    seed: int
    heeds: bool
    strikes: int = 0
    state: str | None = None
    interruptions: int = 0
    retries: int = 0
    second: int = 0
    repeated: int = 0
    lost: int = 0
    worst: int = 0
    equal: bool = False
    seconds: float = 0.0
    error: str = ""


@dataclass
class Pace:
    """How fast trainings are on this machine now: a busy one is slow.

    Args:
        start: seconds until a training's first step.
        step: seconds of a step.
    """

    start: float
    step: float


class Unit(ABC):
    """A training that somebody looks after."""

    success: str
    error: str = ""

    @abstractmethod
    def state(self) -> str | None:
        """Return the host's last word; None while the training goes on."""

    def crash(self) -> None:
        """Kill the process that looks after it, and have the host start another one."""
        return

    def close(self) -> None:
        """End what looks after it."""
        return


class Submitted(Unit):
    """A job that our runner submitted."""

    success = "SUCCEEDED"

    def __init__(self, runner: Runner, app: AppDef, engine: str, name: str) -> None:
        self._runner = runner
        self._handle = runner.run(app, engine, app_id=name)

    def state(self) -> str | None:
        """Ask the scheduler."""
        status = self._runner.status(self._handle)
        if status is None or not status.is_terminal():
            return None
        self.error = status.msg
        return status.state.name


class Driven(Unit):
    """A job in a process of an orchestrator, or of submitit."""

    def __init__(self, host: str, folder: Path, app: AppDef, job: HostJob) -> None:
        make, self.success = harness.made_by(host)
        self._driver: Any = make(folder)
        self._driver.start(app.to_json(), job)

    def state(self) -> str | None:
        """Look at what the host shows; a process that ended without a word is started again."""
        seen = self._driver.observe()
        if seen.state is None and not seen.alive:
            seen = self._driver.observe()
            if seen.state is None:
                self._driver.restart()
        self.error = seen.error
        return None if seen.state is None else str(seen.state)

    def crash(self) -> None:
        """Kill the process, and start another one."""
        self._driver.crash()
        self._driver.restart()

    def close(self) -> None:
        """End the process."""
        self._driver.close()


def app_of(ledger: Path, unit: str, engine: str, heeds: bool, segment: float) -> AppDef:
    """Return the training of a unit.

    Args:
        ledger: where it notes its steps.
        unit: its name.
        engine: where it runs.
        heeds: it saves its work after a notice.
        segment: seconds until its notice, on this machine.
    """
    mounts = []
    if engine == "docker":
        digits = str(harness.HERE.parents[1] / "examples" / "digits")
        mounts = [BindMount(str(ledger), str(ledger)), BindMount(digits, digits, read_only=True)]
    words = [str(harness.HERE / "training.py"), str(ledger), unit, str(EVERY), str(int(heeds))]
    role = Role(
        "main",
        str(harness.HERE),
        entrypoint=sys.executable,
        args=words,
        mounts=mounts,
        max_retries=RETRIES,
        retry_delay=0.0,
        checkpoints=True,
        resource=Resource(cpu=1, gpu=0, memMB=400),
    )
    if engine == "slurm":
        return AppDef("once", [role])
    role.notice = Notice(NOTICE_S)
    if engine == "docker":
        return AppDef("once", [role])
    return AppDef("once", [role], segment=NOTICE_S + segment, timeout=LIMIT_S)


def read_notes(ledger: Path, unit: str) -> list[dict[str, Any]]:
    """Return what the attempts of a unit wrote down."""
    path = ledger / f"steps.{unit}"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def count(case: Case, notes: list[dict[str, Any]], weights: str) -> None:
    """Put into a case what its attempts wrote down.

    Args:
        case: the training.
        notes: the lines of all of its attempts, in order.
        weights: the digest of an undisturbed training.
    """
    births = [note for note in notes if "born" in note]
    steps = [note["step"] for note in notes if "step" in note]
    case.repeated = len(steps) - len(set(steps))
    case.equal = [note["weights"] for note in notes if "weights" in note][-1:] == [weights]
    for number, birth in enumerate(births[:-1]):
        own = [note for note in notes if note["attempt"] == birth["attempt"]]
        done = max((note["step"] for note in own if "step" in note), default=0)
        # of those that this attempt or an earlier one has made
        saved = [note["saved"] for note in notes if "saved" in note and note["at"] <= own[-1]["at"]]
        # one that was made, and not noted any more, is seen by where the next attempt went on
        later = {each["attempt"] for each in births[number + 1 :]}
        steps_later = [
            note["step"] for note in notes if note["attempt"] in later and "step" in note
        ]
        saved += [step - 1 for step in steps_later[:1]]
        lost = max(0, done - max(saved, default=0))
        case.lost += lost
        case.worst = max(case.worst, lost)
    if not births:
        return
    last = births[-1]
    if last["interruptions"] is None:  # not ours: what started it again is the requeue
        case.interruptions = len(births) - 1
        return
    case.interruptions = int(last["interruptions"])
    case.retries = int(last["retries"] or 0)
    # less than none: an attempt that was interrupted before its first line
    case.second = max(0, len(births) - 1 - case.interruptions - case.retries)


def strike(engine: str, unit: str, birth: dict[str, Any], heeds: bool) -> bool:
    """Interrupt an attempt from outside; return False if it has ended meanwhile."""
    if engine == "slurm":
        return _run("scontrol", "requeue", str(birth["job"])).returncode == 0
    running = _run("docker", "ps", "--quiet", "--filter", f"name={unit}").stdout.split()
    seconds = "20" if heeds else "1"
    return bool(running) and _run("docker", "stop", "--time", seconds, *running).returncode == 0


def release(birth: dict[str, Any]) -> None:
    """Cut the two minutes short for which Slurm holds a job that was requeued; one that runs is
    left as it is.
    """
    _run("scontrol", "update", f"jobid={birth['job']}", "starttime=now")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def follow(case: Case, unit: Unit, name: str, engine: str, ledger: Path, *, killed: bool) -> None:
    """Interrupt a training as its seed says, until it ends.

    Args:
        case: the training; what is seen of it goes there.
        unit: what looks after it.
        name: the name of the unit.
        engine: where it runs.
        ledger: where it notes its steps.
        killed: the process that looks after it is killed once, too.
    """
    chance = random.Random(case.seed)
    began = time.monotonic()
    crash_at = chance.uniform(0.5, 6.0) if killed else LIMIT_S
    struck: set[str] = set()
    due: tuple[float, dict[str, Any]] | None = None
    looked = began
    while time.monotonic() < began + LIMIT_S:
        case.state = unit.state()
        if case.state is not None:
            case.error = unit.error
            break
        now = time.monotonic()
        if now > began + crash_at:
            unit.crash()
            crash_at = LIMIT_S
        notes = read_notes(ledger, name)
        births = [note for note in notes if "born" in note]
        stepped = {note["attempt"] for note in notes if "step" in note}
        if due is not None and now >= due[0]:
            case.strikes += strike(engine, name, due[1], case.heeds)
            due = None
        elif due is None and engine != "local" and births and len(struck) < STRIKES:
            birth = births[-1]
            if birth["attempt"] in stepped and birth["attempt"] not in struck:
                struck.add(birth["attempt"])
                due = (now + chance.uniform(0.0, LATE_S), birth)
        if engine == "slurm" and struck and now > looked + 1:
            looked = now
            release(births[-1])
        time.sleep(0.1)
    case.seconds = round(time.monotonic() - began, 1)


def measure_pace(ledger: Path, at_once: int) -> Pace:
    """Run some trainings by hand, together; return how long the slowest takes to begin, and for a
    step.
    """
    began = time.time()
    names = [f"pace-{number}" for number in range(at_once)]
    program = [sys.executable, str(harness.HERE / "training.py"), str(ledger)]
    environment = {**os.environ, "TRANSLOAD_TRACKER_BASE": str(ledger / "pace-results")}
    trainings = [subprocess.Popen([*program, name, "99", "0"], env=environment) for name in names]
    for each in trainings:
        if each.wait():
            raise RuntimeError(f"a training by hand ended with exit code {each.returncode}")
    at = [[note["at"] for note in read_notes(ledger, name) if "step" in note] for name in names]
    return Pace(
        start=max(each[0] for each in at) - began,
        step=max((each[-1] - each[0]) / (len(each) - 1) for each in at),
    )


def cell(
    host: str, engine: str, seeds: range, heeds: bool, at_once: int = AT_ONCE
) -> tuple[list[Case], str]:
    """Play a range of seeds, some at once; return the cases, and the host's word for a success."""
    killed = host not in ("runner", "submitit")
    with tempfile.TemporaryDirectory(prefix="tl-once-") as place, get_runner() as runner:
        folder = Path(place)
        (ledger := folder / "ledger").mkdir()
        training.prepare(ledger)
        weights = training.undisturbed(ledger)
        pace = measure_pace(ledger, max(1, at_once // 2))
        success: list[str] = []

        def begin(name: str, app: AppDef) -> Unit:
            if host == "runner":
                return Submitted(runner, app, engine, name)
            rival = {"submitit": "submitit_training"}
            job = HostJob(name=name, scheduler=engine)
            return Driven(rival.get(host, host), folder / name, app, job)

        def play(seed: int) -> Case:
            chance = random.Random(f"segment {seed}")
            name = f"training-{seed}-{int(heeds)}"
            segment = MARGIN_S + pace.start + chance.uniform(4, 12) * pace.step
            case = Case(seed, heeds)
            unit = begin(name, app_of(ledger, name, engine, heeds, round(segment, 2)))
            success.append(unit.success)
            try:
                follow(case, unit, name, engine, ledger, killed=killed)
            finally:
                unit.close()
            count(case, read_notes(ledger, name), weights)
            return case

        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(play, seeds)), success[0]


def row_of(host: str, engine: str, cases: list[Case], success: str) -> dict[str, Any]:
    """Return what was counted of trainings of one kind."""

    def total(value: Callable[[Case], int]) -> int:
        return sum(value(case) for case in cases)

    return {
        "host": host,
        "engine": engine,
        "notice": "heeded" if cases[0].heeds else "not heeded",
        "jobs": len(cases),
        "interruptions": total(lambda case: case.interruptions),
        "retries": total(lambda case: case.retries),
        "repeated": total(lambda case: case.repeated),
        "lost": total(lambda case: case.lost),
        "worst": max(case.worst for case in cases),
        "equal": total(lambda case: case.equal),
        "second_jobs": total(lambda case: case.second),
        "wrong_states": total(lambda case: case.state != success),
    }


def main(host: str, engine: str, jobs: int, first: int) -> int:
    """Play a cell; return 1 if anything of ours was wrong."""
    bad = False
    with tempfile.TemporaryDirectory(prefix="tl-", dir="/tmp") as home:
        os.environ["TRANSLOAD_HOME"] = home
        halves = {
            False: range(first, first + jobs // 2),
            True: range(first + jobs // 2, first + jobs),
        }
        if host == "submitit":  # it sends its own notice before the limit alone
            halves = {False: range(first, first + jobs)}
        for heeds, seeds in halves.items():
            if not seeds:
                continue
            cases, success = cell(host, engine, seeds, heeds)
            row = row_of(host, engine, cases, success)
            print(
                json.dumps(row | {"first_seed": seeds.start, "next_seed": seeds.stop}), flush=True
            )
            for case in cases:
                wrong = not case.equal or case.second or case.state != success
                if wrong or (heeds and case.repeated):
                    print(f"{host} on {engine}: {case}", file=sys.stderr, flush=True)
                bad |= bool(wrong) and host != "submitit"
    return int(bad)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    raise SystemExit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
