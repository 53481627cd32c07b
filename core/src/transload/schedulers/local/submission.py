"""What the keeper of an app is told when the app is submitted, found out in the submitter's process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from transload.errors import UnsupportedFeature
from transload.schedulers.api import Submission
from transload.schedulers.local import entrypoint, environment
from transload.schedulers.local.convert import LocalRequest, RoleRequest
from transload.schedulers.local.supervisor import kernel, layout
from transload.specs import SpecError

ENV_GPUS: Final = "TRANSLOAD_LOCAL_GPUS"
"""How many GPUs this machine has (``4``), or which (``0,2``); default: the device files of NVIDIA's driver."""


def submission_body(request: LocalRequest, app_id: str, submission: Submission, folder: str) -> dict[str, Any]:
    """Return all that the keeper of an app needs to know, as JSON values.

    It goes through a socket, never to the disk, but for its ``record``.

    Args:
        request: the native request.
        app_id: the app.
        submission: what goes with it.
        folder: the app's folder.

    Raises:
        SpecError: if a role's program cannot be run.
        UnsupportedFeature: if the machine has too few GPUs.
    """
    base = environment.inherited(os.environb, submission.inherit_env)
    machine = _gpus(request)
    roles = [_role(role, base, submission.secrets.get(role.name, {})) for role in request.roles]
    return {
        "record": _record(request, app_id, submission, folder),
        "env": base,
        "roles": roles,
        "grace": request.grace_period,
        "timeout": request.timeout,
        "max_log": request.max_log_bytes,
        "log_dir": request.log_dir,
        "gpus": machine,
        **environment.limits(),
    }


def _role(role: RoleRequest, base: Mapping[str, str], values: Mapping[str, str]) -> dict[str, Any]:
    missing = [name for name in role.secrets if name not in values]
    if missing:
        raise SpecError(f"role {role.name!r}: the secrets {missing} were not resolved")
    replicas: list[dict[str, Any]] = [{"args": r.args, "env": dict(r.env)} for r in role.replicas]
    paths: dict[str, str] = {}
    exe = ""
    for replica in replicas:
        path = replica["env"].get("PATH", base.get("PATH", os.defpath))
        if role.prepend_cwd:
            path = replica["env"]["PATH"] = f"{role.cwd}{os.pathsep}{path}"
        if path not in paths:
            paths[path] = entrypoint.resolve(role, {"PATH": path})
        exe = exe or paths[path]
    return {
        "name": role.name,
        "exe": exe,
        "argv0": role.entrypoint,
        "cwd": role.cwd,
        "min_replicas": role.min_replicas,
        "max_retries": role.max_retries,
        "retry_policy": role.retry_policy.value,
        "retry_delay": role.retry_delay,
        "gpu": role.gpu,
        "secrets": dict(values),
        "num_replicas": len(replicas),
        "replicas": replicas,
    }


def _record(request: LocalRequest, app_id: str, submission: Submission, folder: str) -> dict[str, Any]:
    logs = f"{request.log_dir}/{app_id}" if request.log_dir else f"{folder}/logs"
    return {
        "schema": layout.SCHEMA,
        "app_id": app_id,
        "session": submission.session,
        "app": json.loads(submission.app.masked().to_json()),
        "cfg": dict(submission.cfg),
        "digest": submission.digest,
        "tracker_base": submission.tracker_base,
        "created": layout.now(),
        "boot_id": kernel.boot_id(),
        "id_given": submission.id_given,
        "cookie": os.urandom(16).hex(),
        "token": os.urandom(8).hex(),
        "logs": logs,
        "workspaces": request.workspaces,
    }


def _gpus(request: LocalRequest) -> list[str] | None:
    """Return the machine's GPUs, None if none are to be assigned."""
    if not request.assign_gpus:
        return None
    machine = machine_gpus()
    wanted = sum(role.gpu * len(role.replicas) for role in request.roles)
    if wanted > len(machine):
        role = next(role for role in request.roles if role.gpu)
        path = f"roles[{role.index}].resource.gpu"
        raise UnsupportedFeature(
            f"{path}={role.gpu}: the app wants {wanted} GPUs in all, this machine has {len(machine)}"
            f" ({ENV_GPUS} sets another number)",
            path,
        )
    return machine


def machine_gpus() -> list[str]:
    """Return the ids of this machine's GPUs (see `ENV_GPUS`).

    Raises:
        SpecError: if `ENV_GPUS` is neither a number nor a list of ids.
    """
    text = os.environ.get(ENV_GPUS)
    if text is None:
        found = [name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()]
        return [str(i) for i in range(len(found))]
    ids = [part.strip() for part in text.split(",") if part.strip()]
    if "," not in text:
        if not text.strip().isdigit():
            raise SpecError(f"{ENV_GPUS}={text!r}: must be a number of GPUs or a list of their ids")
        ids = [str(i) for i in range(int(text))]
    return ids
