"""``transload run``."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from transload.cli.exit_codes import ExitCode
from transload.cli.job_options import job_options, job_settings
from transload.cli.options import (
    complete_components,
    duration,
    json_option,
    scheduler_option,
)
from transload.cli.output import OutputFailed, emit, emit_json, note
from transload.cli.screen import open_screen
from transload.cli.session import description_of, open_runner
from transload.cli.show import Outcome, app_json, show_end
from transload.cli.wait import AppWait, Events, interrupts
from transload.components import (
    ComponentArgumentError,
    ComponentHelpRequested,
    NoComponent,
    arguments_of,
    component_help,
    get_component,
    spelling,
)
from transload.errors import SpecError, TransloadError
from transload.runner import Launch, load_settings
from transload.runner.environments import is_script
from transload.specs import AppDef
from transload.specs.checks import EMPTY
from transload.specs.settings import SETTINGS, OverrideOptions

if TYPE_CHECKING:
    from transload.runner import Job, Plan, Runner

_LARGEST_APP = 64 << 20  # bytes of a job's JSON
_CHECKPOINTS = "--checkpoints"
_EPILOG = """
The arguments of a component come after its name; `transload run COMPONENT --help` lists them. What stands after --
is a command that is run as it is.
The first Ctrl-C asks the job to end, the second leaves at once. If this command is killed or its terminal goes
away, the job goes on. It goes on after SIGTERM too, unless this command runs in another job, and that one
was cancelled.

\b
  transload run -s hpc --gpu 1 --mem 8G -- python train.py --lr 0.1
  transload run --app-id nightly-0214 -- python train.py    # typed again, it finds the same job
  transload run utils.echo --msg hello
  transload run -s local -c log_dir=/tmp/logs train.py:trainer --replicas 3
  transload run --detach utils.sh sleep 60
"""


class _Run(click.Command):
    """The command `run`, which completes its own options before COMPONENT and then COMPONENT's."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options."""
        if ctx.params.get("component"):
            return _complete_arguments(ctx, self.params[-1], incomplete)
        return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``--checkpoints`` as a flag unless a handle follows it. A component may follow."""
        try:
            return super().parse_args(ctx, _spelled_checkpoints(args, self.params))
        except click.NoSuchOption as exc:
            scheduler_option = _as_run_option(exc.option_name)
            if scheduler_option is not None:
                raise click.UsageError(f"{exc.message} {scheduler_option}", ctx) from exc
            advice = "(arguments of a component come after its name)"
            raise click.UsageError(f"{exc.format_message()} {advice}", ctx) from exc


def _as_run_option(flag: str) -> str | None:
    """Return what to write in place of an option of a scheduler, or None if no scheduler has it."""
    name = flag.lstrip("-").replace("-", "_")
    with open_runner() as runner:
        for scheduler in runner.scheduler_backends():
            try:
                options = runner.scheduler_run_opts(scheduler)
            except TransloadError:
                continue
            if name in options.table():
                return f"It is a run option of a scheduler: -c {name}=VALUE"
    return None


def _spelled_checkpoints(args: list[str], params: list[click.Parameter]) -> list[str]:
    """Return the words with ``--checkpoints=`` and ``--checkpoints=HANDLE`` for what stands apart.

    Args:
        args: the words of the command line.
        params: the options, of which some take a value.
    """
    options = [param for param in params if isinstance(param, click.Option) and not param.is_flag]
    take_value = {name for option in options for name in option.opts} - {_CHECKPOINTS}
    found: list[str] = []
    words = list(args)
    while words and words[0].startswith("-") and words[0] != "--":
        word = words.pop(0)
        if word == f"{_CHECKPOINTS}=" or (word == _CHECKPOINTS and words[:1] == [""]):
            raise click.UsageError(f"{_CHECKPOINTS}: the handle {EMPTY}")
        if word == _CHECKPOINTS:
            handle = words.pop(0) if words and "://" in words[0] else ""
            if words[1:2] == ["--"]:
                raise click.UsageError(
                    f"--checkpoints {words[0]}: is not the handle of a job. The folder cannot be "
                    "chosen here: write --checkpoints alone, and look at it with: transload "
                    "describe HANDLE"
                )
            word = f"{_CHECKPOINTS}={handle}"
        found.append(word)
        if word in take_value and words:
            found.append(words.pop(0))
    return [*found, *words]


def _complete_arguments(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    if not incomplete.startswith("-"):
        return [CompletionItem(incomplete, type="file")]
    try:
        found = get_component(ctx.params["component"])
    except TransloadError:
        return []
    return [
        CompletionItem(spelling(item), help=found.helps.get(item.name))
        for item in found.parameters
        if item.kind != "varargs" and spelling(item).startswith(incomplete)
    ]


@dataclass
class _Options:
    """The options and arguments of `run`, by the names that click gives them."""

    scheduler: str | None
    cfg: tuple[str, ...]
    pass_env: tuple[str, ...]
    checkpoints: str | None
    detach: bool
    dry_run: bool
    wait_only: bool
    with_logs: bool
    from_stdin: bool
    workspace: str | None
    environment: str | None
    app_id: str | None
    parent_run_id: str | None
    tracker_base: str | None
    timeout: float | None
    startup_timeout: float | None
    patience: float
    no_prefix: bool
    as_json: bool
    component: str | None
    component_args: tuple[str, ...]
    settings: OverrideOptions = field(default_factory=OverrideOptions)
    """What the options set over what the job says."""
    command: list[str] | None = None
    """The words behind ``--``, if the user wrote one."""


@click.command(
    cls=_Run,
    epilog=_EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option(
    "--app-id",
    metavar="ID",
    help="Safe to repeat: if an equal job has this id, wait for that one and start none.",
)
@scheduler_option("Where to run it; default: the configured one, else local.")
@click.option(
    "-c",
    "--cfg",
    "-cfg",
    "--scheduler_args",
    "cfg",
    multiple=True,
    metavar="K=V,…",
    help="Options of the scheduler; `transload info SCHEDULER` lists them.",
)
@job_options(without=("checkpoints",))
@click.option(
    _CHECKPOINTS,
    type=click.UNPROCESSED,  # empty for a folder of its own, as `_spelled_checkpoints` writes it
    metavar="[HANDLE]",
    help=f"{SETTINGS['checkpoints'].help[:-1]}; with a handle, that of an ended job.",
)
@click.option(
    "--pass-env", multiple=True, metavar="PATTERN", help="Variables of yours to pass on (HF_*)."
)
@click.option("-d", "--detach", is_flag=True, help="Submit, print the handle, and leave.")
@click.option(
    "--dry-run",
    "--dryrun",
    is_flag=True,
    help="Show the request that would be submitted; start nothing.",
)
@click.option("--wait", "wait_only", is_flag=True, help="Wait for the end without showing logs.")
@click.option("--log", "-l", "with_logs", is_flag=True, hidden=True, help="Show logs: the default.")
@click.option(
    "--stdin",
    "from_stdin",
    is_flag=True,
    help="Read the job from stdin: JSON, as --dry-run --json has it.",
)
@click.option("--workspace", metavar="PATH", help="Local folder that travels with the job.")
@click.option(
    "--environment",
    metavar="FILE|none",
    help="What must be installed: requirements.txt, 'uv.lock --group G', a script with a header.",
)
@click.option(
    "--parent-run-id", "--parent_run_id", metavar="RUN", help="The run that this one derives from."
)
@click.option("--tracker-base", metavar="URL", help="Where the job reports results.")
@click.option("--timeout", type=duration, help="Wait this long at most (10m); the job goes on.")
@click.option(
    "--startup-timeout",
    type=duration,
    help="Cancel the job if it waits this long before it runs (10m).",
)
@click.option(
    "--patience",
    type=duration,
    default=300.0,
    help="Unreachable timeout: give up after this long in UNKNOWN; default: 5m.",
)
@click.option("--no-prefix", is_flag=True, help="Show log lines without ROLE/REPLICA in front.")
@json_option
@click.argument("component", required=False, shell_complete=complete_components)
@click.argument(
    "component_args",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[ARGUMENTS]...",
    shell_complete=_complete_arguments,
)
@click.pass_context
def run(ctx: click.Context, /, **options: Any) -> int:
    """Run COMPONENT as a job and stay with it until it ends.

    Its logs go to stdout, its states and its end to stderr.

    COMPONENT is a name (utils.echo), a file (job.py or job.py:function) or package.module:function.
    Any command may stand in its place after --. A script with a header (PEP 723) is run itself,
    with the packages that its header names.
    """
    given = _Options(**options, settings=job_settings(ctx))
    if given.checkpoints is not None:
        given.settings["checkpoints"] = True
    _split(ctx, given)
    _take_script(given)
    _check(ctx, given)
    if given.component and _showed_help(given.component, given.component_args):
        return ExitCode.OK
    open_screen(as_json=given.as_json)  # building and submitting may take long
    with open_runner() as runner:
        try:
            plan = _dry_run(runner, given)
        except NoComponent as exc:
            raise click.UsageError(f"{exc}; {_spelled_out(ctx, given)}", ctx) from exc
        except ComponentArgumentError as exc:
            own_options = {name for param in ctx.command.params for name in param.opts}
            if exc.unknown not in own_options:
                raise
            advice = f"put it before {given.component}"
            raise click.UsageError(f"{exc.unknown} is an option of `run`: {advice}", ctx) from exc
        if given.dry_run:
            _show(plan, given.as_json)
            return ExitCode.OK
        _warn_of_variables(plan)
        if not given.detach:
            return _stay(plan, given)
        job, _ = _submit(plan)
        if given.as_json:
            emit_json({**app_json(job.handle, job.status()), "reattached": plan.reattached})
        else:
            emit(job.handle)
        return ExitCode.OK


def _warn_of_variables(plan: Plan[Any]) -> None:
    names = plan.variables_to_name()
    if names:
        note(
            f"set here, and not passed to jobs: {', '.join(names)} (if a job needs it, "
            f"type --pass-env {names[0]}; this is not said again)"
        )


def _split(ctx: click.Context, given: _Options) -> None:
    """Tell a command (behind ``--``) from a component.

    The words before it, which are our own, are kept in ``ctx.obj``.
    """
    words: list[str] = []
    if given.component is not None:
        words = [given.component, *given.component_args]
    typed = ctx.find_root().obj
    own_count = len(typed) - len(words)
    if typed[own_count - 1 :] == ["--", *words]:
        given.command = words
        given.component = None
        given.component_args = ()
    ctx.obj = typed[:own_count]


def _take_script(given: _Options) -> None:
    """Run a script with a header, in the place of a component, as ``python SCRIPT`` runs it."""
    if given.component and is_script(given.component):
        given.command = ["python", given.component, *given.component_args]
        given.component = None
        given.component_args = ()


def _spelled_out(ctx: click.Context, given: _Options) -> str:
    """Return the command line that runs a script which is no component."""
    file = str(given.component)
    interpreter = "python" if file.endswith(".py") else "bash"
    words = ["transload", *ctx.obj, "--", interpreter, file, *given.component_args]
    return f"to run the file itself: {shlex.join(words)}"


def _check(ctx: click.Context, given: _Options) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: which names them.
    """
    if given.command == []:
        raise click.UsageError("a command is missing after --", ctx)
    if given.from_stdin and (given.component or given.command):
        raise click.UsageError(
            "--stdin takes the job from stdin: give no component, and no command", ctx
        )
    if not (given.from_stdin or given.component or given.command):
        listing = "`transload components` lists them"
        raise click.UsageError(
            f"a COMPONENT is missing ({listing}), or -- and a command, or --stdin", ctx
        )
    modes = {"--detach": given.detach, "--dry-run": given.dry_run, "--wait": given.wait_only}
    chosen = [flag for flag, is_set in modes.items() if is_set]
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other", ctx)
    if not given.detach:
        return
    for name in ("timeout", "startup_timeout", "patience", "no_prefix"):
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} is for those who stay: --detach leaves at once", ctx)


def _showed_help(name: str, args: tuple[str, ...]) -> bool:
    """Show the help of a component if it is asked for. No scheduler is needed for that."""
    if not {"-h", "--help"}.intersection(args):
        return False
    try:
        arguments_of(name, list(args))
    except ComponentHelpRequested:
        show_component(name)
        return True
    except SpecError:
        pass
    return False


def show_component(name: str) -> None:
    """Write the help of a component, with the defaults that the settings give it."""
    component = get_component(name)
    defaults = load_settings().component_defaults(component)
    emit(component_help(component, defaults=defaults).rstrip("\n"))


def _dry_run(runner: Runner, given: _Options) -> Plan[Any]:
    app = None
    if not given.component and not given.command:
        app = _read_app()
    launch = Launch(
        app=app,
        component=given.component or None,
        args=list(given.component_args),
        command=given.command or None,
        scheduler=given.scheduler,
        workspace=given.workspace,
        parent_run_id=given.parent_run_id,
        tracker_base=given.tracker_base,
        pass_env=given.pass_env,
        checkpoints=given.checkpoints or None,
        environment=given.environment,
        overrides=given.settings,
    )
    if given.cfg:
        options = runner.scheduler_run_opts(launch.scheduler_name(runner.settings))
        launch = replace(launch, cfg=options.read_texts(given.cfg))
    return runner.dryrun(launch, app_id=given.app_id)


def _read_app() -> AppDef:
    text = sys.stdin.buffer.read(_LARGEST_APP + 1)
    if len(text) > _LARGEST_APP:
        raise SpecError(
            f"stdin: more than {_LARGEST_APP:,} bytes, which no job has: keep data in files"
        )
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return AppDef.from_json(text)  # which says what is wrong
    is_dry_run = isinstance(data, dict) and "app" in data and "roles" not in data
    if is_dry_run:
        return AppDef.from_json(json.dumps(data["app"]))
    return AppDef.from_json(text)


def _show(plan: Plan[Any], as_json: bool) -> None:
    if as_json:
        emit_json(plan.to_dict())
    else:
        emit(str(plan).rstrip("\n"))


def _submit(plan: Plan[Any]) -> tuple[Job, bool]:
    """Submit, and note if the job was there already. Tell whether it is known to have ended."""
    job = plan.submit()
    has_ended = False
    if plan.reattached:
        with contextlib.suppress(TransloadError):
            # another session may have submitted it
            has_ended = description_of(job).status.is_terminal()
        note(f"reattached to {job.handle}, which was submitted before")
    return job, has_ended


def _stay(plan: Plan[Any], given: _Options) -> int:
    """Submit, wait for the end, report it, and return the exit code."""
    events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    with interrupts(events):
        job, has_ended = _submit(plan)
        if not plan.reattached:
            note(f"submitted {job.handle}")
        if not has_ended:
            note("press Ctrl-C to cancel it; it keeps running if this terminal closes")
        note(f"to see its log again, type: transload log -f {job.handle}")
        try:
            outcome = _wait(job, plan, events, given)
        except BrokenPipeError:
            note(f"the reader of the logs has gone; {job.handle} goes on")
            raise
        except OutputFailed:
            note(f"the logs cannot be written here; {job.handle} goes on")
            raise
        show_end(job, outcome, given.as_json, given.patience, reattached=plan.reattached)
    return outcome.code


def _wait(job: Job, plan: Plan[Any], events: Events, given: _Options) -> Outcome:
    replicas = [(role.name, k) for role in plan.app.roles for k in range(role.num_replicas)]
    labels = [] if given.no_prefix else [f"{role}/{k}" for role, k in replicas]
    screen = open_screen(labels, as_json=given.as_json)
    waiting = AppWait(
        job,
        screen,
        events,
        replicas=() if given.wait_only else replicas,
        timeout=given.timeout,
        startup_timeout=given.startup_timeout,
        patience=given.patience,
    )
    return waiting.wait()
