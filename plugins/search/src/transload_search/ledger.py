"""Keep the state of a search in its tracker base, so that another process can continue it."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, SpecError
from transload.pipelines import Identity, Launch, ended_state
from transload.runner.job_env import surrounding_run
from transload.runtime.tracking import FsspecResultTracker, open_store, read_bodies, read_steps
from transload.runtime.tracking.names import local_path
from transload.schedulers.folder.home import make_private
from transload.specs import AppState, looks_secret
from transload_search.check import check_search
from transload_search.outcome import trial_values
from transload_search.places import absolute
from transload_search.progress import end_text
from transload_search.search import (
    FEWEST_FAILURES,
    Search,
    SearchFailed,
    SearchTrial,
    Suggester,
    Values,
    ask,
    get_suggester,
)

if TYPE_CHECKING:
    from transload.runner import AppResults

SCHEMA: Final = 1
STOPPED: Final = "STOPPED"
"""State of a trial that was ended early, in addition to the names of `AppState`."""

_MAY_CHANGE: Final = ("trials", "parallelism", "scheduler", "cfg", "failures", "early_stopping")
"""Fields that may change when a search is continued, because they do not change what it seeks."""


class OtherSearchKept(SpecError):
    """A tracker base has another search.

    Args:
        tracker_base: the base.
        differences: what differs.
    """

    def __init__(self, tracker_base: str, differences: str) -> None:
        super().__init__(
            f"search: {tracker_base} has another search: {differences}; choose another base for "
            "this one"
        )
        self.differences = differences


class SearchLedger:
    """The suggestions and observations of a search, in files below a tracker base.

    After a crash, another process may call every method again. Suggested trials stay the same, and
    an observation is overwritten by the same one. Only one process at a time may ask for new
    trials, but several may observe trials at the same time.

    Args:
        search: the search.
        tracker_base: a folder or an fsspec URL that all processes of the search can read and write.
            It has ``search/`` (the ledger itself), ``trials/<index>/`` (the results of each trial)
            and, in the end, the result key ``best``.

    Raises:
        SpecError: if the search does not fit its component, or the base has another search.
    """

    def __init__(self, search: Search, tracker_base: str) -> None:
        self.search = search
        self.tracker_base = absolute(tracker_base)
        self._store = open_store(self.tracker_base)
        self._suggester: tuple[int, Suggester] | None = None
        self.id = self._claim()

    @classmethod
    def open(cls, tracker_base: str) -> SearchLedger:
        """Return the ledger of the search in a tracker base, without writing anything.

        Args:
            tracker_base: the base.

        Raises:
            ConfigError: if it has no search.
            SpecError: if its search cannot be read.
        """
        ledger = cls.__new__(cls)
        ledger.tracker_base = absolute(tracker_base)
        ledger._store = open_store(ledger.tracker_base)
        ledger._suggester = None
        known = ledger._read(_DEFINITION)
        if known is None:
            raise ConfigError(f"{tracker_base}: there is no search in this tracker base")
        ledger.search = Search.from_dict(known["search"])
        ledger.id = known["id"]
        return ledger

    @property
    def name(self) -> str:
        """The name for people, which is the last part of the tracker base."""
        return posixpath.basename(self.tracker_base.rstrip("/")) or "search"

    # -- suggesting

    def suggest(self, number: int) -> list[SearchTrial]:
        """Return the trials of a round, the same at each call, or none after the last trial.

        Args:
            number: the round, from 0. The suggester knows the observations of earlier rounds.

        Raises:
            SpecError: if the round before was never suggested.
            SearchFailed: if too many trials have failed.
        """
        return self._suggest(number, self.search.parallelism, keep=True)

    def next_trial(self) -> SearchTrial | None:
        """Return one more trial, as a round with one trial.

        None if the search has had all its trials, or its suggester needs results first.

        Raises:
            SearchFailed: if too many trials have failed.
        """
        numbers = self._numbers("search/rounds")
        number = max(numbers, default=-1) + 1
        if number > 0:
            last = self._read(_round(number - 1))
            if last is not None and not last["trials"]:
                number -= 1  # a round without trials will be suggested again
        trials = self._suggest(number, 1, keep=False)
        return trials[0] if trials else None

    def unfinished(self) -> list[SearchTrial]:
        """Return the trials that were suggested but not observed."""
        observed = self._observed()
        suggested = sorted(self._suggested().items())
        return [trial for index, trial in suggested if index not in observed]

    def _suggest(self, number: int, most: int, *, keep: bool) -> list[SearchTrial]:
        """Return the recorded trials of a round, or suggest and record new ones.

        Args:
            number: the round, from 0.
            most: the largest number of trials in it.
            keep: record the round even if it has no trials.
        """
        known = self.suggested(number)
        if known is not None:
            return known
        before = self._round_before(number)
        rows = self._observed()
        self._check_failures(rows)
        news = _news(before, rows)
        count = max(0, min(most, self.search.trials - before["next"]))
        suggester = self._suggester_after(number - 1, before["state"])
        trials = ask(suggester, news, count)
        if not trials and not keep:
            self._suggester = None  # its observations are not in the record
            return []
        self._suggester = (number, suggester)
        seen = {str(index): values for index, values in news.items()}
        made = {
            "schema": SCHEMA,
            "of": self.search.trials,
            "trials": [{"index": trial.index, "parameters": trial.parameters} for trial in trials],
            "next": max([before["next"], *(trial.index + 1 for trial in trials)]),
            "seen": {**before["seen"], **seen},
            "state": suggester.state(),
        }
        self._write(_round(number), made)
        if trials and number > 0:
            # no process continues from the round before any more. Its state is removed, so that the
            # files of a search do not grow faster than its trials
            self._write(_round(number - 1), {**before, "seen": {}, "state": None})
        return trials

    def suggested(self, number: int) -> list[SearchTrial] | None:
        """Return the recorded trials of a round, or None if it was not suggested yet.

        A round without trials is not the end if the search may have more trials now.
        """
        known = self._read(_round(number))
        if known is None or not (known["trials"] or known["of"] == self.search.trials):
            return None
        return _trials(known)

    def _round_before(self, number: int) -> Mapping[str, Any]:
        """Return the record of the previous round.

        Raises:
            SpecError: if there is none.
        """
        if number == 0:
            return {"state": None, "next": 0, "seen": {}}
        before = self._read(_round(number - 1)) if number > 0 else None
        if before is None:
            raise SpecError(f"search: round {number!r}: the round before it was never suggested")
        return before

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
        """Return the tracker base of one trial's job."""
        if "://" in self.tracker_base:
            return posixpath.join(self.tracker_base, "trials", str(index))
        return os.path.join(self.tracker_base, "trials", str(index))

    def launch(self, trial: SearchTrial, task: Launch | None = None) -> Launch:
        """Return the launch of a trial, as `Search.launch`, with its place for results.

        Its parent is the job that runs the search, or a run of the search's own, unless somebody
        has said another.
        """
        made = self.search.launch(trial, task)
        parent = made.parent_run_id or surrounding_run() or f"search/{self.name}/{self.id}"
        return replace(made, parent_run_id=parent, tracker_base=self.trial_base(trial.index))

    def identity(self, index: int) -> Identity:
        """Return the identity of a trial's job, the same for each process of the search."""
        return Identity("search", (self.id,), (f"trial-{index}",))

    def known(self, index: int) -> dict[str, Any]:
        """Return the arguments that a trial's component gets if it declares them."""
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
        """Record how a trial ended.

        Args:
            index: the trial.
            results: the results of its job, or None if there are none, so that the trial has
                failed.
            state: the state of the job, if there are no results.
            handle: the handle of the job, if there are no results.
            reason: why there is no objective, if there are no results.

        Returns:
            The (first) objective, or None if the trial has none.
        """
        values: dict[str, float] | None = None
        if results is not None:
            results = self._with_unclaimed(index, results)
            values, reason = trial_values(self.search, index, results)
            state = results.state
            handle = results.handle
        name = (state or AppState.FAILED).name
        if state is AppState.CANCELLED:
            stop = self._read(_stopped(index))
            if stop is not None:
                name = STOPPED
                values = stop["values"]
                reason = f"it was stopped early, at step {stop['step']:g}"
        value = None
        if values is not None:
            value = values.get(self.search.objectives[0].name)
        record = {
            "schema": SCHEMA,
            "index": index,
            "value": value,
            "values": values,
            "state": name,
            "handle": handle,
            "reason": reason,
        }
        self._write(_trial(index), record)
        return value

    def _with_unclaimed(self, index: int, results: AppResults) -> AppResults:
        """Add the results in the trial's base that have no run.

        Only the trial reports there, so they are the trial's, too.
        """
        refused = dict(results.refused)
        bodies = read_bodies(open_store(self.trial_base(index)), refused)
        unclaimed = {key: body.results for key, body in bodies.items() if body.run is None}
        return replace(results, results={**unclaimed, **results.results}, refused=refused)

    def observe_error(self, index: int, error: BaseException, handle: str = "") -> bool:
        """Record a trial from the error that waiting for its job raised.

        Returns:
            Whether the trial was recorded, which is False if the error says nothing about it (see
            `ended_state`).
        """
        state = ended_state(error)
        if state is not None:
            self.observe(index, None, state=state, handle=handle, reason=str(error))
        return state is not None

    def ended(self, index: int) -> dict[str, Any] | None:
        """Return the observation of a trial, or None if there is none yet.

        It has ``value``, ``state``, ``handle`` and ``reason``.
        """
        return self._read(_trial(index))

    def is_stopped(self, index: int) -> bool:
        """Tell whether the search itself has ended a trial, because it did badly."""
        row = self.ended(index)
        return row is not None and row["state"] == STOPPED

    def end_text(self, index: int) -> str:
        """Return how a trial ended, in words."""
        row = self.ended(index)
        return f"trial {index}: it is not known how it ended" if row is None else end_text(row)

    # -- stopping early

    def to_stop(self, running: Iterable[int]) -> list[int]:
        """Return the running trials to end, because they do badly or were chosen before.

        Their latest values are recorded. So once the job of such a trial is CANCELLED, the trial
        counts as stopped, not as failed.

        Args:
            running: the trials that run.
        """
        rule = self.search.early_stopping
        wanted = list(running)
        if rule is None or not wanted:
            return []
        goal = self.search.objectives[0]
        curves = {index: self.curve(index) for index in self._suggested()}
        chosen = [index for index in wanted if self._read(_stopped(index)) is not None]
        for index in wanted:
            if index in chosen:
                continue
            mine = curves.get(index, {})
            others = [curve for other, curve in curves.items() if other != index]
            if rule.ends(mine, others, minimize=goal.minimize):
                self._note_stop(index, max(mine), {goal.name: mine[max(mine)]})
                chosen.append(index)
        return chosen

    def _note_stop(self, index: int, step: float, values: Values) -> None:
        record = {"schema": SCHEMA, "index": index, "step": step, "values": values}
        self._write(_stopped(index), record)

    def curve(self, index: int) -> dict[float, float]:
        """Return step → value of the (first) objective, as reported by a trial so far."""
        goal = self.search.objectives[0]
        return read_steps(self._store, f"trials/{index}", goal.name, goal.key, refused={})

    # -- the end

    def best(self) -> tuple[SearchTrial, float] | None:
        """Return the best trial so far, or the first one if several are equal.

        It satisfies the constraints. None if no trial has an objective, or if the search has several
        objectives (see `front`).
        """
        goals = self.search.objectives
        if len(goals) > 1:
            return None
        goal = goals[0]
        known = {index: values[goal.name] for index, values in sorted(self._complete().items())}
        if not known:
            return None
        better = min if goal.minimize else max
        index = better(known, key=known.__getitem__)
        return self._suggested()[index], known[index]

    def front(self) -> list[tuple[SearchTrial, dict[str, float]]]:
        """Return the trials that no other trial beats in every objective, with their values."""
        complete = self._complete()
        points = {index: self._point(values) for index, values in complete.items()}
        suggested = self._suggested()
        found = []
        for index, point in sorted(points.items()):
            if not any(_beats(other, point) for other in points.values()):
                found.append((suggested[index], complete[index]))
        return found

    def _point(self, values: Mapping[str, float]) -> list[float]:
        """Return the objectives of a trial, with the sign that makes small values good."""
        return [
            values[goal.name] if goal.minimize else -values[goal.name]
            for goal in self.search.objectives
        ]

    def finish(self) -> dict[str, Any]:
        """Report the best trial under the result key ``best``, and return the summary.

        The key has the objective (by its own name), ``trial`` and the trial's parameters. With
        several objectives, nothing is reported.

        Raises:
            SearchFailed: if no trial has a value. The message says why.
        """
        if not self._complete():
            raise SearchFailed(self._nothing())
        best = self.best()
        if best is not None:
            trial, value = best
            report: dict[str, Any] = {}
            for name, each in trial.parameters.items():
                report[name] = int(each) if isinstance(each, bool) else each
            report["trial"] = trial.index
            report[self.search.objectives[0].name] = value
            FsspecResultTracker(self.tracker_base)["best"] = report
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Return the state of the search as JSON values.

        It has the search, each trial with its end, and the best trial. With several objectives it
        has the front in place of the best trial.
        """
        observed = self._observed()
        rows = []
        for index, trial in sorted(self._suggested().items()):
            row = observed.get(index, _WAITING)
            end = {name: row[name] for name in _WAITING}
            rows.append({"index": index, "parameters": trial.parameters, **end})
        best = None
        found_best = self.best()
        if found_best is not None:
            trial, value = found_best
            best = {
                "index": trial.index,
                "parameters": trial.parameters,
                "value": value,
                "handle": observed[trial.index]["handle"],
            }
        summary: dict[str, Any] = {
            "schema": SCHEMA,
            "search": self._shown(),
            "tracker_base": self.tracker_base,
            "trials": rows,
            "best": best,
        }
        if len(self.search.objectives) > 1:
            summary["front"] = [
                {"index": trial.index, "parameters": trial.parameters, "values": values}
                for trial, values in self.front()
            ]
        return summary

    def _complete(self) -> dict[int, dict[str, float]]:
        """Return trial → values for the trials that succeeded and satisfy the constraints."""
        return {
            index: row["values"]
            for index, row in self._observed().items()
            if _has_values(row) and self._keeps_constraints(row["values"])
        }

    def _keeps_constraints(self, values: Mapping[str, float]) -> bool:
        return all(bound.holds(values[bound.name]) for bound in self.search.constraints)

    def _nothing(self) -> str:
        """Return why there is no best trial."""
        rows = [row for _, row in sorted(self._observed().items())]
        if any(_has_values(row) for row in rows):
            bounds = ", ".join(str(bound) for bound in self.search.constraints)
            return f"search: no trial satisfies the constraints: {bounds}"
        names = ", ".join(repr(name) for name in self.search.results)
        text = f"search: none of {len(rows)} trials has a value of {names}"
        if rows:
            text += f": {_reasons(rows[:1])}"
        return text

    # -- files

    def _claim(self) -> str:
        """Record the search in the tracker base, or update it, and return its id.

        Raises:
            SpecError: if the base has another search, or a new one does not fit its component.
        """
        mine = _plain(self._shown())
        known = self._read(_DEFINITION)
        if known is None:
            check_search(self.search)
            self._make_folder()
            search_id = uuid.uuid4().hex
        else:
            self._check_same(mine, known["search"])
            search_id = str(known["id"])
        if known is None or known["search"] != mine:
            self._write(_DEFINITION, {"schema": SCHEMA, "id": search_id, "search": mine})
        return search_id

    def _make_folder(self) -> None:
        """Make the folder of a new search on this machine, for this user alone."""
        base = local_path(self.tracker_base)
        if base is None:
            return
        with contextlib.suppress(OSError):  # the first record says what is wrong
            make_private(os.path.join(base, "search"))

    def _check_same(self, mine: Mapping[str, Any], other: Mapping[str, Any]) -> None:
        fixed = [name for name in {**mine, **other} if name not in _MAY_CHANGE]
        differs = [name for name in fixed if mine.get(name) != other.get(name)]
        if not differs:
            return
        theirs = Search.from_dict(other)
        differences = "; ".join(_difference(name, theirs, self.search) for name in differs)
        raise OtherSearchKept(self.tracker_base, differences)

    def _shown(self) -> dict[str, Any]:
        """Return the search as JSON values, without run options whose names look secret."""
        values = self.search.to_dict()
        cfg = values["cfg"]
        values["cfg"] = {name: each for name, each in cfg.items() if not looks_secret(name)}
        return values

    def _numbers(self, folder: str) -> list[int]:
        """Return the numbers of the records in a folder, such as 12 for ``12.json``."""
        files = [name for name, is_folder in self._store.entries(folder) if not is_folder]
        stems = [name.removesuffix(".json") for name in files]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def _records(self, folder: str) -> dict[int, dict[str, Any]]:
        paths = {f"{folder}/{number}.json": number for number in self._numbers(folder)}
        return {
            paths[path]: self._decode(path, data)
            for path, data in self._store.read_many(paths).items()
        }

    def _observed(self) -> dict[int, dict[str, Any]]:
        return self._records("search/trials")

    def _suggested(self) -> dict[int, SearchTrial]:
        found = {}
        for record in self._records("search/rounds").values():
            found.update({trial.index: trial for trial in _trials(record)})
        return found

    def _read(self, path: str) -> dict[str, Any] | None:
        try:
            return self._decode(path, self._store.read(path))
        except FileNotFoundError:
            return None

    def _decode(self, path: str, data: bytes) -> dict[str, Any]:
        where = self._store.where(path)
        try:
            record = json.loads(data)
            schema = record["schema"]
        except (ValueError, KeyError, TypeError) as exc:
            raise SpecError(f"{where}: must be a record of a search: {exc!r}") from exc
        if schema > SCHEMA:
            raise SpecError(
                f"{where}: schema {schema!r} is too new; this version reads at most {SCHEMA}"
            )
        return dict(record)

    def _write(self, path: str, record: Mapping[str, Any]) -> None:
        self._store.write(path, json.dumps(record, ensure_ascii=False).encode())


def _news(
    before: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]
) -> dict[int, dict[str, float] | None]:
    """Return trial → values for the trials that are new since the previous round.

    Args:
        before: record of the previous round.
        rows: trial → its observation.
    """
    seen = before["seen"]
    news = {}
    for index, row in rows.items():
        values = row["values"]
        is_known = str(index) in seen and seen[str(index)] == values
        if index < before["next"] and not is_known:
            news[index] = values
    return news


def _has_values(row: Mapping[str, Any]) -> bool:
    """Tell whether a trial has all its values and was not ended early."""
    return row["values"] is not None and row["state"] != STOPPED


_WAITING: Final[Mapping[str, Any]] = {
    "value": None,
    "values": None,
    "state": None,
    "handle": "",
    "reason": "",
}
"""The end of a trial that has not ended."""

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
    """Return a value in the form in which it comes back from JSON."""
    return json.loads(json.dumps(value))


def _beats(one: list[float], other: list[float]) -> bool:
    return one != other and all(mine <= its for mine, its in zip(one, other, strict=True))


def _reasons(rows: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"trial {row['index']}: {row['reason']}" for row in rows)


def _difference(name: str, there: Search, here: Search) -> str:
    """Describe the difference between two searches in the words of the command line."""
    return f"{name} is {_field_text(there, name)} there, {_field_text(here, name)} here"


def _field_text(search: Search, name: str) -> str:
    listed = {
        "parameters": search.parameters,
        "objective": search.objectives,
        "constraints": search.constraints,
    }
    if name in listed:
        return ", ".join(map(str, listed[name]))
    return repr(search.to_dict().get(name))
