"""Run a search as a group of tasks.

Rounds of mapped trials alternate with a task that suggests, and one sums up. All state is in the
search's tracker base (``transload_search.SearchLedger``), so every task may be retried or cleared.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    TaskGroup,
)

from transload.errors import SpecError, TransloadError
from transload.pipelines import JOB_SETTINGS, json_safe
from transload.schedulers.folder.home import state_home
from transload_airflow.failures import in_airflows_words
from transload_airflow.hooks import defaults_of
from transload_airflow.operators import TransloadOperator
from transload_airflow.options import (
    BaseOptions,
    JobOptions,
    SearchOptions,
    TaskOptions,
    TrialOptions,
)
from transload_airflow.task_instance import dag_folder
from transload_airflow.templates import TemplateRules
from transload_search import Search, SearchFailed, SearchLedger, SearchTrial, stopped_early
from transload_search.check import check_early
from transload_search.ledger import STOPPED

if TYPE_CHECKING:
    from transload.pipelines import Launch
    from transload_airflow.step import AirflowStep

BEST_KEY: Final = "best"
"""XCom key of the best trial, which is also the name of the group's last task."""


_OWN: Final = ("app", "component", "component_args", "args", "command", "scheduler", "cfg")
"""Options of an operator that a search decides."""


class SearchTask(TemplateRules):
    """The common part of the tasks of a search, with the search and the place of its state.

    Args:
        search: the JSON form of a search.
        place: name of the search within a DAG run.
        tracker_base: where the search keeps its state. With None it is below the connection's, else
            in the state folder, in a folder named by DAG, run and ``place``.
        conn_id: a connection of type ``transload``, with the cluster, and defaults.
        kwargs: of ``BaseOperator``.
    """

    template_fields: Sequence[str] = ("search", "tracker_base", "conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"search": "json"}
    text_fields: Sequence[str] = ("tracker_base", "conn_id")
    own_fields: Sequence[str] = ("search",)
    ui_color = "#e6f0e6"

    def __init__(
        self,
        *,
        search: Mapping[str, Any],
        place: str,
        tracker_base: str | None = None,
        conn_id: str | None = None,
        **kwargs: Unpack[TaskOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.search = search
        self.place = place
        self.tracker_base = tracker_base
        self.conn_id = conn_id

    def failure_of(self, error: TransloadError) -> BaseException:
        """Return the exception that Airflow acts on. A search that has failed is not tried again."""
        if isinstance(error, SearchFailed):
            for_good: BaseException = AirflowFailException(str(error))
            return for_good
        return super().failure_of(error)


class SearchRoundOperator(SearchTask):
    """Suggests the trials of a round, the same ones each time it runs.

    Returns (as XCom) one ``{"index": …, "parameters": {…}}`` for each trial. It fails if it is not
    known how a trial of the round before has ended. That happens if the trial's task was killed or
    the scheduler was out of reach. Clear that task then.
    """

    def __init__(self, *, number: int, **kwargs: Unpack[SearchOptions]) -> None:
        super().__init__(**kwargs)
        self.number = number

    @in_airflows_words
    def execute(self, context: Any) -> list[dict[str, Any]]:
        """Return the trials of the round."""
        ledger = ledger_of(self, context)
        if self.number:
            check_round(ledger, self.number - 1)
        trials = ledger.suggest(self.number)
        for trial in trials:
            self.log.info("trial %d: %s", trial.index, trial.parameters)
        return [{"index": trial.index, "parameters": dict(trial.parameters)} for trial in trials]


class SearchTrialOperator(TransloadOperator):
    """Runs the job of one trial, and writes down what came of it.

    `SearchRoundOperator` returns the trials.
    """

    template_fields: Sequence[str] = (
        "search",
        "tracker_base",
        "workspace",
        "parent_run_id",
        "conn_id",
        "overrides",
        *JOB_SETTINGS,
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"search": "json"}
    own_fields: Sequence[str] = ("search", "overrides")
    _source_is_given: ClassVar[bool] = False

    def __init__(
        self,
        *,
        search: Mapping[str, Any],
        place: str,
        trial: Mapping[str, Any],
        **kwargs: Unpack[TrialOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.search = search
        self.place = place
        self.trial = trial

    @property
    def label(self) -> str:
        """The trial in few words, as the name of its mapped task in the interface."""
        shown = [_shown(name, value) for name, value in self.trial["parameters"].items()]
        return f"{self.trial['index']}: {', '.join(shown)}"

    def _launch(self, context: Mapping[str, Any]) -> Launch:
        trial = SearchTrial(self.trial["index"], dict(self.trial["parameters"]))
        defaults = self._defaults
        launch = ledger_of(self, context).launch(trial)
        return replace(
            launch.with_overrides(self._settings()),
            scheduler=launch.scheduler or defaults.scheduler,
            cfg={**defaults.cfg, **launch.cfg},
            workspace=self.workspace or launch.workspace,
            parent_run_id=self.parent_run_id or launch.parent_run_id,
            folder=dag_folder(context),
            pass_env=self.pass_env,
            environment=self.environment or launch.environment,
        )

    def _context_args(self, context: Mapping[str, Any]) -> dict[str, Any]:
        return ledger_of(self, context).known(self.trial["index"])

    def _begin(self, context: Any, deferrable: bool) -> Any:
        if deferrable and self.search.get("early_stopping") is not None:
            self.log.info(
                "the search stops trials early: this task waits in place, and holds its slot"
            )
            deferrable = False
        with self._failure_noted(context):
            return super()._begin(context, deferrable)

    def _end(self, step: AirflowStep) -> dict[str, Any]:
        index = self.trial["index"]
        ledger = ledger_of(self, step.context)
        with self._failure_noted(step.context), stopped_early(ledger, index, step.cancel):
            values = super()._end(step)
        value = ledger.observe(index, self.results)
        name = Search.from_dict(self.search).objectives[0].name
        if value is None:
            self.log.info(f"no {name} was reported")
        else:
            self.log.info(f"trial {index}: {name}={value}")
        return values

    @contextmanager
    def _failure_noted(self, context: Mapping[str, Any]) -> Iterator[None]:
        """Write a failure of the job down, for the suggester.

        A retry that does better writes over it.
        """
        try:
            yield
        except TransloadError as exc:
            if self._was_stopped_early(context, exc):
                index = self.trial["index"]
                raise AirflowSkipException(f"trial {index} was stopped early") from exc
            raise

    def _was_stopped_early(self, context: Mapping[str, Any], error: TransloadError) -> bool:
        """Write a failure down, and tell whether the search itself has ended the trial."""
        index = self.trial["index"]
        handle = "" if self._step is None else self._step.handle or ""
        try:
            ledger = ledger_of(self, context)
            if not ledger.observe_error(index, error, handle):
                return False
            return (ledger.ended(index) or {}).get("state") == STOPPED
        except (TransloadError, OSError) as trouble:
            self.log.warning(f"the failure of trial {index} could not be written down: {trouble}")
            return False


def _shown(name: str, value: object) -> str:
    """Return a parameter and its value, for a name in the interface."""
    if isinstance(value, float):
        return f"{name}={value:.4g}"
    return f"{name}={value}"


class SearchBestOperator(SearchTask):
    """Sums a search up. It returns the summary, and pushes the best trial as the XCom ``best``.

    The best trial is ``{"index", "parameters", "value", "handle"}``. Without any objective the task
    fails.
    """

    @in_airflows_words
    def execute(self, context: Any) -> Any:
        """Return the summary."""
        ledger = ledger_of(self, context)
        last = ledger.rounds - 1
        suggested = {row["index"] for row in ledger.summary()["trials"]}
        if not {trial.index for trial in ledger.suggest(last)} <= suggested:
            raise SpecError(f"search: round {last} was not run: clear its tasks")
        check_round(ledger, last)
        summary = ledger.finish()
        best = summary["best"]
        if best is None:  # of several objectives
            return json_safe(summary)
        row = next(row for row in summary["trials"] if row["index"] == best["index"])
        best = {**best, "handle": row["handle"]}
        self.log.info(
            "best: trial %d, %s=%s", best["index"], ledger.search.objectives[0].name, best["value"]
        )
        context["ti"].xcom_push(key=BEST_KEY, value=json_safe(best))
        return json_safe({**summary, "best": best})


def search_group(
    search: Search,
    *,
    group_id: str = "search",
    tracker_base: str | None = None,
    conn_id: str | None = None,
    **options: Unpack[JobOptions],
) -> TaskGroup:
    """Return a search as a group of tasks.

    The tasks are ``suggest_0 → trials_0 (mapped) → suggest_1 → … → best``. A failed trial does not
    end the search. The last task, ``best``, returns the summary. Its XCom ``best`` is the best
    trial.

    Args:
        search: what to search. Values of its ``constants`` may be templates, or outputs of upstream
            tasks.
        group_id: name of the group.
        tracker_base: where the search keeps its state, seen by all workers, a template. Put ``{{
            run_id }}`` into it, or a later run goes on with the search of the one before. For None,
            see `SearchTask`.
        conn_id: a connection of type ``transload``, with the cluster, and defaults.
        options: of `TransloadOperator`, for each trial, such as ``deferrable``, ``retries``,
            ``patience`` …

    Raises:
        SpecError: for an option that the search itself decides, or if the search does not fit its
            component.
    """
    trial_options = _without_own(options)
    check_early(search)
    with TaskGroup(group_id) as group:
        common: dict[str, Any] = {
            "search": search.to_dict(),
            "place": group.group_id,
            "tracker_base": tracker_base,
            "conn_id": conn_id,
        }
        before: Any = None
        for number in range(math.ceil(search.trials / search.parallelism)):
            rule: BaseOptions = {}
            if number:  # a failed trial is an answer too
                rule["trigger_rule"] = "all_done"
            suggest = SearchRoundOperator(
                task_id=f"suggest_{number}", number=number, **common, **rule
            )
            trials = SearchTrialOperator.partial(
                task_id=f"trials_{number}",
                map_index_template="{{ task.label }}",
                **{**common, **trial_options},
            ).expand(trial=suggest.output)
            if before is not None:
                before >> suggest
            before = trials
        before >> SearchBestOperator(task_id=BEST_KEY, trigger_rule="all_done", **common)
    return group


def _without_own(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those that a search decides.

    Raises:
        SpecError: if one of these has a value.
    """
    for name in _OWN:
        if options.get(name) is not None:
            raise SpecError(f"{name}: a Search has its own; give it there")
    return {name: value for name, value in options.items() if name not in _OWN}


def ledger_of(task: SearchTask | SearchTrialOperator, context: Mapping[str, Any]) -> SearchLedger:
    """Return the ledger of a task's search.

    Raises:
        SpecError: if the base holds another search.
        ConfigError: if the connection's defaults are wrong.
    """
    base = task.tracker_base
    if base is None:
        above = defaults_of(task.conn_id).tracker_base or f"{state_home()}/airflow/searches"
        ti = context["ti"]
        base = posixpath.join(above, ti.dag_id, ti.run_id, task.place)
    return SearchLedger(Search.from_dict(task.search), base)


def check_round(ledger: SearchLedger, number: int) -> None:
    """Refuse to go on while it is not known how a trial of a round has ended.

    Raises:
        SearchFailed: naming the trials.
    """
    open_ones = [
        str(trial.index) for trial in ledger.suggest(number) if ledger.ended(trial.index) is None
    ]
    if open_ones:
        raise SearchFailed(
            f"search: it is not known how trial {', '.join(open_ones)} ended: its task was killed, "
            "or its scheduler was out of reach; clear that task to go on"
        )
