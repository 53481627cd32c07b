"""Convert an AppDef to a request to ``sbatch``.

This is pure. No file is written, and no program is asked.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import ConfigError, UnsupportedFeature
from transload.keeper import layout
from transload.runtime.progress_server import served
from transload.specs import (
    AppDef,
    MalformedAppHandleException,
    RetryPolicy,
    Role,
    Workspace,
    macros,
    masked_env,
    parse_app_handle,
)
from transload.specs.job_variables import REQUIREMENTS
from transload.specs.own_programs import shown_command
from transload_slurm.containers import Bind, binds_of, command, step_flags
from transload_slurm.own import refuse_own

if TYPE_CHECKING:
    from transload.specs.options import RunOptions
    from transload_slurm.options import RoleOptions, SlurmOptions

_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}\Z|UNLIMITED\Z|INFINITE\Z", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

ENV_CHECKPOINT_DIR: Final = "TRANSLOAD_CHECKPOINT_DIR"
RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
COMMENT: Final = "transload:"
"""Begins the comment of every Slurm job. The job id and the token of its submit follow."""

_GRACE_S: Final = 5.0  # between SIGTERM and SIGKILL, without a notice
_STEP_S: Final = 20
"""Seconds for which ``srun`` waits for a step.

Slurm may forget a step that it has put off, so the keeper asks anew.
"""

NO_ID: Final = "<job id>"


@dataclass(frozen=True)
class RoleRequest:
    """One role.

    Args:
        name: its name.
        entrypoint: the program.
        args: its arguments. ``${replica_id}`` is left for the replica, ``${img_root}`` for the
            submit if there is a workspace (see `with_roots`).
        env: its environment, likewise.
        cwd: working directory, which is also the root of the image, or None for the copy of the
            workspace.
        workspace: what is copied, or the list of it where it was sent (`Blobs`), or None for
            nothing.
        num_replicas: see `transload.specs.Role`.
        min_replicas: likewise.
        max_retries: likewise.
        retry_policy: likewise.
        retry_delay: likewise.
        secrets: the source of each environment variable. The values come with the submission.
        sbatch: its options of ``sbatch``.
        srun: its options of ``srun``.
        container: what runs its image, or "none" if nothing does.
        image: the image.
        binds: what of the node is in the container, besides the job's own folders.
        gpus: whether it asks for GPUs.
        max_interruptions: see `transload.specs.Role.interruptions_allowed`.
        notice: seconds that it has after a warning, or None if it gets none.
        notice_signal: name of the signal that is the warning.
        checkpoints: its folder for checkpoints, or None if it has none.
        stall_after: see `transload.specs.Role`.
        on_stall: likewise.
        stall_signal: likewise.
        environment: the packages that it runs with, for people, or "" for none of its own.
        packages: the folder of uv and of the file that names them, or "" for none.
    """

    name: str
    entrypoint: str
    args: list[str]
    env: dict[str, str]
    cwd: str | None
    workspace: Workspace | str | None
    num_replicas: int
    min_replicas: int | None
    max_retries: int
    retry_policy: RetryPolicy
    retry_delay: float
    secrets: dict[str, str]
    sbatch: list[str]
    srun: list[str]
    container: str
    image: str
    binds: list[Bind]
    gpus: bool
    max_interruptions: int = 0
    notice: float | None = None
    notice_signal: str = "TERM"
    checkpoints: str | None = None
    stall_after: float | None = None
    on_stall: str = "note"
    stall_signal: str = "USR1"
    environment: str = ""
    packages: str = ""


@dataclass(frozen=True)
class SlurmRequest:
    """A request to the Slurm scheduler.

    Args:
        name: name of the app.
        app_id: its id as far as known. What is given to ``submit`` counts.
        roles: its roles: one is a job, several are the components of a heterogeneous job.
        sbatch: options of ``sbatch`` for the job as a whole.
        comment: the user's own.
        timeout: seconds from the first start, or None for no limit.
        job_dir: folder for logs, workspace and results, or None for the job's own.
        python: the Python of the nodes.
        prologue: lines of shell that the script runs first, in the workspace of the first role.
        segment: seconds that Slurm gives at a time, or None for all at once.
        checkpoint_base: folder of the checkpoints of all jobs, or None for the folder of the jobs.
    """

    name: str
    app_id: str
    roles: list[RoleRequest]
    sbatch: list[str]
    comment: str
    timeout: float | None
    job_dir: str | None
    python: str
    prologue: str
    segment: float | None = None
    checkpoint_base: str | None = None

    def __str__(self) -> str:
        return format_request(self)


def convert(app: AppDef, opts: SlurmOptions, *, here: bool = True) -> SlurmRequest:
    """Convert a job.

    Args:
        app: its definition.
        opts: the run options.
        here: the cluster's disk is that of this machine. Else paths are the cluster's.

    Raises:
        UnsupportedFeature: for a field that Slurm cannot express, by its path.
        ConfigError: for a run option out of range.
    """
    app.check_runnable()
    if app.segment is not None:
        _check_segment(opts)
    roles = []
    for index, role in enumerate(app.roles):
        roles.append(_role(role, index, opts, app, here=here))
    from transload_slurm.options import JobFlags  # which the helper on a login node has not

    job = flags(opts, JobFlags.table())
    if opts.dependency:
        job.append("--kill-on-invalid-dep=yes")
    job.append("--requeue" if _may_requeue(app, opts) else "--no-requeue")
    if opts.keep_days is not None and not opts.keep_days > 0:
        raise ConfigError(f"run option keep_days={opts.keep_days!r}: must be more than 0")
    folder = None
    if opts.job_dir:
        folder = _folder("job_dir", plain("job_dir", opts.job_dir), here)
    comment = ""
    if opts.comment:
        comment = plain("comment", opts.comment)
    return SlurmRequest(
        name=app.name,
        app_id=_app_id(app),
        roles=roles,
        sbatch=job,
        comment=comment,
        timeout=app.timeout,
        job_dir=folder,
        python=_python(opts, here),
        prologue=prologue(opts.prologue),
        segment=app.segment,
        checkpoint_base=checkpoint_base(opts, here=here),
    )


def _check_segment(opts: SlurmOptions) -> None:
    """Refuse options that cannot go with a job in segments.

    Raises:
        ConfigError: for a limit of time beside the segment's, and for a job that Slurm may not
            start again.
    """
    if opts.time:
        raise ConfigError(
            f"run option time={opts.time}: not with a segment, which is what Slurm is asked for: "
            "leave one of them out"
        )
    if opts.requeue is False:
        raise ConfigError(
            "run option requeue=false: not with a segment: the job goes on only if Slurm may start "
            "it again"
        )


def checkpoint_base(opts: SlurmOptions, *, here: bool) -> str | None:
    """Return the folder of the checkpoints of all jobs, if it is not in the folder of the jobs."""
    base = opts.checkpoint_base
    if not base:
        return None
    return _folder("checkpoint_base", plain("checkpoint_base", base), here)


def _python(opts: SlurmOptions, here: bool) -> str:
    """Return the Python of the nodes as the cluster knows it."""
    python = plain("python", opts.python)
    return os.path.expanduser(python) if here else python


def _folder(name: str, path: str, here: bool) -> str:
    """Return a folder as the cluster knows it.

    A folder elsewhere may begin with the user's home.
    """
    if here:
        return os.path.abspath(os.path.expanduser(path))
    if not path.startswith(("/", "~/")):
        raise ConfigError(
            f"run option {name}={path}: of a cluster behind ssh: must begin with '/' or '~/'"
        )
    return path


def _app_id(app: AppDef) -> str:
    """Return the id that the runner has given to the job, which its replicas see."""
    try:
        return parse_app_handle(app.roles[0].env.get("TRANSLOAD_JOB_ID", "")).app_id
    except MalformedAppHandleException:
        return NO_ID


def _role(
    role: Role,
    index: int,
    opts: SlurmOptions,
    app: AppDef,
    *,
    here: bool,
) -> RoleRequest:
    """Return what is asked for a role.

    Args:
        role: the role.
        index: its number in the job.
        opts: the run options of the job.
        app: the definition of the job.
        here: whether the cluster's disk is that of this machine.
    """
    kind = "none"
    if role.image:
        kind = opts.container
    if role.mounts and kind == "none":
        where = f"roles[{index}].mounts[0]"
        reason = "and the role has no image"
        if role.image:
            reason = "by run option container; else give the program the folder's own path"
        raise UnsupportedFeature(f"{where}: only in a container, {reason}", where)
    binds = binds_of(role.mounts, f"roles[{index}]", kind)
    cwd = None
    if not role.workspace and kind != "none":
        cwd = "/"
    elif not role.workspace:
        cwd = image_root(role, here, opts.working_dir or "")
    root = macros.img_root
    if cwd is not None and here:
        root = cwd
    values = macros.Values(
        img_root=root, app_id=macros.app_id, replica_id=macros.replica_id, rank0_env=RANK0_ENV
    )
    role = values.apply(role)
    from transload_slurm.options import RoleFlags, role_options

    options = role_options(role, index, opts)
    shape = _shape(role, index, options)
    limit = flags(options, RoleFlags.table())
    if app.segment is not None:
        limit.append(f"--time={math.ceil(app.segment / 60)}")
    elif app.timeout is not None and not options.time:
        # No more than was asked for: a partition of 12 hours takes a job of 12 hours. The keeper
        # ends the job to the second, Slurm looks at limits about twice a minute.
        limit.append(f"--time={math.ceil(app.timeout / 60)}")
    step_args = extra("srun_args", options.srun_args)
    job_args = extra("sbatch_args", options.sbatch_args)
    _refuse_replica_id([*job_args, *step_args], index)
    group = [f"--het-group={index}"] if len(app.roles) > 1 else []
    # --mem=0 is all that the job has, which steps that programs start may then have as well
    step = [flag for flag in shape if not flag.startswith(("--gpus", "--mem"))] + ["--mem=0"]
    gpus = [flag for flag in shape if flag.startswith("--gpus")]
    warning: float | None = None
    warning_signal = "TERM"
    if role.notice is not None:
        warning = float(role.notice.seconds)
        warning_signal = role.notice.signal
    checkpoints = None
    if role.checkpoints:
        checkpoints = role.env.get(ENV_CHECKPOINT_DIR)
    environment = ""
    packages = ""
    if role.environment is not None and not role.environment.is_none:
        _refuse_inside(kind, index)
        environment = str(role.environment)
        packages = os.path.dirname(role.env.get(REQUIREMENTS, ""))
    entrypoint = role.entrypoint
    args = role.args
    if role.progress_server:
        _refuse_server_inside(kind, index)
        args = served(entrypoint, [entrypoint, *args])
        entrypoint = opts.python
    always = ("--kill-on-bad-exit=0", "--wait=0", f"--immediate={_STEP_S}", "--export=ALL")
    return RoleRequest(
        name=role.name,
        entrypoint=entrypoint,
        args=args,
        env=role.env,
        cwd=cwd,
        workspace=role.workspace or None,
        num_replicas=role.num_replicas,
        min_replicas=role.min_replicas,
        max_retries=role.max_retries,
        retry_policy=role.retry_policy,
        retry_delay=role.retry_delay,
        secrets=dict(role.secrets),
        sbatch=[*shape, *limit, *job_args],
        srun=[*group, *step, *gpus, *always, f"--job-name={role.name}", *step_args],
        container=kind,
        image=_image(role, here),
        binds=binds,
        gpus=role.resource.gpu > 0,
        max_interruptions=role.interruptions_allowed,
        notice=warning,
        notice_signal=warning_signal,
        checkpoints=checkpoints,
        stall_after=role.stall_after,
        on_stall=role.on_stall,
        stall_signal=role.stall_signal,
        environment=environment,
        packages=packages,
    )


def _refuse_replica_id(words: Sequence[str], index: int) -> None:
    """Refuse the replica's number in options of Slurm, which are those of all replicas."""
    if any(macros.replica_id in word for word in words):
        path = f"roles[{index}].metadata"
        raise UnsupportedFeature(
            f"{path}: {macros.replica_id}: not possible on scheduler 'slurm': its options are the "
            "same for all replicas",
            path,
        )


def _image(role: Role, here: bool) -> str:
    """Return the image as the cluster knows it. One elsewhere may lie in the user's home."""
    return os.path.expanduser(role.image) if here else role.image


def _refuse_inside(kind: str, index: int) -> None:
    """Refuse an environment that would have to be made inside of an image."""
    if kind == "none":
        return
    path = f"roles[{index}].environment"
    raise UnsupportedFeature(
        f"{path}: not possible on scheduler 'slurm' with container={kind}: build an image that has "
        "these packages, and switch this off by --environment none",
        path,
    )


def _refuse_server_inside(kind: str, index: int) -> None:
    """Refuse a server that a container would not reach."""
    if kind == "none":
        return
    path = f"roles[{index}].progress_server"
    raise UnsupportedFeature(
        f"{path}: not possible on scheduler 'slurm' with container={kind}: report by "
        "transload.runtime.progress, or write the file that TRANSLOAD_PROGRESS_FILE names",
        path,
    )


def _may_requeue(app: AppDef, opts: SlurmOptions) -> bool:
    """Tell whether Slurm may start the job again.

    By default it may if a role has retries, or may be interrupted.
    """
    if opts.requeue is None:
        return any(role.max_retries or role.interruptions_allowed for role in app.roles)
    return opts.requeue


def _shape(role: Role, index: int, options: RoleOptions) -> list[str]:
    """Return what a role asks of the nodes. Zero counts as unset, since to Slurm it means "all"."""
    resource = role.resource
    path = f"roles[{index}].resource"
    if resource.devices:
        field = f"{path}.devices"
        raise UnsupportedFeature(
            f"{field}: not possible on scheduler 'slurm': use sbatch_args=--gres=…", field
        )
    if resource.cpu > 0 and not float(resource.cpu).is_integer():
        field = f"{path}.cpu"
        raise UnsupportedFeature(
            f"{field}={resource.cpu}: not possible on scheduler 'slurm': CPUs are whole", field
        )
    cpus = max(1, int(resource.cpu))
    shape = [f"--ntasks={role.num_replicas}", f"--cpus-per-task={cpus}"]
    if resource.memMB > 0:
        shape.append(f"--mem-per-cpu={math.ceil(resource.memMB / cpus)}M")
    if resource.gpu > 0:
        gpus = str(resource.gpu)
        if options.gpu_type:
            gpus = f"{plain('gpu_type', options.gpu_type)}:{gpus}"
        shape.append(f"--gpus-per-task={gpus}")
    return shape


def image_root(role: Role, here: bool, working_dir: str = "") -> str:
    """Return the working directory of a role without a workspace, and its ``${img_root}``.

    That is its image, if it is an existing folder or an absolute path, else the directory given.
    Without one it is the current directory, or on another machine the user's home.
    """
    if here:
        image = os.path.expanduser(role.image)
        if image.startswith("/") or (image and os.path.isdir(image)):
            return os.path.abspath(image)
    elif role.image.startswith(("/", "~/")):
        return role.image
    if working_dir:
        return _folder("working_dir", working_dir, here)
    return os.getcwd() if here else "~"


def with_roots(request: SlurmRequest, folders: Mapping[int, str]) -> SlurmRequest:
    """Return a request with ``${img_root}`` replaced, now that the copies of workspaces are known.

    Args:
        request: the request.
        folders: number of a role → its copy of a workspace.
    """
    roles = []
    for index, role in enumerate(request.roles):
        root = folders.get(index, role.cwd) or ""
        values = macros.Values(root, macros.app_id, macros.replica_id, macros.rank0_env)
        roles.append(
            replace(
                role,
                args=[values.substitute(arg) for arg in role.args],
                env={name: values.substitute(value) for name, value in role.env.items()},
                sbatch=[values.substitute(flag) for flag in role.sbatch],
                srun=[values.substitute(flag) for flag in role.srun],
            )
        )
    return replace(request, roles=roles)


def comment_of(app_id: str, token: str) -> str:
    """Return how the comment of a submit's job begins, which no other job has."""
    return f"{COMMENT}{app_id} {token}"


def script(request: SlurmRequest, app_id: str, folder: str, token: str, workspace: str = "") -> str:
    """Return the batch script.

    Args:
        request: the request.
        app_id: the app.
        folder: the job's folder.
        token: tells this submit from an earlier one of the same app.
        workspace: where the first role runs, if that is a copy of a workspace.
    """
    comment = comment_of(app_id, token)
    if request.comment:
        comment += f" {request.comment}"
    output = f"{folder}/batch.log".replace("%", "\\%")
    # "%j" is Slurm's job id, but not behind a backslash. Newer releases cannot be given a backslash
    # that is meant.
    has_backslash = "\\" in folder
    if has_backslash:
        output = "/dev/null"
    head = [
        f"--job-name={app_id}",
        f"--comment={comment}",
        f"--output={output}",
        "--open-mode=append",
    ]
    head += ["--export=ALL", *request.sbatch]
    lines = ["#!/bin/sh", *map(_directive, head)]
    for index, role in enumerate(request.roles):
        if index:
            lines.append("#SBATCH hetjob")
        lines.append(f"# role {role.name}")
        lines += map(_directive, role.sbatch)
    lines.append("")
    for role in request.roles:
        command = shown_command(role.entrypoint, role.args)
        command = command.replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"# role {role.name}, {role.num_replicas} replica(s): {command}")
        lines.append(
            f"#   logs in logs/{role.name}/<replica>/{{stdout,stderr}}.log of the folder below"
        )
    job = shlex.quote(f"{folder}/job/__main__.py")
    python = shlex.quote(request.python)
    enter = f"cd {shlex.quote(folder)} || exit 79  # the job was deleted, or its submit withdrawn"
    remedy = "name another: -c python=PATH"
    missing = f"""echo "transload: no "{python}" on $(hostname); {remedy}" >&2; exit 127"""
    start_keeper = [
        f"command -v {python} >/dev/null || {{ {missing}; }}",
        enter,
        f"exec {python} -I -S {job} keeper {shlex.quote(folder)} {token}",
    ]
    if has_backslash:
        lines.append(f"exec >>{shlex.quote(folder)}/batch.log 2>&1")
    if request.prologue:
        lines += [enter, *_prologue(request, folder, workspace, start_keeper)]
    else:
        lines += start_keeper
    return "\n".join([*lines, ""])


def _prologue(
    request: SlurmRequest, folder: str, workspace: str, start_keeper: Sequence[str]
) -> list[str]:
    """Return the lines that run the prologue, and then the keeper.

    The keeper gets the exit code of a prologue that failed. The prologue runs in the shell that
    becomes the keeper, so that its exports count. Its output goes to the log of the first
    replica.
    """
    first = request.roles[0]
    logs = shlex.quote(f"{folder}/logs/{first.name}/0")
    where = workspace
    if not where and first.container == "none":
        where = first.cwd or ""
    where = where or folder
    place = shlex.quote(where)
    if where.partition("/")[0] == "~":
        place = f'"$HOME"/{shlex.quote(where.partition("/")[2])}'
    return [
        "transload_start() {",
        "exec >&8 2>&9 8>&- 9>&-",
        "trap - EXIT TERM",
        "set +e",
        *start_keeper[:-1],
        f'{start_keeper[-1]} "$@"',
        "}",
        # a job that Slurm starts again may have left a FIFO there, which nobody reads
        f"(umask 077; mkdir -p {logs}; for log in {logs}/stdout.log {logs}/stderr.log; do",
        '[ -f "$log" ] && [ ! -L "$log" ] || rm -rf "$log"; : >>"$log"; done)',
        f"exec 8>&1 9>&2 >>{logs}/stdout.log 2>>{logs}/stderr.log",
        "trap 'exit 143' TERM",  # Slurm ends the job, and says why
        "trap 'case $? in 0) transload_start;; 143) exit 143;; *) transload_start $?;; esac' EXIT",
        "set -e",
        f"cd {place}",
        "# prologue",
        request.prologue,
        "# end of the prologue",
        "transload_start",
    ]


def _directive(flag: str) -> str:
    """Return a line for ``sbatch``, which takes quotes in the manner of a shell."""
    name, equals, value = flag.partition("=")
    if equals and not all(c.isalnum() or c in "-_.,:/+@%=[]" for c in value):
        value = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"#SBATCH {name}{equals}{value}"


def plan(
    request: SlurmRequest, app_id: str, folders: Mapping[int, str], own: Sequence[str] = ()
) -> dict[str, Any]:
    """Return ``plan.json``, which the keeper in the job reads.

    Args:
        request: the request.
        app_id: the app.
        folders: number of a role → its copy of a workspace.
        own: the job's folders, which are in every container.
    """
    roles = [
        {
            "name": role.name,
            "entrypoint": role.entrypoint,
            "args": role.args,
            "env": role.env,
            "cwd": folders.get(index, role.cwd),
            "num_replicas": role.num_replicas,
            "min_replicas": role.min_replicas,
            "max_retries": role.max_retries,
            "retry_policy": role.retry_policy.value,
            "retry_delay": role.retry_delay,
            "max_interruptions": role.max_interruptions,
            "notice": role.notice,
            "notice_signal": role.notice_signal,
            "checkpoints": role.checkpoints,
            "stall_after": role.stall_after,
            "on_stall": role.on_stall,
            "stall_signal": role.stall_signal,
            "secrets": list(role.secrets),
            "srun": [*role.srun, *step_flags(*_inside(role, folders.get(index, role.cwd), own))],
            "container": command(*_inside(role, folders.get(index, role.cwd), own), role.gpus),
        }
        for index, role in enumerate(request.roles)
    ]
    return {
        "schema": 1,
        "app_id": app_id,
        "python": request.python,
        "timeout": request.timeout,
        "segment": request.segment,
        "grace": _GRACE_S,
        "roles": roles,
    }


def _inside(
    role: RoleRequest, cwd: str | None, own: Sequence[str]
) -> tuple[str, str, list[Bind], str]:
    """Return kind, image, binds and working directory of a role's container."""
    inside = [*own]
    if role.checkpoints:
        inside.append(role.checkpoints)
    return (
        role.container,
        role.image,
        [*((folder, folder, False) for folder in inside), *role.binds],
        cwd or "/",
    )


def format_request(request: SlurmRequest, root: str = "") -> str:
    """Return a request as text, with the batch script and what each role runs.

    Secrets are masked.
    """
    if not root:
        from transload_slurm.store import root_folder

        root = root_folder()
    own = layout.app_folder(root, request.app_id)
    folder = own
    if request.job_dir:
        folder = f"{request.job_dir}/{request.app_id}"
    workspace = ""
    if request.roles[0].workspace:
        workspace = f"{folder}/workspace/0"
    lines = [script(request, request.app_id, own, "<token>", workspace)]
    for role in request.roles:
        lines.append(
            f"role {role.name}: {role.num_replicas} replica(s) in "
            f"{role.cwd or f'{folder}/workspace'}"
        )
        if role.max_retries:
            lines.append(f"  retries: {role.max_retries} by {role.retry_policy.value}")
        if role.max_interruptions:
            lines.append(f"  interruptions: {role.max_interruptions}")
        if role.notice is not None:
            lines.append(f"  notice: {role.notice_signal}, {role.notice:g} s before the end")
        if role.checkpoints:
            lines.append(f"  checkpoints in {role.checkpoints}")
        if role.min_replicas is not None:
            lines.append(f"  min_replicas: {role.min_replicas}")
        if role.workspace:
            lines.append(f"  workspace: {role.workspace}")
        if role.environment:
            lines.append(f"  environment: {role.environment}")
        if role.container != "none":
            lines.append(f"  in {role.container}, image {role.image}")
            lines += [f"  mount {source} at {target}" for source, target, _ in role.binds]
        lines += [f"  secret {name} from {source}" for name, source in role.secrets.items()]
        lines.append(f"  {shown_command(role.entrypoint, role.args)}")
        lines += [
            f"      {name}={shlex.quote(value)}" for name, value in masked_env(role.env).items()
        ]
    if request.timeout is not None:
        lines.append(f"timeout: {request.timeout:g} s")
    if request.segment is not None:
        lines.append(f"segment: {request.segment:g} s")
    return "\n".join(lines)


def prologue(value: str | None) -> str:
    """Return the lines of ``prologue``, as they stand in the script.

    Raises:
        ConfigError: if they hold control characters other than line ends and tabs.
    """
    text = (value or "").replace("\r\n", "\n")
    if _CONTROL.search(text.replace("\n", "").replace("\t", "")):
        raise ConfigError(f"run option prologue={text!r}: must be printable text")
    return text.strip("\n")


def flags(options: RunOptions, names: Iterable[str]) -> list[str]:
    """Return the flags of ``sbatch`` for those of some options that are set.

    Raises:
        ConfigError: for a value that Slurm could not have.
    """
    found = []
    for name in names:
        value = getattr(options, name)
        if value is None or value is False:
            continue
        if name == "time" and not _TIME.match(value):
            raise ConfigError(
                f"run option time={value!r}: must be minutes, hours:minutes:seconds or days-hours"
            )
        flag = f"--{name.replace('_', '-')}"
        found.append(flag if value is True else f"{flag}={plain(name, str(value))}")
    return found


def plain(name: str, value: str) -> str:
    """Return ``value`` if it may stand in a line of the script.

    Raises:
        ConfigError: if it is empty or holds control characters.
    """
    if not value or _CONTROL.search(value):
        raise ConfigError(f"run option {name}={value!r}: must be printable text of one line")
    return value


def extra(name: str, values: Iterable[str]) -> list[str]:
    """Return the words of ``sbatch_args`` or ``srun_args`` for a role.

    Raises:
        ConfigError: for a word that is no option, or one that is set by this plugin itself.
    """
    words = [plain(name, word) for word in values]
    for word in words:
        if not word.startswith("-"):
            raise ConfigError(
                f"run option {name}: {word!r}: must be an option in one word, for example "
                "--hint=nomultithread"
            )
    refuse_own(name, words)
    return words
