"""The functions of `kfp.kubernetes` work on the task of an app as on one that somebody has written
by hand.
"""

# No "from __future__ import annotations": KFP reads the annotations of pipeline functions, and as
# types.

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apps
import launched
import pytest
from kfp import dsl, kubernetes
from test_convert import compiled

from transload_kfp import component_from_app, launcher_from_app
from transload_kfp.step import NODE

ARGUMENTS: dict[str, dict[str, Any]] = {
    "add_ephemeral_volume": {
        "volume_name": "v",
        "mount_path": "/v",
        "access_modes": ["ReadWriteOnce"],
        "size": "1Gi",
    },
    "add_node_affinity": {"match_expressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
    "add_node_affinity_json": {
        "node_affinity_json": {"requiredDuringSchedulingIgnoredDuringExecution": {}}
    },
    "add_node_selector": {"label_key": "a", "label_value": "b"},
    "add_node_selector_json": {"node_selector_json": {"a": "b"}},
    "add_pod_annotation": {"annotation_key": "a", "annotation_value": "b"},
    "add_pod_label": {"label_key": "a", "label_value": "b"},
    "add_toleration": {"key": "a", "operator": "Exists"},
    "add_toleration_json": {"toleration_json": [{"key": "a", "operator": "Exists"}]},
    "empty_dir_mount": {"volume_name": "v", "mount_path": "/v"},
    "mount_pvc": {"pvc_name": "claim", "mount_path": "/data"},
    "set_image_pull_policy": {"policy": "Always"},
    "set_image_pull_secrets": {"secret_names": ["registry"]},
    "set_security_context": {"run_as_user": 1000},
    "set_timeout": {"seconds": 20},
    "use_config_map_as_env": {"config_map_name": "m", "config_map_key_to_env": {"k": "K"}},
    "use_config_map_as_volume": {"config_map_name": "m", "mount_path": "/m"},
    "use_field_path_as_env": {"env_name": "NODE", "field_path": "spec.nodeName"},
    "use_secret_as_env": {"secret_name": "s", "secret_key_to_env": {"k": "K"}},
    "use_secret_as_volume": {"secret_name": "s", "mount_path": "/s"},
}
"""Function → its arguments besides the task."""
CLAIMS = {"CreatePVC", "DeletePVC"}
"""Tasks of their own."""


@dsl.container_component
def by_hand():
    """Return what somebody would write."""
    return dsl.ContainerSpec(image="img:1", command=["echo"])


def test_none_is_left_out() -> None:
    """Every function that kfp-kubernetes has is tried."""
    assert {*ARGUMENTS, *CLAIMS} == set(kubernetes.__all__)


def pod_of(make: Callable[[], Any], change: Callable[[Any], Any], path: Path) -> Any:
    """Return what a compiled pipeline says of the pod of one task."""

    @dsl.pipeline(name="p")
    def pipeline():
        change(make().set_display_name("it"))

    _, platform = compiled(pipeline, path)
    (pod,) = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values()
    return pod


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize(
    "make",
    [component_from_app(apps.bare), launcher_from_app(launched.failing, image="launcher:1")],
    ids=["app", "launcher"],
)
def test_on_the_task_of_an_app(name: str, make: Any, tmp_path: Path) -> None:
    """What a function does to a hand-written task it does to an app's."""

    def change(task: Any) -> Any:
        return getattr(kubernetes, name)(task, **ARGUMENTS[name])

    made = pod_of(make, change, tmp_path / "a.yaml")
    variables = [each for each in made.pop("fieldPathAsEnv", []) if each["name"] != NODE]
    if variables:  # besides the launcher's own
        made["fieldPathAsEnv"] = variables
    assert made == pod_of(by_hand, change, tmp_path / "b.yaml")


def test_a_claim_of_the_pipeline(tmp_path: Path) -> None:
    """A claim is made, mounted into an app, and deleted after it."""
    train = component_from_app(apps.bare)

    @dsl.pipeline(name="p")
    def pipeline():
        claim = kubernetes.CreatePVC(
            pvc_name_suffix="-x", access_modes=["ReadWriteMany"], size="5Gi"
        )
        task = kubernetes.mount_pvc(train(), claim.outputs["name"], "/data")
        kubernetes.DeletePVC(pvc_name=claim.outputs["name"]).after(task)

    spec, platform = compiled(pipeline, tmp_path / "p.yaml")
    assert spec["root"]["dag"]["tasks"]["deletepvc"]["dependentTasks"] == ["bare", "createpvc"]
    pod = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-bare"]
    assert pod["pvcMount"][0]["mountPath"] == "/data"
    assert pod["pvcMount"][0]["taskOutputParameter"]["producerTask"] == "createpvc"
