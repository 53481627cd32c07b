"""Convert an `AppDef` to requests to an engine, with one container for each replica.

This is pure. No request is sent.
"""

from __future__ import annotations

import copy
import fnmatch
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from transload import IMAGE
from transload.errors import ConfigError, SpecError, UnsupportedFeature
from transload.runtime.tracking import output_folder
from transload.schedulers.api import Submission, Visibility
from transload.schedulers.folder.request import rules_of
from transload.specs import (
    MASK,
    AppDef,
    BindMount,
    DeviceMount,
    Role,
    looks_secret,
    macros,
    masked_url,
    parse_app_handle,
)
from transload.specs.job_variables import of_other_jobs
from transload.specs.own_programs import shown_args
from transload_docker import names
from transload_docker.host_config import (
    TRACKER_BASE,
    Gpus,
    covered,
    host_config,
    local_folder,
    mount_entry,
    results_mount,
    to_mount,
)
from transload_docker.options import DockerOptions

RANK0_ENV: Final = "TRANSLOAD_RANK0_HOST"
_NUMBERS: Final = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
    "CONT": 18,
    "URG": 23,
    "XCPU": 24,
    "WINCH": 28,
}
"""Numbers of signals on Linux, which containers run on, whatever this machine is."""
WORKSPACE_REPOSITORY: Final = "transload-workspace"
"""Key of a role's metadata for the image with its packages, where ``image`` is a folder."""
BUILT_IN: Final = ("bridge", "default", "none")
"""Networks of every engine in which containers have no names for each other."""
_APP_ID: Final = "TRANSLOAD_JOB_ID"
_OWN: Final = {
    "Image": "use the role's image",
    "Entrypoint": "use the role's entrypoint, and the run option image_entrypoint",
    "Cmd": "use the role's args",
    "User": "use the run option user",
    "StopSignal": "use the role's notice",
    "StopTimeout": "use the role's notice",
    "Tty": "leave it out: a log has its output and its errors apart",
    "HostConfig.NetworkMode": "use the run option network",
    "HostConfig.Privileged": "use the run option privileged",
    "HostConfig.AutoRemove": "leave it out: `transload delete` removes containers, and their ends are read until then",
    "HostConfig.RestartPolicy": "use the role's max_retries",
}
"""Fields of a body that no overlay may hold, and what to do in their place."""


@dataclass(slots=True)
class ContainerRequest:
    """A container to make, by its name and the body that the Engine API takes.

    A caller may change the body between a dry-run and the submit.
    """

    role: str
    replica: int
    name: str
    body: dict[str, Any]


@dataclass(slots=True)
class DockerRequest:
    """The request to an engine for a job.

    Args:
        app_id: the job, as far as its environment shows it, else ``""``.
        network: name of the network to make if it is not there, or ``""`` for none.
        containers: role by role, replica by replica.
        roles: how the job is kept (`rules_of`).
        folders: folders of this machine to make first.
        checkpoints: folders of checkpoints of this machine to make first.
        pull: when images are pulled.
        timeout: seconds for the whole job, or None.
        gpus: ids of the GPUs to choose from at submit. Empty means all of the machine.
        secrets: role → variable → source. The values come with the submission.
        environments: role → the packages that it needs, for people.
    """

    app_id: str
    network: str
    containers: list[ContainerRequest]
    roles: list[dict[str, Any]]
    folders: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    pull: str = "never"
    timeout: float | None = None
    gpus: list[str] = field(default_factory=list)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    environments: dict[str, str] = field(default_factory=dict)


def convert(
    app: AppDef, opts: DockerOptions, scheduler: str, reach: Visibility, app_id: str
) -> DockerRequest:
    """Return the request for a job, in which ``${app_id}`` is replaced already.

    Args:
        app: the job.
        opts: its run options.
        scheduler: name of the scheduler, for messages.
        reach: from where the engine's jobs can be watched.
        app_id: the job's id.

    Raises:
        UnsupportedFeature: for a field that an engine cannot express.
        SpecError: for a value that it cannot take.
        ConfigError: for an option with a value that is not allowed.
    """
    network = opts.network
    is_single = sum(role.num_replicas for role in app.roles) == 1
    own = ""
    if not network and not is_single:
        own = names.NETWORK
    if network in BUILT_IN and not is_single:
        raise ConfigError(
            f"run option network={network!r}: replicas do not find each other there: name one of "
            "your own"
        )
    sizes = [(role.name, role.num_replicas) for role in app.roles]
    hosts = names.host_names(app_id, sizes)
    rank0 = hosts[0][0]
    if network == "host":
        rank0 = "localhost"
    gpu_ids = list(dict.fromkeys(opts.gpu_ids))  # each once
    gpus = Gpus(gpu_ids)
    context = _Context(opts, app_id, own or network or "", rank0, gpus)
    request = DockerRequest(app_id, own, [], [], pull=opts.pull)
    request.timeout = app.timeout
    request.gpus = gpu_ids
    for index, role in enumerate(app.roles):
        _check_role(role, f"roles[{index}]", opts)
        request.secrets[role.name] = dict(role.secrets)
        if role.environment is not None:
            request.environments[role.name] = str(role.environment)
        request.roles.append(_rules(role))
        folder = None
        if reach == "host":
            folder = results_mount(role)
        if folder:
            _make_first(request, folder, role.env.get(TRACKER_BASE, ""))
        checkpoints = checkpoint_folder_of(role)
        if checkpoints is not None:
            request.checkpoints.append(checkpoints)
        for k in range(role.num_replicas):
            body = _body(role, f"roles[{index}]", k, hosts[index][k], context, folder)
            request.containers.append(
                ContainerRequest(role.name, k, names.container_name(app_id, role.name, k, 0), body)
            )
    return request


def _rules(role: Role) -> dict[str, Any]:
    """Return how a role is kept, with the numbers that signals have in containers."""
    rules = rules_of(role)
    if role.notice is not None:
        rules["notice_signal"] = _NUMBERS[role.notice.signal]
    if role.on_stall == "dump":
        rules["stall_signal"] = _NUMBERS[role.stall_signal]
    return rules


def bind(
    request: DockerRequest, app_id: str, submission: Submission, reach: Visibility
) -> DockerRequest:
    """Return the request for the id that a job really gets, with its results' folder mounted."""
    request = copy.deepcopy(request)
    before = names.host_prefix(request.app_id)
    request.app_id = app_id
    folder = None
    if reach == "host":
        folder = to_mount(submission.tracker_base or "")
    for container in request.containers:
        body = container.body
        container.name = names.container_name(app_id, container.role, container.replica, 0)
        labels = body.setdefault("Labels", {})
        labels.pop(names.LABEL_CHAIN, None)
        labels |= names.id_labels(app_id)
        _rename_host(body, before, names.host_prefix(app_id))
        for number, item in enumerate(body["Env"]):
            if item.startswith("TRANSLOAD_APP_ID="):
                body["Env"][number] = f"TRANSLOAD_APP_ID={app_id}"
        mounts = body["HostConfig"].setdefault("Mounts", [])
        if folder is not None and not covered(folder, [mount["Target"] for mount in mounts]):
            mounts.append(mount_entry("bind", folder, folder, read_only=False))
            _make_first(request, folder, submission.tracker_base or "")
    return request


def _rename_host(body: dict[str, Any], before: str, after: str) -> None:
    """Give a container, and the one that it is told of, the host names of another job id."""
    labels = body["Labels"]
    labels[names.LABEL_HOST] = labels[names.LABEL_HOST].replace(before, after, 1)
    if "Hostname" in body:
        body["Hostname"] = body["Hostname"].replace(before, after, 1)
    for endpoint in body.get("NetworkingConfig", {}).get("EndpointsConfig", {}).values():
        if "Aliases" in endpoint:
            endpoint["Aliases"] = [each.replace(before, after, 1) for each in endpoint["Aliases"]]
    rank0 = f"{RANK0_ENV}={before}"
    body["Env"] = [
        item.replace(before, after, 1) if item.startswith(rank0) else item for item in body["Env"]
    ]


def _make_first(request: DockerRequest, folder: str, base: str) -> None:
    """Note the mounted folder and the job's own below it. An engine would make them as root."""
    own = local_folder(base) or folder
    for each in (folder, own, output_folder(own)):
        if each not in request.folders:
            request.folders.append(each)


def has_app_id(app: AppDef) -> bool:
    """Tell whether the runner has put the id of a job into its environment."""
    return any(role.env.get(_APP_ID) for role in app.roles)


def app_id_of(app: AppDef) -> str:
    """Return the id that the runner has put into a job's environment, or else the job's name."""
    for role in app.roles:
        handle = role.env.get(_APP_ID)
        if handle:
            return parse_app_handle(handle).app_id
    return app.name


def is_folder(image: str) -> bool:
    """Tell whether the image of a role is a folder of this machine, as for the local scheduler."""
    return image.startswith("/")


def base_image(role: Role, opts: DockerOptions) -> str:
    """Return the name of the image of a role, or "" if there is none.

    A role without an image, or with a folder of this machine, gets the default image. Where a
    role's packages are installed, that is the public Python of the built-in components.
    """
    if role.image and not is_folder(role.image):
        return role.image
    if opts.image or role.environment is None:
        return opts.image or ""
    return IMAGE


def _check_role(role: Role, path: str, opts: DockerOptions) -> None:
    base = base_image(role, opts)
    if not role.image and not base:
        advice = "name one, or set one for all that have none: run option image, [schedulers.docker] image = …"
        raise SpecError(f"{path}.image='': there is no image: {advice}")
    if is_folder(role.image) and not base:
        raise SpecError(
            f"{path}.image={role.image!r}: is a folder: name an image to mount it into (run option "
            "image)"
        )
    if role.resource.devices:
        name = next(iter(role.resource.devices))
        raise UnsupportedFeature(
            f"{path}.resource.devices[{name!r}]: not possible here: give the device as a "
            "DeviceMount",
            f"{path}.resource.devices[{name!r}]",
        )
    for port_name, port in role.port_map.items():
        if port == 0:
            raise SpecError(f"{path}.port_map[{port_name!r}]=0: must be 1 to 65535")
    for index, mount in enumerate(role.mounts):
        if not mount.dst_path.startswith("/"):
            raise SpecError(
                f"{path}.mounts[{index}].dst_path={mount.dst_path!r}: must be an absolute path"
            )
        if isinstance(mount, (BindMount, DeviceMount)) and not mount.src_path.startswith("/"):
            raise SpecError(
                f"{path}.mounts[{index}].src_path={mount.src_path!r}: must be an absolute path"
            )


@dataclass(frozen=True, slots=True)
class _Context:
    """What the bodies of all replicas share."""

    opts: DockerOptions
    app_id: str
    network: str
    rank0: str
    gpus: Gpus


def _body(
    role: Role, path: str, k: int, host: str, context: _Context, folder: str | None
) -> dict[str, Any]:
    """Return the request body for the container of a replica.

    Args:
        role: the role.
        path: its path in the definition, for messages.
        k: the number of the replica.
        host: its host name.
        context: what all replicas share.
        folder: the folder of results to mount, or None for none.
    """
    root = ""
    if is_folder(role.image) and not role.workspace:
        root = role.image
    values = macros.Values(
        img_root=root, app_id=context.app_id, replica_id=str(k), rank0_env=RANK0_ENV
    )
    role = values.apply(role)
    opts = context.opts
    image = base_image(role, opts)
    if role.workspace:
        image = f"{WORKSPACE_REPOSITORY}:<content hash>"
    body: dict[str, Any] = {
        "Image": image,
        "Env": [f"{name}={value}" for name, value in _environment(role, k, context).items()],
        "Labels": {
            **names.id_labels(context.app_id),
            names.LABEL_ROLE: role.name,
            names.LABEL_REPLICA: str(k),
            names.LABEL_HOST: host,
            names.LABEL_ATTEMPT: "0",
        },
        "HostConfig": host_config(role, path, opts, context.gpus, folder),
    }
    for device in body["HostConfig"].get("DeviceRequests") or ():
        body["Labels"][names.LABEL_GPUS] = ",".join(device["DeviceIDs"])
    if opts.image_entrypoint:
        body["Cmd"] = [role.entrypoint, *role.args]
    else:
        body["Entrypoint"] = [role.entrypoint]
        body["Cmd"] = role.args
    if root:
        mounts = body["HostConfig"].setdefault("Mounts", [])
        if not covered(root, [mount["Target"] for mount in mounts]):
            mounts.append(mount_entry("bind", root, root, read_only=True))
        body["WorkingDir"] = root
    if opts.user:
        body["User"] = opts.user
    if role.notice is not None:  # so that others who stop it give the same notice
        body["StopSignal"] = f"SIG{role.notice.signal}"
        body["StopTimeout"] = math.ceil(role.notice.seconds)
    _mount_checkpoints(body, role)
    _connect(body, host, context)
    _publish(body, role, opts)
    overlay = role.metadata.get("docker.container")
    if overlay is not None:
        if not isinstance(overlay, dict):
            raise SpecError(
                f"{path}.metadata['docker.container']: must be a dict, as the Engine API takes it"
            )
        _refuse_own(overlay, f"{path}.metadata['docker.container']")
        _merge(body, overlay)
    return body


def checkpoint_folder_of(role: Role) -> str | None:
    """Return the folder of a role's checkpoints, which its environment names, if any."""
    if not role.checkpoints:
        return None
    return role.env.get(names.CHECKPOINT_DIR)


def _mount_checkpoints(body: dict[str, Any], role: Role) -> None:
    """Mount the folder of a role's checkpoints at its own path."""
    folder = checkpoint_folder_of(role)
    if folder is None:
        return
    mounts = body["HostConfig"].setdefault("Mounts", [])
    if not covered(folder, [mount["Target"] for mount in mounts]):
        mounts.append(mount_entry("bind", folder, folder, read_only=False))


def _connect(body: dict[str, Any], host: str, context: _Context) -> None:
    """Put a container into its network."""
    if context.network == "host":
        body["HostConfig"]["NetworkMode"] = "host"
        return
    body["Hostname"] = host
    if context.network:
        body["HostConfig"]["NetworkMode"] = context.network
    if context.network and context.network not in BUILT_IN:
        body["NetworkingConfig"] = {"EndpointsConfig": {context.network: {"Aliases": [host]}}}


def _environment(role: Role, k: int, context: _Context) -> dict[str, str]:
    """Return the variables of a replica.

    The last of these that sets a variable counts: copied ones, the option ``env``, the role's, and
    ours. What belongs to the job that runs this process alone is copied only by its name.
    """
    env: dict[str, str] = {}
    patterns = context.opts.copy_env
    own = of_other_jobs(os.environ).difference(patterns)
    for name, value in os.environ.items():
        if name not in own and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            env[name] = value
    env.update(context.opts.env)
    env.update(role.env)
    env.update(
        {
            "TRANSLOAD_APP_ID": context.app_id,
            "TRANSLOAD_ROLE": role.name,
            "TRANSLOAD_REPLICA_ID": str(k),
            "TRANSLOAD_NUM_REPLICAS": str(role.num_replicas),
            RANK0_ENV: context.rank0,
            "TRANSLOAD_RETRY": "0",
            "TRANSLOAD_INTERRUPTIONS": "0",
            "TRANSLOAD_ERROR_FILE": names.ERROR_FILE,
            "TORCHELASTIC_ERROR_FILE": names.ERROR_FILE,
        }
    )
    return env


def _publish(body: dict[str, Any], role: Role, opts: DockerOptions) -> None:
    """Declare the ports of a role, and publish them on the machine as the options say."""
    if not role.port_map:
        return
    body["ExposedPorts"] = {f"{port}/tcp": {} for port in role.port_map.values()}
    how = opts.publish
    if how == "none" or (how == "auto" and role.num_replicas > 1):
        return
    bindings = body["HostConfig"]["PortBindings"] = {}
    for port in role.port_map.values():
        host_port = str(port) if how == "auto" else ""  # "": the engine chooses one
        bindings[f"{port}/tcp"] = [{"HostIp": opts.publish_address, "HostPort": host_port}]


def _refuse_own(overlay: Mapping[str, Any], path: str) -> None:
    """Refuse what stands in a body already, by which a container is known, run or looked after.

    Raises:
        SpecError: for the first such field, with what to use in its place.
    """
    found = {**overlay}
    for name, value in overlay.items():
        if name in ("HostConfig", "Labels") and isinstance(value, Mapping):
            found.update({f"{name}.{key}": each for key, each in value.items()})
    for name in found:
        if name.startswith(f"Labels.{names.PREFIX}"):
            raise SpecError(
                f"{path}: {name!r} is set by transload itself: jobs are found by it; use another "
                "label"
            )
        if name in _OWN:
            raise SpecError(f"{path}: {name!r} is set by transload itself; {_OWN[name]}")
    for item in overlay.get("Env") or ():
        if str(item).startswith("TRANSLOAD_"):
            variable = str(item).partition("=")[0]
            raise SpecError(
                f"{path}: Env {variable!r} is set by transload itself; use another name"
            )


def _merge(target: dict[str, Any], overlay: Mapping[str, Any]) -> None:
    """Merge ``overlay`` into ``target``.

    Dicts are merged key by key, lists are joined, all else is replaced.
    """
    for key, value in overlay.items():
        known = target.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            _merge(known, value)
        elif isinstance(known, list) and isinstance(value, list):
            target[key] = known + copy.deepcopy(value)
        else:
            target[key] = copy.deepcopy(value)


def format_request(request: DockerRequest) -> str:
    """Return a request as text, one JSON body per container, secrets masked."""
    lines = [f"job {request.app_id}"]
    if request.network:
        lines.append(f"network {request.network}")
    lines += [f"folder {folder}" for folder in (*request.folders, *request.checkpoints)]
    for role, sources in request.secrets.items():
        lines += [f"role {role}: secret {name} from {source}" for name, source in sources.items()]
    lines += [f"role {role}: environment {name}" for role, name in request.environments.items()]
    for container in request.containers:
        body = copy.deepcopy(container.body)
        body["Env"] = [_masked(item) for item in body.get("Env", [])]
        for part in ("Cmd", "Entrypoint"):
            if isinstance(body.get(part), list):
                body[part] = shown_args(body[part])
        lines += [f"container {container.name}", json.dumps(body, indent=2, ensure_ascii=False)]
    return "\n".join(lines)


def _masked(item: str) -> str:
    """Return a variable, as ``NAME=value``, with its value masked if it looks secret."""
    name, _, value = item.partition("=")
    if value and looks_secret(name):
        return f"{name}={MASK}"
    return masked_url(item)
