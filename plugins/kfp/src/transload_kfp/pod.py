"""Give a task what its job says of resources, retries, mounts, secrets, labels and nodes.

All of it is by KFP's own calls on the task, which users make for the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from transload.errors import SpecError
from transload.specs import AppDef, Resource, VolumeMount

if TYPE_CHECKING:
    from kfp.dsl import PipelineTask

GPU: Final = "nvidia.com/gpu"

LABEL: Final = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")


def check_metadata(app: AppDef) -> None:
    """Refuse metadata that no pod can have, and what KFP's own calls on the task say.

    Raises:
        SpecError: by its key.
    """
    for key in app.metadata:
        if not LABEL.match(key):
            raise SpecError(
                f"metadata[{key!r}]: must be letters, digits, '-', '_', '.': it becomes a label of "
                "the pod"
            )
    for key in app.roles[0].metadata:
        if key.startswith("kfp."):
            raise SpecError(
                f"roles[0].metadata[{key!r}]: is set by KFP's own calls on the task that the "
                "component returns, such as kubernetes.add_pod_label(task, 'team', 'vision')"
            )


def give(task: PipelineTask, app: AppDef) -> None:
    """Give a task what a job of one role says. Its metadata are labels, or else annotations."""
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
    for name, value in resource.capabilities.items():
        kubernetes.add_node_selector(task, name, str(value))
    for name, value in app.metadata.items():
        if LABEL_VALUE.match(str(value)):
            kubernetes.add_pod_label(task, name, str(value))
        else:
            kubernetes.add_pod_annotation(task, name, str(value))
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
