"""One line on stderr that tells how a search goes."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ax.core.experiment import Experiment

_WIDTH = 24


class Progress:
    """A progress bar: trials that ended of all, what runs, what failed, the best value so far.

    Args:
        experiment: the experiment.
        trials: how many there will be.
        shown: True, False, or None: if stderr is a terminal.
    """

    def __init__(self, experiment: Experiment, trials: int, shown: bool | None) -> None:
        self._experiment = experiment
        self._trials = trials
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._line = ""

    def __enter__(self) -> Progress:
        self.update()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._shown and self._line:
            sys.stderr.write("\n")

    def update(self) -> None:
        """Write the line anew if it has changed."""
        if not self._shown:
            return
        line = progress_line(self._experiment, self._trials)
        if line != self._line:
            sys.stderr.write(
                ("\r" if sys.stderr.isatty() else "\n" if self._line else "") + line.ljust(len(self._line))
            )
            sys.stderr.flush()
            self._line = line


def progress_line(experiment: Experiment, trials: int) -> str:
    """Return the line: ``search [#####.....] 5/10, 4 running, 1 failed, best loss 0.25 (trial 3)``."""
    from transload_ax.experiment import outcome

    counts: Counter[str] = Counter(trial.status.name for trial in experiment.trials.values())
    ended = sum(counts[name] for name in ("COMPLETED", "FAILED", "ABANDONED", "EARLY_STOPPED", "STALE"))
    full = min(_WIDTH, _WIDTH * ended // max(1, trials))
    parts = [f"{experiment.name} [{'#' * full}{'.' * (_WIDTH - full)}] {ended}/{trials}"]
    words: list[tuple[str, Any]] = [
        ("running", counts["RUNNING"] + counts["STAGED"]),
        ("stopped early", counts["EARLY_STOPPED"]),
        ("failed", counts["FAILED"] + counts["STALE"]),
        ("abandoned", counts["ABANDONED"]),
    ]
    parts += [f"{number} {word}" for word, number in words if number]
    best = outcome(experiment)
    if best.value is not None and experiment.optimization_config is not None:
        name = experiment.optimization_config.objective.metric_names[0]
        parts.append(f"best {name} {best.value:.6g} (trial {best.trial})")
    return ", ".join(parts)
