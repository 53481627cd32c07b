"""An optimiser that is killed at a moment of one's choice, in a process that has imported Ax."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any, NoReturn


def die() -> NoReturn:
    """End this process as a machine's failure would."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit


def dies_after_submit(number: int) -> None:
    """Die after the app of that number was taken."""
    from transload.pipelines import host_runner

    runner = host_runner("ax")
    schedule, calls = runner.schedule, [0]

    def deadly(info: Any) -> Any:
        calls[0] += 1
        handle = schedule(info)
        if calls[0] == number:
            die()
        return handle

    runner.schedule = deadly  # type: ignore[method-assign]


def dies_while_trials_run(wanted: int) -> None:
    """Die once that many trials run."""
    from transload_ax.runner import TransloadRunner

    poll = TransloadRunner.poll_trial_status

    def deadly(self: Any, trials: Any) -> Any:
        found = poll(self, trials)
        if sum(len(each) for status, each in found.items() if status.name == "RUNNING") >= wanted:
            die()
        return found

    TransloadRunner.poll_trial_status = deadly  # type: ignore[method-assign]


def told_to_end_while_trials_run(wanted: int, number: int) -> None:
    """Get a signal once that many trials run."""
    from transload_ax.runner import TransloadRunner

    poll = TransloadRunner.poll_trial_status

    def told(self: Any, trials: Any) -> Any:
        if len(list(trials)) >= wanted:
            os.kill(os.getpid(), number)
        return poll(self, trials)

    TransloadRunner.poll_trial_status = told  # type: ignore[method-assign]


def run(request: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Run the search of the request until it dies, in a forked process that was made for it.

    It ends as an interpreter does: of an interruption by the signal itself.
    """
    enter(request, environment)
    try:
        search(request)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


def enter(request: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Give this process the environment of a test, and a file for what it says."""
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)


def storage(url: str, **more: Any) -> Any:
    """Return the settings of Ax's SQL storage at a URL, and make its tables."""
    from ax.storage.sqa_store.db import (
        create_all_tables,
        get_engine,
        init_engine_and_session_factory,
    )
    from ax.storage.sqa_store.structs import DBSettings

    from transload_ax import registry_bundle

    bundle = registry_bundle()
    init_engine_and_session_factory(url=url, **more)
    create_all_tables(get_engine())
    return DBSettings(encoder=bundle.encoder, decoder=bundle.decoder, url=url)


def search(request: Mapping[str, Any]) -> None:
    """Run the search of the request until it dies."""
    moment = request["moment"]
    if moment == "after submit":
        dies_after_submit(3)
    elif moment == "told to end":
        told_to_end_while_trials_run(3, signal.SIGTERM)
    elif moment == "interrupted":
        told_to_end_while_trials_run(3, signal.SIGINT)
    else:
        dies_while_trials_run(3)
    from ax.orchestration.orchestrator import Orchestrator, OrchestratorOptions
    from ax_experiment import experiment, sobol

    made = experiment(
        "ax_components:waits",
        tracker_base=request["base"],
        constants={"gate": request["gate"], "marks": request["marks"]},
    )
    options = OrchestratorOptions(
        max_pending_trials=3, init_seconds_between_polls=0, min_seconds_before_poll=0
    )
    settings = storage(request["sql"])
    with made.runner:  # type: ignore[attr-defined]
        Orchestrator(made, sobol(1), options, db_settings=settings).run_n_trials(4)


def command_line(request: Mapping[str, Any], environment: Mapping[str, str]) -> None:
    """Run a search of the command line, in a forked process that was made for it."""
    enter(request, environment)
    from transload.cli import main

    given = "--component ax_components:waits --param x:float:-1:3 --minimize loss -s local"
    plan = "--suggester ax-sobol --trials 4 --parallel 3 --no-progress"
    constants = [f"--const={name}={request[name]}" for name in ("gate", "marks")]
    main(["search", "run", *given.split(), *plan.split(), *constants])
