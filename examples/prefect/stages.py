"""The jobs of `chain.py` as components, and the program that they run; nothing here knows of Prefect.

Each job notes at the trackers what it made. That it came from another one needs no line here: whoever launches it says
so (``parent_run_id``), and the run that the job finds in its environment has it as its source.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

from transload.runtime.tracking import FsspecResultTracker
from transload.specs import AppDef, Role, macros
from transload.tracker import AppRun

PROGRAM = str(Path(__file__).resolve())


def prepare(folder: str, rows: int = 300, seed: int = 0) -> AppDef:
    """Make a data set of points near a line.

    Args:
        folder: where it is written
        rows: how many points
        seed: of the noise
    """
    return _job("prepare", [folder, str(rows), str(seed)])


def fit(dataset: str, replicas: int = 1) -> AppDef:
    """Fit a line, each replica to its share of the points.

    Args:
        dataset: file with the points
        replicas: how many share the work
    """
    return _job("fit", [dataset, str(replicas), macros.replica_id], replicas)


def check(dataset: str, slopes: list[float]) -> AppDef:
    """Measure how far the points are from the mean of some lines.

    Args:
        dataset: file with the points
        slopes: of the lines
    """
    return _job("check", [dataset, *map(str, slopes)])


def _job(name: str, words: list[str], replicas: int = 1) -> AppDef:
    role = Role(name, "", entrypoint=sys.executable, args=[PROGRAM, name, *words], num_replicas=replicas)
    return AppDef(name, [role])


# -- in the job


def _points(file: str) -> list[tuple[float, float]]:
    with open(file, newline="") as lines:
        return [(float(x), float(y)) for x, y in csv.reader(lines)]


def _prepare(folder: str, rows: int, seed: int) -> None:
    noise, file = random.Random(seed), Path(folder) / "points.csv"
    with open(file, "w", newline="") as lines:
        csv.writer(lines).writerows([x, 3.0 * x + noise.gauss(0, 0.1)] for x in (k / rows for k in range(rows)))
    AppRun.run_from_env().add_artifact("points", str(file), {"rows": rows})
    FsspecResultTracker.from_env()["made"] = {"dataset": str(file), "shares": max(1, rows // 100)}


def _fit(dataset: str, replicas: int, replica: int) -> None:
    mine = _points(dataset)[replica::replicas]
    slope = sum(x * y for x, y in mine) / sum(x * x for x, _ in mine)
    print(f"slope {slope:.4f} of {len(mine)} points")
    AppRun.run_from_env().add_metadata(**{f"slope_{replica}": slope})
    FsspecResultTracker.from_env()[f"line-{replica}"] = {"slope": slope}


def _check(dataset: str, slopes: list[float]) -> None:
    points, slope = _points(dataset), sum(slopes) / len(slopes)
    error = sum((y - slope * x) ** 2 for x, y in points) / len(points)
    print(f"slope {slope:.4f}, error {error:.5f}")
    AppRun.run_from_env().add_metadata(error=error)
    FsspecResultTracker.from_env()["final"] = {"error": error, "slope": slope}


def main(name: str, *words: str) -> None:
    """Do one job's work."""
    if name == "prepare":
        _prepare(words[0], int(words[1]), int(words[2]))
    elif name == "fit":
        _fit(words[0], int(words[1]), int(words[2]))
    else:
        _check(words[0], [float(word) for word in words[1:]])


if __name__ == "__main__":
    main(*sys.argv[1:])
