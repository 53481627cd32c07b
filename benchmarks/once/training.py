"""The job that is interrupted: trains on digits, keeps checkpoints, and notes each of its steps in a
file outside of all else.

python training.py LEDGER UNIT EVERY HEEDS

LEDGER has the data (``digits.npz``, by `prepare`). A checkpoint is made every EVERY steps; where
HEEDS is 1, after a notice as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
import uuid
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # sums then have one order only

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "digits"))

import numpy as np
from checkpoints import EXIT_INTERRUPTED, Checkpoints
from model import Network, load_shard

STEPS = 40
"""Epochs of the training."""
PAUSE_S = 0.2
"""Each step takes that much longer, so that it can be interrupted."""
HIDDEN = 16
SEED = 0


def prepare(ledger: Path) -> None:
    """Put the data where the jobs read them: scikit-learn is slow to import."""
    shard = load_shard(0, 1, SEED)
    np.savez(ledger / "digits.npz", x=shard.train_x, y=shard.train_y)


def undisturbed(ledger: Path) -> str:
    """Return the digest of the weights of a training that nobody disturbs."""
    network = Network(HIDDEN, SEED)
    with np.load(ledger / "digits.npz") as data:
        x, y = data["x"], data["y"]
    for step in range(1, STEPS + 1):
        _step(network, x, y, step)
    return _digest(network)


def _step(network: Network, x: np.ndarray, y: np.ndarray, step: int) -> None:
    """Walk once over the pictures, in an order that follows from the step's number."""
    order = np.random.default_rng([SEED, step]).permutation(len(y))
    for chosen in np.array_split(order, 15):
        network.parameters -= 0.5 * network.gradient(x[chosen], y[chosen]) / len(chosen)


def _digest(network: Network) -> str:
    return hashlib.sha256(network.parameters.tobytes()).hexdigest()[:16]


class Notes:
    """What an attempt writes down: a line of JSON each, of all attempts of a unit in one file.

    Args:
        ledger: the folder.
        unit: whose attempt it is.
    """

    def __init__(self, ledger: Path, unit: str) -> None:
        self.path = ledger / f"steps.{unit}"
        self.attempt = uuid.uuid4().hex

    def add(self, **what: object) -> None:
        """Add a line, whole: it is written at once."""
        line = json.dumps({"attempt": self.attempt, "at": time.time(), **what}) + "\n"
        opened = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(opened, line.encode())
        finally:
            os.close(opened)


def train(ledger: Path, unit: str, checkpoints: Checkpoints, every: int) -> str | None:
    """Train from the checkpoint on.

    Args:
        ledger: where the data are, and where steps are noted.
        unit: the unit of work.
        checkpoints: the place of checkpoints; after its notice, the training stops.
        every: steps between two checkpoints.

    Returns:
        The digest of the weights; None after a notice.
    """
    notes = Notes(ledger, unit)
    names = {
        "retries": "TRANSLOAD_RETRY",
        "interruptions": "TRANSLOAD_INTERRUPTIONS",
        "job": "SLURM_JOB_ID",
    }
    variables = {name: os.environ.get(variable) for name, variable in names.items()}
    notes.add(born=socket.gethostname(), **variables)
    network = Network(HIDDEN, SEED)
    with np.load(ledger / "digits.npz") as data:
        x, y = data["x"], data["y"]
    first = checkpoints.load(network.parameters) + 1
    for step in range(first, STEPS + 1):
        _step(network, x, y, step)
        notes.add(step=step)
        time.sleep(PAUSE_S)
        if step % every == 0 or checkpoints.noticed:
            checkpoints.save(step, network.parameters)
            notes.add(saved=step)
        if checkpoints.noticed and step < STEPS:
            return None
    digest = _digest(network)
    notes.add(weights=digest)
    return digest


class Heedless(Checkpoints):
    """Checkpoints of a program that knows of no notice."""

    def listen(self) -> None:
        """Leave the signal as it is."""


def main(ledger: Path, unit: str, every: int, heeds: bool) -> int:
    """Train as a job of transload; return the exit code."""
    kind = Checkpoints if heeds else Heedless
    digest = train(ledger, unit, kind(0, every), every)
    if digest is None:
        return EXIT_INTERRUPTED
    folder = Path(os.environ["TRANSLOAD_TRACKER_BASE"])
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f".{uuid.uuid4().hex}"
    aside.write_text(json.dumps({"schema": 1, "key": "0", "results": {"weights": digest}}))
    aside.rename(folder / "0.json")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"))
