"""Do the steps of a search at run time.

They are to suggest a round, to run a trial, and to sum up. One task may do all of it. This imports
no KFP.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import posixpath
import signal
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from transload.errors import TransloadError
from transload.pipelines import Ending, ExecutionOptions
from transload_kfp.inline import metrics_of, report, say
from transload_kfp.run_watch import RunWatch
from transload_kfp.states import ENDINGS
from transload_kfp.step import KfpStep, TaskFailed, end_asked_for, failing_the_task, runner_of
from transload_search import Search, SearchLedger, run_search_async, run_trial, suggest_round
from transload_search.check import check_early

if TYPE_CHECKING:
    from transload.pipelines import LogSink
    from transload.schedulers.api import Stream
    from transload_search import SearchTrial

NOTHING: Final = "none"
"""The only item of a round without trials, since a loop over nothing has no outputs to collect."""


def encode_search(
    search: Search,
    options: Mapping[str, Any],
    *,
    cluster: Mapping[str, Any] | None = None,
    inherit_env: bool = False,
) -> str:
    """Return a search and how its trials run as one word.

    Raises:
        SpecError: if its component cannot be found again elsewhere, or the search does not fit it.
        ConfigError: for a wrong option.
    """
    ExecutionOptions(**dict(options))
    data = {"schema": 1, "search": search.to_dict(), "options": dict(options)}
    data |= {"cluster": cluster, "inherit_env": inherit_env}
    check_early(search)
    return base64.b64encode(json.dumps(data, sort_keys=True).encode()).decode()


class Steps:
    """The steps of one search.

    Args:
        text: what `encode_search` returned.
        base: the search's tracker base.
        run_id: the run that the task is of.
    """

    def __init__(self, text: str, base: str, run_id: str = "") -> None:
        data = json.loads(base64.b64decode(text))
        self.ledger = SearchLedger(Search.from_dict(data["search"]), base)
        # a pod that is started again is no new trial
        self._options = replace(ExecutionOptions(**data["options"]), resubmit_on=frozenset())
        self._cluster: Mapping[str, Any] | None = data["cluster"]
        self._inherit_env: bool = data["inherit_env"]
        self._run = RunWatch(run_id)

    def suggest(self, number: int) -> list[str]:
        """Return the items of a round's loop, which are ``number@base`` of each trial."""
        trials = suggest_round(self.ledger, number, say)
        numbers = [each["index"] for each in trials] or [NOTHING]
        return [f"{each}@{self.ledger.tracker_base}" for each in numbers]

    def run_trial(self, number: int, item: str) -> dict[str, Any]:
        """Run a trial's job to its end, or reattach to it, and return how it ended.

        A trial that fails raises no error.
        """
        index, _, base = item.partition("@")
        if index == NOTHING:
            return {"base": base}
        trial = next(each for each in self.ledger.suggest(number) if str(each.index) == index)
        step = KfpStep(
            self.ledger.identity(trial.index),
            self.ledger.launch(trial),
            self._options,
            cluster=self._cluster,
            inherit_env=self._inherit_env,
            run=self._run,
            arguments=self.ledger.known(trial.index),
        )
        with step.ending_with_its_task():
            try:
                run_trial(self.ledger, trial.index, step)
            except TransloadError:
                if self.ledger.ended(trial.index) is None:
                    raise
        say(self.ledger.end_text(trial.index))
        return {**(self.ledger.ended(trial.index) or {}), "base": base}

    def run_all(self) -> dict[str, Any]:
        """Run the search to its end, round after round, and return its summary.

        SIGTERM, and a person's end of the run, do what ``on_kill`` says.

        Raises:
            TaskFailed: after SIGTERM.
        """

        async def until_killed() -> dict[str, Any]:
            task: Any = asyncio.current_task()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            self._run.start(partial(os.kill, os.getpid(), signal.SIGTERM))
            return await run_search_async(
                self.ledger,
                runner_of(self._cluster, inherit_env=self._inherit_env),
                self._options,
                sink_of=_sink_of,
                asked=partial(end_asked_for, self._run),
            )

        try:
            return asyncio.run(until_killed())
        except asyncio.CancelledError:
            say(
                f"SIGTERM: on_kill={self._options.on_kill} for the running trials; the search goes "
                "on when run again"
            )
            ending = Ending.CANCELLED if self._options.on_kill == "cancel" else Ending.DETACHED
            raise TaskFailed(ENDINGS[ending]) from None
        finally:
            self._run.stop()


def _sink_of(trial: SearchTrial) -> LogSink:
    def hand_on(role: str, replica: int, stream: Stream, line: str) -> None:
        print(f"trial {trial.index} {role}/{replica} {line.rstrip()}", flush=True)  # noqa: T201

    return hand_on


def main(task: str, text: str, request: dict[str, Any]) -> None:
    """Run a task of a search.

    Args:
        task: which kind.
        text: what `encode_search` returned.
        request: KFP's executor input.

    Raises:
        TaskFailed: with the exit code.
    """
    with failing_the_task():
        outputs, metrics = _done(task, text, request["inputs"]["parameterValues"])
    report(request, outputs, {"metrics": metrics_of({"all": metrics})})


def _done(task: str, text: str, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a task, and return its outputs and its metrics."""
    steps = Steps(text, _base(inputs), inputs.get("transload_job_id", ""))
    if task == "suggest-trials":
        return {"Output": steps.suggest(int(inputs["round"]))}, {}
    if task == "run-trial":
        found = steps.run_trial(int(inputs["round"]), inputs["trial"])
        metrics = {name: found.get(name) for name in ("index", "value")}
        return {"Output": json.dumps(found)}, metrics
    if task == "run-search":
        summary = steps.run_all()
    elif inputs["last"]:
        summary = steps.ledger.finish()
    else:
        summary = steps.ledger.summary()
    best = summary["best"] or {}
    ended = [row for row in summary["trials"] if row["state"]]
    metrics = {
        "trials": len(ended),
        "failed": sum(row["values"] is None for row in ended),
        "best_trial": best.get("index"),
        steps.ledger.search.objectives[0].name: best.get("value"),
    }
    return {"best": json.dumps(best), "base": steps.ledger.tracker_base}, metrics


def _base(inputs: Mapping[str, Any]) -> str:
    """Return the tracker base of a task's search, which may be a folder of the run's own."""
    if "outcomes" in inputs:
        return str(json.loads(inputs["outcomes"][0])["base"])
    if "trial" in inputs:
        return str(inputs["trial"].partition("@")[2])
    base: str = inputs["tracker_base"]
    if not inputs["own"]:
        return base
    run = f"{inputs['transload_job_id']}/{inputs['transload_job_name']}"
    digest = hashlib.sha256(run.encode()).hexdigest()[:16]
    return posixpath.join(base, f"run-{digest}")
