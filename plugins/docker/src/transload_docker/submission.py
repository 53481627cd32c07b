"""What a keeper is asked for: the bodies of all containers, and the record of the job."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from transload.errors import UnsupportedFeature
from transload.keeper import layout
from transload.schedulers.api import Submission
from transload.schedulers.asked import asked_words
from transload.schedulers.folder.request import record_of
from transload.specs import MASK, looks_secret, masked_env, masked_url
from transload_docker import gpus, names
from transload_docker.convert import ContainerRequest, DockerRequest
from transload_docker.engine import Engine
from transload_docker.host_config import mount_entry

_SHOWN: Final = (
    "schema",
    "app_id",
    "session",
    "app",
    "cfg",
    "digest",
    "tracker_base",
    "parent_run_id",
    "created",
    "id_given",
    "asked",
)
"""What of a record other machines see."""


def body_of(
    engine: Engine, home: str, owner: str, request: DockerRequest, submission: Submission
) -> dict[str, Any]:
    """Return all that a keeper needs to know, as JSON values.

    Secrets are in it. It goes through a pipe, never to the disk, but for its ``record``.

    Args:
        engine: where the job is to run.
        home: folder of the scheduler.
        owner: its name.
        request: what was asked for, bound to the job's id.
        submission: the rest.

    Raises:
        UnsupportedFeature: if the job wants more GPUs than there are.
    """
    known = gpus.known_gpus(engine, request)
    logs = f"{layout.app_folder(home, request.app_id)}/logs"
    roles = [{**role, "folders": _signs_of(role, request, submission)} for role in request.roles]
    # an engine that is given no folder of this machine may not see its disk, as one whose socket
    # was handed into a container
    mounted = engine.reach == "host" and bool(request.folders)
    keep = {
        "roles": roles,
        "timeout": request.timeout,
        "network": request.network == names.NETWORK,
        "mounted": mounted,
        "gpus": "" if known is None else gpus.table_of(engine, home),
    }
    record = record_of(request.app_id, submission, logs, keep=keep)
    record["cfg"] = _shown(submission.cfg)
    labels = {
        names.LABEL_SUBMIT: record["token"],
        names.LABEL_OWNER: owner,
        names.LABEL_DIGEST: submission.digest,
        **{
            f"{names.LABEL_ASKED}{name}": str(value)
            for name, value in asked_words(submission.asked).items()
        },
    }
    containers = []
    for number, container in enumerate(request.containers):
        body = _complete(container, labels, submission, logs if mounted else "")
        if number == 0:
            shown = {name: record[name] for name in _SHOWN if name in record}
            body["Labels"][names.LABEL_RECORD] = json.dumps(shown)
        containers.append({"name": container.name, "body": body})
    return {
        "url": engine.url,
        "record": record,
        "roles": [{**role, "replicas": [None] * role["num_replicas"]} for role in roles],
        "log_dir": None,
        "gpus": known,
        "folders": [*request.folders, *request.checkpoints],
        "containers": containers,
    }


def _complete(
    container: ContainerRequest, labels: Mapping[str, str], submission: Submission, logs: str
) -> dict[str, Any]:
    """Return the body of a container with secrets, labels, and where it reports its progress.

    Args:
        container: the container.
        labels: those of the submit.
        submission: has the secrets.
        logs: the folder that is mounted for reports, or "" for none.
    """
    body = copy.deepcopy(container.body)
    file = names.PROGRESS_FILE
    if logs:
        folder = f"{logs}/{container.role}/{container.replica}"
        file = f"{folder}/progress.json"
        mount = mount_entry("bind", folder, folder, read_only=False)
        host = body.setdefault("HostConfig", {})
        host["Mounts"] = [*(host.get("Mounts") or ()), mount]
    secrets = submission.secrets.get(container.role, {})
    body["Env"] = [
        *body.get("Env", []),
        *(f"{name}={value}" for name, value in secrets.items()),
        f"TRANSLOAD_PROGRESS_FILE={file}",
    ]
    body["Labels"] = {**body.get("Labels", {}), **labels}
    return body


def _signs_of(role: Mapping[str, Any], request: DockerRequest, submission: Submission) -> list[str]:
    """Return the folders of this machine in which a role that may stall shows signs of life."""
    if role["stall_after"] is None:
        return []
    base = submission.tracker_base or ""
    own = [folder for folder in request.checkpoints if folder.endswith(f"/{role['name']}")]
    return [base, *own] if base.startswith("/") else own


def _shown(cfg: Mapping[str, Any]) -> dict[str, object]:
    """Return the run options fit to be kept, in which values that look secret are masked."""
    found: dict[str, object] = {}
    for key, value in cfg.items():
        shown = masked_env(value) if isinstance(value, dict) else value
        found[key] = MASK if value and looks_secret(key) else shown
    return found


def refuse_what_never_fits(engine: Engine, request: DockerRequest) -> None:
    """Refuse a container that wants more than the engine's machine has.

    Raises:
        UnsupportedFeature: by the path of the field, with what is there.
    """
    roles = [role["name"] for role in request.roles]
    where = f"the machine of the engine {masked_url(engine.url)} has"
    for container in request.containers:
        config = container.body.get("HostConfig", {})
        memory = config.get("Memory") or 0
        cpus = (config.get("NanoCpus") or 0) / 1e9
        if not memory and not cpus:
            continue
        has_memory, has_cpus = engine.machine()
        path = f"roles[{roles.index(container.role)}].resource"
        if has_memory and memory > has_memory:
            raise UnsupportedFeature(
                f"{path}.memMB={memory >> 20}: {where} {has_memory >> 20} in all, so this would "
                "never fit",
                f"{path}.memMB",
            )
        if has_cpus and cpus > has_cpus:
            raise UnsupportedFeature(
                f"{path}.cpu={cpus:g}: {where} {has_cpus:g} in all, so this would never fit",
                f"{path}.cpu",
            )
