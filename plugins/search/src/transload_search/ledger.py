"""The state of a search, kept in its tracker base: a host's task that is run again goes on where it was."""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SpecError
from transload.pipelines import Launch
from transload.specs import AppState
from transload_search.search import Search, SearchTrial, get_suggester

if TYPE_CHECKING:
    from transload.runner import AppResults

SCHEMA: Final = 1

_MAY_CHANGE: Final = ("trials", "parallelism", "scheduler", "cfg")
"""What may differ when a search is gone on with: it says how much and where, not what."""


def next_round(
    search: Search, state: Mapping[str, Any] | None, observed: Mapping[int, float | None], count: int | None = None
) -> tuple[list[SearchTrial], dict[str, Any]]:
    """Return the trials of the next round, and the suggester's state after it. Nothing is read or written.

    Args:
        search: the search.
        state: the state after the round before; None: this is the first.
        observed: trial → objective (None: it failed), as far as the state does not know them.
        count: how many trials; None: the search's parallelism.

    Raises:
        SpecError: if the state is of another suggester, or a trial was never suggested.
        ConfigError: if there is no such suggester.
    """
    suggester = get_suggester(search)
    if state is not None:
        suggester.load(state)
    for index, value in sorted(observed.items()):
        suggester.observe(index, value)
    trials = suggester.suggest(search.parallelism if count is None else count)
    return trials, suggester.state()


def objective_value(search: Search, index: int, results: AppResults) -> tuple[float | None, str]:
    """Return a trial's objective, and why there is none (empty if there is one).

    Args:
        search: says the objective's name and, maybe, its key; else it is looked for under the trial's number, then
            under the only key that has it.
        index: the trial.
        results: what the trial's app reported.
    """
    from transload.runner import NoSuchResult

    if results.state != AppState.SUCCEEDED:
        return None, f"{results.handle} ended {results.state.name}"
    objective = search.objective
    own = objective.name in results.results.get(str(index), {})
    try:
        value = results.value(objective.name, objective.key or (index if own else None))
    except NoSuchResult as exc:
        return None, str(exc)
    if isinstance(value, str) or not math.isfinite(value):
        return None, f"{results.handle} reported {objective.name}={value!r}, which is no finite number"
    return float(value), ""


class SearchLedger:
    """What a search has suggested and seen, in files below a tracker base.

    Every method may be called again after a crash, by another process: what was suggested stays so, what was observed
    is written over by itself. One process at a time asks for a round; trials may be observed side by side.

    Args:
        search: the search.
        tracker_base: a folder or any fsspec URL, seen by all who work on the search. Below it lie ``search/`` (the
            ledger's own), ``trials/<index>/`` (what each trial reported) and, in the end, the result key ``best``.

    Raises:
        SpecError: if the base holds another search.
    """

    def __init__(self, search: Search, tracker_base: str) -> None:
        from transload.runtime.tracking import open_store

        self.search = search
        self.tracker_base = tracker_base
        self._store = open_store(tracker_base)
        self._claim()

    @classmethod
    def open(cls, tracker_base: str) -> SearchLedger:
        """Return the ledger of the search that a tracker base holds; nothing is written.

        Args:
            tracker_base: the base.

        Raises:
            ConfigError: if it holds no search.
            SpecError: if what it holds cannot be read.
        """
        from transload.runtime.tracking import open_store

        ledger = cls.__new__(cls)
        ledger.tracker_base, ledger._store = tracker_base, open_store(tracker_base)
        known = ledger._read(_DEFINITION)
        if known is None:
            raise ConfigError(f"{tracker_base}: holds no search")
        ledger.search = Search.from_dict(known["search"])
        return ledger

    @property
    def rounds(self) -> int:
        """How many rounds are planned: trials by parallelism, rounded up."""
        return math.ceil(self.search.trials / self.search.parallelism)

    def suggest(self, number: int) -> list[SearchTrial]:
        """Return the trials of a round, the same ones for ever; none once the search has had all its trials.

        Args:
            number: the round, from 0. It sees what was observed so far of the rounds before.

        Raises:
            SpecError: if the round before was never asked for.
        """
        known = self._read(_round(number))
        if known is not None and (known["trials"] or known.get("of") == self.search.trials):
            return _trials(known)  # an end is none any more once the search may have more trials
        before = self._read(_round(number - 1)) if number > 0 else {"state": None, "next": 0, "seen": {}}
        if number < 0 or before is None:
            raise SpecError(f"search: round {number!r}: the round before it was never suggested")
        seen: dict[str, Any] = before["seen"]
        observed = {index: record["value"] for index, record in self._observed().items() if index < before["next"]}
        news = {
            index: value for index, value in observed.items() if str(index) not in seen or seen[str(index)] != value
        }
        count = min(self.search.parallelism, self.search.trials - before["next"])
        trials, state = next_round(self.search, before["state"], news, max(0, count))
        made = {
            "schema": SCHEMA,
            "of": self.search.trials,
            "trials": [{"index": trial.index, "parameters": trial.parameters} for trial in trials],
            "next": max([before["next"], *(trial.index + 1 for trial in trials)]),
            "seen": {**seen, **{str(index): value for index, value in news.items()}},
            "state": state,
        }
        self._write(_round(number), made)
        return trials

    def trial_base(self, index: int) -> str:
        """Return the tracker base of one trial's app."""
        join = posixpath.join if "://" in self.tracker_base else _local_join
        return join(self.tracker_base, "trials", str(index))

    def launch(self, trial: SearchTrial) -> Launch:
        """Return what runs a trial: the component with its constants and the trial's parameters."""
        search = self.search
        return Launch(
            component=search.component,
            args={**search.constants, **trial.parameters},
            scheduler=search.scheduler,
            cfg=dict(search.cfg),
            tracker_base=self.trial_base(trial.index),
        )

    def observe(
        self,
        index: int,
        results: AppResults | None,
        *,
        state: AppState | None = None,
        handle: str = "",
        reason: str = "",
    ) -> float | None:
        """Write down how a trial ended.

        Args:
            index: the trial.
            results: what its app reported; None: there is nothing to read, the trial has failed.
            state: how the app ended, where there are no results.
            handle: likewise.
            reason: why there is no objective, where there are no results.

        Returns:
            The objective; None: the trial has none, and counts as failed.
        """
        value: float | None = None
        if results is not None:
            value, reason = objective_value(self.search, index, results)
            state, handle = results.state, results.handle
        name = state.name if state is not None else AppState.FAILED.name
        record = {"schema": SCHEMA, "index": index, "value": value, "state": name, "handle": handle, "reason": reason}
        self._write(_trial(index), record)
        return value

    def ended(self, index: int) -> dict[str, Any] | None:
        """Return what was observed of a trial (``value``, ``state``, ``handle``, ``reason``); None: nothing yet."""
        return self._read(_trial(index))

    def best(self) -> tuple[SearchTrial, float] | None:
        """Return the best trial observed so far, the earlier one of two equals; None: none has an objective."""
        sign = 1.0 if self.search.objective.minimize else -1.0
        known = [(sign * row["value"], index) for index, row in self._observed().items() if row["value"] is not None]
        if not known:
            return None
        value, index = min(known)
        return self._suggested()[index], sign * value

    def finish(self) -> dict[str, Any]:
        """Report the best trial under the result key ``best``, and return the summary.

        The key holds ``objective`` (by its own name), ``trial`` and the trial's parameters. Without any objective,
        nothing is reported.
        """
        from transload.runtime.tracking import FsspecResultTracker

        best = self.best()
        if best is not None:
            trial, value = best
            plain = {name: int(each) if isinstance(each, bool) else each for name, each in trial.parameters.items()}
            FsspecResultTracker(self.tracker_base)["best"] = {
                **plain,
                "trial": trial.index,
                self.search.objective.name: value,
            }
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Return all that is known, as JSON values: the search, each trial with its end, the best."""
        observed, suggested = self._observed(), self._suggested()
        waiting: dict[str, Any] = {"value": None, "state": None, "handle": "", "reason": ""}
        rows = [
            {
                "index": index,
                "parameters": trial.parameters,
                **{name: observed.get(index, waiting)[name] for name in waiting},
            }
            for index, trial in sorted(suggested.items())
        ]
        best = self.best()
        return {
            "schema": SCHEMA,
            "search": self.search.to_dict(),
            "tracker_base": self.tracker_base,
            "trials": rows,
            "best": None
            if best is None
            else {"index": best[0].index, "parameters": best[0].parameters, "value": best[1]},
        }

    # -- files

    def _claim(self) -> None:
        mine = self.search.to_dict()
        known = self._read(_DEFINITION)
        if known is not None:
            other = known["search"]
            for name in mine:
                if name not in _MAY_CHANGE and _plain(mine[name]) != other.get(name):
                    raise SpecError(
                        f"search: {self.tracker_base} holds another search: {name} is {other.get(name)!r} there, "
                        f"{mine[name]!r} here; give this one a base of its own"
                    )
        if known is None or known["search"] != _plain(mine):
            self._write(_DEFINITION, {"schema": SCHEMA, "search": mine})

    def _observed(self) -> dict[int, dict[str, Any]]:
        names = [name for name, is_folder, _ in self._store.entries("search/trials") if not is_folder]
        found = self._store.read_many([f"search/trials/{name}" for name in names])
        records = [self._decode(path, data) for path, data in found.items()]
        return {record["index"]: record for record in records}

    def _suggested(self) -> dict[int, SearchTrial]:
        names = [name for name, is_folder, _ in self._store.entries("search/rounds") if not is_folder]
        found = self._store.read_many([f"search/rounds/{name}" for name in names])
        return {trial.index: trial for path, data in found.items() for trial in _trials(self._decode(path, data))}

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            return self._decode(path, self._store.read(path))
        except FileNotFoundError:
            return None

    def _decode(self, path: str, data: bytes) -> dict[str, Any]:
        try:
            record = json.loads(data)
            schema = record["schema"]
        except (ValueError, KeyError, TypeError) as exc:
            raise SpecError(f"{self._store.where(path)}: not a record of a search: {exc!r}") from exc
        if schema > SCHEMA:
            raise SpecError(f"{self._store.where(path)}: schema {schema!r} is newer than this version reads ({SCHEMA})")
        return dict(record)

    def _write(self, path: str, record: Mapping[str, Any]) -> None:
        self._store.write(path, json.dumps(record, ensure_ascii=False).encode())


_DEFINITION: Final = "search/search.json"


def _round(number: int) -> str:
    return f"search/rounds/{number}.json"


def _trial(index: int) -> str:
    return f"search/trials/{index}.json"


def _trials(record: Mapping[str, Any]) -> list[SearchTrial]:
    return [SearchTrial(each["index"], dict(each["parameters"])) for each in record["trials"]]


def _plain(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def _local_join(*parts: str) -> str:
    import os

    return os.path.join(*parts)
