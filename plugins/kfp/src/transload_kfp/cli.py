"""Make pipelines of one job from the command line, with ``transload kfp``.

Importing this imports no KFP.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from transload.cli.job_options import job_options, job_settings
from transload.cli.output import note
from transload.errors import ConfigError
from transload.specs import UnknownSchedulerException
from transload_kfp.ports import ARTIFACTS

if TYPE_CHECKING:
    from transload.pipelines import Launch

_EPILOG = """
APP is a file with an AppDef as JSON, or a component: a name, FILE[:FUNCTION] or package.module:function. Arguments
after -- are the component's, and fixed now. Those that --input names become parameters of the pipeline. Without APP,
any command stands after --.

Options that `transload run` has too are settings of the job, over what APP says. Its name and image are --job-name
and --job-image here.

\b
  transload kfp compile train.py -o pipeline.yaml --input lr --result accuracy:float -- --epochs 3
  transload kfp compile app.json -o pipeline.yaml --launcher -s kubernetes --image my/launcher:1
  transload kfp compile -o pipeline.yaml --launcher --image my/launcher:1 --gpu 1 -- python train.py
"""

_JOB_IMAGE: Final = "--job-image"
_SPELLED: Final = {"name": "--job-name", "image": _JOB_IMAGE}
"""Option of a job → how it is typed here, where the pipeline has a name and the launcher an image."""


@click.group(short_help="Make pipelines for Kubeflow Pipelines that run jobs.")
def command() -> None:
    """Make pipelines for Kubeflow Pipelines that run jobs."""


@command.command(epilog=_EPILOG, short_help="Compile a pipeline of one job.")
@click.argument("app")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", metavar="FILE", help="Where the pipeline goes; - for stdout.")
@click.option("--name", metavar="NAME", help="Name of the pipeline; default: the job's.")
@click.option(
    "--result",
    "results",
    multiple=True,
    metavar="NAME[:TYPE]",
    help="A result that becomes an output (int, float, str), or a file that does (Model, HTML …).",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME[=PATH]",
    help="What becomes a parameter; with --launcher and a component, default: all.",
)
@click.option(
    "--launcher", is_flag=True, help="Submit the job through a scheduler, from a task of its own."
)
@click.option("-s", "--scheduler", metavar="NAME", help="With --launcher: where the job runs.")
@click.option(
    "-c",
    "--cfg",
    "-cfg",
    "cfg",
    multiple=True,
    metavar="K=V,…",
    help="With --launcher: run options of the scheduler.",
)
@click.option("--image", metavar="IMAGE", help="With --launcher: image of the launcher.")
@click.option(
    "--environment",
    metavar="FILE|none",
    help="With --launcher: what must be installed for the job, by a file in the launcher's image.",
)
@job_options(_SPELLED)
@click.option("--dry-run", is_flag=True, help="Show what would run, write nothing.")
@click.pass_context
def compile(  # noqa: A001
    ctx: click.Context,
    app: str,
    arguments: tuple[str, ...],
    *,
    output: str | None,
    name: str | None,
    results: tuple[str, ...],
    inputs: tuple[str, ...],
    launcher: bool,
    scheduler: str | None,
    cfg: tuple[str, ...],
    image: str | None,
    environment: str | None,
    dry_run: bool,
) -> int:
    """Compile a pipeline that runs APP."""
    from transload.components import ComponentHelpRequested
    from transload.pipelines import Launch

    if output is None and not dry_run:
        raise click.UsageError("give -o FILE, or --dry-run", ctx)
    if not launcher:
        given_options = {"scheduler": scheduler, "cfg": cfg, "image": image}
        _refuse_launcher_options({**given_options, "environment": environment})
    try:
        if _is_command(ctx, [app, *arguments]):
            launch = Launch(command=[app, *arguments])
        else:
            launch = _launch(app, arguments)
    except ComponentHelpRequested as exc:
        click.echo(str(exc))
        return 0
    launch = launch.with_overrides(job_settings(ctx))
    from transload_kfp.adapter import convert, show

    given: dict[str, Any] = {"inputs": _inputs(inputs), "results": _results(results)}
    if launcher:
        given["launcher"] = True
        given["scheduler"] = scheduler
        if not dry_run:
            _note_misspelt(scheduler)
        given["cfg"] = _cfg(scheduler, cfg)
        given["image"] = image
        given["environment"] = environment
    if dry_run:
        click.echo(show(launch, **given))
        return 0
    from transload_kfp.component import pipeline_from_component, pipeline_text

    component = convert(launch, **given)
    text = pipeline_text(pipeline_from_component(component, name))
    if output is None or output == "-":
        click.echo(text, nl=False)
        return 0
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConfigError(f"--output {output!r}: {exc.strerror}") from exc
    click.echo(output)
    return 0


def _is_command(ctx: click.Context, words: list[str]) -> bool:
    """Tell whether all words stand behind ``--``, where no component is named."""
    typed = ctx.find_root().obj or []
    return "--" in typed and typed[typed.index("--") + 1 :] == words


def _refuse_launcher_options(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if not value:
            continue
        cure = "give --launcher too"
        if name == "image":
            cure += f", or {_JOB_IMAGE} for the image of the job"
        raise ConfigError(f"--{name} is the launcher's: {cure}")


def _launch(app: str, arguments: tuple[str, ...]) -> Launch:
    from transload.components import as_component, typed_arguments
    from transload.pipelines import Launch

    path = Path(app)
    if path.suffix == ".json":
        if arguments:
            raise ConfigError(
                f"arguments {' '.join(arguments)!r}: only a component takes arguments"
            )
        return Launch.of(_read(path))
    return Launch(component=app, args=typed_arguments(as_component(app), arguments))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: cannot be read: not UTF-8") from exc


def _inputs(texts: tuple[str, ...]) -> Any:
    found: dict[str, str | None] = {}
    for name, equals, path in (text.partition("=") for text in texts):
        if not name or (equals and not path):
            raise ConfigError(f"--input {name!r}: must be NAME, or NAME=PATH, such as lr=args[2]")
        if name in found:
            raise ConfigError(f"--input {name!r}: given twice, as {found[name]!r} and {path!r}")
        found[name] = path or None
    return found or None


def _results(texts: tuple[str, ...]) -> dict[str, Any] | None:
    kinds: dict[str, Any] = {
        "float": float,
        "int": int,
        "str": str,
        **{name: name for name in ARTIFACTS},
    }
    found: dict[str, Any] = {}
    for text in texts:
        name, _, kind = text.partition(":")
        if (kind or "float") not in kinds or not name:
            raise ConfigError(
                f"--result {text!r}: must be NAME, or NAME:TYPE with {', '.join(kinds)}"
            )
        if name in found:
            raise ConfigError(f"--result {text!r}: {name!r} is declared twice")
        found[name] = kinds[kind or "float"]
    return found or None


def _note_misspelt(scheduler: str | None) -> None:
    """Name the scheduler that was probably meant. The launcher's image may know others than here."""
    from transload.pipelines import host_runner

    if scheduler is None:
        return
    try:
        host_runner("kfp").scheduler(scheduler)
    except ConfigError as exc:
        if isinstance(exc, UnknownSchedulerException) and exc.meant is not None:
            note(f"{exc}; compiled as it is, since the launcher's image may know it")


def _cfg(scheduler: str | None, texts: Sequence[str]) -> dict[str, Any]:
    from transload.pipelines import host_runner

    if not texts:
        return {}
    opts = host_runner("kfp").scheduler_run_opts(scheduler or "local")
    with contextlib.redirect_stdout(io.StringIO()):
        return dict(opts.read_texts(texts))
