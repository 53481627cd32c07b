"""The pod template of a role: program, environment, resources, mounts. Pure."""

from __future__ import annotations

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
from transload_kubernetes.names import label
from transload_kubernetes.options import Options

RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
PLACEHOLDER: Final = "<content hash>"
WORKSPACE: Final = "/workspace"
WORKSPACE_KEY: Final = "kubernetes.workspace"
"""Key of a role's metadata under which ``prepare`` notes where its workspace was uploaded."""
ROOT_KEY: Final = "kubernetes.root"
"""Key of a role's metadata under which it is noted in which folder of its image its code is."""
_TOKEN: Final = re.compile(r"\$\{(img_root|app_id|replica_id|rank0_env)\}")
_REPLICA: Final = "${replica_id}"
_SECRET_SOURCE: Final = re.compile(r"k8s:([^/]+)/([^/]+)\Z")
_SOURCES: Final = {
    "pvc": ("persistentVolumeClaim", "claimName"),
    "secret": ("secret", "secretName"),
    "configmap": ("configMap", "name"),
}
_PYTHON: Final = [
    "sh",
    "-c",
    'command -v python >/dev/null && exec python "$@"; exec python3 "$@"',
    "python",
]
_FETCH: Final = """
import hashlib, io, sys, tarfile
url, target = sys.argv[1:]
try:
    import fsspec
    data = fsspec.open(url, "rb").open().read()
except ImportError:
    import urllib.request
    data = urllib.request.urlopen(url).read()
archive = tarfile.open(fileobj=io.BytesIO(data))
digest = hashlib.sha256()
for entry in archive.getmembers()[1:]:
    path = entry.name[2:] if entry.name.startswith("./") else entry.name
    digest.update(("%s\\0%o\\0" % (path, entry.mode & 0o777)).encode("utf-8", "surrogateescape"))
    if entry.isreg() or entry.islnk():
        digest.update(archive.extractfile(entry).read())
    else:
        digest.update(entry.linkname.encode("utf-8", "surrogateescape"))
    digest.update(b"\\0")
if digest.hexdigest() != url.rpartition("/")[2].partition(".")[0]:
    sys.exit("transload: %s is not what was uploaded there: nothing of it was used" % url)
archive.extractall(target)
"""


@dataclass(frozen=True, slots=True)
class Context:
    """What the pods of all roles share."""

    app_id: str  # the app
    base: str  # the name that all its objects start with
    options: Options  # the run options
    rank0: str  # host name of replica 0 of the first role


def named_image(role: Role, default: str, path: str = "role") -> str:
    """Return the image that a role names, or the default one where that is empty or a path;
    SpecError without any.
    """
    if role.image and not role.image.startswith(("/", ".")):
        return role.image
    if not default:
        reason = "must be the name of a container image that the cluster can pull, or set run option image"
        raise SpecError(f"{path}.image={role.image!r}: {reason}")
    return default


def escaped(text: str, values: Mapping[str, str]) -> str:
    """Return a text of a role as a container's field: macros replaced, every other ``$`` as the
    user wrote it.

    Kubernetes itself replaces ``$(NAME)`` and reads ``$$`` as ``$``; the replica's number, which
    differs within a Job, is left to it.
    """
    pieces = _TOKEN.split(text)
    literal = "".join(pieces[0::2])
    if len(pieces) == 1 and "$(" not in literal and "$$" not in literal:
        return text
    return "".join(
        values[piece] if number % 2 else piece.replace("$", "$$")
        for number, piece in enumerate(pieces)
    )


def _root(role: Role) -> str:
    """Return the folder of a role's code, ``""`` for the root of its image."""
    return str(role.metadata.get(ROOT_KEY) or (WORKSPACE if role.workspace else ""))


def _known(role: Role, context: Context) -> dict[str, str]:
    """Return what the macros stand for, but for the replica's number."""
    return {"img_root": _root(role), "app_id": context.app_id, "rank0_env": RANK0_ENV}


def macro_values(role: Role, context: Context) -> dict[str, str]:
    """Return what the macros stand for in a container's fields."""
    known = {name: value.replace("$", "$$") for name, value in _known(role, context).items()}
    return {**known, "replica_id": "$(TRANSLOAD_REPLICA_ID)"}


def hidden(role: Role, context: Context) -> dict[str, dict[str, str]]:
    """Return the variables of a role's env whose name looks secret → what the app's Secret holds of
    each.

    What differs between the replicas of a Job no Secret can hold: a value with the replica's number
    is stored as the parts around it, each a variable of its own, and put together by the kubelet.
    """
    known, found = _known(role, context), {}
    for name, value in role.env.items():
        if looks_secret(name):
            pieces = [
                _TOKEN.sub(lambda match: known[match[1]], piece) for piece in value.split(_REPLICA)
            ]
            parts = {f"TRANSLOAD_PART{number}_{name}": piece for number, piece in enumerate(pieces)}
            found[name] = parts if len(pieces) > 1 else {name: pieces[0]}
    return found


def _has_helper(role: Role, options: Options) -> bool:
    """Tell whether a helper hands over a role's results: they go to no other place."""
    elsewhere = role.env.get("TRANSLOAD_TRACKER_BASE", results.FOLDER) != results.FOLDER
    return bool(options.text("helper_image")) and not elsewhere


def environment(role: Role, path: str, context: Context) -> list[dict[str, Any]]:
    """Return the variables of a container; the replica's number first, since others may refer to
    it.
    """
    values = macro_values(role, context)
    retry: dict[str, Any] = {"value": "0"}
    # the Job itself starts single replicas again (the policy was made REPLICA by the conversion)
    native = role.max_retries > 0 and role.retry_policy is RetryPolicy.REPLICA
    if native or context.options.jobset:
        retry = _annotation(names.INDEX_FAILURES if native else names.JOBSET_RESTARTS)
    made: list[dict[str, Any]] = [
        {"name": "TRANSLOAD_REPLICA_ID", **_annotation(names.INDEX)},
        {"name": "TRANSLOAD_APP_ID", "value": values["app_id"]},
        {"name": "TRANSLOAD_ROLE", "value": role.name},
        {"name": "TRANSLOAD_NUM_REPLICAS", "value": str(role.num_replicas)},
        {"name": RANK0_ENV, "value": context.rank0},
        {"name": "TRANSLOAD_RETRY", **retry},
    ]
    taken = {each["name"] for each in made}
    helped = _has_helper(role, context.options)
    reports = results.variables(helped)
    made += [
        {"name": name, "value": value} for name, value in reports.items() if name not in role.env
    ]
    for name, value in role.env.items():
        if name not in taken and not looks_secret(name) and (helped or value != results.FOLDER):
            made.append({"name": name, "value": escaped(value, values)})
    own = names.secret_name(context.base)
    for name, parts in hidden(role, context).items():
        made += [_reference(part, own, names.secret_key(role.name, part)) for part in parts]
        if name not in parts:
            made.append(
                {
                    "name": name,
                    "value": "$(TRANSLOAD_REPLICA_ID)".join(f"$({part})" for part in parts),
                }
            )
    for name, source in role.secrets.items():
        match = _SECRET_SOURCE.match(source)
        if source.startswith("k8s:") and match is None:
            raise SpecError(f"{path}.secrets[{name!r}]={source!r}: must be k8s:SECRET/KEY")
        secret, key = (match[1], match[2]) if match else (own, names.secret_key(role.name, name))
        made.append(_reference(name, secret, key))
    return made


def _annotation(name: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}}


def _reference(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def resources(role: Role, gpu: str) -> dict[str, Any]:
    """Return requests and limits, which are equal: what is asked for is what one gets."""
    wanted = role.resource
    sizes = {
        "cpu": (wanted.cpu, f"{round(wanted.cpu * 1000)}m"),
        "memory": (wanted.memMB, f"{wanted.memMB}Mi"),
    }
    counts = {
        name: (count, str(count)) for name, count in {gpu: wanted.gpu, **wanted.devices}.items()
    }
    asked = {name: text for name, (amount, text) in {**sizes, **counts}.items() if amount > 0}
    return {"requests": dict(asked), "limits": dict(asked)} if asked else {}


def mounts(
    role: Role, path: str, privileged: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return ``(volumes, volume mounts)`` of a role.

    A `VolumeMount` names a claim (``NAME`` or ``pvc:NAME``), ``secret:NAME``, ``configmap:NAME`` or
    ``emptydir:NAME[:SIZE]``; a `BindMount` and a `DeviceMount` are paths of the node.
    """
    volumes: dict[str, dict[str, Any]] = {}
    used: list[dict[str, Any]] = []
    for number, mount in enumerate(role.mounts):
        where = f"{path}.mounts[{number}]"
        if isinstance(mount, JobMount):  # a runner has refused it already
            raise UnsupportedFeature(f"{where}: files of another job are not mounted here", where)
        if isinstance(mount, DeviceMount) and not privileged:
            reason = "the kernel refuses devices to a container without run option privileged"
            raise UnsupportedFeature(f"{where}={mount.src_path!r}: not possible: {reason}", where)
        if not mount.dst_path.startswith("/"):
            raise SpecError(f"{where}.dst_path={mount.dst_path!r}: must be an absolute path")
        name, source = _volume(mount, where)
        volumes[name] = {"name": name, **source}
        fixed = "w" not in mount.permissions if isinstance(mount, DeviceMount) else mount.read_only
        used.append(
            {"name": name, "mountPath": mount.dst_path, **({"readOnly": True} if fixed else {})}
        )
    if all(entry["mountPath"] != "/dev/shm" for entry in used):  # noqa: S108 - the pod's own
        # a container's own is 64 MB: too little for data loaders
        volumes["dshm"] = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
        used.append({"name": "dshm", "mountPath": "/dev/shm"})  # noqa: S108
    return list(volumes.values()), used


def _volume(mount: BindMount | VolumeMount | DeviceMount, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(mount, VolumeMount):
        if not mount.src_path.startswith("/"):
            raise SpecError(
                f"{where}.src_path={mount.src_path!r}: must be an absolute path of the node"
            )
        return label(f"host-{mount.src_path}", 40), {"hostPath": {"path": mount.src_path}}
    kind, colon, name = mount.src.partition(":")
    if not colon:
        kind, name = "pvc", mount.src
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
    """Return the pod template of a role, or refuse what a pod cannot take."""
    options, values = context.options, macro_values(role, context)
    privileged, strict = options.cfg.get("privileged") is True, bool(options.text("pod_security"))
    if zero := [name for name, port in role.port_map.items() if port == 0]:
        raise SpecError(f"{path}.port_map[{zero[0]!r}]=0: must be 1 to 65535")
    ports = [
        {"name": label(name.lower(), 15), "containerPort": port}
        for name, port in role.port_map.items()
    ]
    secured = (
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}} if strict else {}
    )
    volumes, used = mounts(role, path, privileged)
    container = {
        "name": names.MAIN,
        "image": role.image,
        "command": _PYTHON if role.entrypoint == "python" else [escaped(role.entrypoint, values)],
        "args": [escaped(arg, values) for arg in role.args],
        "env": environment(role, path, context),
        "volumeMounts": used,
        "workingDir": _root(role) if ROOT_KEY in role.metadata else "",
        "resources": resources(role, options.text("gpu_resource")),
        "ports": ports,
        "imagePullPolicy": options.text("image_pull_policy"),
        "securityContext": {"privileged": True} if privileged else secured,
    }
    container = {name: value for name, value in container.items() if value or name == "args"}
    # demands of a resource that are spelled like a label of a node are one
    wanted = {name: str(value) for name, value in role.resource.capabilities.items() if "/" in name}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(options.cfg["grace_period"]),
        "subdomain": context.base,
        "shareProcessNamespace": options.cfg.get("share_process_namespace") is not False,
        "containers": [container],
        "volumes": volumes,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        if strict
        else {},
        "serviceAccountName": options.text("service_account"),
        "priorityClassName": options.text("priority_class"),
        "nodeSelector": {**wanted, **options.map("node_selector")},
        "tolerations": options.tolerations,
        "imagePullSecrets": [
            {"name": name} for name in options.cfg.get("image_pull_secrets") or ()
        ],
    }
    spec = {name: value for name, value in spec.items() if value not in ("", {}, [])}
    if role.workspace and options.text("image_repo"):
        container["image"] = (
            f"{options.text('image_repo')}:{PLACEHOLDER}"  # a dry-run; a submit has built it by now
        )
    elif role.workspace:
        _fetch_workspace(role, path, spec, options)
    if _has_helper(role, options):
        results.add_helper(spec, options.text("helper_image"))
    return {"metadata": {"annotations": options.pod_annotations()}, "spec": spec}


def _fetch_workspace(role: Role, path: str, spec: dict[str, Any], options: Options) -> None:
    """Add the init container that unpacks a role's workspace into the pod."""
    if not options.text("workspace_url"):
        raise UnsupportedFeature(
            f"{path}.workspace: not possible without a place that pods can fetch it from: "
            "set the run option workspace_url or image_repo, or put the code into the image",
            f"{path}.workspace",
        )
    url = str(
        role.metadata.get(WORKSPACE_KEY)
        or f"{options.text('workspace_url').rstrip('/')}/{PLACEHOLDER}.tar.gz"
    )
    main = spec["containers"][0]
    fetch = {
        "name": "workspace",
        "image": options.text("workspace_image") or role.image,
        "command": ["python3", "-c", _FETCH.replace("$", "$$"), url.replace("$", "$$"), WORKSPACE],
        "env": main["env"],
        "volumeMounts": [*main["volumeMounts"], {"name": "workspace", "mountPath": WORKSPACE}],
        **{name: main[name] for name in ("securityContext", "imagePullPolicy") if name in main},
    }
    spec["volumes"] = [*spec["volumes"], {"name": "workspace", "emptyDir": {}}]
    spec["initContainers"] = [fetch]
    main["volumeMounts"] = fetch["volumeMounts"]
    main["workingDir"] = WORKSPACE
