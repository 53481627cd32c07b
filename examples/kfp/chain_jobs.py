"""The jobs of `chain.py` as components, and the program that they run; nothing here knows of Kubeflow Pipelines.

That one job came from another needs no line here: whoever launches it says so (``parent_run_id``), and the run that the
job finds in its environment has it as its source.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from transload.runtime.tracking import FsspecResultTracker
from transload.specs import AppDef, Role, macros
from transload.tracker import AppRun

PROGRAM = str(Path(__file__).resolve())


def plan(samples: int = 300) -> AppDef:
    """Decide how many replicas the work is worth.

    Args:
        samples: how many samples are wanted
    """
    return _job("plan", [str(samples)])


def estimate(samples: int, replicas: int = 1) -> AppDef:
    """Estimate pi, each replica with samples of its own.

    Args:
        samples: of each replica
        replicas: how many share the work
    """
    return _job("estimate", [str(samples), macros.replica_id], replicas)


def _job(name: str, words: list[str], replicas: int = 1) -> AppDef:
    role = Role(name, "", entrypoint=sys.executable, args=[PROGRAM, name, *words], num_replicas=replicas)
    return AppDef(name, [role])


# -- in the job


def _plan(samples: int) -> None:
    replicas = max(1, samples // 100)
    AppRun.run_from_env().add_metadata(replicas=replicas)
    FsspecResultTracker.from_env()["plan"] = {"replicas": replicas, "share": samples // replicas}
    print(f"{samples} samples are worth {replicas} replicas")


def _estimate(samples: int, replica: int) -> None:
    draw = random.Random(replica)
    inside = sum(draw.random() ** 2 + draw.random() ** 2 <= 1 for _ in range(samples))
    AppRun.run_from_env().add_metadata(**{f"inside_{replica}": inside})
    FsspecResultTracker.from_env()[f"share-{replica}"] = {f"pi_{replica}": 4 * inside / samples}
    print(f"replica {replica}: {4 * inside / samples:.3f}")


if __name__ == "__main__":
    {"plan": _plan, "estimate": _estimate}[sys.argv[1]](*map(int, sys.argv[2:]))
