"""What is kept of a training so that it can go on later: the parameters, and the epoch they are of.

The scheduler names a folder if somebody asked for one (``transload run --checkpoints``). Before it
ends the replicas it warns them by a signal, the notice. A program that has saved its work then ends
with exit code 75, which means: start me again. Without such a folder none of this does anything.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
EXIT_INTERRUPTED = 75


class Checkpoints:
    """The latest checkpoint of a training, shared by its replicas; rank 0 writes it.

    Args:
        rank: This replica's number.
        every: Epochs between two checkpoints.
    """

    def __init__(self, rank: int, every: int) -> None:
        folder = os.environ.get("TRANSLOAD_CHECKPOINT_DIR")
        self.rank = rank
        self.every = every
        self.noticed = False
        self.path = Path(folder, "digits.npz") if folder else None
        if self.path is not None:
            self.listen()

    def listen(self) -> None:
        """Take the signal of the notice, which would end the program otherwise."""
        number = getattr(signal, f"SIG{os.environ.get('TRANSLOAD_NOTICE_SIGNAL', 'TERM')}")
        signal.signal(number, self._take_notice)
        # while Python ends no handler is called, and the signal would end the program
        atexit.register(signal.signal, number, signal.SIG_IGN)

    def _take_notice(self, number: int, frame: object) -> None:
        self.noticed = True

    def load(self, parameters: Array) -> int:
        """Put the saved parameters into ``parameters``; return the epoch they are of, or 0."""
        if self.path is None or not self.path.exists():
            return 0
        with np.load(self.path) as saved:
            parameters[:] = saved["parameters"]
            return int(saved["epoch"])

    def save(self, epoch: int, parameters: Array) -> None:
        """Replace the checkpoint by a newer one; whoever reads sees either of them whole."""
        if self.path is None or self.rank:
            return
        aside = self.path.with_name(f".{os.getpid()}.npz")
        np.savez(aside, epoch=epoch, parameters=parameters)
        aside.replace(self.path)

    def epoch_done(self, epoch: int, total: int, parameters: Array) -> None:
        """Report how far the training is, and save it after some epochs, and after the last one."""
        progress = os.environ.get("TRANSLOAD_PROGRESS_FILE")
        if progress and not self.rank:
            Path(progress).write_text(json.dumps({"step": epoch, "total": total}) + "\n")
        if epoch % self.every == 0 or epoch == total:
            self.save(epoch, parameters)
