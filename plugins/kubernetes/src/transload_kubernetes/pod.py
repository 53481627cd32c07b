"""The pod template of a role: program, environment, resources, mounts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from transload.errors import SpecError, UnsupportedFeature
from transload.specs import BindMount, DeviceMount, Role, VolumeMount, looks_secret
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
_FETCH: Final = """
import io, sys, zipfile
url, target = sys.argv[1:]
try:
    import fsspec
    data = fsspec.open(url, "rb").open().read()
except ImportError:
    import urllib.request
    data = urllib.request.urlopen(url).read()
zipfile.ZipFile(io.BytesIO(data)).extractall(target)
"""


@dataclass(frozen=True, slots=True)
class Context:
    """What the pods of all roles share."""

    app_id: str  # the app
    base: str  # the name that all its objects start with
    options: Options  # the run options
    rank0: str  # host name of replica 0 of the first role


def named_image(role: Role, default: str, path: str = "role") -> str:
    """Return the image that a role names, or the default one where that is empty or a path; SpecError without any."""
    if role.image and not role.image.startswith(("/", ".")):
        return role.image
    if not default:
        reason = "must be the name of a container image that the cluster can pull, or set run option image"
        raise SpecError(f"{path}.image={role.image!r}: {reason}")
    return default


def escaped(text: str, values: Mapping[str, str]) -> str:
    """Return a text of a role as a container's field: macros replaced, every other ``$`` as the user wrote it.

    Kubernetes itself replaces ``$(NAME)`` and reads ``$$`` as ``$``; the replica's number, which differs within a
    Job, is left to it.
    """
    pieces = _TOKEN.split(text)
    literal = "".join(pieces[0::2])
    if len(pieces) == 1 and "$(" not in literal and "$$" not in literal:
        return text
    return "".join(values[piece] if number % 2 else piece.replace("$", "$$") for number, piece in enumerate(pieces))


def _root(role: Role) -> str:
    """Return the folder of a role's code, ``""`` for the root of its image."""
    return str(role.metadata.get(ROOT_KEY) or (WORKSPACE if role.workspace else ""))


def macro_values(role: Role, context: Context) -> dict[str, str]:
    """Return what the macros stand for in a container's fields."""
    return {
        "img_root": _root(role).replace("$", "$$"),
        "app_id": context.app_id.replace("$", "$$"),
        "replica_id": "$(TRANSLOAD_REPLICA_ID)",
        "rank0_env": RANK0_ENV,
    }


def _hidden(role: Role, context: Context) -> dict[str, list[str]]:
    """Return the variables of a role's env whose name looks secret → their value, split at the replica's number."""
    known = {"img_root": _root(role), "app_id": context.app_id, "rank0_env": RANK0_ENV}
    return {
        name: [_TOKEN.sub(lambda match: known[match[1]], piece) for piece in value.split(_REPLICA)]
        for name, value in role.env.items()
        if looks_secret(name)
    }


def _parts(name: str, pieces: list[str]) -> dict[str, str]:
    """Return the variables that are stored for a variable: itself, or a part for each piece around the number."""
    if len(pieces) == 1:
        return {name: pieces[0]}
    return {_part(number, name): piece for number, piece in enumerate(pieces) if piece}


def _part(number: int, name: str) -> str:
    return f"TRANSLOAD_PART{number}_{name}"


def stored_secrets(role: Role, context: Context) -> dict[str, str]:
    """Return what of a role's env goes into the app's Secret instead of the Job: variable → value.

    That are the variables whose name looks secret. What differs between the replicas of a Job no Secret can hold: of
    such a value only the rest is stored, in variables of its own.
    """
    found: dict[str, str] = {}
    for name, pieces in _hidden(role, context).items():
        found.update(_parts(name, pieces))
    return found


def _secret_environment(role: Role, context: Context) -> list[dict[str, Any]]:
    """Return the secret-looking variables; one with the replica's number is put together by the kubelet."""
    own = names.secret_name(context.base)
    made: list[dict[str, Any]] = []
    for name, pieces in _hidden(role, context).items():
        parts = _parts(name, pieces)
        made += [_reference(part, own, names.secret_key(role.name, part)) for part in parts]
        if len(pieces) > 1:
            references = [f"$({_part(number, name)})" if piece else "" for number, piece in enumerate(pieces)]
            made.append({"name": name, "value": "$(TRANSLOAD_REPLICA_ID)".join(references)})
    return made


def environment(role: Role, path: str, context: Context) -> list[dict[str, Any]]:
    """Return the variables of a container; the replica's number first, since others may refer to it."""
    values = macro_values(role, context)
    retry: dict[str, Any] = {"value": "0"}
    if native_retries(role) or context.options.jobset:
        retry = _annotation(names.INDEX_FAILURES if native_retries(role) else names.JOBSET_RESTARTS)
    made: list[dict[str, Any]] = [
        {"name": "TRANSLOAD_REPLICA_ID", **_annotation(names.INDEX)},
        {"name": "TRANSLOAD_APP_ID", "value": values["app_id"]},
        {"name": "TRANSLOAD_ROLE", "value": role.name},
        {"name": "TRANSLOAD_NUM_REPLICAS", "value": str(role.num_replicas)},
        {"name": RANK0_ENV, "value": context.rank0},
        {"name": "TRANSLOAD_RETRY", **retry},
    ]
    taken = {each["name"] for each in made}
    made += [{"name": name, "value": value} for name, value in _reports(role, context).items()]
    for name, value in role.env.items():
        if name not in taken and not looks_secret(name):
            made.append({"name": name, "value": escaped(value, values)})
    own = names.secret_name(context.base)
    made += _secret_environment(role, context)
    for name, source in role.secrets.items():
        if source.startswith("k8s:"):
            match = _SECRET_SOURCE.match(source)
            if match is None:
                raise SpecError(f"{path}.secrets[{name!r}]={source!r}: must be k8s:SECRET/KEY")
            made.append(_reference(name, match[1], match[2]))
        else:
            made.append(_reference(name, own, names.secret_key(role.name, name)))
    return made


def _reports(role: Role, context: Context) -> dict[str, str]:
    """Return the variables that say where to report, as far as the role does not say it itself."""
    own = results.variables(bool(context.options.text("helper_image")))
    return {name: value for name, value in own.items() if name not in role.env}


def _annotation(name: str) -> dict[str, Any]:
    return {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{name}']"}}}


def _reference(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def native_retries(role: Role) -> bool:
    """Tell whether the Job itself starts single replicas again (the policy was made REPLICA by the conversion)."""
    return role.max_retries > 0 and role.retry_policy.value == "REPLICA"


def resources(role: Role, gpu: str) -> dict[str, Any]:
    """Return requests and limits, which are equal: what is asked for is what one gets."""
    asked: dict[str, str] = {}
    if role.resource.cpu > 0:
        asked["cpu"] = f"{round(role.resource.cpu * 1000)}m"
    if role.resource.memMB > 0:
        asked["memory"] = f"{role.resource.memMB}Mi"
    if role.resource.gpu > 0:
        asked[gpu] = str(role.resource.gpu)
    asked.update({name: str(count) for name, count in role.resource.devices.items() if count})
    return {"requests": dict(asked), "limits": dict(asked)} if asked else {}


def mounts(role: Role, path: str, privileged: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return ``(volumes, volume mounts)`` of a role.

    A `VolumeMount` names a claim (``NAME`` or ``pvc:NAME``), ``secret:NAME``, ``configmap:NAME`` or
    ``emptydir:NAME[:SIZE]``; a `BindMount` and a `DeviceMount` are paths of the node.
    """
    volumes: dict[str, dict[str, Any]] = {}
    used: list[dict[str, Any]] = []
    for number, mount in enumerate(role.mounts):
        where = f"{path}.mounts[{number}]"
        if isinstance(mount, DeviceMount) and not privileged:
            reason = "the kernel refuses devices to a container without run option privileged"
            raise UnsupportedFeature(f"{where}={mount.src_path!r}: not possible: {reason}", where)
        if not mount.dst_path.startswith("/"):
            raise SpecError(f"{where}.dst_path={mount.dst_path!r}: must be an absolute path")
        name, source = _volume(mount, where)
        volumes[name] = {"name": name, **source}
        entry: dict[str, Any] = {"name": name, "mountPath": mount.dst_path}
        if not isinstance(mount, DeviceMount) and mount.read_only:
            entry["readOnly"] = True
        if isinstance(mount, DeviceMount) and "w" not in mount.permissions:
            entry["readOnly"] = True
        used.append(entry)
    if all(entry["mountPath"] != "/dev/shm" for entry in used):  # noqa: S108 - the pod's own
        # a container's own is 64 MB: too little for data loaders
        volumes["dshm"] = {"name": "dshm", "emptyDir": {"medium": "Memory"}}
        used.append({"name": "dshm", "mountPath": "/dev/shm"})  # noqa: S108
    return list(volumes.values()), used


def _volume(mount: BindMount | VolumeMount | DeviceMount, where: str) -> tuple[str, dict[str, Any]]:
    if not isinstance(mount, VolumeMount):
        if not mount.src_path.startswith("/"):
            raise SpecError(f"{where}.src_path={mount.src_path!r}: must be an absolute path of the node")
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
    raise SpecError(
        f"{where}.src={mount.src!r}: must be CLAIM, pvc:CLAIM, secret:NAME, configmap:NAME or emptydir:NAME"
    )


def template(role: Role, path: str, context: Context) -> dict[str, Any]:
    """Return the pod template of a role, or refuse what a pod cannot take."""
    options = context.options
    values = macro_values(role, context)
    privileged = options.cfg.get("privileged") is True
    volumes, used = mounts(role, path, privileged)
    container: dict[str, Any] = {
        "name": names.MAIN,
        "image": role.image,
        "command": [escaped(role.entrypoint, values)],
        "args": [escaped(arg, values) for arg in role.args],
        "env": environment(role, path, context),
        "volumeMounts": used,
    }
    if ROOT_KEY in role.metadata:
        container["workingDir"] = _root(role)
    limits = resources(role, options.text("gpu_resource"))
    if limits:
        container["resources"] = limits
    if role.port_map:
        if zero := [name for name, port in role.port_map.items() if port == 0]:
            raise SpecError(f"{path}.port_map[{zero[0]!r}]=0: must be 1 to 65535")
        ports = [(label(name.lower(), 15), port) for name, port in role.port_map.items()]
        container["ports"] = [{"name": name, "containerPort": port} for name, port in ports]
    if options.text("image_pull_policy"):
        container["imagePullPolicy"] = options.text("image_pull_policy")
    if privileged:
        container["securityContext"] = {"privileged": True}
    elif options.text("pod_security"):
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = _pod_spec(role, container, volumes, context)
    if role.workspace and options.text("image_repo"):
        container["image"] = f"{options.text('image_repo')}:{PLACEHOLDER}"  # a dry-run; a submit has built it by now
    elif role.workspace:
        _fetch_workspace(role, path, spec, options)
    if options.text("helper_image") and role.env.get("TRANSLOAD_TRACKER_BASE", results.FOLDER) == results.FOLDER:
        results.add_helper(spec, options.text("helper_image"))
    return {"metadata": {"annotations": options.pod_annotations()}, "spec": spec}


def _pod_spec(role: Role, container: dict[str, Any], volumes: list[dict[str, Any]], context: Context) -> dict[str, Any]:
    options = context.options
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": int(options.cfg["grace_period"]),
        "subdomain": context.base,
        "shareProcessNamespace": options.cfg.get("share_process_namespace") is not False,
        "containers": [container],
        "volumes": volumes,
    }
    if options.text("pod_security"):
        spec["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for name, key in (("service_account", "serviceAccountName"), ("priority_class", "priorityClassName")):
        if options.text(name):
            spec[key] = options.text(name)
    # demands of a resource that are spelled like a label of a node are one
    wanted = {name: str(value) for name, value in role.resource.capabilities.items() if "/" in name}
    selector = {**wanted, **options.map("node_selector")}
    if selector:
        spec["nodeSelector"] = selector
    if options.tolerations:
        spec["tolerations"] = options.tolerations
    if secrets := options.cfg.get("image_pull_secrets"):
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    return spec


def _fetch_workspace(role: Role, path: str, spec: dict[str, Any], options: Options) -> None:
    """Add the init container that unpacks a role's workspace into the pod."""
    if not options.text("workspace_url"):
        raise UnsupportedFeature(
            f"{path}.workspace: not possible without a place that pods can fetch it from: "
            "set the run option workspace_url or image_repo, or put the code into the image",
            f"{path}.workspace",
        )
    url = str(role.metadata.get(WORKSPACE_KEY) or f"{options.text('workspace_url').rstrip('/')}/{PLACEHOLDER}.zip")
    main = spec["containers"][0]
    fetch = {
        "name": "workspace",
        "image": options.text("workspace_image") or role.image,
        "command": ["python3", "-c", _FETCH.replace("$", "$$"), url.replace("$", "$$"), WORKSPACE],
        "env": main["env"],
        "volumeMounts": [*main["volumeMounts"], {"name": "workspace", "mountPath": WORKSPACE}],
        **({"securityContext": main["securityContext"]} if "securityContext" in main else {}),
    }
    spec["volumes"] = [*spec["volumes"], {"name": "workspace", "emptyDir": {}}]
    spec["initContainers"] = [fetch]
    main["volumeMounts"] = fetch["volumeMounts"]
    main["workingDir"] = WORKSPACE
