"""AppDef → what the supervisor is asked to run. Pure: no file is written, no process started."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from transload.errors import UnsupportedFeature
from transload.schedulers.api import Capabilities, Stream, refuse_unsupported
from transload.specs import AppDef, CfgVal, RetryPolicy, Role, SpecError, masked_args, masked_env
from transload.specs.macro_values import substitute

CAPABILITIES: Final = Capabilities(
    inherits_env=True,
    retries=frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION}),
    mounts=frozenset(),
    ports=True,
    since_until=True,
    streams=frozenset({Stream.STDOUT, Stream.STDERR}),
    delete=True,
    reachable_from="host",
)
"""Ports are the host's own: a replica that listens on one is reached there."""

RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"


class RoleRequest(NamedTuple):
    """One role."""

    role: Role
    cwd: str
    replicas: list[
        tuple[list[str], dict[str, str]]
    ]  # arguments and environment of each, macros replaced


class LocalRequest(NamedTuple):
    """A request to the local scheduler."""

    name: str
    roles: list[RoleRequest]
    timeout: float | None  # seconds for the whole app
    grace_period: float  # seconds between SIGTERM and SIGKILL
    max_log_bytes: int  # of each stream of a replica; 0: no limit
    log_dir: str | None  # None: the app's own folder
    assign_gpus: bool
    prepend_cwd: bool  # the working directory comes first on PATH
    workspaces: list[str]  # copies that this app alone uses

    def __str__(self) -> str:
        return format_request(self)


def convert(
    app: AppDef, cfg: Mapping[str, CfgVal], *, always_cwd: bool, copies: str
) -> LocalRequest:
    """Convert an app, to run where the image says or (``always_cwd``) not; copies of workspaces lie
    below ``copies``.

    Raises:
        UnsupportedFeature: for a field that a local process cannot have.
        SpecError: for a run option out of range.
    """
    app.check_runnable()
    refuse_unsupported(app, CAPABILITIES, "local_cwd" if always_cwd else "local")
    for index, role in enumerate(app.roles):
        if role.retry_policy is RetryPolicy.HOT_SPARE:
            path = f"roles[{index}].retry_policy"
            reason = "not possible on scheduler 'local': it has no spare machines"
            raise UnsupportedFeature(f"{path}=HOT_SPARE: {reason}", path)
    log_dir = cfg.get("log_dir")
    return LocalRequest(
        name=app.name,
        roles=[
            _role(role, image_root(role, always_cwd, copies, cfg.get("working_dir")))
            for role in app.roles
        ],
        timeout=app.timeout,
        grace_period=_not_negative(cfg, "grace_period"),
        max_log_bytes=int(_not_negative(cfg, "max_log_size") * 1_000_000),
        log_dir=os.path.abspath(os.path.expanduser(str(log_dir))) if log_dir else None,
        assign_gpus=bool(cfg.get("auto_set_cuda_visible_devices"))
        and any(role.resource.gpu > 0 for role in app.roles),
        prepend_cwd=bool(cfg.get("prepend_cwd")),
        # an image may lie in the copy of another app: only what was copied for a workspace of this
        # one is its own
        workspaces=sorted(
            {
                role.image
                for role in app.roles
                if role.workspace and role.image.startswith(f"{copies}/")
            }
        ),
    )


def _not_negative(cfg: Mapping[str, CfgVal], name: str) -> float:
    value = cfg.get(name) or 0.0
    if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise SpecError(f"run option {name}={value!r}: must be 0 or more")
    return float(value)


def _role(role: Role, cwd: str) -> RoleRequest:
    replicas = []
    for k in range(role.num_replicas):
        values = {"img_root": cwd, "replica_id": str(k), "rank0_env": RANK0_ENV}
        env = {name: substitute(value, values) for name, value in role.env.items()}
        replicas.append(([substitute(arg, values) for arg in role.args], env))
    return RoleRequest(role, cwd, replicas)


def image_root(role: Role, always_cwd: bool, copies: str, working_dir: CfgVal = None) -> str:
    """Return the working directory of a role, which is also its ``${img_root}``.

    A copied workspace, else an image that is an existing folder (``local``), else the one given, or
    the current one.
    """
    if role.workspace:
        if role.image.startswith(f"{copies}/"):
            return role.image
        from transload.workspace import workspace_digest

        return f"{copies}/<copy of workspace {workspace_digest(role.workspace)}>"
    image = os.path.abspath(os.path.expanduser(role.image)) if role.image else ""
    if not always_cwd and image and os.path.isdir(image):
        return image
    return os.path.abspath(os.path.expanduser(str(working_dir))) if working_dir else os.getcwd()


def format_request(request: LocalRequest) -> str:
    """Return a request as text for a person: commands, environment (secrets masked), options."""
    lines = [f"app: {request.name}"]
    for each in request.roles:
        role = each.role
        lines.append(f"role {role.name}: {len(each.replicas)} replica(s) in {each.cwd}")
        if role.max_retries:
            lines.append(f"  retries: {role.max_retries} by {role.retry_policy.value}")
        if role.min_replicas is not None:
            lines.append(f"  min_replicas: {role.min_replicas}")
        lines += [f"  secret {name} from {source}" for name, source in role.secrets.items()]
        for k, (args, env) in enumerate(each.replicas):
            if not k or (args, env) != each.replicas[0]:
                lines.append(f"  [{k}] {shlex.join([role.entrypoint, *masked_args(args)])}")
                lines += [
                    f"      {name}={shlex.quote(value)}" for name, value in masked_env(env).items()
                ]
    if request.timeout is not None:
        lines.append(f"timeout: {request.timeout:g} s")
    if request.log_dir is not None:
        lines.append(f"log_dir: {request.log_dir}")
    lines.append(f"grace_period: {request.grace_period:g} s")
    return "\n".join(lines)
