"""``transload ax``: hyper-parameter search from the command line. Importing this imports no Ax."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from transload.errors import ConfigError

if TYPE_CHECKING:
    from ax.core.experiment import Experiment

    from transload_ax.experiment import Outcome

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_WANTED = "--component, --param and --minimize or --maximize"
_DEFINING = {
    "scheduler": "--scheduler",
    "cfg": "--cfg",
    "consts": "--const",
    "workspace": "--workspace",
    "tracker_base": "--tracker-base",
    "parent_run_id": "--parent-run-id",
}
_REMEMBERED = ("parallel", "failures", "stop_early")
_SETTLED = {"method": "--method", "seed": "--seed"}
_REASONS = 3
_EPILOG = """
A search is kept under its name: run the command again, with more --trials for instance, and it goes on; trials that
still run are attached to. What --parallel, --failures and --stop-early were last time is kept with it. The first Ctrl-C
ends the running trials and leaves: they are ABANDONED then, and count as trials. With --keep-running they go on, and
the next run of the command attaches to them.

\b
  transload ax run --component train.py --param lr:float:1e-4:1e-1:log --param layers:int:1:5 \\
      --minimize loss --trials 20 --parallel 4
  transload ax plot search --output search.html
"""


@click.group(short_help="Search hyper-parameters with Ax, trials as apps.")
def command() -> None:
    """Search hyper-parameters with Ax: each trial is an app."""


@command.command(epilog=_EPILOG, short_help="Run a search, or go on with one.")
@click.option("--name", default="search", show_default=True, help="The search; it is kept under this name.")
@click.option(
    "--component", metavar="NAME", help="What one trial runs: a name, FILE[:FUNCTION] or package.module:function."
)
@click.option(
    "--param", "params", multiple=True, metavar="SPEC", help="NAME:float|int:LOW:HIGH[:log], NAME:choice:A,B,…"
)
@click.option(
    "--const", "consts", multiple=True, metavar="NAME=VALUE", help="An argument that is the same in all trials."
)
@click.option("--minimize", metavar="RESULT", help="The result to make small.")
@click.option("--maximize", metavar="RESULT", help="The result to make large.")
@click.option("--trials", type=click.IntRange(1), default=20, show_default=True, help="How many in all.")
@click.option("--parallel", type=click.IntRange(1), default=1, show_default=True, help="How many at once.")
@click.option("-s", "--scheduler", metavar="NAME", default="local", show_default=True, help="Where trials run.")
@click.option("-c", "--cfg", multiple=True, metavar="K=V,…", help="Run options of the scheduler.")
@click.option("--workspace", metavar="PATH", help="Local folder that travels with the trials.")
@click.option("--tracker-base", metavar="URL", help="Where trials report; default: a folder kept with the search.")
@click.option("--parent-run-id", metavar="RUN", help="The run that all trials derive from, for the lineage.")
@click.option("--method", type=click.Choice(["fast", "quality", "random_search"]), default="fast", show_default=True)
@click.option("--seed", type=int, help="Of what is random.")
@click.option(
    "--stop-early/--no-stop-early", help="End trials in the worst half of their learning curves (RESULT/<step>)."
)
@click.option(
    "--failures",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.5,
    show_default=True,
    help="Share of trials that may fail.",
)
@click.option("--keep-running", is_flag=True, help="Leave trials running when this command ends early.")
@click.option("--no-progress", is_flag=True, help="Show no progress bar.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout, and nothing else.")
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Search the arguments of a component for the best value of one of its results."""
    if options["minimize"] and options["maximize"]:
        raise click.UsageError("--minimize and --maximize exclude each other", ctx)
    folder = search_folder(options["name"])
    kept = folder / "experiment.json"
    told = {name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    if kept.exists():
        _recall(options, told, folder)
    options.setdefault("curve", bool(options["stop_early"]))
    definition = _definition(options, folder)
    if definition is None and told & set(_DEFINING):
        given = ", ".join(_DEFINING[name] for name in _DEFINING if name in told)
        raise ConfigError(f"{given}: belongs to a search's definition: give {_WANTED} too, or leave it out to go on")
    folder.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not kept.exists() and definition is None:
        raise ConfigError(f"there is no search {options['name']!r} to go on with: give {_WANTED} for a new one")
    _quiet()
    from ax.exceptions.core import AxError

    try:
        outcome = _run(options, definition, kept)
    except AxError as exc:
        _give_up(exc, kept, options["as_json"])
        return 1
    _show(outcome, options["as_json"])
    return 0 if outcome.value is not None else 1


@command.command(short_help="Draw a search.")
@click.argument("name", default="search")
@click.option("-o", "--output", metavar="FILE", help="FILE.png or FILE.html; without an ending: both. Default: NAME.")
def plot(name: str, output: str | None) -> int:
    """Draw the trials of a search, the best so far, and which parameters matter."""
    kept = search_folder(name) / "experiment.json"
    if not kept.exists():
        raise ConfigError(f"there is no search {name!r} in {kept.parent.parent}")
    _quiet()
    from transload_ax.plot import plot_experiment
    from transload_ax.snapshot import Snapshot

    try:
        files = plot_experiment(Snapshot(kept).load()[0], output or name)
    except OSError as exc:
        raise ConfigError(f"--output {output or name}: {exc}") from exc
    for file in files:
        click.echo(str(file))
    return 0


@command.command("list", short_help="List the searches that are kept.")
def list_searches() -> int:
    """List the names of the searches that are kept here."""
    root = search_folder("x").parent
    for kept in sorted(root.glob("*/experiment.json")):
        click.echo(kept.parent.name)
    return 0


def search_folder(name: str) -> Path:
    """Return where a search is kept.

    Raises:
        ConfigError: for a name that is no name of a folder.
    """
    from transload.schedulers.local.home import state_home

    if not _NAME.match(name):
        raise ConfigError(f"--name {name!r}: must be letters, digits, '.', '_', '-', and begin with a letter or digit")
    return Path(state_home()) / "ax" / name


def _recall(options: dict[str, Any], told: set[str], folder: Path) -> None:
    """Complete options with those that were kept with a search.

    Raises:
        ConfigError: if one of what was settled when it began is given otherwise now.
    """
    kept = _last_time(folder)
    for name, flag in _SETTLED.items():
        if name in told and name in kept and options[name] != kept[name]:
            was = "none" if kept[name] is None else kept[name]
            raise ConfigError(
                f"{flag} {options[name]}: search {folder.name!r} was begun with {was}, and goes on with it"
            )
    if options["stop_early"] and not kept.get("curve", True):
        raise ConfigError(f"--stop-early: search {folder.name!r} was begun without it, and reads no learning curves")
    options.update({name: value for name, value in kept.items() if name not in told})


def _last_time(folder: Path) -> dict[str, Any]:
    """Return the options that were kept with a search."""
    file = folder / "options.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {**{name: found[name] for name in _REMEMBERED}, **found}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as exc:
        raise ConfigError(f"{file}: not the options of a search: {exc!r}") from exc


def _remember(options: dict[str, Any], folder: Path) -> None:
    """Keep options with a search, for whoever goes on with it."""
    aside = folder / f".options.json.{os.getpid()}.tmp"
    names = [*_REMEMBERED, *_SETTLED, "curve"]
    aside.write_text(json.dumps({name: options[name] for name in names}), encoding="utf-8")
    os.replace(aside, folder / "options.json")


def _quiet() -> None:
    import warnings

    # Ax sets the levels of its loggers when they are made, and tells at once that it has SQL storage
    logging.getLogger("ax.storage.sqa_store.with_db_settings_base").addFilter(
        lambda record: record.levelno > logging.INFO
    )
    logging.getLogger("ax").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"ax\.|botorch\.|gpytorch\.|linear_operator\.|pyro\.")


def _definition(options: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Return what defines a new search; None if nothing of it is given."""
    objective = options["minimize"] or options["maximize"]
    if not (options["component"] or options["params"] or objective):
        return None
    missing = [
        text
        for text, given in (
            ("--component", options["component"]),
            ("--param", options["params"]),
            ("--minimize or --maximize", objective),
        )
        if not given
    ]
    if missing:
        raise ConfigError(f"a new search needs {' and '.join(missing)} too")
    component, constants = _absolute(options["component"]), _constants(options["consts"])
    _check(component, constants, options["params"])
    return {
        "component": component,
        "parameters": list(options["params"]),
        "objective": objective,
        "tracker_base": options["tracker_base"] or str(folder / "results"),
        "minimize": bool(options["minimize"]),
        "name": options["name"],
        "curve": options["curve"],
        "constants": constants,
        "scheduler": options["scheduler"],
        "cfg": _cfg(options["scheduler"], options["cfg"]),
        "workspace": options["workspace"],
        "inherit_env": True,
        "parent_run_id": options["parent_run_id"],
    }


def _check(component: str, constants: dict[str, str], params: tuple[str, ...]) -> None:
    """Refuse what is wrong about names and texts now: importing Ax takes seconds."""
    from transload_ax.convert import check_constants, check_names
    from transload_search import Parameter

    check_constants(component, constants)
    check_names(component, constants, [Parameter.parse(text).name for text in params])


def _absolute(component: str) -> str:
    """Return a component so that it is found from another folder as well."""
    path, colon, function = component.partition(":")
    return f"{Path(path).resolve()}{colon}{function}" if Path(path).is_file() else component


def _constants(texts: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--const {text!r}: must be NAME=VALUE")
        found[name] = value
    return found


def _cfg(scheduler: str, texts: tuple[str, ...]) -> dict[str, Any]:
    from transload.pipelines import host_runner

    opts = host_runner("ax").scheduler_run_opts(scheduler)
    found: dict[str, Any] = {}
    for text in texts:
        found.update(opts.cfg_from_str(text))
    return found


def _run(options: dict[str, Any], definition: dict[str, Any] | None, kept: Path) -> Outcome:
    from transload_ax.experiment import make_experiment, run_experiment
    from transload_ax.resume import compare
    from transload_ax.snapshot import Snapshot
    from transload_ax.spaces import strategy

    experiment: Experiment | None = None if definition is None else make_experiment(**definition)
    with Snapshot(kept).locked():  # not while another process runs it
        if experiment is not None and kept.exists():
            compare(experiment, Snapshot(kept).load()[0], Snapshot(kept))
        _remember(options, kept.parent)
    stopping = None
    if options["stop_early"]:
        from ax.early_stopping.strategies import PercentileEarlyStoppingStrategy

        stopping = PercentileEarlyStoppingStrategy(percentile_threshold=50.0, min_progression=1, min_curves=3)
    return _interruptible(
        lambda: run_experiment(
            experiment,
            options["trials"],
            options["parallel"],
            generation_strategy=None if kept.exists() else strategy(options["method"], options["seed"]),
            seed=options["seed"],
            early_stopping=stopping,
            snapshot=kept,
            tolerated_failure_rate=options["failures"],
            keep_running=options["keep_running"],
            progress=False if options["no_progress"] or options["as_json"] else None,
            options={"logging_level": logging.CRITICAL},  # what a metric could not read is the trial's reason
        )
    )


def _interruptible(work: Callable[[], Outcome]) -> Outcome:
    """Turn SIGTERM into what Ctrl-C does, for the length of the work."""
    import signal

    def leave(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, leave)
    try:
        return work()
    finally:
        signal.signal(signal.SIGTERM, before)


def _give_up(error: Exception, kept: Path, as_json: bool) -> None:
    """Say why a search ended early, why its last bad trials were bad, and what was found until then."""
    click.echo(f"transload: the search was given up: {' '.join(str(error).split())}", err=True)
    if not kept.exists():
        return
    from transload_ax.experiment import outcome
    from transload_ax.snapshot import Snapshot

    found = outcome(Snapshot(kept).load()[0])
    bad = [trial for trial in found.experiment.trials.values() if trial.status.is_failed or trial.status.is_abandoned]
    for trial in bad[-_REASONS:]:
        reason = " ".join(str(trial.status_reason or "no reason is known").split())
        click.echo(f"  trial {trial.index} {trial.status.name}: {reason}", err=True)
    if as_json or found.value is not None:
        _show(found, as_json)


def _show(outcome: Outcome, as_json: bool) -> None:
    trials = {trial.index: trial.status.name for trial in outcome.experiment.trials.values()}
    if as_json:
        values = {"schema": 1, "name": outcome.experiment.name, "trial": outcome.trial, "value": outcome.value}
        click.echo(json.dumps({**values, "parameters": outcome.parameters, "trials": trials}))
        return
    if outcome.value is None:
        click.echo("no trial completed; the local ones' logs: transload log local://ax/…", err=True)
        return
    click.echo(f"best of {len(trials)} trials: {outcome.value:.6g} (trial {outcome.trial})")
    for name, value in outcome.parameters.items():
        click.echo(f"  {name} = {value}")
