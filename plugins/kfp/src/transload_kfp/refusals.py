"""What a single component cannot express, by field name. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from transload.errors import SpecError, UnsupportedFeature
from transload.pipelines import Launch
from transload.specs import (
    NO_ENVIRONMENT,
    AppDef,
    BindMount,
    DeviceMount,
    JobMount,
    RetryPolicy,
    Role,
    VolumeMount,
)
from transload_kfp.inline import MARK
from transload_kfp.ports import placeholder_in

LAUNCHER: Final = "launcher_from_app runs it through a scheduler"
_WORKSPACE: Final = "/kfp-workspace"
_K8S_VARIABLE: Final = re.compile(r"\$\(([^()\s]+)\)")
_KFP_VARIABLE: Final = "KFP_"
"""How variables begin that a backend gives to every container.

They hold the pod's name, or the number of the try.
"""


def _kinds_of_accelerators(role: Role) -> int:
    """Return how many kinds of accelerators a role asks for."""
    kinds = sum(count > 0 for count in role.resource.devices.values())
    return kinds + (role.resource.gpu > 0)


def _needs_packages(role: Role) -> bool:
    return role.environment is not None and not role.environment.is_none


_IMPOSSIBLE: Final[Mapping[str, tuple[Callable[[Role], object], str]]] = {
    "num_replicas": (
        lambda role: role.num_replicas != 1,
        "there is no gang of containers, and more than one is wanted",
    ),
    "min_replicas": (
        lambda role: role.min_replicas not in (None, 1),
        "a component ends well or fails",
    ),
    "port_map": (lambda role: role.port_map, "ports cannot be mapped"),
    "workspace": (
        lambda role: role.workspace is not None,
        "local code needs an image that is built with it",
    ),
    "notice": (lambda role: role.notice is not None, "no warning can be given before the end"),
    "checkpoints": (lambda role: role.checkpoints, "there is no folder that all tries share"),
    "max_interruptions": (
        lambda role: role.max_interruptions,
        "interruptions are not distinguished from failures",
    ),
    "environment": (_needs_packages, "packages need an image that is built with them"),
    "progress_server": (
        lambda role: role.progress_server,
        "a container finds no server for its progress",
    ),
    "stall_after": (
        lambda role: role.stall_after is not None,
        "it is not watched whether it has stalled",
    ),
    "retry_policy": (
        lambda role: role.retry_policy is RetryPolicy.HOT_SPARE,
        "there are no spare containers (HOT_SPARE)",
    ),
    "resource.devices": (
        lambda role: _kinds_of_accelerators(role) > 1,
        "only one kind of accelerator can be asked for",
    ),
}
"""Field of a role that one container cannot have → what tells whether it is asked for, and why."""

_NO_CLAIMS: Final[Mapping[type, str]] = {
    JobMount: "files of a job are mounted where it ran",
    BindMount: "bind mounts of the host are not possible",
    DeviceMount: "device mounts of the host are not possible",
}
"""Kind of mount that no claim can be → why."""


_OF_A_SUBMIT: Final = (
    "scheduler",
    "cfg",
    "workspace",
    "tracker_base",
    "pass_env",
    "checkpoints",
    "environment",
)
"""Fields of a launch that mean something only where a job is submitted."""


def submit_fields(launch: Launch) -> list[str]:
    """Return the fields of a launch that are given, and mean something only where it is submitted."""
    given = {name: getattr(launch, name) for name in _OF_A_SUBMIT}
    if str(given["environment"]) == NO_ENVIRONMENT:
        del given["environment"]
    return [name for name, value in given.items() if value]


def refuse_submit_fields(launch: Launch) -> None:
    """Refuse fields of a launch that one component would ignore.

    Raises:
        UnsupportedFeature: by field name.
    """
    for name in submit_fields(launch):
        _refuse(f"launch.{name}", f"a component is not submitted; {LAUNCHER}")


def refuse_inexpressible(app: AppDef) -> None:
    """Refuse a job that one component cannot be.

    Raises:
        UnsupportedFeature: by field name. The message says what can run it.
        SpecError: for a value that no container can have.
    """
    if len(app.roles) != 1:
        _refuse("roles", f"a component is one container, not {len(app.roles)} roles; {LAUNCHER}")
    if app.segment is not None:
        _refuse("segment", f"a task cannot go on in a further segment; {LAUNCHER}")
    role = app.roles[0]
    path = "roles[0]"
    _check_text(f"{path}.image", role.image, set())
    if app.timeout is not None and role.max_retries:
        _refuse(
            "timeout",
            "a time limit holds for each try, not for all of them; set max_retries to 0, or "
            f"{LAUNCHER}",
        )
    for name, (is_asked_for, why) in _IMPOSSIBLE.items():
        if is_asked_for(role):
            _refuse(f"{path}.{name}", f"{why}; {LAUNCHER}")
    for index, mount in enumerate(role.mounts):
        if type(mount) in _NO_CLAIMS:
            _refuse(f"{path}.mounts[{index}]", f"{_NO_CLAIMS[type(mount)]}; {LAUNCHER}")
        if isinstance(mount, VolumeMount) and mount.read_only:
            _refuse(
                f"{path}.mounts[{index}].read_only", f"a claim is mounted for writing; {LAUNCHER}"
            )
    if not role.image or role.image.startswith(("/", ".", "<")):
        raise SpecError(
            f"{path}.image={role.image!r}: must be the name of a container image; {LAUNCHER} that "
            "takes folders"
        )
    for name, source in role.secrets.items():
        kind, _, rest = source.partition(":")
        if kind != "k8s" or not all(rest.partition("/")):
            _refuse(
                f"{path}.secrets[{name!r}]",
                f"{source!r} would have to be resolved when compiling; use k8s:SECRET/KEY, or "
                f"{LAUNCHER}",
            )
    for name in role.resource.capabilities:
        if "/" not in name:
            _refuse(
                f"{path}.resource.capabilities[{name!r}]",
                "only labels of nodes, whose name has a '/', can be demanded; set node_selector, "
                f"or {LAUNCHER}",
            )


def has_mark(text: str) -> bool:
    """Tell whether a text depends on a value that is known only when the pipeline runs."""
    return MARK.search(text) is not None


def marks_in(role: Role) -> set[str]:
    """Return the names of all values of the run in the texts of a role."""
    texts = [role.entrypoint, *role.args, *role.env.values()]
    return {name for text in texts for name in MARK.findall(text)}


def refuse_reinterpreted(role: Role, *, wrapped: bool) -> None:
    """Refuse texts that Kubeflow Pipelines would not take literally.

    Args:
        role: the role, with marks in place of inputs.
        wrapped: whether the command travels encoded, so that KFP does not read it. Plain variables
            never do.
    """
    texts = {}
    if not wrapped:
        texts["entrypoint"] = role.entrypoint
        texts |= {f"args[{k}]": arg for k, arg in enumerate(role.args)}
    known = {*role.env, *role.secrets}
    for where, text in texts.items():
        _check_text(f"roles[0].{where}", text, known)
    for name, text in role.env.items():
        if not has_mark(text):
            _check_text(f"roles[0].env[{name!r}]", text, known)


def _check_text(path: str, text: str, variables: set[str]) -> None:
    literal = MARK.sub("\0", text)
    encoded = ".env" not in path and ".image" not in path
    cure = LAUNCHER
    if encoded:
        cure = "declare results (results={} is enough), which passes it encoded"
    found = placeholder_in(literal)
    if found is not None:
        _refuse(
            path,
            f"{text!r} would be read as a placeholder of Kubeflow Pipelines ({found!r}); {cure}",
        )
    if _WORKSPACE in literal:
        _refuse(path, f"{text!r} would be read as the workspace of Kubeflow Pipelines; {cure}")
    if "$$" in literal:
        _refuse(path, f"{text!r}: a cluster would read '$$' as '$'; {cure}")
    for name in _K8S_VARIABLE.findall(literal):
        if name in variables or name.startswith(_KFP_VARIABLE):
            _refuse(
                path,
                f"{text!r}: a cluster would put the value of the variable {name} there; {cure}",
            )


def _refuse(path: str, why: str) -> NoReturn:
    raise UnsupportedFeature(
        f"{path}: not possible as a component of Kubeflow Pipelines: {why}", path
    )
