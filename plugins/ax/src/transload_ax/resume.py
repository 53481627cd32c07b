"""Going on with a stored experiment: what must be as it was, and what the one who goes on brings
along.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ax.core.experiment import Experiment
from ax.generation_strategy.generation_strategy import GenerationStrategy

from transload.errors import ConfigError
from transload_ax.arguments import component_path
from transload_ax.runner import ARGUMENTS, TransloadRunner
from transload_ax.snapshot import Snapshot

SAME: Final = tuple(name for name in ARGUMENTS if name not in ("component", "namespace"))
"""Arguments of the runner that must be as they were; the component, too, by its name. ``namespace``
is always the stored one: it is how the jobs are found again."""

logger = logging.getLogger("transload_ax")


def resume(
    experiment: Experiment | None, strategy: GenerationStrategy | None, kept: Snapshot | None
) -> tuple[Experiment, GenerationStrategy | None]:
    """Return the experiment to run and what proposes its trials: the stored ones, if there are any.

    Raises:
        ConfigError: if there is none, or the stored one is another search than the given one.
    """
    if kept is None or not kept.exists():
        if experiment is None:
            where = f"{kept.path} does not exist" if kept is not None else "give one, or a snapshot"
            raise ConfigError(f"there is no experiment to run: {where}")
        return experiment, strategy
    stored, stored_strategy, _ = kept.load()
    if experiment is not None:
        compare(experiment, stored, kept)
        _lend_secrets(experiment, stored)
    if (
        strategy is not None
        and stored_strategy is not None
        and strategy.name != stored_strategy.name
    ):
        _refuse(
            stored, kept, [f"generation strategy ({stored_strategy.name}, not {strategy.name})"]
        )
    logger.info(
        "going on with experiment %s from %s: %d trials", stored.name, kept.path, len(stored.trials)
    )
    return stored, stored_strategy or strategy


def compare(given: Experiment, stored: Experiment, kept: Snapshot) -> None:
    """Refuse to go on with what is another search than the one asked for, naming all that differs.

    Raises:
        ConfigError: if anything of the search is another than it was.
    """
    differs = list(_differences(given, stored))
    if differs:
        _refuse(stored, kept, differs)


def _refuse(stored: Experiment, kept: Snapshot, differs: list[str]) -> None:
    raise ConfigError(
        f"{kept.path} holds experiment {stored.name!r} with another {', '.join(differs)}: give it "
        "another name or "
        "file, or leave its definition out to go on with it"
    )


def _differences(given: Experiment, stored: Experiment) -> Iterator[str]:
    if given.name != stored.name:
        yield f"name {given.name!r}"
    if given.search_space != stored.search_space:
        yield f"search space{_names(given.search_space.parameters, stored.search_space.parameters)}"
    if given.optimization_config != stored.optimization_config:
        yield "objective"
    elif given.metrics != stored.metrics:
        yield f"metrics{_names(given.metrics, stored.metrics)}"
    mine, its = given.runner, stored.runner
    if not isinstance(mine, TransloadRunner) or not isinstance(its, TransloadRunner):
        return
    if component_path(mine.component) != its.component:
        yield f"component ({its.component}, not {component_path(mine.component)})"
    for name in SAME:
        old, new = getattr(its, name), getattr(mine, name)
        if old != new:
            # of mappings, which may hold what is not to be shown, only names are told
            yield name + (
                _names(new, old) if isinstance(new, dict) else f" ({_word(old)}, not {_word(new)})"
            )


def _names(mine: Mapping[str, Any], its: Mapping[str, Any]) -> str:
    """Return the names under which two mappings hold something else, as ``" (a, b)"``."""
    nothing = object()
    names = [
        name for name in sorted({*mine, *its}) if mine.get(name, nothing) != its.get(name, nothing)
    ]
    return f" ({', '.join(names)})" if names else ""


def _word(value: Any) -> str:
    return "none" if value is None else str(value)


def _lend_secrets(given: Experiment, stored: Experiment) -> None:
    """Give the stored runner what is not stored: run options whose name looks secret."""
    mine, its = given.runner, stored.runner
    if isinstance(mine, TransloadRunner) and isinstance(its, TransloadRunner):
        its.trials.jobs.cfg.update(mine.trials.jobs.cfg)
