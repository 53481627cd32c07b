"""Run a search as a group of tasks.

Rounds of mapped trials alternate with a task that suggests, and one sums up. All state is in the
search's tracker base (``transload_search.SearchLedger``), so every task may be retried or cleared.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    TaskGroup,
)

from transload.errors import SpecError, TransloadError
from transload.pipelines import json_safe
from transload.schedulers.folder.home import state_home
from transload_airflow.failures import in_airflows_words
from transload_airflow.hooks import defaults_of
from transload_airflow.operators import TransloadOperator
from transload_airflow.options import BaseOptions, JobOptions, SearchOptions, TrialOptions
from transload_airflow.templates import TemplateRules
from transload_search import (
    Search,
    SearchFailed,
    SearchLedger,
    SearchTrial,
    check_round,
    stopped_early,
    suggest_round,
)
from transload_search.check import check_early
from transload_search.progress import best_words, parameters_text

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
        **kwargs: Unpack[BaseOptions],
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
        return suggest_round(ledger_of(self, context), self.number, self.log.info)


class SearchTrialOperator(TransloadOperator):
    """Runs the job of one trial, and writes down what came of it.

    `SearchRoundOperator` returns the trials.
    """

    template_fields: Sequence[str] = (
        "search",
        *(name for name in TransloadOperator.template_fields if name not in _OWN),
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"search": "json"}
    own_fields: Sequence[str] = ("search", "overrides")
    _source_is_given: ClassVar[bool] = False
    _ledger: SearchLedger | None = None

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
        self.component = search["component"]

    @property
    def label(self) -> str:
        """The trial in few words, as the name of its mapped task in the interface."""
        return f"{self.trial['index']}: {parameters_text(self.trial['parameters'])}"

    def failure_of(self, error: TransloadError) -> BaseException:
        """Record how the trial ended, and return the exception that Airflow acts on.

        A retry that does better writes over it. A trial that the search has ended is skipped.
        """
        index = self.trial["index"]
        if self._ledger is not None and self._step is not None:
            try:
                self._ledger.observe_error(index, error, self._step.handle or "")
                if self._ledger.is_stopped(index):
                    skipped: BaseException = AirflowSkipException(
                        f"trial {index} was stopped early"
                    )
                    return skipped
            except (TransloadError, OSError) as trouble:
                self.log.warning("how trial %d ended could not be recorded: %s", index, trouble)
        return super().failure_of(error)

    def _launch(self, context: Mapping[str, Any]) -> Launch:
        trial = SearchTrial(**self.trial)
        return ledger_of(self, context).launch(trial, super()._launch(context))

    def _context_args(self, context: Mapping[str, Any]) -> dict[str, Any]:
        self._ledger = ledger_of(self, context)
        return self._ledger.known(self.trial["index"])

    def _end(self, step: AirflowStep) -> dict[str, Any]:
        index = self.trial["index"]
        ledger = ledger_of(self, step.context)
        with stopped_early(ledger, index, step.cancel):
            values = super()._end(step)
        ledger.observe(index, self.results)
        self.log.info(ledger.end_text(index))
        return values


class SearchBestOperator(SearchTask):
    """Sums a search up. It returns the summary, and pushes the best trial as the XCom ``best``.

    The best trial is ``{"index", "parameters", "value", "handle"}``. Without any objective the task
    fails.
    """

    @in_airflows_words
    def execute(self, context: Any) -> Any:
        """Return the summary."""
        ledger = ledger_of(self, context)
        check_round(ledger, ledger.search.rounds - 1)
        summary = ledger.finish()
        self.log.info(", ".join(best_words(summary)))
        if summary["best"] is not None:  # there is one objective
            context["ti"].xcom_push(key=BEST_KEY, value=json_safe(summary["best"]))
        return json_safe(summary)


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
    for name in _OWN:
        if options.get(name) is not None:
            raise SpecError(f"{name}: a Search has its own; give it there")
    check_early(search)
    if search.early_stopping is not None:
        options["deferrable"] = False  # a trial's steps are read where its task waits
    with TaskGroup(group_id) as group:
        common: dict[str, Any] = {
            "search": search.to_dict(),
            "place": group.group_id,
            "tracker_base": tracker_base,
            "conn_id": conn_id,
        }
        trials: Any = None
        for number in range(search.rounds):
            rule = "all_done" if number else "all_success"  # a failed trial is an answer too
            suggest = SearchRoundOperator(
                task_id=f"suggest_{number}", number=number, trigger_rule=rule, **common
            )
            if trials is not None:
                trials >> suggest
            trials = SearchTrialOperator.partial(
                task_id=f"trials_{number}",
                map_index_template="{{ task.label }}",
                **{**common, **options},
            ).expand(trial=suggest.output)
        trials >> SearchBestOperator(task_id=BEST_KEY, trigger_rule="all_done", **common)
    return group


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
