"""The command ``transload search``, which runs searches and keeps them by name."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from transload.cli.options import RealNumber, WholeNumber, scheduler_option
from transload.cli.output import emit_json, emit_table, note
from transload.cli.screen import open_screen
from transload.components import as_component, read_argument
from transload.errors import (
    ConfigError,
    SchedulerUnavailable,
    SpecError,
    StateUnknown,
    TransloadError,
)
from transload.pipelines import ExecutionOptions, host_runner, may_be_by_hand, somebody_asked
from transload.runtime.progress_lines import changing_line
from transload.specs import AppState, AppStatus, Environment, Workspace
from transload_search.jobs import all_jobs, latest_jobs, running_jobs
from transload_search.ledger import OtherSearchKept, SearchLedger
from transload_search.places import (
    absolute,
    forget_search,
    keep_base,
    kept_base,
    kept_names,
    locked,
    search_folder,
)
from transload_search.plot import plot_search
from transload_search.progress import (
    best_words,
    first_objective,
    progress_line,
    short_text,
    trial_word,
)
from transload_search.run import run_search_async
from transload_search.search import (
    Constraint,
    EarlyStopping,
    Objective,
    Parameter,
    Search,
    SearchFailed,
)

if TYPE_CHECKING:
    from transload.runner import Runner

HOST = "search"
_WANTED = "--component, --param and --minimize or --maximize"
_DEFAULT_TRIALS = 20
_NEEDED = {
    "--component": "component",
    "--param": "parameters",
    "--minimize or --maximize": "objective",
}
"""Required option of a new search → the field of `Search`."""
_PLAIN = {
    "trials": "trials",
    "parallel": "parallelism",
    "suggester": "suggester",
    "seed": "seed",
    "scheduler": "scheduler",
    "parent_run_id": "parent_run_id",
    "failures": "failures",
}
"""Option → the field of `Search` with its value."""
_EPILOG = """
A search is kept under its name, and `--name NAME` alone continues it. --trials is the number of trials in all, even if
the search was interrupted. When this command ends early, its running trials go on, and the next command reattaches
to them. With --cancel-running, Ctrl-C ends them, and the next command runs them again.

\b
  transload search run --component train.py --param lr:float:1e-4:1e-1:log --param layers:int:1:5 \\
      --minimize loss --trials 20 --parallel 4
  transload search show search
"""


_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Write JSON to stdout, and nothing else."
)


@click.group(short_help="Search for the arguments of a component that give the best result.")
def command() -> None:
    """Search the arguments of a component for the best value of one of its results.

    Each trial is a job.
    """


def _refuse_objective(
    context: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    """Refuse an option that people look for, and say which ones there are."""
    if value is not None:
        raise click.UsageError(
            f"--objective {value}: give --minimize {value}, or --maximize {value}", context
        )


@command.command(
    epilog=_EPILOG,
    short_help="Run a search, or continue one.",
    context_settings={"allow_extra_args": True},
)
@click.option(
    "--name", default="search", show_default=True, help="Name under which the search is kept."
)
@click.option(
    "--component",
    metavar="NAME",
    help="Component of a trial: a name, FILE[:FUNCTION] or module:function.",
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
    help="Argument that all trials share.",
)
@click.option("--minimize", multiple=True, metavar="RESULT", help="Result to minimize.")
@click.option("--objective", hidden=True, expose_value=False, callback=_refuse_objective)
@click.option("--maximize", multiple=True, metavar="RESULT", help="Result to maximize.")
@click.option(
    "--constraint", multiple=True, metavar="R<=NUMBER", help="Bound on a result, or R>=NUMBER."
)
@click.option("--trials", type=WholeNumber(1), help="Number of trials in all; default: 20.")
@click.option(
    "--parallel", type=WholeNumber(1), help="Number of trials at the same time; default: 1."
)
@click.option(
    "--suggester",
    metavar="NAME",
    help="Suggester of trials: random (default), or ax (needs transload-ax).",
)
@click.option("--seed", type=WholeNumber(), help="Seed of the random suggester; default: 0.")
@scheduler_option("Scheduler of the trials.")
@click.option(
    "-c",
    "--cfg",
    "-cfg",
    "cfg",
    multiple=True,
    metavar="K=V,…",
    help="Run options of the scheduler.",
)
@click.option("--workspace", metavar="PATH", help="Local folder to copy to the trials.")
@click.option(
    "--environment",
    metavar="FILE|none",
    help="What must be installed for the trials: requirements.txt, 'uv.lock --group G', a script.",
)
@click.option(
    "--tracker-base",
    metavar="URL",
    help="Folder or URL that keeps the search; default: a new folder.",
)
@click.option(
    "--parent-run-id", metavar="RUN", help="Run from which all trials derive, for the lineage."
)
@click.option(
    "--stop-early/--no-stop-early",
    default=None,
    help="End trials whose latest step is in the worse half.",
)
@click.option(
    "--failures", type=RealNumber(0, 1), help="Share of trials that may fail; default: 0.5."
)
@click.option(
    "--cancel-running", is_flag=True, help="End running trials when this command is interrupted."
)
@click.option("--no-progress", is_flag=True, help="Show no progress.")
@_json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    name: str,
    cancel_running: bool,
    no_progress: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Search the arguments of a component for the best value of one of its results."""
    if ctx.args:
        raise click.UsageError(
            f"{shlex.join(ctx.args)}: an argument of the component is given by --param, to be "
            "searched, or by --const NAME=VALUE",
            ctx,
        )
    given = {
        each: value
        for each, value in options.items()
        if ctx.get_parameter_source(each) is not ParameterSource.DEFAULT
    }
    with _alone(name):
        kept = kept_base(name)
        ledger = _ledger(name, kept, given)
        show = not (no_progress or as_json)
        return _Run(ledger, name, cancel_running, show, as_json).to_its_end(is_new=kept is None)


@command.command("list", short_help="List the searches that are kept.")
@_json_option
def list_searches(as_json: bool) -> int:
    """List the searches that are kept here, with their trials and the best so far."""
    rows = [_list_row(name) for name in kept_names()]
    if as_json:
        emit_json({"searches": rows})
        return 0
    cells = [[row["name"], f"{row['ended']}/{row['trials']}", row["best"]] for row in rows]
    emit_table(["NAME", "TRIALS", "BEST"], cells)
    return 0


def _list_row(name: str) -> dict[str, Any]:
    summary = _summary(kept_base(name) or "")
    return {
        "name": name,
        "ended": _ended(summary),
        "trials": summary["search"]["trials"],
        "best": ", ".join(best_words(summary)),
    }


def _ended(summary: Mapping[str, Any]) -> int:
    """Return how many trials have ended."""
    return sum(row["state"] is not None for row in summary["trials"])


@command.command(short_help="Show the trials of a search.")
@click.argument("name", default="search")
@_json_option
def show(name: str, as_json: bool) -> int:
    """Show each trial of a search, and the best. NAME may also be the tracker base of a search."""
    ledger = SearchLedger.open(_base_of(name))
    summary = ledger.summary()
    if as_json:
        emit_json(summary)
        return 0
    trials = summary["trials"]
    if "/" not in name:
        _add_running_jobs(ledger, trials)
    names = list(trials[0]["parameters"]) if trials else []
    rows = []
    for trial in trials:
        values = [short_text(trial["parameters"][each]) for each in names]
        rows.append(
            [
                str(trial["index"]),
                trial_word(trial),
                short_text(trial["value"]),
                *values,
                _handle_and_reason(trial),
            ]
        )
    emit_table(["TRIAL", "STATE", "VALUE", *(each.upper() for each in names), "JOB"], rows)
    _show_best(summary)
    return 0


def _add_running_jobs(ledger: SearchLedger, trials: Sequence[dict[str, Any]]) -> None:
    """Add the handles of running jobs that the ledger lacks. This changes ``trials``.

    Where the scheduler is out of reach, nothing is added.
    """
    if all(trial["state"] is not None for trial in trials):
        return
    try:
        with host_runner(HOST) as runner:
            handles = latest_jobs(ledger, runner)
    except TransloadError:
        return
    for trial in trials:
        trial["handle"] = handles.get(trial["index"], trial["handle"])


@command.command(short_help="Draw a search.")
@click.argument("name", default="search")
@click.option(
    "-o", "--output", metavar="FILE", help="FILE.png, FILE.svg or FILE.pdf; default: NAME.png."
)
def plot(name: str, output: str | None) -> int:
    """Draw the trials of a search, the best so far, and which parameters matter.

    For a page in HTML, use `transload report --search`.
    """
    summary = _summary(_base_of(name))
    file = Path(output or f"{Path(name).name}.png")
    try:
        plot_search(summary, file)
    except OSError as exc:
        raise ConfigError(f"--output {file}: {exc}") from exc
    click.echo(str(file))
    return 0


@command.command(short_help="Cancel the running trials of a search.")
@click.argument("name")
@_json_option
def cancel(name: str, as_json: bool) -> int:
    """Cancel the running trials of the search NAME. `search run --name NAME` runs them again."""
    _base_of_name(name)  # a wrong name makes no folder for a lock
    with _alone(name), host_runner(HOST) as runner:
        ledger = SearchLedger.open(_base_of_name(name))
        handles = list(running_jobs(ledger, runner))
        for handle in handles:
            runner.cancel(handle)
    if as_json:
        emit_json({"name": name, "cancelled": handles})
        return 0
    emit_table(["JOB", "STATE"], [[handle, "asked to end"] for handle in handles])
    if not handles:
        note(f"no trial of search {name!r} runs")
    return 0


@command.command(short_help="Delete a search and its jobs.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if trials run: they are ended first.")
@_json_option
def delete(name: str, force: bool, as_json: bool) -> int:
    """Delete the search NAME with the jobs of its trials, its results and what is kept of it.

    Files in a --tracker-base of your own stay.
    """
    base = _base_of_name(name)
    handles: list[str] = []
    with _alone(name), host_runner(HOST) as runner:
        ledger = _ledger_if_there(base)
        if ledger is not None:
            jobs = all_jobs(ledger, runner)
            running = [handle for handle, status in jobs.items() if not status.is_terminal()]
            if running and not force:
                raise ConfigError(
                    f"search {name!r}: {_still_running(running, name)}, or give --force"
                )
            handles = list(jobs)
        for handle in handles:
            runner.delete(handle)
        forget_search(name)
    if as_json:
        emit_json({"name": name, "deleted": handles})
        return 0
    emit_table(["JOB", "STATE"], [[handle, "deleted"] for handle in handles])
    if ledger is not None and base != str(search_folder(name)):
        note(f"the results of search {name!r} stay in {base}")
    return 0


def _alone(name: str) -> AbstractContextManager[None]:
    """Return a context in which no other process runs a search."""
    return locked(search_folder(name) / "lock", f"--name {name}")


def _ledger_if_there(base: str) -> SearchLedger | None:
    """Return the ledger in a tracker base, or None if somebody has removed it."""
    try:
        return SearchLedger.open(base)
    except ConfigError:
        return None


def _still_running(running: Sequence[str], name: str) -> str:
    """Return which trials of a search run, and how to end them."""
    trials = "1 trial still runs"
    if len(running) > 1:
        trials = f"{len(running)} trials still run"
    return f"{trials}, {', '.join(running)}: `transload search cancel {name}` ends what runs"


def _base_of(name: str) -> str:
    """Return the tracker base for the name of a kept search, or for a tracker base.

    Raises:
        ConfigError: if there is no such search.
    """
    if "/" in name:
        return name
    return _base_of_name(name)


def _base_of_name(name: str) -> str:
    """Return the tracker base of the search that is kept under a name.

    Raises:
        ConfigError: if there is no such search.
    """
    base = kept_base(name)
    if base is None:
        known = ", ".join(kept_names()) or "none"
        raise ConfigError(f"there is no search {name!r} here; choose one of: {known}")
    return base


def _summary(tracker_base: str) -> dict[str, Any]:
    return SearchLedger.open(tracker_base).summary()


def _ledger(name: str, kept: str | None, given: Mapping[str, Any]) -> SearchLedger:
    """Return the ledger of a new search, or of the kept one with the given options.

    Args:
        name: the name of the search.
        kept: tracker base of the search with that name, or None if there is none yet.
        given: option → value, for those that were given.

    Raises:
        ConfigError: if there is no search to continue, and a new one lacks required options.
        SpecError: if the kept search differs, or the search does not fit its component.
    """
    base = kept or str(search_folder(name))
    if given.get("tracker_base"):
        base = absolute(given["tracker_base"])
    if kept is None:
        ledger = _opened(_new_search(name, given), base, name)
        keep_base(name, base)
        return ledger
    if base != kept:
        raise ConfigError(
            f"--tracker-base {base}: search {name!r} is already kept in {kept}; choose another "
            "--name"
        )
    before = SearchLedger.open(kept).search
    return _opened(replace(before, **_given_fields(given, before)), base, name)


def _opened(search: Search, base: str, name: str) -> SearchLedger:
    """Return the ledger of a search.

    Raises:
        ConfigError: if another search has that name.
        SpecError: if the search does not fit its component.
    """
    try:
        return SearchLedger(search, base)
    except OtherSearchKept as exc:
        raise ConfigError(
            f"search {name!r} is another one: {exc.differences}; give this one another --name, or "
            f"delete that one: transload search delete {name}"
        ) from exc


def _new_search(name: str, given: Mapping[str, Any]) -> Search:
    fields = _given_fields(given, None)
    missing = [option for option, field in _NEEDED.items() if field not in fields]
    if len(missing) == len(_NEEDED):
        raise ConfigError(
            f"there is no search {name!r} to go on with: a new search needs {_WANTED}"
        )
    if missing:
        raise ConfigError(f"a new search needs {' and '.join(missing)}")
    fields.setdefault("trials", _DEFAULT_TRIALS)
    return Search(**fields)


def _given_fields(given: Mapping[str, Any], before: Search | None) -> dict[str, Any]:
    """Return field → value for the fields of a search that the options set.

    Args:
        given: option → value, for those that were given.
        before: the search that is continued, or None for a new one.
    """
    fields = {field: given[name] for name, field in _PLAIN.items() if name in given}
    scheduler = fields.get("scheduler") or (before.scheduler if before else None)
    component = before.component if before else None
    if "scheduler" in fields:
        host_runner(HOST).scheduler_run_opts(fields["scheduler"])  # refuses an unknown name
    if "component" in given:
        component = fields["component"] = _resolved_component(given["component"])
    if "params" in given:
        parsed = [Parameter.parse(text) for text in given["params"]]
        fields["parameters"] = tuple(_typed_choices(component, each) for each in parsed)
    objectives = [Objective(name, minimize=True) for name in given.get("minimize", ())]
    objectives += [Objective(name, minimize=False) for name in given.get("maximize", ())]
    if objectives:
        fields["objective"] = objectives[0] if len(objectives) == 1 else tuple(objectives)
    if "constraint" in given:
        fields["constraints"] = tuple(Constraint.parse(text) for text in given["constraint"])
    if "consts" in given:
        fields["constants"] = _typed_constants(component, given["consts"])
    if "cfg" in given:
        fields["cfg"] = _cfg(scheduler, given["cfg"])
    if "workspace" in given:
        fields["workspace"] = _absolute_workspace(given["workspace"])
    if "environment" in given:
        fields["environment"] = _absolute_environment(given["environment"])
    if "stop_early" in given:
        fields["early_stopping"] = EarlyStopping() if given["stop_early"] else None
    return fields


def _resolved_component(name: str) -> str:
    """Return the name of a component, with the path of a file made absolute."""
    path, colon, function = name.partition(":")
    if not Path(path).is_file():
        return name
    return f"{Path(path).resolve()}{colon}{function}"


def _absolute_workspace(workspace: str) -> str:
    projects = Workspace.from_str(workspace).projects
    return str(Workspace({absolute(source): target for source, target in projects.items()}))


def _absolute_environment(text: str) -> str:
    """Return an environment with the path of its file made absolute.

    Raises:
        ConfigError: if there is no such file.
        SpecError: for a file of another kind, or an unknown option.
    """
    source = Environment.from_str(text, "--environment").source
    if source is None:
        return text
    file = absolute(source)
    if not os.path.isfile(file):
        raise ConfigError(f"--environment {source!r}: there is no such file")
    words = [file if word == source else word for word in shlex.split(text)]
    return shlex.join(words)


def _typed_constants(
    component: str | Callable[..., Any] | None, texts: Sequence[str]
) -> dict[str, Any]:
    """Return the value of each constant given as ``NAME=VALUE``. The last one of a name counts."""
    plain: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"--const {text!r}: must be NAME=VALUE")
        plain[name] = value
    return {
        name: _typed(component, name, value, f"--const {name}") for name, value in plain.items()
    }


def _typed(component: str | Callable[..., Any] | None, name: str, text: str, path: str) -> Any:
    """Convert a text to the value that the component's argument has on the command line.

    The text is returned unchanged if that value is not a number, a text or a bool.

    Args:
        component: the component, or None if it is unknown.
        name: the argument.
        text: its text on the command line.
        path: its name in messages.

    Raises:
        ComponentArgumentError: if the argument does not accept it.
    """
    if component is None:
        return text
    parameter = as_component(component).parameter(name)
    if parameter is None or parameter.kind == "varargs":
        return text
    value = read_argument(text, parameter.annotation, path, typed=True)
    if type(value) in (int, float, str, bool):
        return value
    return text


def _typed_choices(component: str | Callable[..., Any] | None, parameter: Parameter) -> Parameter:
    """Return a parameter with its choices converted to the argument's type."""
    if parameter.kind != "choice":
        return parameter
    values = []
    for value in parameter.values:
        if isinstance(value, str):
            value = _typed(component, parameter.name, value, f"--param {parameter.name}")
        values.append(value)
    return replace(parameter, values=tuple(values))


def _cfg(scheduler: str | None, texts: Sequence[str]) -> dict[str, Any]:
    runner = host_runner(HOST)
    opts = runner.scheduler_run_opts(scheduler or runner.settings.scheduler)
    return dict(opts.read_texts(texts))


# -- running


@dataclass
class _Run:
    """A run of a search by this command.

    Args:
        ledger: the search.
        name: its name.
        cancel_running: Ctrl-C ends its running trials.
        show: show a line that says how far it is.
        as_json: write JSON.
        signals: the signals that have ended it.
    """

    ledger: SearchLedger
    name: str
    cancel_running: bool
    show: bool
    as_json: bool
    signals: list[int] = field(default_factory=list)

    def to_its_end(self, *, is_new: bool) -> int:
        """Run the search and return the exit code.

        After a signal or an outage the search is unfinished, and a note says how to continue it. A
        new search that a mistake has ended before its first job is not kept.
        """
        if self.show:
            open_screen()
        try:
            with changing_line(rare=True) as change:
                summary = asyncio.run(self._until_interrupted(change))
        except SearchFailed as exc:
            if self.as_json:
                emit_json({"name": self.name, **self.ledger.summary()})
            note(str(exc))
            self._note_what_runs()
            return 1
        except asyncio.CancelledError:
            self._note_how_to_go_on(len(self.ledger.unfinished()))
            return 130
        except TransloadError as exc:
            is_in_own_folder = self.ledger.tracker_base == str(search_folder(self.name))
            if is_new and is_in_own_folder and self._is_mistake_without_jobs(exc):
                forget_search(self.name)
            else:
                self._note_how_to_go_on(self._running_after(exc))
            raise
        if self.as_json:
            emit_json({"name": self.name, **summary})
        else:
            _show_best(summary)
        return 0

    async def _until_interrupted(self, change: Callable[[str], None]) -> dict[str, Any]:
        """Run the search until it ends or a signal arrives."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            self.signals.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        summary: dict[str, Any] = {}
        fractions: dict[int, float] = {}

        def show() -> None:
            if self.show:
                summary.update(self.ledger.summary())
                change(progress_line(self.name, summary, fractions))

        def show_fraction(index: int, fraction: float) -> None:
            fractions[index] = fraction
            if self.show and sys.stderr.isatty():  # a log has a line for each trial only
                change(progress_line(self.name, summary, fractions))

        def on_progress(index: int, status: AppStatus) -> None:
            if status.progress is not None and status.progress.fraction is not None:
                loop.call_soon_threadsafe(show_fraction, index, status.progress.fraction)

        return await run_search_async(
            self.ledger,
            _runner(),
            ExecutionOptions(
                on_kill="cancel" if self.cancel_running else "detach",
                resubmit_on=frozenset({AppState.CANCELLED}),
            ),
            on_change=show,
            on_progress=on_progress,
            asked=self._by_hand,
        )

    def _by_hand(self) -> bool:
        """Tell whether a person's Ctrl-C is among the signals."""
        return signal.SIGINT in self.signals and may_be_by_hand()

    def _is_mistake_without_jobs(self, error: TransloadError) -> bool:
        """Tell whether a user's mistake has ended the command before any job was submitted."""
        if not isinstance(error, (ConfigError, SpecError)) or _ended(self.ledger.summary()):
            return False
        try:
            return not all_jobs(self.ledger, _runner())
        except SchedulerUnavailable:
            return False
        except TransloadError:
            return True

    def _running_after(self, error: TransloadError) -> int:
        """Return how many trials go on after an error that has ended the command.

        Where the scheduler is out of reach, these are all that have not ended.
        """
        if isinstance(error, (StateUnknown, SchedulerUnavailable)):
            return len(self.ledger.unfinished())
        try:
            return len(running_jobs(self.ledger, _runner()))
        except TransloadError:
            return 0

    def _note_how_to_go_on(self, running: int) -> None:
        summary = self.ledger.summary()
        text = (
            f"stopped after {_ended(summary)} of {summary['search']['trials']} trials: "
            f"`transload search run --name {self.name}` continues it"
        )
        if running:
            cancelled = self.cancel_running and somebody_asked(_runner(), self._by_hand)
            text += f"; {_fate_of(running, self.name, cancelled=cancelled)}"
        note(text)

    def _note_what_runs(self) -> None:
        """Say which trials of a search that has failed go on, and how to end them."""
        if self.cancel_running:
            return
        try:
            running = list(running_jobs(self.ledger, _runner()))
        except TransloadError as exc:
            note(f"whether trials still run cannot be said: {exc}")
            return
        if running:
            note(_still_running(running, self.name))


def _fate_of(running: int, name: str, *, cancelled: bool) -> str:
    """Return what becomes of the trials that run when the command ends."""
    trials, go, were, them = f"{running} running trials", "go", "were", "them"
    if running == 1:
        trials, go, were, them = "1 running trial", "goes", "was", "it"
    if cancelled:
        return f"{trials} {were} cancelled, and will run again then"
    return (
        f"{trials} {go} on, and that command reattaches to {them}; "
        f"`transload search cancel {name}` ends {them}"
    )


def _runner() -> Runner:
    return host_runner(HOST, inherit_env=True)


def _show_best(summary: Mapping[str, Any]) -> None:
    count = len(summary["trials"])
    best = summary["best"]
    if best is not None:
        values = {first_objective(summary)["name"]: best["value"]}
        _show_trial(best, values, f"best of {count} trials")
        return
    for trial in summary.get("front", []):
        _show_trial(trial, trial["values"], f"none beats of {count} trials")


def _show_trial(trial: Mapping[str, Any], values: Mapping[str, float], what: str) -> None:
    shown = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
    click.echo(f"{what}: {shown} (trial {trial['index']})")
    for name, value in trial["parameters"].items():
        click.echo(f"  {name} = {value}")


def _handle_and_reason(row: Mapping[str, Any]) -> str:
    """Return a trial's handle, and why it has no value, in one line."""
    parts = [row["handle"]]
    if row["value"] is None:
        parts.append(str(row["reason"]).partition("\n")[0])
    return " ".join(part for part in parts if part)
