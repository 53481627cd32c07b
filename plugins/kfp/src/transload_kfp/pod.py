"""Give a task what its job says of resources, retries, mounts, secrets, labels and nodes.

All of it is by KFP's own calls on the task, which users make for the rest.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SpecError, UnsupportedFeature
from transload.specs import AppDef, Resource, VolumeMount
from transload_kfp.ports import has_mark

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

METADATA: Final = "kfp."
"""What keys of a role's metadata that this adapter reads begin with."""
_METADATA: Final = {"labels": dict, "annotations": dict, "node_selector": dict, "tolerations": list}
_TOLERATION: Final = ("key", "operator", "value", "effect", "toleration_seconds")

GPU: Final = "nvidia.com/gpu"

LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")


def metadata_of(app: AppDef) -> dict[str, Any]:
    """Return the labels, annotations, node_selector and tolerations of the pod of a job.

    Raises:
        SpecError: for metadata that no pod can have.
        UnsupportedFeature: for metadata with the job's id in it.
    """
    made: dict[str, Any] = {name: kind() for name, kind in _METADATA.items()}
    for key, value in app.metadata.items():
        if not LABEL.match(key):
            raise SpecError(
                f"metadata[{key!r}]: must be letters, digits, '-', '_', '.': it becomes a label of "
                "the pod"
            )
        text = str(value)
        place = "labels" if LABEL_VALUE.match(text) else "annotations"  # any text can be one
        made[place][key] = text
    role = app.roles[0]
    made["node_selector"].update(
        {name: str(value) for name, value in role.resource.capabilities.items()}
    )
    for key, value in role.metadata.items():
        if not key.startswith(METADATA):
            continue
        name = key.removeprefix(METADATA)
        _check_metadata(name, value, f"roles[0].metadata[{key!r}]")
        if isinstance(value, dict):
            made[name].update({str(label): str(each) for label, each in value.items()})
        else:
            made[name] = value
    return made


def _check_metadata(name: str, value: Any, path: str) -> None:
    """Refuse metadata of a role that no pod can have.

    Args:
        name: the key, without what keys for this adapter begin with.
        value: what is there.
        path: where it is, for messages.
    """
    kind = _METADATA.get(name)
    if kind is None:
        known = ", ".join(METADATA + each for each in _METADATA)
        raise SpecError(f"{path}: must be {known}")
    if has_mark(json.dumps(value, ensure_ascii=False, default=str)):
        raise UnsupportedFeature(
            f"{path}: the job's id is known only when the pipeline runs, and what a pod is called "
            "before; it can be in args and env",
            path,
        )
    if not isinstance(value, kind):
        raise SpecError(f"{path}={value!r}: must be a {kind.__name__}")
    if name in ("labels", "node_selector"):
        for label, text in value.items():
            if not LABEL.match(str(label)) or not LABEL_VALUE.match(str(text)):
                raise SpecError(
                    f"{path}[{label!r}]={text!r}: must be at most 63 letters, digits, '-', '_', "
                    "'.', and its name too"
                )
    if name == "tolerations":
        for index, each in enumerate(value):
            if not isinstance(each, Mapping) or not set(each) <= set(_TOLERATION):
                raise SpecError(
                    f"{path}[{index}]={each!r}: must be a mapping of {', '.join(_TOLERATION)}"
                )


def give(task: PipelineTask, app: AppDef, metadata: Mapping[str, Any]) -> None:
    """Give a task what a job of one role says.

    Args:
        task: the task.
        app: the job.
        metadata: of `metadata_of`.
    """
    from kfp import kubernetes

    role = app.roles[0]
    resource = role.resource
    if resource.cpu > 0:
        cores = f"{max(1, round(resource.cpu * 1000))}m"
        task.set_cpu_request(cores).set_cpu_limit(cores)
    if resource.memMB > 0:
        task.set_memory_request(f"{resource.memMB}M").set_memory_limit(f"{resource.memMB}M")
    for kind, count in _accelerators(resource).items():
        task.set_accelerator_type(kind).set_accelerator_limit(count)
    if role.max_retries:
        task.set_retry(role.max_retries)
    for mount in role.mounts:
        if isinstance(mount, VolumeMount):
            kubernetes.mount_pvc(task, mount.src, mount.dst_path)
    use_secrets(task, role.secrets)
    for name, value in metadata["labels"].items():
        kubernetes.add_pod_label(task, name, value)
    for name, value in metadata["annotations"].items():
        kubernetes.add_pod_annotation(task, name, value)
    for name, value in metadata["node_selector"].items():
        kubernetes.add_node_selector(task, name, value)
    for toleration in metadata["tolerations"]:
        kubernetes.add_toleration(task, **toleration)
    if app.timeout is not None:
        kubernetes.set_timeout(task, max(1, math.ceil(app.timeout)))


def use_secrets(task: PipelineTask, secrets: Mapping[str, str]) -> None:
    """Give a task variables from secrets, each as ``k8s:SECRET/KEY``."""
    from kfp import kubernetes

    for variable, source in secrets.items():
        secret, _, key = source.removeprefix("k8s:").partition("/")
        kubernetes.use_secret_as_env(task, secret, {key: variable})


def _accelerators(resource: Resource) -> dict[str, int]:
    """Return kind of accelerator → how many a role asks for."""
    devices = {name: count for name, count in resource.devices.items() if count}
    if devices or resource.gpu <= 0:
        return devices
    return {GPU: resource.gpu}
