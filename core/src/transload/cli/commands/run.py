"""``transload run``."""

from __future__ import annotations

import json
import sys
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from transload.cli.exit_codes import ExitCode
from transload.cli.options import (
    complete_components,
    duration,
    json_option,
    long_duration,
    scheduler_option,
)
from transload.cli.output import OutputFailed, emit, emit_json, note
from transload.cli.screen import Screen, show_progress
from transload.cli.session import app_json, find_target, open_runner
from transload.components import ComponentArgumentError, ComponentHelpRequested, NoComponent
from transload.errors import SpecError, TransloadError
from transload.runner import Launch
from transload.specs import AppDef

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from transload.cli.session import Target
    from transload.cli.wait import Events, Outcome
    from transload.components import Overrides
    from transload.runner import Runner
    from transload.specs import AppDryRunInfo, CfgVal

_LARGEST_APP = 64 << 20  # bytes of an app's JSON
_EPILOG = """
The arguments of a component come after its name; `transload run COMPONENT --help` tells them. What stands after --
is a command that is run as it is.
The first Ctrl-C asks the app to end, the second leaves at once. If this command is killed or its terminal goes
away, the app goes on. So it does after SIGTERM, unless this runs in a job that was cancelled itself.

\b
  transload run -s hpc --gpu 1 --mem 8G -- python train.py --lr 0.1
  transload run utils.echo --msg hello
  transload run -s local -c log_dir=/tmp/logs train.py:trainer --replicas 3
  transload run --detach utils.sh sleep 60
"""


class _Run(click.Command):
    """`run`, where options are completed: before COMPONENT its own, after it the component's."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete options."""
        if ctx.params.get("component"):
            return _complete_arguments(ctx, self.params[-1], incomplete)
        return super().shell_complete(ctx, incomplete)


def _complete_arguments(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from transload.components import get_component, spelling

    try:
        parameters = get_component(ctx.params["component"]).parameters
    except TransloadError:
        parameters = ()
    options = [(spelling(item), item.help) for item in parameters if item.kind != "varargs"]
    found = [
        CompletionItem(text, help=about) for text, about in options if text.startswith(incomplete)
    ]
    return found if incomplete.startswith("-") else [CompletionItem(incomplete, type="file")]


@click.command(
    cls=_Run,
    epilog=_EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
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
    help="Run options.",
)
@click.option("--name", metavar="NAME", help="Name of the app.")
@click.option("--env", multiple=True, metavar="K=V", help="A variable for the roles.")
@click.option(
    "--env-file", multiple=True, metavar="FILE", help="Variables for the roles, from a .env file."
)
@click.option(
    "--pass-env", multiple=True, metavar="PATTERN", help="Variables of yours to pass on (HF_*)."
)
@click.option("--image", metavar="IMAGE", help="What the roles run in.")
@click.option("--replicas", type=int, metavar="N", help="How many of each role.")
@click.option("--retries", type=int, metavar="N", help="Start again after a failure, so often.")
@click.option(
    "--retry-delay",
    type=duration,
    help="Wait this long before the first retry (10s), then twice as long.",
)
@click.option("--time-limit", type=long_duration, help="End the app after this long (2h).")
@click.option("--cpu", type=float, metavar="N", help="Cores of each replica.")
@click.option("--gpu", type=int, metavar="N", help="GPUs of each replica.")
@click.option("--mem", metavar="SIZE", help="Memory of each replica (8G).")
@click.option(
    "--mount",
    multiple=True,
    metavar="TEXT",
    help="A mount: job=HANDLE:outputs,dst=/in (docs/files.md).",
)
@click.option(
    "--role", metavar="NAME", help="The role that the options above are about; default: all."
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
    help="Read the app from stdin: JSON, as --dry-run --json has it.",
)
@click.option("--workspace", metavar="PATH", help="Local folder that travels with the app.")
@click.option(
    "--app-id",
    metavar="ID",
    help="An id of your own: an equal app of that id is attached to, not started.",
)
@click.option(
    "--parent-run-id", "--parent_run_id", metavar="RUN", help="The run that this one derives from."
)
@click.option("--tracker-base", metavar="URL", help="Where the app reports results.")
@click.option("--timeout", type=duration, help="Wait this long at most (10m); the app goes on.")
@click.option(
    "--startup-timeout",
    type=duration,
    help="Cancel the app if it waits this long before it runs (10m).",
)
@click.option(
    "--patience",
    type=duration,
    default=300.0,
    show_default="5m",
    help="Give up after that much UNKNOWN.",
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
    """Run COMPONENT as an app and stay with it until it ends: its logs on stdout, states and the
    end on stderr.

    COMPONENT is a name (utils.echo), a file (job.py or job.py:function) or package.module:function;
    after -- stands any command in its place.
    """
    _split(ctx, options)
    _check(ctx, options)
    if options["component"] and _showed_help(options["component"], options["component_args"]):
        return ExitCode.OK
    if not options["as_json"]:
        show_progress()
    with open_runner() as runner:
        try:
            info = _dry_run(runner, options)
        except NoComponent as exc:
            raise click.UsageError(f"{exc}; {_spelled_out(ctx, options)}", ctx) from exc
        except ComponentArgumentError as exc:
            if exc.unknown is None or not any(
                exc.unknown in param.opts for param in ctx.command.params
            ):
                raise
            advice = f"put it before {options['component']}"
            raise click.UsageError(f"{exc.unknown} is an option of `run`: {advice}", ctx) from exc
        if options["dry_run"]:
            _show(info, options["as_json"])
            return ExitCode.OK
        _warn_of_variables(runner, info)
        if not options["detach"]:
            return _stay(runner, info, options)
        handle = runner.schedule(info)
        if options["as_json"]:
            emit_json(app_json(handle, runner.status(handle)))
        else:
            emit(handle)
        return ExitCode.OK


def _warn_of_variables(runner: Runner, info: AppDryRunInfo[Any]) -> None:
    names = runner.variables_not_passed(info)
    if names:
        note(
            f"set here, and not passed to the job: {', '.join(names)} (--pass-env {names[0]} "
            "passes what it names)"
        )


def _split(ctx: click.Context, options: dict[str, Any]) -> None:
    """Tell a command (behind ``--``) from a component; keep in ``ctx.obj`` the words before it,
    which are our own.
    """
    words = (
        [] if options["component"] is None else [options["component"], *options["component_args"]]
    )
    given, own = ctx.obj, len(ctx.obj) - len(words)
    options["command"] = None
    if given[own - 1 :] == ["--", *words] and own > 0:
        options.update(command=words, component=None, component_args=())
    ctx.obj = given[:own]


def _spelled_out(ctx: click.Context, options: dict[str, Any]) -> str:
    """Return the command line that runs a script which is no component."""
    import shlex

    words = [*ctx.obj, "--", "python", options["component"], *options["component_args"]]
    return f"to run the file itself: {ctx.command_path} {shlex.join(words)}"


def _check(ctx: click.Context, options: dict[str, Any]) -> None:
    if options["command"] == []:
        raise click.UsageError("a command is missing after --", ctx)
    if options["from_stdin"] and (options["component"] or options["command"]):
        raise click.UsageError(
            "--stdin takes the app from stdin: give no component, and no command", ctx
        )
    if not (options["from_stdin"] or options["component"] or options["command"]):
        text = "a COMPONENT is missing (`transload components` lists them), or -- and a command, or --stdin"
        raise click.UsageError(text, ctx)
    chosen = [name for name in ("detach", "dry_run", "wait_only") if options[name]]
    if len(chosen) > 1:
        names = " and ".join(
            "--wait" if name == "wait_only" else f"--{name.replace('_', '-')}" for name in chosen
        )
        raise click.UsageError(f"{names} exclude each other", ctx)
    if options["detach"]:
        for name in ("timeout", "startup_timeout", "patience", "no_prefix"):
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                flag = f"--{name.replace('_', '-')}"
                raise click.UsageError(
                    f"{flag} is for those who stay: --detach leaves at once", ctx
                )


def _showed_help(name: str, args: tuple[str, ...]) -> bool:
    """Show the help of a component if it is asked for; no scheduler is needed for that."""
    if not {"-h", "--help"}.intersection(args):
        return False
    from transload.components import arguments_of

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
    from transload.components import component_help, get_component
    from transload.runner import load_settings

    defaults = load_settings().component_defaults(name)
    emit(component_help(get_component(name), defaults=defaults).rstrip("\n"))


def _dry_run(runner: Runner, options: dict[str, Any]) -> AppDryRunInfo[Any]:
    cfg: dict[str, CfgVal] = {}
    if options["cfg"]:
        cfg = runner.scheduler_run_opts(options["scheduler"]).cfg_from_texts(options["cfg"])
    names = ("scheduler", "workspace", "parent_run_id", "tracker_base", "pass_env")
    more: dict[str, Any] = {"cfg": cfg, **{name: options[name] for name in names}}
    if options["component"]:
        launch = Launch(
            component=options["component"], args=list(options["component_args"]), **more
        )
    elif options["command"]:
        launch = Launch(command=options["command"], **more)
    else:
        launch = Launch(app=_read_app(), **more)
    return runner.dryrun(launch, app_id=options["app_id"], overrides=_overrides(options))


def _overrides(options: dict[str, Any]) -> Overrides | None:
    names = (
        "role",
        "name",
        "time_limit",
        "image",
        "replicas",
        "retries",
        "retry_delay",
        "cpu",
        "gpu",
    )
    values = {name: options[name] for name in names if options[name] is not None}
    if options["mem"] is not None:
        from transload.specs.text import parse_size

        values["mem"] = parse_size(options["mem"], "--mem")
    if options["mount"]:
        from transload.specs import parse_mounts

        values["mounts"] = parse_mounts(
            [word for text in options["mount"] for word in text.split(",")]
        )
    if options["env"] or options["env_file"]:
        from transload.cli.env_file import read_env

        values["env"] = read_env(options["env"], options["env_file"])
    if not values:
        return None
    from transload.components import Overrides

    return Overrides(**values)


def _read_app() -> AppDef:
    text = sys.stdin.buffer.read(_LARGEST_APP + 1)
    if len(text) > _LARGEST_APP:
        raise SpecError(
            f"stdin: more than {_LARGEST_APP:,} bytes, which no app has: keep data in files"
        )
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return AppDef.from_json(text)  # which says what is wrong
    shown = isinstance(data, dict) and "app" in data and "roles" not in data
    return AppDef.from_json(json.dumps(data["app"]) if shown else text)


def _show(info: AppDryRunInfo[Any], as_json: bool) -> None:
    if not as_json:
        emit(str(info).rstrip("\n"))
        return
    app = None if info._app is None else info._app.masked().to_dict()
    known = {"app_id": info._app_id, "scheduler": info._scheduler, "cfg": dict(info._cfg)}
    emit_json({**known, "app": app, "request": str(info)})


def _stay(runner: Runner, info: AppDryRunInfo[Any], options: dict[str, Any]) -> int:
    from transload.cli.wait import interrupts, report_end

    events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    with interrupts(events):
        target = find_target(runner, runner.schedule(info))
        note(f"submitted {target.handle}")
        note(
            f"Ctrl-C cancels it; without this command it goes on: transload log -f {target.handle}"
        )
        try:
            outcome = _wait(runner, target, info, events, options)
        except BrokenPipeError:
            note(f"the reader of the logs has gone; {target.handle} goes on")
            raise
        except OutputFailed:
            note(f"the logs cannot be written here; {target.handle} goes on")
            raise
        report_end(runner, target, outcome, options["as_json"])
    return outcome.code


def _wait(
    runner: Runner, target: Target, info: Any, events: Events, options: dict[str, Any]
) -> Outcome:
    from transload.cli.wait import AppWait

    replicas = [(role.name, k) for role in info._app.roles for k in range(role.num_replicas)]
    labels = [] if options["no_prefix"] else [f"{role}/{k}" for role, k in replicas]
    as_json = options["as_json"]
    screen = Screen(sys.stderr if as_json else sys.stdout, sys.stderr, labels, plain=as_json)
    shown = () if options["wait_only"] else replicas
    times = {name: options[name] for name in ("timeout", "startup_timeout", "patience")}
    return AppWait(runner, target, screen, events, replicas=shown, **times).wait()
