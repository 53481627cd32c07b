"""Short forms for programs and notebooks: `transload.run`, `transload.attach`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from transload.components import Overrides
from transload.errors import SpecError
from transload.runner.api import Runner
from transload.runner.factory import default_runner
from transload.runner.job import Job
from transload.runner.launch import Launch
from transload.specs import (
    AppDef,
    AppHandle,
    CfgVal,
    Environment,
    Mount,
    Notice,
    Workspace,
    parse_mounts,
)
from transload.specs.app import OnStall
from transload.specs.interruptions import notice_from
from transload.specs.text import parse_size


class OverrideOptions(TypedDict, total=False):
    """The values by which `run` and `submit` change a definition; see `Overrides`.

    A memory size may be a text such as ``8G``, a mount may be a text, too, and a notice a number of
    seconds.
    """

    role: str | None
    name: str | None
    time_limit: float | None
    env: Mapping[str, str] | None
    image: str | None
    replicas: int | None
    retries: int | None
    retry_delay: float | None
    cpu: float | None
    gpu: int | None
    mem: int | str | None
    mounts: Sequence[Mount | str] | None
    segment: float | None
    notice: Notice | float | None
    checkpoints: bool | None
    max_interruptions: int | None
    stall_after: float | None
    on_stall: OnStall | None
    progress_server: bool | None
    stall_signal: str | None


def overrides_of(values: OverrideOptions) -> Overrides:
    """Return the overrides that were given as keywords; ``mem`` may be a text such as ``8G``, a
    mount one, too.

    Raises:
        TypeError: for an unknown keyword.
        SpecError: for a size that cannot be read.
    """
    if unknown := sorted(values.keys() - {*Overrides._fields}):
        raise TypeError(
            f"{unknown[0]}=: unknown argument; over a job can be set: "
            f"{', '.join(Overrides._fields)}"
        )
    mem = values.get("mem")
    if isinstance(mem, int) and 0 < mem < 1 << 20:
        raise SpecError(
            f"mem={mem}: is a number of bytes: write it with a unit, such as '{mem}M' or '{mem}G'"
        )
    if isinstance(mem, str):
        mem = parse_size(mem, "mem")
    given = values.get("mounts") or ()
    mounts = [mount for mount in given if not isinstance(mount, str)]
    texts = [mount for mount in given if isinstance(mount, str)]
    if texts:
        mounts += parse_mounts(",".join(texts).split(","))
    return Overrides(
        role=values.get("role"),
        name=values.get("name"),
        time_limit=values.get("time_limit"),
        env=values.get("env"),
        image=values.get("image"),
        replicas=values.get("replicas"),
        retries=values.get("retries"),
        retry_delay=values.get("retry_delay"),
        cpu=values.get("cpu"),
        gpu=values.get("gpu"),
        mem=mem,
        mounts=mounts,
        segment=values.get("segment"),
        notice=notice_from(values.get("notice"), "notice"),
        checkpoints=values.get("checkpoints"),
        max_interruptions=values.get("max_interruptions"),
        stall_after=values.get("stall_after"),
        on_stall=values.get("on_stall"),
        progress_server=values.get("progress_server"),
        stall_signal=values.get("stall_signal"),
    )


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
    """Submit a job; return it, without waiting.

    Args:
        app: an AppDef, or a component: its name (``train.py:train``, ``utils.echo``) or function.
        args: arguments of the component: name → value, or as on the command line.
        command: a program and its arguments, in place of ``app``.
        scheduler: where to run it; default: the configured one, else ``local``.
        cfg: run options of the scheduler.
        workspace: a local folder that travels with it.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        app_id: an id of your own: an equal job of that id is attached to, not started.
        parent_run_id: the run that this one derives from.
        tracker_base: where it reports results.
        environment: what must be installed where it runs: a file (``requirements.txt``, ``uv.lock``,
            a script with a header), or ``none``; see `Launch`.
        runner: submits; default: the one that this process shares.
        overrides: what is set over what the job says: ``name, env, image, replicas, retries,
            retry_delay, time_limit, cpu, gpu, mem, role, notice, checkpoints, segment`` and so on
            (see `transload.components.Overrides`).

    Raises:
        SpecError: if the job or an argument is not valid.
        ConfigError: for an unknown scheduler or option.
        SubmitError: if it was not taken; nothing runs.

    Example:
        >>> job = run(command=["python", "train.py"], gpu=1, mem="8G")  # doctest: +SKIP
        >>> print(job.wait().state, job.results())  # doctest: +SKIP
    """
    if (app is None) == (command is None):
        raise SpecError("run: exactly one of app and command must be given")
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
        overrides=overrides_of(overrides),
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
