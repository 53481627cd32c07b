"""Make the pod template of a role, with its program, environment, resources and mounts.

This is pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transload.errors import SpecError, UnsupportedFeature
from transload.specs import (
    BindMount,
    DeviceMount,
    JobMount,
    RetryPolicy,
    Role,
    VolumeMount,
    looks_secret,
)
from transload_kubernetes import names, results
from transload_kubernetes.checkpoints import add_folder
from transload_kubernetes.fetching import fetching
from transload_kubernetes.names import label
from transload_kubernetes.options import KubernetesOptions
from transload_kubernetes.packages import UV_IMAGE

RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
_GRACE_S: Final = 30
PLACEHOLDER: Final = "<content hash>"
WORKSPACE: Final = "/workspace"
WORKSPACE_KEY: Final = "kubernetes.workspace"
"""Key of a role's metadata for the URL to which ``prepare`` has uploaded its workspace."""
ROOT_KEY: Final = "kubernetes.root"
"""Key of a role's metadata for the folder of its code in its image."""
_TOKEN: Final = re.compile(r"\$\{(img_root|app_id|replica_id|rank0_env)\}")
_REPLICA: Final = "${replica_id}"
_SECRET_SOURCE: Final = re.compile(r"k8s:([^/]+)/([^/]+)\Z")
_SOURCES: Final = {
    "pvc": ("persistentVolumeClaim", "claimName"),
    "secret": ("secret", "secretName"),
    "configmap": ("configMap", "name"),
}
_FIND_PYTHON: Final = """\
for each in python python3; do command -v $each >/dev/null && exec $each "$@"; done
echo "transload: this image has no Python; name another one: --image python:3.12-slim" >&2
exit 127"""
PYTHON: Final = ["sh", "-c", _FIND_PYTHON, "python"]
"""Runs the image's Python, whichever name it has there."""


@dataclass(frozen=True, slots=True)
class Context:
    """What the pods of all roles share."""

    app_id: str  # of the job
    base: str  # the prefix of its objects' names
    options: KubernetesOptions  # the run options
    rank0: str  # host name of replica 0 of the first role


def grace_period(role: Role) -> int:
    """Return the seconds between SIGTERM and SIGKILL when a pod of a role is ended."""
    if role.notice is None:
        return _GRACE_S
    return math.ceil(role.notice.seconds)


def named_image(role: Role, default: str, path: str = "role") -> str:
    """Return a role's image, or the default one if the role has none or has a folder as image.

    Where the role needs packages, the last resort is a public image of uv.

    Raises:
        SpecError: if a default image is needed and missing.
    """
    if role.image and not role.image.startswith(("/", ".")):
        return role.image
    if not default and role.environment is not None:
        return UV_IMAGE
    if not default:
        reason = "must be the name of a container image that the cluster can pull"
        raise SpecError(
            f"{path}.image={role.image!r}: {reason}; or set run option image: -c image=NAME, in "
            "Python cfg={'image': 'NAME'}"
        )
    return default


def escaped(text: str, values: Mapping[str, str]) -> str:
    """Return a text of a role in the form of a container's field, with its macros replaced.

    Every other ``$`` reaches the program unchanged. Kubernetes replaces ``$(NAME)`` and reads
    ``$$`` as ``$``. It also replaces the replica's number, which differs within a Job.
    """
    if not _TOKEN.search(text) and "$(" not in text and "$$" not in text:
        return text
    pieces = _TOKEN.split(text)  # every second piece is the name of a macro
    for number, piece in enumerate(pieces):
        is_macro = number % 2 == 1
        pieces[number] = values[piece] if is_macro else piece.replace("$", "$$")
    return "".join(pieces)


def _root(role: Role) -> str:
    """Return the folder of a role's code, or ``""`` for the root of its image."""
    if role.metadata.get(ROOT_KEY):
        return str(role.metadata[ROOT_KEY])
    return WORKSPACE if role.workspace else ""


def _known(role: Role, context: Context) -> dict[str, str]:
    """Return the values of the macros, except for the replica's number."""
    return {"img_root": _root(role), "app_id": context.app_id, "rank0_env": RANK0_ENV}


def macro_values(role: Role, context: Context) -> dict[str, str]:
    """Return the values of the macros in a container's fields."""
    known = {name: value.replace("$", "$$") for name, value in _known(role, context).items()}
    return {**known, "replica_id": "$(TRANSLOAD_REPLICA_ID)"}


def hidden(role: Role, context: Context) -> dict[str, dict[str, str]]:
    """Return the entries of a job's Secret for a role's variables whose names look secret.

    A Secret has one value for all replicas of a Job. So a value with the replica's number is stored
    as the parts around it, each as a separate variable, and the kubelet joins them.

    Returns:
        For each variable, the name and the value of each part. A value without the number is one
        part, with the variable's own name.
    """
    known = _known(role, context)
    found: dict[str, dict[str, str]] = {}
    for name, value in role.env.items():
        if not looks_secret(name):
            continue
        pieces = [
            _TOKEN.sub(lambda match: known[match[1]], piece) for piece in value.split(_REPLICA)
        ]
        if len(pieces) == 1:
            found[name] = {name: pieces[0]}
        else:
            found[name] = {
                f"TRANSLOAD_PART{number}_{name}": piece for number, piece in enumerate(pieces)
            }
    return found


def environment(role: Role, path: str, context: Context) -> list[dict[str, Any]]:
    """Return the variables of a container. The replica's number is first, as others may use it."""
    values = macro_values(role, context)
    made: list[dict[str, Any]] = [
        {"name": "TRANSLOAD_REPLICA_ID", **_annotation(names.INDEX)},
        {"name": "TRANSLOAD_APP_ID", "value": values["app_id"]},
        {"name": "TRANSLOAD_ROLE", "value": role.name},
        {"name": "TRANSLOAD_NUM_REPLICAS", "value": str(role.num_replicas)},
        {"name": RANK0_ENV, "value": context.rank0},
        {"name": "TRANSLOAD_RETRY", **_retry_value(role, context.options)},
        {"name": "TRANSLOAD_INTERRUPTIONS", **_annotation(names.INDEX_IGNORED)},
    ]
    taken = {each["name"] for each in made}
    for name, value in results.VARIABLES.items():
        if name not in role.env:
            made.append({"name": name, "value": value})
    for name, value in role.env.items():
        if name in taken or looks_secret(name):
            continue
        made.append({"name": name, "value": escaped(value, values)})
    return [*made, *_from_own_secret(role, context), *_from_secrets(role, path, context)]


def _retry_value(role: Role, options: KubernetesOptions) -> dict[str, Any]:
    """Return the value of ``TRANSLOAD_RETRY``, which is the count of the Job or JobSet, or 0."""
    # the Job itself restarts single replicas, for which `convert` has set the policy REPLICA
    if role.max_retries > 0 and role.retry_policy is RetryPolicy.REPLICA:
        return _annotation(names.INDEX_FAILURES)
    if options.makes_jobset:
        return _annotation(names.JOBSET_RESTARTS)
    return {"value": "0"}


def _from_own_secret(role: Role, context: Context) -> list[dict[str, Any]]:
    """Return the variables that look secret, as references to the job's own Secret."""
    own = names.secret_name(context.base)
    made: list[dict[str, Any]] = []
    for name, parts in hidden(role, context).items():
        made += [_reference(part, own, names.secret_key(role.name, part)) for part in parts]
        if name not in parts:
            value = "$(TRANSLOAD_REPLICA_ID)".join(f"$({part})" for part in parts)
            made.append({"name": name, "value": value})
    return made


def _from_secrets(role: Role, path: str, context: Context) -> list[dict[str, Any]]:
    """Return the variables of a role's ``secrets``, from the named Secrets or the job's own."""
    made: list[dict[str, Any]] = []
    for name, source in role.secrets.items():
        match = _SECRET_SOURCE.match(source)
        if match:
            made.append(_reference(name, secret=match[1], key=match[2]))
            continue
        if source.startswith("k8s:"):
            raise SpecError(f"{path}.secrets[{name!r}]={source!r}: must be k8s:SECRET/KEY")
        own = names.secret_name(context.base)
        made.append(_reference(name, own, names.secret_key(role.name, name)))
    return made


def _annotation(name: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}}


def _reference(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def resources(role: Role, gpu: str) -> dict[str, Any]:
    """Return requests and limits, which are equal.

    Args:
        role: the role.
        gpu: the resource name of GPUs.
    """
    wanted = role.resource
    asked: dict[str, str] = {}
    if wanted.cpu > 0:
        asked["cpu"] = f"{round(wanted.cpu * 1000)}m"
    if wanted.memMB > 0:
        asked["memory"] = f"{wanted.memMB}Mi"
    for name, count in {gpu: wanted.gpu, **wanted.devices}.items():
        if count > 0:
            asked[name] = str(count)
    if not asked:
        return {}
    return {"requests": dict(asked), "limits": dict(asked)}


def mounts(
    role: Role, path: str, privileged: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return ``(volumes, volume mounts)`` of a role.

    A `VolumeMount` names a claim (``NAME`` or ``pvc:NAME``), ``secret:NAME``, ``configmap:NAME`` or
    ``emptydir:NAME[:SIZE]``. A `BindMount` and a `DeviceMount` are paths of the node.
    """
    volumes: dict[str, dict[str, Any]] = {}
    used: list[dict[str, Any]] = []
    for number, mount in enumerate(role.mounts):
        where = f"{path}.mounts[{number}]"
        if isinstance(mount, JobMount):  # the runner has refused it already
            raise UnsupportedFeature(
                f"{where}: mounting another job's files is not supported", where
            )
        if isinstance(mount, DeviceMount) and not privileged:
            reason = "the kernel refuses devices to a container without run option privileged"
            raise UnsupportedFeature(f"{where}={mount.src_path!r}: not possible: {reason}", where)
        if not mount.dst_path.startswith("/"):
            raise SpecError(f"{where}.dst_path={mount.dst_path!r}: must be an absolute path")
        name, source = _volume(mount, where)
        volumes[name] = {"name": name, **source}
        entry: dict[str, Any] = {"name": name, "mountPath": mount.dst_path}
        if _is_read_only(mount):
            entry["readOnly"] = True
        used.append(entry)
    if all(entry["mountPath"] != "/dev/shm" for entry in used):  # noqa: S108 - the pod's own
        # the default size of 64 MB is too small for data loaders
        volumes["dshm"] = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
        used.append({"name": "dshm", "mountPath": "/dev/shm"})  # noqa: S108
    return list(volumes.values()), used


def _is_read_only(mount: BindMount | VolumeMount | DeviceMount) -> bool:
    if isinstance(mount, DeviceMount):
        return "w" not in mount.permissions
    return mount.read_only


def _volume(mount: BindMount | VolumeMount | DeviceMount, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(mount, VolumeMount):
        if not mount.src_path.startswith("/"):
            raise SpecError(
                f"{where}.src_path={mount.src_path!r}: must be an absolute path of the node"
            )
        return label(f"host-{mount.src_path}", 40), {"hostPath": {"path": mount.src_path}}
    kind, colon, name = mount.src.partition(":")
    if not colon:
        kind = "pvc"
        name = mount.src
    if not name:
        raise SpecError(f"{where}.src={mount.src!r}: the name is missing")
    if kind in _SOURCES:
        source, key = _SOURCES[kind]
        return label(f"{kind}-{name}", 40), {source: {key: name}}
    if kind == "emptydir":
        name, _, size = name.partition(":")
        return label(f"empty-{name}", 40), {"emptyDir": {"sizeLimit": size} if size else {}}
    allowed = "CLAIM, pvc:CLAIM, secret:NAME, configmap:NAME or emptydir:NAME"
    raise SpecError(f"{where}.src={mount.src!r}: must be {allowed}")


def template(role: Role, path: str, context: Context) -> dict[str, Any]:
    """Return the pod template of a role.

    Raises:
        SpecError: if a value is not allowed. The message has its path.
        UnsupportedFeature: if a pod does not support a field. The message has its path.
    """
    options = context.options
    values = macro_values(role, context)
    privileged = options.privileged
    strict = options.pod_security is not None
    ports: list[dict[str, Any]] = []
    for name, port in role.port_map.items():
        if port == 0:
            raise SpecError(f"{path}.port_map[{name!r}]=0: must be 1 to 65535")
        ports.append({"name": label(name.lower(), 15), "containerPort": port})
    security: dict[str, Any] = {}
    pod_security: dict[str, Any] = {}
    if strict:
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        pod_security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if privileged:
        security = {"privileged": True}
    command = PYTHON
    if role.entrypoint != "python":
        command = [escaped(role.entrypoint, values)]
    pull_secrets = options.image_pull_secrets
    volumes, used = mounts(role, path, privileged)
    container = {
        "name": names.MAIN,
        "image": role.image,
        "command": command,
        "args": [escaped(arg, values) for arg in role.args],
        "env": environment(role, path, context),
        "volumeMounts": used,
        "workingDir": _root(role) if ROOT_KEY in role.metadata else "",
        "resources": resources(role, options.gpu_resource),
        "ports": ports,
        "imagePullPolicy": options.image_pull_policy,
        "securityContext": security,
    }
    container = {name: value for name, value in container.items() if value or name == "args"}
    # capabilities of a resource that look like a node's label select nodes by it
    wanted = {name: str(value) for name, value in role.resource.capabilities.items() if "/" in name}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_period(role),
        "subdomain": context.base,
        "shareProcessNamespace": options.share_process_namespace,
        "containers": [container],
        "volumes": volumes,
        "securityContext": pod_security,
        "serviceAccountName": options.service_account,
        "priorityClassName": options.priority_class,
        "nodeSelector": {**wanted, **options.node_selector},
        "tolerations": options.tolerated(),
        "imagePullSecrets": [{"name": name} for name in pull_secrets],
    }
    spec = {name: value for name, value in spec.items() if value not in ("", {}, [])}
    if role.workspace and options.image_repo:
        # this is only a dry-run, because a submit would have built the image by now
        container["image"] = f"{options.image_repo}:{PLACEHOLDER}"
    elif role.workspace:
        _fetch_workspace(role, path, spec, options)
    add_folder(role, spec, options.checkpoint_claim or "")
    # the cluster replaces the number once it is not zero
    annotations = {**options.pod_annotations(), names.INDEX_IGNORED: "0"}
    if role.environment is not None:
        annotations[names.ANNOTATION_ENVIRONMENT] = str(role.environment)
    return {"metadata": {"annotations": annotations}, "spec": spec}


def _fetch_workspace(
    role: Role, path: str, spec: dict[str, Any], options: KubernetesOptions
) -> None:
    """Add the init container that unpacks a role's workspace into the pod."""
    if not options.workspace_url:
        raise UnsupportedFeature(
            f"{path}.workspace: pods need a place from which to fetch it; set run option "
            "workspace_url or image_repo, or put the code into the image",
            f"{path}.workspace",
        )
    default = f"{options.workspace_url.rstrip('/')}/{PLACEHOLDER}.tar.gz"
    url = str(role.metadata.get(WORKSPACE_KEY) or default)
    main = spec["containers"][0]
    image = options.workspace_image or role.image
    mount = {"name": "workspace", "mountPath": WORKSPACE}
    fetch = fetching("workspace", url, WORKSPACE, image, main, mount)
    spec["volumes"] = [*spec["volumes"], {"name": "workspace", "emptyDir": {}}]
    spec["initContainers"] = [fetch]
    main["volumeMounts"] = fetch["volumeMounts"]
    main["workingDir"] = WORKSPACE
