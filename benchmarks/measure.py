"""Measuring: medians of interleaved runs, CPU of whole process trees, ratios, one JSON object."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
LOAD = os.getloadavg()[0]
"""How many processes wanted to run when the script began, the mean of a minute: figures of a busy
machine are noise."""


def adopt_orphans() -> None:
    """Become the reaper of detached descendants, so that the CPU of keepers that daemonise is
    counted too.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def process_cost(argv: Sequence[str], env: dict[str, str] | None = None) -> tuple[float, float]:
    """Run a command; return its wall seconds and the CPU seconds of it and everything that it
    started.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.wait()
    wall = time.perf_counter() - start
    while True:  # what was left behind by it is ours now
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)}: exit code {process.returncode}")
    return wall, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def interleaved(runs: int, *measures: Callable[[], float]) -> list[float]:
    """Call each measure once in each of so many runs, in another order each time; return the median
    of each.

    So what one leaves to be done in the background is not always borne by the same other one.
    """
    values: list[list[float]] = [[] for _ in measures]
    orders = random.Random(0)
    for _ in range(runs):
        for index in orders.sample(range(len(measures)), len(measures)):
            values[index].append(measures[index]())
    return [statistics.median(each) for each in values]


def figure(
    name: str,
    unit: str,
    ours: float,
    peer: float,
    *,
    target: float,
    better: str = "lower",
    **more: object,
) -> dict:
    """Return one row: our median, the peer's, the ratio ours/peer, and whether it meets the target
    ratio.
    """
    ratio = ours / peer if peer else float("inf")
    met = ratio <= target if better == "lower" else ratio >= target
    row = {
        "figure": name,
        "unit": unit,
        "transload": ours,
        "peer": peer,
        "ratio": float(f"{ratio:.3g}"),
    }
    return {**row, "target": target, "better": better, "met": met, **more}


def report(rows: list[dict], *, peer: str = "TorchX 0.7.0", **more: object) -> None:
    """Print the rows as one JSON object, with what the machine is and what they are compared with.

    Args:
        rows: each made by `figure`.
        peer: what ``peer`` of the rows is.
        more: what cannot be compared.
    """
    machine = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }
    machine |= {"date": time.strftime("%Y-%m-%d"), "load": round(LOAD, 1)}
    json.dump({"machine": machine, "peer": peer, "rows": rows, **more}, sys.stdout, indent=2)
    print()


def script(name: str) -> str:
    """Return the path of a console script of this environment."""
    return str(Path(sys.executable).parent / name)


def own_threads_and_descriptors() -> tuple[int, int]:
    """Return how many threads and open descriptors this process has."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
