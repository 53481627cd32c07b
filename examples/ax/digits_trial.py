"""One trial of a search over the digits trainer: the job of ``examples/digits``, reporting under
the trial's number.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transload.specs import AppDef

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "digits"))

from component import digits


def digits_trial(
    trial_idx: int,
    lr: float = 0.5,
    hidden: int = 32,
    batch: int = 96,
    epochs: int = 4,
    replicas: int = 1,
    seed: int = 0,
) -> AppDef:
    """Train a classifier of handwritten digits with parameters that a search chooses.

    Args:
        trial_idx: number of the trial: the key that its accuracy is reported under
        lr: step size of the gradient descent
        hidden: width of the hidden layer
        batch: pictures per step
        epochs: how often each picture is seen
        replicas: how many processes share the work
        seed: decides the split, the first parameters and the order of the pictures
    """
    return digits(replicas, epochs, lr, seed, hidden, batch, result_key=str(trial_idx))
