"""Offer short forms for programs and notebooks, `transload.run` and `transload.attach`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from transload.errors import SpecError
from transload.runner.api import Runner
from transload.runner.factory import default_runner
from transload.runner.job import Job
from transload.runner.launch import Launch
from transload.specs import AppDef, AppHandle, CfgVal, Environment, Workspace, nearest
from transload.specs.checks import closest
from transload.specs.settings import SETTINGS, OverrideOptions, read_settings


def check_keywords(values: OverrideOptions, arguments: str) -> None:
    """Check the settings that were given as keywords.

    Args:
        values: keyword → value.
        arguments: the keyword that takes the arguments of what is run, for the message.

    Raises:
        TypeError: for an unknown keyword, with the nearest.
        SpecError: for a value that cannot be read.
    """
    known = list(SETTINGS)
    unknown = sorted(values.keys() - {*known})
    if unknown:
        hint = nearest(unknown[0], known)
        if closest(unknown[0], known) is None:
            hint = "no setting of a job"
        raise TypeError(
            f"{unknown[0]}=: unknown argument: {hint} (an argument of what is run goes into "
            f"{arguments}={{{unknown[0]!r}: …}})"
        )
    read_settings(values)


def run(
    app: AppDef | str | Callable[..., AppDef] | None = None,
    args: Sequence[str] | Mapping[str, Any] = (),
    *,
    command: Sequence[str] | None = None,
    scheduler: str | None = None,
    cfg: Mapping[str, CfgVal] | None = None,
    workspace: str | Workspace | None = None,
    pass_env: Sequence[str] = (),
    app_id: str | None = None,
    parent_run_id: str | None = None,
    tracker_base: str | None = None,
    environment: Environment | str | None = None,
    runner: Runner | None = None,
    **overrides: Unpack[OverrideOptions],
) -> Job:
    """Submit a job and return it, without waiting.

    Args:
        app: an AppDef, or a component by its name (``train.py:train``, ``utils.echo``) or function.
        args: arguments of the component: name → value, or as on the command line.
        command: a program and its arguments, in place of ``app``.
        scheduler: where to run it. The default is the configured one, else ``local``.
        cfg: run options of the scheduler.
        workspace: a local folder that travels with it.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        app_id: an id of your own. An equal job of that id is attached to, not started.
        parent_run_id: the run that this one derives from.
        tracker_base: where it reports results.
        environment: what must be installed where it runs. It is a file (``requirements.txt``,
            ``uv.lock``, a script with a header), or ``none`` (see `Launch`).
        runner: submits. The default is the one that this process shares.
        overrides: what is set over what the job says. They are ``name, env, image, replicas,
            retries, retry_delay, time_limit, cpu, gpu, mem, role, notice, checkpoints, segment``
            and so on (see `transload.specs.settings.OverrideOptions`).

    Raises:
        SpecError: if the job or an argument is not valid.
        ConfigError: for an unknown scheduler or option.
        SubmitError: if the scheduler did not accept it. Nothing runs.

    Example:
        >>> job = run(command=["python", "train.py"], gpu=1, mem="8G")  # doctest: +SKIP
        >>> print(job.wait().state, job.results())  # doctest: +SKIP
    """
    if (app is None) == (command is None):
        raise SpecError("run: exactly one of app and command must be given")
    check_keywords(overrides, "args")
    runner = runner or default_runner()
    more: dict[str, Any] = {}
    if args:
        more["args"] = args
    if pass_env:
        more["pass_env"] = pass_env
    if environment is not None:
        more["environment"] = environment
    launch = Launch(command=command, **more) if app is None else Launch.of(app, **more)
    plan = runner.dryrun(
        launch,
        scheduler=scheduler,
        cfg=cfg,
        workspace=workspace,
        parent_run_id=parent_run_id,
        app_id=app_id,
        tracker_base=tracker_base,
        overrides=overrides,
    )
    return plan.submit()


def attach(handle: AppHandle, runner: Runner | None = None) -> Job:
    """Return the job of a handle, whoever submitted it.

    Raises:
        AppNotFound: if there is no such job.
        MalformedAppHandleException: if it is no handle.
        SchedulerUnavailable: if its scheduler cannot be reached.
    """
    job = Job(handle, runner)
    job.need_description()
    return job
