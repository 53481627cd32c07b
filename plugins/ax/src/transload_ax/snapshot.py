"""Storing experiments in a file that another process goes on from."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ax.core.base_trial import BaseTrial
from ax.core.experiment import Experiment
from ax.generation_strategy.generation_strategy import GenerationStrategy

from transload.errors import ConfigError
from transload.schedulers.folder.home import make_private
from transload_ax.storage import (
    decode_experiment,
    encode,
    encode_experiment,
    encode_strategy,
    register,
)
from transload_search.places import locked

SCHEMA: Final = 1
SHARE: Final = 0.05
"""The part of the time that storing may take where it can wait.

After a save of 5 ms the next one comes 95 ms later.
"""

REFUSED_S: Final = 5.0
"""Seconds after which what could not be stored is tried again."""

logger = logging.getLogger("transload_ax")


class Snapshot:
    """One experiment and its generation strategy in a JSON file, and new trials in a second one.

    The file is replaced as a whole. Saving takes a few milliseconds for each trial. `add` takes the
    same however many trials there are. It writes new trials to the end of ``<path>.trials``, which
    the next `save` removes.

    Args:
        path: the file, whose folder is made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._runs: int | None = None

    def exists(self) -> bool:
        """Tell whether there is one."""
        return self.path.is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold a lock on ``<path>.lock`` that keeps others from running the experiment.

        The lock goes with its process, however that ends. The file stays. Where a file system has
        no locks, a warning says so.

        Raises:
            ConfigError: if another one holds it.
        """
        with locked(self.path.with_name(f"{self.path.name}.lock"), str(self.path)):
            yield

    def save(
        self,
        experiment: Experiment,
        generation_strategy: GenerationStrategy | None = None,
        along: Mapping[str, Any] | None = None,
    ) -> None:
        """Store an experiment in one step, so that a reader finds the old or the new one.

        That holds too for a process that is killed while it writes.

        Args:
            experiment: the experiment, in any state.
            generation_strategy: what proposes its trials.
            along: JSON values to store with it, by separate names.
        """
        strategy = None
        if generation_strategy is not None:
            strategy = encode_strategy(generation_strategy)
        body = {
            "schema": SCHEMA,
            **(along or {}),
            "experiment": encode_experiment(experiment),
            "generation_strategy": strategy,
        }
        text = json.dumps(body)
        make_private(self.path.parent)
        aside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        with open(aside, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)
        self._added.unlink(missing_ok=True)
        self._runs = 0
        if strategy is not None:
            self._runs = len(strategy["generator_runs"])

    def add(self, trials: Iterable[BaseTrial], generation_strategy: GenerationStrategy) -> None:
        """Store trials that were made since the last `save` or `add`, and nothing else that is new.

        The trials survive this process from then on. A failure of the machine may lose them, but no
        more.

        Args:
            trials: the new trials.
            generation_strategy: what proposed them.

        Raises:
            ConfigError: if this object has not saved the experiment before.
            OSError: if there is no room. What was stored before is as it was.
        """
        if self._runs is None:
            raise ConfigError(f"{self.path}: save the experiment as a whole first")
        made = encode_strategy(generation_strategy, self._runs)
        self._runs += len(made["generator_runs"])
        added = {str(trial.index): encode(trial) for trial in trials}
        line = (
            json.dumps({"schema": SCHEMA, "trials": added, "generation_strategy": made}).encode()
            + b"\n"
        )
        descriptor = os.open(self._added, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            written = os.write(descriptor, line)
            if written < len(line):  # the next line would be one with half of this
                os.ftruncate(descriptor, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._added))
        finally:
            os.close(descriptor)

    def load(self) -> tuple[Experiment, GenerationStrategy | None, dict[str, Any]]:
        """Return the experiment, its generation strategy, and what was stored along.

        Raises:
            ConfigError: if there is none, or it is not one, or of a newer version.
        """
        register()
        try:
            body = json.loads(self.path.read_text(encoding="utf-8"))
            self._check(body)
            stored = body.pop("experiment")
            strategy = body.pop("generation_strategy")
            for line in self._lines():
                self._check(line)
                _merge(line, stored, strategy)
        except FileNotFoundError as exc:
            raise ConfigError(f"{self.path}: there is no experiment") from exc
        except (ValueError, KeyError, TypeError) as exc:
            if isinstance(exc, ConfigError):
                raise
            raise ConfigError(f"{self.path}: not a stored experiment: {exc!r}") from exc
        experiment, made = decode_experiment(stored, strategy)
        return experiment, made, body

    @property
    def _added(self) -> Path:
        return self.path.with_name(f"{self.path.name}.trials")

    def _lines(self) -> list[dict[str, Any]]:
        """Return what was added. The last line may be half of one, if its writer was killed."""
        try:
            text = self._added.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _check(self, body: dict[str, Any]) -> None:
        if body["schema"] > SCHEMA:
            raise ConfigError(
                f"{self.path}: schema {body['schema']} is newer than this version reads ({SCHEMA})"
            )


def _merge(
    line: dict[str, Any], experiment: dict[str, Any], strategy: dict[str, Any] | None
) -> None:
    """Put added trials into a stored experiment that does not have them yet, all as JSON values."""
    trials = experiment["trials"]
    if not line["trials"] or set(line["trials"]) <= set(trials):
        # saved as a whole since, by a process that was killed before it could remove the line
        return
    trials.update(line["trials"])
    if strategy is not None:
        added = line["generation_strategy"]
        runs = [*strategy["generator_runs"], *added["generator_runs"]]
        strategy.update({**added, "generator_runs": runs})


class Keeper:
    """Stores an experiment while it runs, at a small share of the time.

    *Before a trial is submitted*, the trial with its parameters must be on the disk. A process that
    goes on after a crash has to know that there may be a job, and with which parameters. Everything
    else may be a moment behind. Ids of jobs follow from the stored values. So handles, states and
    results are found again by asking. Such changes are stored together, as soon as `SHARE` allows.

    Args:
        snapshot: where to, or None for nowhere.
        experiment: what.
        generation_strategy: what proposes its trials.

    Attributes:
        refusal: why a trial could not be stored before its submit. None means that each was.
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
        self._whole: list[Any] = []  # what this process stored, so that trials can be added
        self._next = 0.0
        self.refusal: OSError | None = None
        self._warned = False

    def before_submit(self) -> None:
        """Store the trials that are about to be submitted, unless that was done.

        Raises:
            OSError: if that cannot be done.
        """
        trials = self._experiment.trials.values()
        candidates = [trial for trial in trials if trial.status.is_candidate]
        new = [trial for trial in candidates if trial.index not in self._stored]
        if self._snapshot is None or not new:
            return
        try:
            if self._whole:
                self._snapshot.add(new, self._strategy)
            else:
                self.save()
        except OSError as exc:
            self.refusal = exc
            raise
        self._stored.update(trial.index for trial in new)

    def idle(self, _: Any = None) -> None:
        """Store what has changed, if that is due. What cannot be stored is tried again later."""
        if self._snapshot is None or time.monotonic() < self._next:
            return
        if self._now() == self._whole:
            return
        try:
            self.save()
        except OSError as exc:
            self._next = time.monotonic() + REFUSED_S
            if not self._warned:
                logger.warning("the search cannot be stored now, and goes on: %s", exc)
            self._warned = True
        else:
            self._warned = False

    def save(self) -> None:
        """Store the experiment as it is.

        Raises:
            OSError: if that cannot be done.
        """
        if self._snapshot is None:
            return
        began = time.monotonic()
        now = self._now()
        self._snapshot.save(self._experiment, self._strategy, {"saved": time.time()})
        self._whole = now
        ended = time.monotonic()
        self._next = ended + (ended - began) * (1 / SHARE - 1)

    def _now(self) -> list[Any]:
        """Return what differs once anything has changed."""
        rows = getattr(self._experiment.data, "_data_rows", ())
        trials = self._experiment.trials.values()
        return [len(rows), [(trial.status, repr(trial.run_metadata)) for trial in trials]]
