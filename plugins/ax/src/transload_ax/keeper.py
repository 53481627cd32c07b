"""When an experiment is stored: at once where it must be, and otherwise soon, at a small share of the time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ax.core.experiment import Experiment
    from ax.generation_strategy.generation_strategy import GenerationStrategy

    from transload_ax.snapshot import Snapshot

SHARE: Final = 0.05
"""Of the time: what storing may take where it can wait. After a save of 5 ms the next one comes 95 ms later."""


class Keeper:
    """Stores an experiment while it runs.

    *Before a trial is submitted*, the trial with its parameters must be on the disk: whoever goes on after a crash has
    to know that there may be a job, and of what. Everything else may be a moment behind: ids of apps follow from what
    was stored, so that handles, states and results are found again by asking. Such changes are stored as soon as
    `SHARE` allows, together.

    Args:
        snapshot: where to; None: nowhere.
        experiment: what.
        generation_strategy: what proposes its trials.
    """

    def __init__(
        self,
        snapshot: Snapshot | None,
        experiment: Experiment,
        generation_strategy: GenerationStrategy,
    ) -> None:
        self._snapshot = snapshot
        self._experiment = experiment
        self._strategy = generation_strategy
        self._stored: set[int] = set()
        self._whole = False  # stored as a whole by this process, so that trials can be added
        self._changed = False
        self._next = 0.0

    def touch(self) -> None:
        """Note that something has changed."""
        self._changed = True

    def before_submit(self) -> None:
        """Store the trials that are about to be submitted, unless that was done."""
        candidates = [trial for trial in self._experiment.trials.values() if trial.status.is_candidate]
        new = [trial for trial in candidates if trial.index not in self._stored]
        if self._snapshot is None or not new:
            return
        if self._whole:
            self._snapshot.add(new, self._strategy)
            self._changed = True
        else:
            self._save()
        self._stored.update(trial.index for trial in new)

    def due(self) -> float | None:
        """Return after how many seconds the next save is due; None: nothing has changed since the last one."""
        if self._snapshot is None or not self._changed:
            return None
        return max(0.0, self._next - time.monotonic())

    def idle(self, _: Any = None) -> None:
        """Store what has changed, if that is due."""
        if self.due() == 0.0:
            self._save()

    def close(self) -> None:
        """Store the experiment as it is in the end."""
        self._save()

    def _save(self) -> None:
        self._changed = False
        if self._snapshot is not None:
            began = time.monotonic()
            self._snapshot.save(self._experiment, self._strategy, saved=time.time())
            ended = time.monotonic()
            self._whole = True
            self._next = ended + (ended - began) * (1 / SHARE - 1)
