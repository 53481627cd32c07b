"""Go on with a stored experiment, after checking what must be as it was.

What is not stored with it is added.
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
"""Arguments of the runner that must be as they were. The component must be, too, by its name.

``namespace`` is always the stored one, by which the jobs are known.
"""

logger = logging.getLogger("transload_ax")


def resume(
    experiment: Experiment | None, strategy: GenerationStrategy | None, kept: Snapshot | None
) -> tuple[Experiment, GenerationStrategy | None]:
    """Return the stored experiment and what proposes its trials, or those given if none is stored.

    Raises:
        ConfigError: if there is none, or the stored one is another search than the given one.
    """
    if kept is None:
        if experiment is None:
            raise ConfigError("there is no experiment to run: give one, or a snapshot")
        return experiment, strategy
    if not kept.exists():
        if experiment is None:
            raise ConfigError(f"there is no experiment to run: {kept.path} does not exist")
        return experiment, strategy
    stored, stored_strategy, _ = kept.load()
    if experiment is not None:
        compare(experiment, stored, kept)
        _lend_secrets(experiment, stored)
    if stored_strategy is None:
        stored_strategy = strategy
    elif strategy is not None and strategy.name != stored_strategy.name:
        names = f"{stored_strategy.name}, not {strategy.name}"
        _refuse(stored, kept, [f"generation strategy ({names})"])
    count = len(stored.trials)
    logger.info("going on with experiment %s from %s: %d trials", stored.name, kept.path, count)
    return stored, stored_strategy


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
        "another name or file, or leave its definition out to go on with it"
    )


def _differences(given: Experiment, stored: Experiment) -> Iterator[str]:
    """Yield what of the search is another than it was, in words."""
    if given.name != stored.name:
        yield f"name {given.name!r}"
    if given.search_space != stored.search_space:
        yield f"search space{_names(given.search_space.parameters, stored.search_space.parameters)}"
    if given.optimization_config != stored.optimization_config:
        yield "objective"
    elif given.metrics != stored.metrics:
        yield f"metrics{_names(given.metrics, stored.metrics)}"
    if isinstance(given.runner, TransloadRunner) and isinstance(stored.runner, TransloadRunner):
        yield from _differences_of_runners(given.runner, stored.runner)


def _differences_of_runners(given: TransloadRunner, stored: TransloadRunner) -> Iterator[str]:
    """Yield which arguments of the runner are others than they were."""
    component = component_path(given.component)
    if component != stored.component:
        yield f"component ({stored.component}, not {component})"
    for name in SAME:
        old = getattr(stored, name)
        new = getattr(given, name)
        if old == new:
            continue
        if isinstance(new, dict):  # its values may be what is not to be shown
            yield f"{name}{_names(new, old)}"
        else:
            yield f"{name} ({_word(old)}, not {_word(new)})"


def _names(mine: Mapping[str, Any], its: Mapping[str, Any]) -> str:
    """Return the names under which two mappings hold something else, as ``" (a, b)"``."""
    nothing = object()
    names = [
        name for name in sorted({*mine, *its}) if mine.get(name, nothing) != its.get(name, nothing)
    ]
    if not names:
        return ""
    return f" ({', '.join(names)})"


def _word(value: object) -> str:
    if value is None:
        return "none"
    return str(value)


def _lend_secrets(given: Experiment, stored: Experiment) -> None:
    """Give the stored runner run options whose name looks secret, which are not stored."""
    if isinstance(given.runner, TransloadRunner) and isinstance(stored.runner, TransloadRunner):
        stored.runner.trials.jobs.cfg.update(given.runner.trials.jobs.cfg)
