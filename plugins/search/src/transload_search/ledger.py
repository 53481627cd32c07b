"""The state of a search, kept in its tracker base: whoever runs it again goes on where it was."""

from __future__ import annotations

import json
import math
import os
import posixpath
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SpecError
from transload.pipelines import Identity, Launch, ended_state
from transload.runner.job_env import surrounding_run
from transload.specs import AppState, looks_secret
from transload_search.check import check_search
from transload_search.outcome import trial_values
from transload_search.search import (
    FEWEST_FAILURES,
    Search,
    SearchFailed,
    SearchTrial,
    Suggester,
    ask,
    get_suggester,
)

if TYPE_CHECKING:
    from transload.runner import AppResults

SCHEMA: Final = 1
STOPPED: Final = "STOPPED"
"""State of a trial that was ended early, beside the names of `transload.specs.AppState`."""

_MAY_CHANGE: Final = ("trials", "parallelism", "scheduler", "cfg", "failures", "early_stopping")
"""What may differ when a search is gone on with: it says how much and where, not what."""


class SearchLedger:
    """What a search has suggested and seen, in files below a tracker base.

    Every method may be called again after a crash, by another process: what was suggested stays so,
    what was observed is written over by itself. One process at a time asks for new trials; trials
    may be observed side by side.

    Args:
        search: the search.
        tracker_base: a folder or any fsspec URL, seen by all who work on the search. Below it lie
            ``search/`` (the ledger's own), ``trials/<index>/`` (what each trial reported) and, in
            the end, the result key ``best``.

    Raises:
        SpecError: if the search does not fit its component, or the base holds another search.
    """

    def __init__(self, search: Search, tracker_base: str) -> None:
        from transload.runtime.tracking import open_store

        self.search = search
        self.tracker_base = tracker_base
        self._store = open_store(tracker_base)
        self._suggester: tuple[int, Suggester] | None = None
        self.id = self._claim()

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
        ledger.tracker_base, ledger._store, ledger._suggester = (
            tracker_base,
            open_store(tracker_base),
            None,
        )
        known = ledger._read(_DEFINITION)
        if known is None:
            raise ConfigError(f"{tracker_base}: holds no search")
        ledger.search, ledger.id = Search.from_dict(known["search"]), known["id"]
        return ledger

    @property
    def name(self) -> str:
        """A name for people: the last part of the tracker base."""
        return posixpath.basename(self.tracker_base.rstrip("/")) or "search"

    # -- suggesting

    @property
    def rounds(self) -> int:
        """How many rounds are planned, where trials run in rounds: trials by parallelism, rounded
        up.
        """
        return math.ceil(self.search.trials / self.search.parallelism)

    def suggest(self, number: int) -> list[SearchTrial]:
        """Return the trials of a round, the same ones for ever; none once the search has had all
        its trials.

        Args:
            number: the round, from 0. It sees what was observed so far of the rounds before.

        Raises:
            SpecError: if the round before was never asked for.
            SearchFailed: if too many trials have failed.
        """
        return self._suggest(number, self.search.parallelism, keep=True)

    def next_trial(self) -> SearchTrial | None:
        """Return one more trial, a round of its own; None: the search has had all, or wants to see
        results first.

        Raises:
            SearchFailed: if too many trials have failed.
        """
        numbers = self._numbers("search/rounds")
        number = max(numbers, default=-1) + 1
        last = self._read(_round(number - 1)) if number else None
        if last is not None and not last["trials"]:
            number -= 1
        return next(iter(self._suggest(number, 1, keep=False)), None)

    def unfinished(self) -> list[SearchTrial]:
        """Return the trials that were suggested and have not been observed."""
        observed = self._observed()
        return [
            trial for index, trial in sorted(self._suggested().items()) if index not in observed
        ]

    def _suggest(self, number: int, most: int, *, keep: bool) -> list[SearchTrial]:
        known = self._read(_round(number))
        if known is not None and (known["trials"] or known.get("of") == self.search.trials):
            return _trials(known)  # an end is none any more once the search may have more trials
        before = (
            self._read(_round(number - 1)) if number > 0 else {"state": None, "next": 0, "seen": {}}
        )
        if number < 0 or before is None:
            raise SpecError(f"search: round {number!r}: the round before it was never suggested")
        rows = self._observed()
        self._check_failures(rows)
        seen: dict[str, Any] = before["seen"]
        observed = {index: row["values"] for index, row in rows.items() if index < before["next"]}
        news = {
            index: each
            for index, each in observed.items()
            if str(index) not in seen or seen[str(index)] != each
        }
        count = max(0, min(most, self.search.trials - before["next"]))
        suggester = self._suggester_after(number - 1, before["state"])
        trials = ask(suggester, news, count)
        self._suggester = number, suggester
        if not trials and not keep:
            self._suggester = None  # it has seen what the round before does not say
            return []
        made = {
            "schema": SCHEMA,
            "of": self.search.trials,
            "trials": [{"index": trial.index, "parameters": trial.parameters} for trial in trials],
            "next": max([before["next"], *(trial.index + 1 for trial in trials)]),
            "seen": {**seen, **{str(index): each for index, each in news.items()}},
            "state": suggester.state(),
        }
        self._write(_round(number), made)
        if (
            trials and number
        ):  # nobody goes on from there any more: a search's files grow with its trials, no faster
            self._write(_round(number - 1), {**before, "seen": {}, "state": None})
        return trials

    def _suggester_after(self, number: int, state: Mapping[str, Any] | None) -> Suggester:
        if self._suggester is not None and self._suggester[0] == number:
            return self._suggester[1]
        suggester = get_suggester(self.search)
        if state is not None:
            suggester.load(state)
        return suggester

    def _check_failures(self, rows: Mapping[int, Mapping[str, Any]]) -> None:
        failed = [row for _, row in sorted(rows.items()) if row["values"] is None]
        if len(failed) >= FEWEST_FAILURES and len(failed) > self.search.failures * len(rows):
            raise SearchFailed(
                f"search: {len(failed)} of {len(rows)} trials failed, and "
                f"failures={self.search.failures:g}: " + _reasons(failed[-1:])
            )

    # -- running

    def trial_base(self, index: int) -> str:
        """Return the tracker base of one trial's app."""
        join = posixpath.join if "://" in self.tracker_base else os.path.join
        return join(self.tracker_base, "trials", str(index))

    def launch(self, trial: SearchTrial) -> Launch:
        """Return what runs a trial: the component with its constants and the trial's parameters."""
        search = self.search
        return Launch(
            component=search.component,
            args={**search.constants, **trial.parameters},
            scheduler=search.scheduler,
            cfg=dict(search.cfg),
            workspace=search.workspace,
            parent_run_id=search.parent_run_id
            or surrounding_run()
            or f"search/{self.name}/{self.id}",
            tracker_base=self.trial_base(trial.index),
        )

    def identity(self, index: int) -> Identity:
        """Return whose app a trial's is: whoever goes on with this base finds it, from any host."""
        return Identity("search", self.id, (f"trial-{index}",))

    def known(self, index: int) -> dict[str, Any]:
        """Return the arguments that a trial's component may declare."""
        return {"trial_idx": index, "experiment_name": self.name}

    # -- observing

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
            The (first) objective; None: the trial has none.
        """
        values: dict[str, float] | None = None
        if results is not None:
            from transload.runtime.tracking import open_store, read_bodies

            # nobody else reports into a trial's base: what says of no run is the trial's, too
            refused = dict(results.refused)
            bodies = read_bodies(open_store(self.trial_base(index)), refused)
            plain = {key: body.results for key, body in bodies.items() if body.run is None}
            results = replace(results, results={**plain, **results.results}, refused=refused)
            values, reason = trial_values(self.search, index, results)
            state, handle = results.state, results.handle
        name = (state or AppState.FAILED).name
        stop = self._read(_stopped(index)) if state is AppState.CANCELLED else None
        if stop is not None:
            name, values, reason = (
                STOPPED,
                stop["values"],
                f"it was stopped early, at step {stop['step']:g}",
            )
        value = None if values is None else values.get(self.search.objectives[0].name)
        record = {"schema": SCHEMA, "index": index, "value": value, "values": values}
        self._write(_trial(index), {**record, "state": name, "handle": handle, "reason": reason})
        return value

    def observe_error(self, index: int, error: BaseException, handle: str = "") -> bool:
        """Write down a trial whose app did not end well, told by what waiting for it raised.

        Returns:
            False: the error says nothing about the trial (see `ended_state`), and nothing was
                written down.
        """
        state = ended_state(error)
        if state is not None:
            self.observe(index, None, state=state, handle=handle, reason=str(error))
        return state is not None

    def ended(self, index: int) -> dict[str, Any] | None:
        """Return what was observed of a trial (``value``, ``state``, ``handle``, ``reason``); None:
        nothing yet.
        """
        return self._read(_trial(index))

    # -- stopping early

    def to_stop(self, running: Iterable[int]) -> list[int]:
        """Return which of the running trials are to be ended: they do badly, or were to be ended
        before.

        What each of them came to is written down: once its app is seen CANCELLED, it counts as
        stopped, not as failed.

        Args:
            running: the trials that run.
        """
        rule, wanted = self.search.early_stopping, list(running)
        if rule is None or not wanted:
            return []
        goal, suggested = self.search.objectives[0], self._suggested()
        curves = {index: self.curve(index) for index in suggested}
        found = [index for index in wanted if self._read(_stopped(index)) is not None]
        for index in wanted:
            others = [curve for other, curve in curves.items() if other != index]
            if index not in found and rule.ends(
                curves.get(index, {}), others, minimize=goal.minimize
            ):
                step = max(curves[index])
                values = {goal.name: curves[index][step]}
                self._write(
                    _stopped(index),
                    {"schema": SCHEMA, "index": index, "step": step, "values": values},
                )
                found.append(index)
        return found

    def curve(self, index: int) -> dict[float, float]:
        """Return step → value of the (first) objective, as far as a trial has reported it."""
        from transload.runtime.tracking import read_steps

        goal = self.search.objectives[0]
        return read_steps(self._store, f"trials/{index}", goal.name, goal.key, refused={})

    # -- the end

    def best(self) -> tuple[SearchTrial, float] | None:
        """Return the best trial observed so far, the earlier one of two equals; None: none has an
        objective.

        It keeps the constraints. Of several objectives there is no best: see `front`.
        """
        goals = self.search.objectives
        if len(goals) > 1:
            return None
        sign = 1.0 if goals[0].minimize else -1.0
        known = [
            (sign * values[goals[0].name], index) for index, values in self._complete().items()
        ]
        if not known:
            return None
        value, index = min(known)
        return self._suggested()[index], sign * value

    def front(self) -> list[tuple[SearchTrial, dict[str, float]]]:
        """Return the trials that no other one beats in every objective, with their values."""
        signs = {goal.name: 1.0 if goal.minimize else -1.0 for goal in self.search.objectives}
        found, suggested = self._complete(), self._suggested()
        points = {
            index: [sign * values[name] for name, sign in signs.items()]
            for index, values in found.items()
        }
        return [
            (suggested[index], found[index])
            for index, point in sorted(points.items())
            if not any(_beats(other, point) for other in points.values())
        ]

    def finish(self) -> dict[str, Any]:
        """Report the best trial under the result key ``best``, and return the summary.

        The key holds ``objective`` (by its own name), ``trial`` and the trial's parameters. Of
        several objectives nothing is reported.

        Raises:
            SearchFailed: if no trial came to a value, with what there was instead.
        """
        from transload.runtime.tracking import FsspecResultTracker

        if not self._complete():
            raise SearchFailed(self._nothing())
        best = self.best()
        if best is not None:
            trial, value = best
            plain = {
                name: int(each) if isinstance(each, bool) else each
                for name, each in trial.parameters.items()
            }
            FsspecResultTracker(self.tracker_base)["best"] = {
                **plain,
                "trial": trial.index,
                self.search.objectives[0].name: value,
            }
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Return all that is known, as JSON values: the search, each trial with its end, the best
        or the front.
        """
        observed = self._observed()
        waiting: dict[str, Any] = {
            "value": None,
            "values": None,
            "state": None,
            "handle": "",
            "reason": "",
        }
        rows = [
            {
                "index": index,
                "parameters": trial.parameters,
                **{name: observed.get(index, waiting)[name] for name in waiting},
            }
            for index, trial in sorted(self._suggested().items())
        ]
        best = self.best()
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "search": self._shown(),
            "tracker_base": self.tracker_base,
            "trials": rows,
            "best": best
            and {"index": best[0].index, "parameters": best[0].parameters, "value": best[1]},
        }
        if len(self.search.objectives) > 1:
            front = [
                {"index": each.index, "parameters": each.parameters, "values": at}
                for each, at in self.front()
            ]
            found["front"] = front
        return found

    def _complete(self) -> dict[int, dict[str, float]]:
        """Return trial → values, of those that ended well and keep the constraints."""
        rows = {
            index: row["values"]
            for index, row in self._observed().items()
            if row["state"] != STOPPED
        }
        bounds = self.search.constraints
        return {
            index: values
            for index, values in rows.items()
            if values is not None and all(each.holds(values[each.name]) for each in bounds)
        }

    def _nothing(self) -> str:
        """Return why there is no best trial."""
        rows = [row for _, row in sorted(self._observed().items())]
        names = ", ".join(repr(each) for each in self.search.results)
        if any(row["values"] is not None and row["state"] != STOPPED for row in rows):
            return f"search: no trial keeps the constraints: {', '.join(map(str, self.search.constraints))}"
        text = f"search: none of {len(rows)} trials came to a value of {names}"
        return f"{text}: {_reasons(rows[:1])}" if rows else text

    # -- files

    def _claim(self) -> str:
        mine = _plain(self._shown())
        known = self._read(_DEFINITION)
        if known is None:
            check_search(self.search)
        else:
            other = known["search"]
            differs = [
                name for name in mine if name not in _MAY_CHANGE and mine[name] != other.get(name)
            ]
            if differs:
                theirs = Search.from_dict(other)
                told = "; ".join(_difference(name, theirs, self.search) for name in differs)
                raise SpecError(
                    f"search: {self.tracker_base} holds another search: {told}; give this one a "
                    "base of its own"
                )
        own = str(known["id"]) if known is not None else uuid.uuid4().hex
        if known is None or known["search"] != mine:
            self._write(_DEFINITION, {"schema": SCHEMA, "id": own, "search": mine})
        return own

    def _shown(self) -> dict[str, Any]:
        """Return the search as JSON values, without run options whose name looks secret."""
        values = self.search.to_dict()
        values["cfg"] = {
            name: each for name, each in values["cfg"].items() if not looks_secret(name)
        }
        return values

    def _numbers(self, folder: str) -> list[int]:
        names = [name for name, is_folder, _ in self._store.entries(folder) if not is_folder]
        return [
            int(name.removesuffix(".json"))
            for name in names
            if name.removesuffix(".json").isdecimal()
        ]

    def _records(self, folder: str) -> dict[int, dict[str, Any]]:
        paths = {f"{folder}/{number}.json": number for number in self._numbers(folder)}
        return {
            paths[path]: self._decode(path, data)
            for path, data in self._store.read_many(paths).items()
        }

    def _observed(self) -> dict[int, dict[str, Any]]:
        return self._records("search/trials")

    def _suggested(self) -> dict[int, SearchTrial]:
        return {
            trial.index: trial
            for record in self._records("search/rounds").values()
            for trial in _trials(record)
        }

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
            raise SpecError(
                f"{self._store.where(path)}: not a record of a search: {exc!r}"
            ) from exc
        if schema > SCHEMA:
            raise SpecError(
                f"{self._store.where(path)}: schema {schema!r} is newer than this version reads "
                f"({SCHEMA})"
            )
        return dict(record)

    def _write(self, path: str, record: Mapping[str, Any]) -> None:
        self._store.write(path, json.dumps(record, ensure_ascii=False).encode())


_DEFINITION: Final = "search/search.json"


def _round(number: int) -> str:
    return f"search/rounds/{number}.json"


def _trial(index: int) -> str:
    return f"search/trials/{index}.json"


def _stopped(index: int) -> str:
    return f"search/stopped/{index}.json"


def _trials(record: Mapping[str, Any]) -> list[SearchTrial]:
    return [SearchTrial(each["index"], dict(each["parameters"])) for each in record["trials"]]


def _plain(value: Any) -> Any:
    """Return a value as it comes back from JSON."""
    return json.loads(json.dumps(value))


def _beats(one: list[float], other: list[float]) -> bool:
    return one != other and all(mine <= its for mine, its in zip(one, other, strict=True))


def _reasons(rows: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"trial {row['index']}: {row['reason']}" for row in rows)


def _difference(name: str, there: Search, here: Search) -> str:
    """Return what differs, in words that a command line has."""

    def word(search: Search) -> str:
        value = search.to_dict()[name]
        shown = {
            "parameters": search.parameters,
            "objective": search.objectives,
            "constraints": search.constraints,
        }
        return ", ".join(map(str, shown[name])) if name in shown else repr(value)

    return f"{name} is {word(there)} there, {word(here)} here"
