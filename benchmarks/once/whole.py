"""Kills parts of a whole host, with units of work of several tools in flight, and counts for each
tool.

One strike hits all tools at the same moment, so what one of them loses is not the luck of another.
What the host does by itself afterwards, it does; what its operators are told to do (start a dead
daemon again) is done at once.

    python whole.py HOST ENGINE STRUCK STRIKES SEED UNITS

STRUCK is ``whole``, or ``clear``: then nothing is killed, but a person has all units run again. It
prints a line of JSON for each tool; with ONCE_OURS in the environment for ours alone, for each tool
more slows all of them down. A host is a module ``whole_HOST.py`` with a class ``Host``, else
``whole_driver.py``.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

LIFE_S = 12.0
"""How long a job lives: a host needs some seconds to begin one."""
SPREAD_S = 12.0
"""A strike comes at most that long after half of the jobs began, or (one in four) after the units
were begun."""
FROZEN_S = 20.0
LIMIT_S = 900.0
SENT_S = 60.0
"""What was logged may come to a host's server so much later than the end: senders try again after
longer and longer."""
WAYS = ("kill", "term", "freeze")
DAEMONS = {
    "docker": ("dockerd",),
    "slurm": ("slurmctld", "slurmd"),
    "hpc": ("slurmctld", "connection"),
    "kubernetes": ("apiserver", "kubelet"),
}
"""Parts of engines, which `benchmarks/everywhere/engines_up.py` strikes."""


class WholeHost(ABC):
    """A host with all of its servers.

    Attributes:
        tools: what people start jobs with in this host on this engine, ours first.
        victims: what can be struck.
        success: the host's word for a success.
        no_strikes: victims and ways that are no strike: a machine goes down at once.

    Args:
        folder: for its files.
        engine: where jobs run.
        name: of the host.
    """

    tools: Sequence[str]
    victims: Sequence[str]
    success: str
    no_strikes: Sequence[tuple[str, str]] = (("machine", "term"), ("machine", "freeze"))

    def __init__(self, folder: Path, engine: str, name: str) -> None:
        self.folder = folder
        self.engine = engine
        self.name = name

    @abstractmethod
    def start(self) -> None:
        """Start all of it; return when it answers."""

    @abstractmethod
    def begin(self, tool: str, unit: str, ledger: Path) -> Any:
        """Begin a unit of work with a tool; return what tells it from others."""

    @abstractmethod
    def strike(self, victim: str, way: str, chance: random.Random) -> None:
        """Kill (SIGKILL, SIGTERM) or freeze a part for 20 s; start it again, as its supervisor
        would.
        """

    @abstractmethod
    def look(self, tool: str, run: Any) -> harness.Observed:
        """Return what the host shows of a unit; its state is None while it goes on."""

    def clear(self, run: Any) -> None:
        """Have a unit run again, as a person does who presses the host's button for that."""
        raise NotImplementedError

    def tend(self, runs: list[tuple[str, Any]]) -> None:
        """Do what the host's manual tells its operators to have done to units whose process died;
        here nothing.
        """
        return

    @abstractmethod
    def stop(self) -> None:
        """End all of it."""


def strike_once(
    host: WholeHost, seed: int, units: int, ledger: Path, clears: bool
) -> dict[str, list[harness.Case]]:
    """Begin units with every tool, strike once, wait, and count; return the cases of each tool.

    With ``clears``, a person's clear of each unit is the strike.
    """
    chance = random.Random(seed)
    daemons = DAEMONS.get(host.engine, ())
    kinds = [
        (each, way)
        for way in WAYS
        for each in (*host.victims, *daemons)
        if (each, way) not in host.no_strikes
    ]
    random.Random(len(kinds)).shuffle(
        kinds
    )  # as many strikes in a row as there are kinds show each of them
    (victim, way), moment = kinds[seed % len(kinds)], chance.uniform(0, SPREAD_S)
    if clears:
        victim, way = "person", "clear"
    after_births = chance.random() < 0.75
    wanted = [
        (tool, f"unit-{seed}-{number}-{tool}") for number in range(units) for tool in host.tools
    ]
    when = "half of the jobs began" if after_births else "the units were begun"
    print(f"seed {seed}: {way} {victim} {moment:.1f} s after {when}", file=sys.stderr, flush=True)
    began, late = time.monotonic(), time.monotonic() + LIMIT_S
    runs = [(tool, unit, host.begin(tool, unit, ledger)) for tool, unit in wanted]
    if after_births:
        units_begun = [unit for _, unit in wanted]
        while (
            sum(harness.born(unit, ledger) for unit in units_begun) < len(units_begun) / 2
            and late > time.monotonic()
        ):
            time.sleep(0.1)
        began = time.monotonic()
    time.sleep(max(0.0, began + moment - time.monotonic()))
    living = {unit for _, unit in wanted if harness.lives(unit, ledger)}
    if clears:
        for _, _, run in runs:
            host.clear(run)
    elif victim in daemons:
        strike_engine(victim, way)
    else:
        host.strike(victim, way, chance)
    struck, ended = time.monotonic(), dict.fromkeys((unit for _, unit in wanted), 0.0)
    while min(ended.values()) == 0 and time.monotonic() < struck + LIMIT_S:
        for tool, unit, run in runs:
            if not ended[unit] and host.look(tool, run).state is not None:
                ended[unit] = time.monotonic() - struck
        host.tend([(tool, run) for tool, unit, run in runs if not ended[unit]])
        time.sleep(2)
    cases: list[tuple[str, harness.Case]] = []
    for tool, unit, run in runs:
        case = harness.Case(seed, [(round(moment, 1), f"{way} {victim}")], in_life=unit in living)
        case.cleared = clears
        case.seconds = round(ended[unit] or LIMIT_S, 1)
        harness.count(case, host.look(tool, run), ledger, unit)
        cases.append((tool, case))
    late = time.monotonic() + SENT_S
    for (tool, unit, run), (_, case) in zip(runs, cases, strict=True):
        while case.lost and time.monotonic() < late:
            time.sleep(1)
            harness.count_lines(case, host.look(tool, run), unit)
        ours = tool.startswith("transload")
        again = ["run again"] if ours and not clears and case.births > 1 + case.second else []
        for text in [*case.wrong(host.success, lost_jobs=True), *again]:
            print(
                f"seed {seed}: {way} {victim}: {unit}: {text} ({case})", file=sys.stderr, flush=True
            )
    return {tool: [case for each, case in cases if each == tool] for tool in host.tools}


def strike_engine(victim: str, way: str) -> None:
    """Have a part of the engine struck, and started again."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(os.environ["ONCE_STRIKES"])
        link.sendall(f"{victim} {way}".encode())
        said = link.recv(1000).decode()
    if said != "done":
        raise RuntimeError(f"{way} {victim}: {said}")


def main(name: str, engine: str, struck: str, strikes: int, first: int, units: int) -> int:
    """Play a cell; return 1 if anything of ours was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="tl-", dir="/tmp"))
    harness.SECONDS = LIFE_S
    os.environ["TRANSLOAD_HOME"] = str(folder / "home")
    module = f"whole_{name}" if (harness.HERE / f"whole_{name}.py").exists() else "whole_driver"
    host: WholeHost = importlib.import_module(module).Host(folder, engine, name)
    (ledger := folder / "ledger").mkdir()
    if os.environ.get("ONCE_OURS"):
        host.tools = [tool for tool in host.tools if tool.startswith("transload")]
    bad = look = False
    try:
        host.start()
        for seed in range(first, first + strikes):
            found = strike_once(host, seed, units, ledger, struck == "clear")
            for tool, cases in found.items():
                row = harness.row_of(name, engine, tool, struck, cases, host.success)
                print(json.dumps(row | {"first_seed": seed, "next_seed": seed + 1}), flush=True)
                bad |= tool.startswith("transload") and row["wrong_cases"] > 0
                run_again = struck == "whole" and row["run_again"] > 0
                look |= bad or (tool.startswith("transload") and run_again)
    finally:
        host.stop()
        if look:
            print(f"what the host wrote: {folder}", file=sys.stderr, flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return int(bad)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    raise SystemExit(main(*sys.argv[1:4], *map(int, sys.argv[4:])))
