"""``transload search``: searches from the command line, kept by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from transload.errors import ConfigError, TransloadError

if TYPE_CHECKING:
    from transload_search.ledger import SearchLedger
    from transload_search.search import Parameter, Search

HOST = "search"
_WANTED = "--component, --param and --minimize or --maximize"
_EPILOG = """
A search is kept under its name: `--name NAME` alone goes on with it, and --trials is how many there are in all, however
often it was interrupted. What ends this command leaves the running trials alone, and whoever goes on takes them up
again; with --cancel-running Ctrl-C ends them, and they run again then.

\b
  transload search run --component train.py --param lr:float:1e-4:1e-1:log --param layers:int:1:5 \\
      --minimize loss --trials 20 --parallel 4
  transload search show search
"""


@click.group(short_help="Search the arguments of a component for the best result.")
def command() -> None:
    """Search the arguments of a component for the best value of one of its results: each trial is
    an app.
    """


@command.command(epilog=_EPILOG, short_help="Run a search, or go on with one.")
@click.option(
    "--name", default="search", show_default=True, help="The search; it is kept under this name."
)
@click.option(
    "--component",
    metavar="NAME",
    help="What a trial runs: a name, FILE[:FUNCTION] or module:function.",
)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="SPEC",
    help="NAME:float|int:LOW:HIGH[:log] or NAME:choice:A,B…",
)
@click.option(
    "--const",
    "consts",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument that all trials share.",
)
@click.option("--minimize", multiple=True, metavar="RESULT", help="A result to make small.")
@click.option("--maximize", multiple=True, metavar="RESULT", help="A result to make large.")
@click.option(
    "--constraint", multiple=True, metavar="R<=NUMBER", help="A bound on a result; or R>=NUMBER."
)
@click.option("--trials", type=click.IntRange(1), help="How many in all; default: 20.")
@click.option("--parallel", type=click.IntRange(1), help="How many at once; default: 1.")
@click.option(
    "--suggester",
    metavar="NAME",
    help="Who proposes trials: random (default); ax, with transload-ax.",
)
@click.option("--seed", type=int, help="Of what is random; default: 0.")
@click.option("-s", "--scheduler", metavar="NAME", help="Where trials run.")
@click.option("-c", "--cfg", multiple=True, metavar="K=V,…", help="Run options of the scheduler.")
@click.option("--workspace", metavar="PATH", help="Local folder that travels with the trials.")
@click.option(
    "--tracker-base", metavar="URL", help="Where the search is kept; default: a folder of its own."
)
@click.option(
    "--parent-run-id", metavar="RUN", help="The run that all trials derive from, for the lineage."
)
@click.option(
    "--stop-early/--no-stop-early",
    default=None,
    help="End trials whose steps are in the worse half.",
)
@click.option(
    "--failures", type=click.FloatRange(0, 1), help="Share of trials that may fail; default: 0.5."
)
@click.option(
    "--cancel-running", is_flag=True, help="End running trials when this command is interrupted."
)
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout, and nothing else.")
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Search the arguments of a component for the best value of one of its results."""
    from transload_search.places import kept_base, locked, search_folder

    told = {
        name for name in options if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    name = options["name"]
    with locked(search_folder(name) / "lock", f"--name {name}"):
        ledger = _ledger(name, kept_base(name), options, told)
        return _run(ledger, options)


@command.command("list", short_help="List the searches that are kept.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout, and nothing else.")
def list_searches(as_json: bool) -> int:
    """List the searches that are kept here: name, trials, and the best so far."""
    from transload.cli.output import emit_json, emit_table
    from transload_search.places import kept_base, kept_names
    from transload_search.progress import best_words

    rows = []
    for name in kept_names():
        summary = _summary(kept_base(name) or "")
        ended = sum(row["state"] is not None for row in summary["trials"])
        best = ", ".join(best_words(summary))
        rows.append(
            {"name": name, "ended": ended, "trials": summary["search"]["trials"], "best": best}
        )
    if as_json:
        emit_json({"searches": rows})
    else:
        emit_table(
            ["NAME", "TRIALS", "BEST"],
            [[each["name"], f"{each['ended']}/{each['trials']}", each["best"]] for each in rows],
        )
    return 0


@command.command(short_help="Show the trials of a search.")
@click.argument("name", default="search")
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout, and nothing else.")
def show(name: str, as_json: bool) -> int:
    """Show each trial of a search, and the best. NAME may be a tracker base, of any host's
    search.
    """
    from transload.cli.output import emit_json, emit_table
    from transload_search.progress import trial_word

    summary = _summary(_base_of(name))
    if as_json:
        emit_json(summary)
        return 0
    names = list(summary["trials"][0]["parameters"]) if summary["trials"] else []
    rows = [
        [
            str(row["index"]),
            trial_word(row),
            _number(row["value"]),
            *(_number(row["parameters"][each]) for each in names),
            _said(row),
        ]
        for row in summary["trials"]
    ]
    emit_table(["TRIAL", "STATE", "VALUE", *(each.upper() for each in names), "APP"], rows)
    _show_best(summary)
    return 0


@command.command(short_help="Draw a search.")
@click.argument("name", default="search")
@click.option(
    "-o", "--output", metavar="FILE", help="FILE.png, FILE.svg or FILE.pdf; default: NAME.png."
)
def plot(name: str, output: str | None) -> int:
    """Draw the trials of a search, the best so far, and which parameters matter.

    A page in HTML is made by `transload report --search`.
    """
    from transload_search.plot import plot_search

    summary = _summary(_base_of(name))
    file = Path(output or f"{Path(name).name}.png")
    try:
        plot_search(summary, file)
    except OSError as exc:
        raise ConfigError(f"--output {file}: {exc}") from exc
    click.echo(str(file))
    return 0


def _base_of(name: str) -> str:
    """Return the tracker base that a user means: of a search that is kept here, or the base itself.

    Raises:
        ConfigError: if there is no such search.
    """
    from transload_search.places import kept_base, kept_names

    if "/" in name:
        return name
    base = kept_base(name)
    if base is None:
        known = ", ".join(kept_names()) or "none"
        raise ConfigError(f"there is no search {name!r} here; there are: {known}")
    return base


def _summary(tracker_base: str) -> dict[str, Any]:
    from transload_search.ledger import SearchLedger

    return SearchLedger.open(tracker_base).summary()


def _ledger(
    name: str, kept: str | None, options: Mapping[str, Any], told: set[str]
) -> SearchLedger:
    """Return the ledger of the search that was asked for: a new one, or the kept one with what was
    given anew.

    Raises:
        ConfigError: if there is nothing to go on with, and too little is given for a new one.
        SpecError: if the kept search is another one, or the search does not fit its component.
    """
    from transload_search.ledger import SearchLedger
    from transload_search.places import keep_base, search_folder
    from transload_search.search import Search

    base = (
        _absolute(options["tracker_base"])
        if options["tracker_base"]
        else kept or str(search_folder(name))
    )
    if kept is not None and base != kept:
        raise ConfigError(
            f"--tracker-base {base}: search {name!r} is kept in {kept}; give this one another "
            "--name"
        )
    before = SearchLedger.open(kept).search if kept is not None else None
    given = _given(options, told, before)
    if before is not None:
        return SearchLedger(replace(before, **given), base)
    missing = [text for text, field in _NEEDED.items() if field not in given]
    if missing:
        what = (
            f"there is no search {name!r} to go on with: " if len(missing) == len(_NEEDED) else ""
        )
        raise ConfigError(
            f"{what}a new search needs {' and '.join(missing)}" + (f" ({_WANTED})" if what else "")
        )
    ledger = SearchLedger(Search(**{"trials": 20, **given}), base)
    keep_base(name, base)
    return ledger


_NEEDED = {
    "--component": "component",
    "--param": "parameters",
    "--minimize or --maximize": "objective",
}


def _given(options: Mapping[str, Any], told: set[str], before: Search | None) -> dict[str, Any]:
    """Return the fields of a search that the options say."""
    from transload_search.search import Constraint, EarlyStopping, Objective, Parameter

    found: dict[str, Any] = {}
    if options["component"]:
        path, colon, function = options["component"].partition(":")
        is_file = Path(path).is_file()
        found["component"] = (
            f"{Path(path).resolve()}{colon}{function}" if is_file else options["component"]
        )
    component = found.get("component") or (before.component if before is not None else None)
    if options["params"]:
        parsed = [Parameter.parse(text) for text in options["params"]]
        found["parameters"] = tuple(_typed_choices(component, each) for each in parsed)
    goals = [
        Objective(each, minimize)
        for minimize in (True, False)
        for each in options["minimize" if minimize else "maximize"]
    ]
    if goals:
        found["objective"] = goals[0] if len(goals) == 1 else tuple(goals)
    if options["constraint"]:
        found["constraints"] = tuple(Constraint.parse(text) for text in options["constraint"])
    if options["consts"]:
        found["constants"] = {
            name: _typed(component, name, text, f"--const {name}")
            for name, text in _constants(options["consts"]).items()
        }
    if options["cfg"]:
        found["cfg"] = _cfg(
            options["scheduler"] or (before.scheduler if before is not None else None),
            options["cfg"],
        )
    if options["workspace"]:
        found["workspace"] = _absolute_workspace(options["workspace"])
    if "stop_early" in told:
        found["early_stopping"] = EarlyStopping() if options["stop_early"] else None
    plain = {
        "trials": "trials",
        "parallel": "parallelism",
        "suggester": "suggester",
        "seed": "seed",
    }
    plain |= {"scheduler": "scheduler", "parent_run_id": "parent_run_id", "failures": "failures"}
    found.update({field: options[name] for name, field in plain.items() if name in told})
    return found


def _absolute(base: str) -> str:
    return base if "://" in base else os.path.abspath(os.path.expanduser(base))


def _absolute_workspace(workspace: str) -> str:
    from transload.specs import Workspace

    projects = Workspace.from_str(workspace).projects
    return str(Workspace({_absolute(source): target for source, target in projects.items()}))


def _constants(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--const {text!r}: must be NAME=VALUE")
        found[name] = value
    return found


def _typed(component: str | Callable[..., Any] | None, name: str, text: str, path: str) -> Any:
    """Return a text as the component's argument reads it on the command line; the text where it is
    no plain value.

    Raises:
        ComponentArgumentError: if the argument does not take it.
    """
    if component is None:
        return text
    from transload.components import as_component, decode_text

    parameter = as_component(component).parameter(name)
    if parameter is None or parameter.kind == "varargs":
        return text
    value = decode_text(text, parameter.annotation, path)
    return value if type(value) in (int, float, str, bool) else text


def _typed_choices(component: str | Callable[..., Any] | None, parameter: Parameter) -> Parameter:
    """Return a parameter whose choices are as the component's argument reads them."""
    if parameter.kind != "choice":
        return parameter
    path = f"--param {parameter.name}"
    values = [
        _typed(component, parameter.name, each, path) if isinstance(each, str) else each
        for each in parameter.values
    ]
    return replace(parameter, values=tuple(values))


def _cfg(scheduler: str | None, texts: Sequence[str]) -> dict[str, Any]:
    from transload.pipelines import host_runner

    runner = host_runner(HOST)
    opts = runner.scheduler_run_opts(scheduler or runner.settings.scheduler)
    return dict(opts.cfg_from_texts(texts))


# -- running


def _run(ledger: SearchLedger, options: Mapping[str, Any]) -> int:
    """Run a search; a signal, or an outage, leaves it to be gone on with, and says how."""
    import asyncio

    from transload.cli.output import emit_json, note
    from transload.cli.progress import changing_line
    from transload.cli.screen import show_progress
    from transload_search.progress import progress_line
    from transload_search.search import SearchFailed

    signals: list[int] = []
    failure, shown = "", not (options["no_progress"] or options["as_json"])
    if shown:
        show_progress()

    def tell() -> None:
        if shown:
            show(progress_line(options["name"], ledger.summary()))

    try:
        with changing_line(rare=True) as show:
            summary = asyncio.run(_until_interrupted(ledger, options, tell, signals))
    except SearchFailed as exc:
        summary, failure = ledger.summary(), str(exc)
    except (asyncio.CancelledError, TransloadError) as exc:
        note(
            _how_to_go_on(
                ledger, options, cancelled=options["cancel_running"] and _asked_by(signals)
            )
        )
        if isinstance(exc, TransloadError):
            raise
        return 130
    if options["as_json"]:
        emit_json({"name": options["name"], **summary})
    elif not failure:
        _show_best(summary)
    if failure:
        note(failure)
    return 1 if failure else 0


async def _until_interrupted(
    ledger: SearchLedger,
    options: Mapping[str, Any],
    on_change: Callable[[], None],
    signals: list[int],
) -> dict[str, Any]:
    import asyncio

    from transload.pipelines import ExecutionOptions, host_runner
    from transload.specs import AppState
    from transload_search.run import run_search_async

    task = asyncio.current_task()
    assert task is not None

    def stop(number: int) -> None:
        signals.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    settings = ExecutionOptions(
        on_kill="cancel" if options["cancel_running"] else "detach",
        resubmit_on=frozenset({AppState.CANCELLED}),
    )
    runner = host_runner(HOST, inherit_env=True)
    asked = partial(_by_hand, signals)
    return await run_search_async(ledger, runner, settings, on_change=on_change, asked=asked)


def _by_hand(signals: Sequence[int]) -> bool:
    """Tell whether a person's Ctrl-C is among the signals that came."""
    from transload.pipelines import may_be_by_hand

    return signal.SIGINT in signals and may_be_by_hand()


def _asked_by(signals: Sequence[int]) -> bool:
    """Tell whether one of the signals is somebody's wish, or comes because the job around this was
    cancelled.
    """
    from transload.pipelines import host_runner, somebody_asked

    return somebody_asked(host_runner(HOST, inherit_env=True), partial(_by_hand, signals))


def _how_to_go_on(ledger: SearchLedger, options: Mapping[str, Any], *, cancelled: bool) -> str:
    summary = ledger.summary()
    ended = sum(row["state"] is not None for row in summary["trials"])
    running = len(summary["trials"]) - ended
    fate = (
        "were cancelled, and run again then" if cancelled else "go on, and are taken up again then"
    )
    told = f"; {running} running {'trials' if running != 1 else 'trial'} {fate}" if running else ""
    return (
        f"stopped after {ended} of {summary['search']['trials']} trials: "
        f"`transload search run --name {options['name']}` goes on{told}"
    )


def _show_best(summary: Mapping[str, Any]) -> None:
    found = [summary["best"]] if summary["best"] is not None else summary.get("front", [])
    for best in found:
        goal = summary["search"]["objective"]
        values = best.get("values") or {goal["name"]: best["value"]}
        shown = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
        word = "best" if "value" in best else "none beats"
        click.echo(f"{word} of {len(summary['trials'])} trials: {shown} (trial {best['index']})")
        for name, value in best["parameters"].items():
            click.echo(f"  {name} = {value}")


def _number(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _said(row: Mapping[str, Any]) -> str:
    """Return a trial's handle, and in a line why it has no value."""
    reason = str(row["reason"]).partition("\n")[0]
    return " ".join(filter(None, (row["handle"], reason if row["value"] is None else "")))
