"""Run the conformance suite on the fake cluster, whose pods are processes of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from transload.schedulers.api import SchedulerBase
from transload.specs import CfgVal, MountType
from transload_kubernetes.cluster import Cluster
from transload_kubernetes.names import place
from transload_testing.scheduler_apps import AppTests
from transload_testing.scheduler_identity import IdentityTests
from transload_testing.scheduler_interruptions import InterruptionTests
from transload_testing.scheduler_stage import SchedulerSuite
from transload_testing.schedulers import Damage, SchedulerConformance, damaged_text

_GONE = "a pod that is cancelled takes its log with it"
_STAYS = "what is in a claim stays there"
_UNREAD = "nobody reads the file of a pod's progress"
_FAILED = "a pod that gets its notice for the time limit has failed, however it ends"
_NO_STREAM = "kubectl runs no command in a pod that is made up; see the suite on a real cluster"


class OnFake(SchedulerSuite):
    """Jobs on the fake cluster."""

    image: ClassVar[str] = "registry.example/shell:1"
    inherits_environment: ClassVar[bool] = False  # a container has its image's environment
    cannot: ClassVar[Mapping[str, str]] = {
        "test_notice_of_a_cancel": _GONE,
        "test_what_does_not_heed_its_notice_is_killed": _GONE,
        "test_notice_before_the_time_limit": _FAILED,
        "test_checkpoints_go_with_the_last_job": _STAYS,
        "test_progress": _UNREAD,
        "test_progress_that_makes_no_sense": _UNREAD,
        "test_what_is_no_progress": _UNREAD,
        "test_signal_to_one_replica": _NO_STREAM,
        "test_signal_to_all_replicas": _NO_STREAM,
        "test_a_command_beside_a_replica": _NO_STREAM,
    }

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return a scheduler on the cluster that KUBECONFIG names."""
        from transload_kubernetes.scheduler import create_scheduler

        scheduler = create_scheduler("suite")
        # a device takes run option privileged, so that without it the suite looks for a refusal
        scheduler.mounts = scheduler.mounts - {MountType.DEVICE}
        return scheduler

    def damage_record(self, folder: Path, app_id: str, damage: Damage) -> bool:
        """Damage the plan in the ConfigMap of the record, which can be no folder and no FIFO."""
        if damaged_text("{}", damage) is None:
            return False
        cluster = Cluster()
        namespace, name = place(app_id)
        record = cluster.get("ConfigMap", namespace, name)
        assert record is not None
        change = {"data": {"plan": damaged_text(record["data"]["plan"], damage)}}
        cluster.patch("ConfigMap", namespace, name, change)
        cluster.close()
        return True


@pytest.mark.usefixtures("fake", "claim")
class TestKubernetes(OnFake, SchedulerConformance):
    """Kubernetes keeps the contract, as far as a fake can tell."""

    cfg: ClassVar[Mapping[str, CfgVal]] = {"jobset": "never", "checkpoint_claim": "kept"}


@pytest.mark.usefixtures("fake", "claim")
class TestJobSet(OnFake, AppTests, IdentityTests, InterruptionTests):
    """The same with a JobSet instead of Jobs. Logs and refusals do not depend on that."""

    cfg: ClassVar[Mapping[str, CfgVal]] = {"jobset": "always", "checkpoint_claim": "kept"}
