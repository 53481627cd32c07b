"""Convert an `AppDef` to the request that the keeper gets.

`convert` is pure, so it writes no file and starts no process. `submission_body` adds what only the
submitter's process and machine know: programs, environment, limits, GPUs.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from transload.errors import UnsupportedFeature
from transload.keeper import gpus, layout
from transload.schedulers.api import Submission
from transload.schedulers.folder.home import local_home
from transload.schedulers.folder.request import record_of, rules_of
from transload.specs import AppDef, Role, SpecError, looks_secret, masked_env
from transload.specs.job_variables import of_other_jobs
from transload.specs.macro_values import substitute
from transload.specs.own_programs import shown_command

if TYPE_CHECKING:
    from transload.schedulers.local.options import LocalOptions

__all__ = ["gpu_table", "inherited", "machine_gpus", "refuse_windows_script"]


RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"

ENV_GPUS: Final = "TRANSLOAD_LOCAL_GPUS"
"""The variable with the number of GPUs of this machine (``4``), or their ids (``0,2``).

By default the device files of NVIDIA's driver are counted.
"""


_ALLOWED_NAMES: Final = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TEMP TMP
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV LD_LIBRARY_PATH DYLD_LIBRARY_PATH
    XDG_RUNTIME_DIR XDG_CACHE_HOME SSL_CERT_FILE SSL_CERT_DIR OMP_NUM_THREADS
    TRANSLOAD_HOME PYTHONHASHSEED PYTHONUNBUFFERED
"""
_ALLOWED: Final = frozenset(_ALLOWED_NAMES.split())
"""Variables that every job gets.

Others are passed on only if their names begin as `_ALLOWED_PREFIXES` say.
"""

_ALLOWED_PREFIXES: Final = ("LC_", "CUDA", "NVIDIA_", "ROCR_", "HIP_", "NCCL_", "GLOO_")


class RoleRequest(NamedTuple):
    """One role."""

    role: Role
    cwd: str
    # arguments and environment of each, macros replaced
    replicas: list[tuple[list[str], dict[str, str]]]


class LocalRequest(NamedTuple):
    """A request to the local scheduler."""

    name: str
    roles: list[RoleRequest]
    timeout: float | None  # seconds for the whole job
    segment: float | None  # seconds that it may run at a time
    max_log_bytes: int  # of each stream of a replica, 0 for no limit
    log_dir: str | None  # None for the job's own folder
    assign_gpus: bool
    prepend_cwd: bool  # the working directory comes first on PATH
    workspaces: list[str]  # copies that this job alone uses

    def __str__(self) -> str:
        return format_request(self)


def convert(app: AppDef, opts: LocalOptions, *, always_cwd: bool, copies: str) -> LocalRequest:
    """Convert a job, to run where the image says or (``always_cwd``) not.

    Copies of workspaces lie below ``copies``.

    Raises:
        UnsupportedFeature: for a field that a local process cannot have.
        SpecError: for a run option out of range.
    """
    app.check_runnable()
    wants_gpus = any(role.resource.gpu > 0 for role in app.roles)
    # an image may also lie in another job's copy, so only copies for its own workspaces count
    copied = {role.image for role in app.roles if role.workspace}
    return LocalRequest(
        name=app.name,
        roles=[
            _role(role, image_root(role, always_cwd, copies, opts.working_dir))
            for role in app.roles
        ],
        timeout=app.timeout,
        segment=app.segment,
        max_log_bytes=int(opts.max_log_size * 1_000_000),
        log_dir=_absolute(opts.log_dir),
        assign_gpus=wants_gpus and opts.auto_set_cuda_visible_devices,
        prepend_cwd=opts.prepend_cwd,
        workspaces=sorted(image for image in copied if image.startswith(f"{copies}/")),
    )


def _absolute(path: str | None) -> str | None:
    """Return an absolute path, with ``~`` replaced, or None for none."""
    if not path:
        return None
    return os.path.abspath(os.path.expanduser(path))


def _role(role: Role, cwd: str) -> RoleRequest:
    replicas = []
    for k in range(role.num_replicas):
        values = {"img_root": cwd, "replica_id": str(k), "rank0_env": RANK0_ENV}
        env = {name: substitute(value, values) for name, value in role.env.items()}
        replicas.append(([substitute(arg, values) for arg in role.args], env))
    return RoleRequest(role, cwd, replicas)


def image_root(role: Role, always_cwd: bool, copies: str, working_dir: str | None = None) -> str:
    """Return the working directory of a role, which is also its ``${img_root}``.

    A copied workspace, else an image that is an existing folder (``local``), else the one given, or
    the current one.
    """
    if role.workspace:
        if role.image.startswith(f"{copies}/"):
            return role.image
        from transload.workspace import workspace_digest

        return f"{copies}/<copy of workspace {workspace_digest(role.workspace)}>"
    image = _absolute(role.image)
    if not always_cwd and image is not None and os.path.isdir(image):
        return image
    return _absolute(working_dir) or os.getcwd()


def format_request(request: LocalRequest) -> str:
    """Return a request as text for a person.

    It has commands, environment (secrets masked) and options.
    """
    lines = [f"job: {request.name}"]
    for each in request.roles:
        role = each.role
        lines.append(f"role {role.name}: {len(each.replicas)} replica(s) in {each.cwd}")
        if role.max_retries:
            lines.append(f"  retries: {role.max_retries} by {role.retry_policy.value}")
        lines += _endings(role)
        if role.min_replicas is not None:
            lines.append(f"  min_replicas: {role.min_replicas}")
        if role.environment is not None:
            lines.append(f"  environment: {role.environment}")
        lines += [f"  secret {name} from {source}" for name, source in role.secrets.items()]
        for k, (args, env) in enumerate(each.replicas):
            if not k or (args, env) != each.replicas[0]:
                lines.append(f"  [{k}] {shown_command(role.entrypoint, args)}")
                lines += [
                    f"      {name}={shlex.quote(value)}" for name, value in masked_env(env).items()
                ]
    if request.timeout is not None:
        lines.append(f"timeout: {request.timeout:g} s")
    if request.log_dir is not None:
        lines.append(f"log_dir: {request.log_dir}")
    if request.max_log_bytes:
        lines.append(f"max_log_size: {request.max_log_bytes / 1_000_000:g} MB")
    if request.segment is not None:
        lines.append(f"segment: {request.segment:g} s")
    return "\n".join(lines)


def _endings(role: Role) -> list[str]:
    """Return what a role says of notices, interruptions and stalls, as lines for a person."""
    lines = []
    if role.notice is not None:
        lines.append(f"  notice: SIG{role.notice.signal}, {role.notice.seconds:g} s before the end")
    if role.interruptions_allowed:
        lines.append(f"  max_interruptions: {role.interruptions_allowed}")
    if role.stall_after is not None:
        lines.append(f"  stall_after: {role.stall_after:g} s ({role.on_stall})")
    return lines


# -------------------------------------------------------------------------------------------------
# what is found out as the job is submitted


def submission_body(
    request: LocalRequest, app_id: str, submission: Submission, folder: str
) -> dict[str, Any]:
    """Return all that the keeper of a job needs to know, as JSON values.

    It goes through a pipe, never to the disk, but for its ``record``.

    Raises:
        SpecError: if a role's program cannot be run.
        UnsupportedFeature: if the machine has too few GPUs.
    """
    base = inherited(os.environb, submission.inherit_env)
    machine = _gpus(request)
    secrets = submission.secrets
    roles = [
        _role_body(request, index, base, secrets.get(each.role.name, {}))
        for index, each in enumerate(request.roles)
    ]
    return {
        "record": _record(request, app_id, submission, folder),
        "env": base,
        "roles": roles,
        "timeout": request.timeout,
        "segment": request.segment,
        "max_log": request.max_log_bytes,
        "log_dir": request.log_dir,
        "gpus": machine,
    }


def _role_body(
    request: LocalRequest, index: int, base: Mapping[str, str], values: Mapping[str, str]
) -> dict[str, Any]:
    each = request.roles[index]
    role = each.role
    missing = [name for name in role.secrets if name not in values]
    if missing:
        raise SpecError(f"role {role.name!r}: the secrets {missing} were not resolved")
    replicas: list[dict[str, Any]] = [
        {"args": args, "env": dict(env)} for args, env in each.replicas
    ]
    paths: dict[str, str] = {}
    for replica in replicas:
        path = replica["env"].get("PATH", base.get("PATH", os.defpath))
        if request.prepend_cwd:
            path = replica["env"]["PATH"] = f"{each.cwd}{os.pathsep}{path}"
        if path not in paths:
            paths[path] = _find_program(role, index, each.cwd, path)
    count = 0
    if request.assign_gpus:
        count = max(0, role.resource.gpu)
    exe = next(iter(paths.values()), "")
    argv0 = role.entrypoint
    if role.progress_server:
        from transload.runtime.progress_server import served  # few jobs ask for it, it imports HTTP

        for replica in replicas:
            replica["args"] = served(exe, [argv0, *replica["args"]])
        exe = sys.executable
        argv0 = sys.executable
    return {
        **rules_of(role),
        "exe": exe,
        "argv0": argv0,
        "cwd": each.cwd,
        "gpu": count,
        "secrets": dict(values),
        "replicas": replicas,
    }


def _find_program(role: Role, index: int, cwd: str, search: str) -> str:
    """Return the absolute path of a role's program.

    It is found as ``execvpe`` finds it from the role's working directory.

    Raises:
        SpecError: if the working directory or the program is not there or cannot be used. It names
            role and file.
    """
    where = f"role {role.name!r}: roles[{index}].entrypoint={role.entrypoint!r}"
    if not os.path.isdir(cwd):
        raise SpecError(f"role {role.name!r}: the working directory {cwd!r} does not exist")
    if "/" in role.entrypoint:
        path = os.path.join(cwd, role.entrypoint)
        _check_program(path, where)
        return path
    names = [role.entrypoint, "python3"] if role.entrypoint == "python" else [role.entrypoint]
    tried = search.split(os.pathsep)
    paths = [os.path.join(cwd, folder, name) for name in names for folder in tried]
    for path in paths:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            _check_interpreter(path, where)
            return path
    if unfit := next(filter(os.path.isfile, paths), None):
        raise SpecError(f"{where}: {unfit} is not executable")
    message = f"{where}: no such program on PATH ({os.pathsep.join(tried)})"
    if os.path.isfile(os.path.join(cwd, role.entrypoint)):
        message = f"{message}; to run the file: {_spelled_as_program(role.entrypoint)}"
    raise SpecError(message)


def _spelled_as_program(file: str) -> str:
    """Return the beginning of a command line that runs a file of the working directory."""
    interpreter = {".py": "python ", ".sh": "bash ", ".sbatch": "bash "}
    return interpreter.get(os.path.splitext(file)[1], "./") + file


def _check_program(path: str, where: str) -> None:
    if os.path.isdir(path):
        raise SpecError(f"{where}: {path} is a folder, not a program")
    if not os.path.exists(path):
        raise SpecError(f"{where}: no such file: {path}")
    if not os.access(path, os.X_OK):
        raise SpecError(f"{where}: {path} is not executable")
    _check_interpreter(path, where)


def refuse_windows_script(path: str, where: str) -> None:
    """Refuse a script that starts a program by a first line with the end of Windows.

    The kernel and ``env`` take the carriage return for a part of the program's name.

    Args:
        path: path of the script. One that cannot be read is accepted.
        where: where it is named, for the message.

    Raises:
        SpecError: with what to type.
    """
    first = _first_line(path)
    if first.startswith(b"#!") and first.endswith(b"\r"):
        raise SpecError(
            f"{where}: the lines of {path} end as on Windows, so no program has the name in its "
            f"first line: `sed -i 's/\\r$//' {shlex.quote(path)}` changes them"
        )


def _first_line(path: str) -> bytes:
    """Return the first line of a program, or nothing if it may be executed, but not read."""
    return layout.part_of(path, 256).split(b"\n", 1)[0]


def _check_interpreter(path: str, where: str) -> None:
    """Refuse a script whose first line names, by an absolute path, a program that is not there."""
    refuse_windows_script(path, where)
    first = _first_line(path)
    words = first[2:].split()
    if not first.startswith(b"#!") or not words:
        return
    name = os.fsdecode(words[0])
    if name.startswith("/") and not os.path.exists(name):
        raise SpecError(f"{where}: {path} wants the interpreter {name}, which does not exist")


def _record(
    request: LocalRequest, app_id: str, submission: Submission, folder: str
) -> dict[str, Any]:
    logs = f"{folder}/logs"
    if request.log_dir:
        logs = f"{request.log_dir}/{app_id}"
    more: dict[str, object] = {}
    if request.assign_gpus:
        more["gpus"] = gpu_table()
    return record_of(
        app_id,
        submission,
        logs,
        cookie=os.urandom(16).hex(),
        workspaces=request.workspaces,
        **more,
    )


def _gpus(request: LocalRequest) -> list[str] | None:
    """Return the machine's GPUs, None if none are to be assigned."""
    if not request.assign_gpus:
        return None
    machine = machine_gpus()
    counts = [max(0, each.role.resource.gpu) for each in request.roles]
    wanted = sum(
        count * len(each.replicas) for count, each in zip(counts, request.roles, strict=True)
    )
    if wanted > len(machine):
        index, count = next((index, count) for index, count in enumerate(counts) if count)
        path = f"roles[{index}].resource.gpu"
        raise UnsupportedFeature(
            f"{path}={count}: the job wants {wanted} GPUs in all, this machine has {len(machine)}"
            f" ({ENV_GPUS} sets another number; auto_set_cuda_visible_devices=False assigns none)",
            path,
        )
    return machine


def gpu_table() -> str:
    """Return the folder of the table of this machine's GPUs, one for all schedulers of the user."""
    return local_home("gpus")


def machine_gpus() -> list[str]:
    """Return the ids of this machine's GPUs.

    They are those that `ENV_GPUS` names, else those that the submitter may use, else all.

    Raises:
        SpecError: if `ENV_GPUS` is neither a number nor a list of ids.
    """
    text = os.environ.get(ENV_GPUS) or None
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    # in a job they are the job's own
    if text is None and allowed and "TRANSLOAD_APP_ID" not in os.environ:
        return list(dict.fromkeys(each.strip() for each in allowed.split(",")))
    if text is None:
        found = [
            name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()
        ]
        return [str(i) for i in range(len(found or gpus.amd_gpus()))]
    ids = [part.strip() for part in text.split(",") if part.strip()]
    if "," not in text:
        if not (text.isascii() and text.strip().isdigit()):
            raise SpecError(f"{ENV_GPUS}={text!r}: must be a number of GPUs or a list of their ids")
        ids = [str(i) for i in range(int(text))]
    return list(dict.fromkeys(ids))  # each once


def inherited(environ: Mapping[bytes, bytes], everything: bool) -> dict[str, str]:
    """Return what a job gets of the submitter's environment.

    This is everything, or what an allow-list names. Where the submitter is a job itself, what is
    that job's alone is left out.
    """
    values = {_text(name): _text(value) for name, value in environ.items()}
    own = of_other_jobs(values)
    return {
        name: value
        for name, value in values.items()
        if name not in own and (everything or _is_allowed(name))
    }


def _is_allowed(name: str) -> bool:
    """Tell whether every job gets a variable."""
    if name.startswith("UV_"):
        return not looks_secret(name)
    return name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
