"""The conformance suite against a real cluster, with Jobs and with JobSets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from transload.schedulers.api import SchedulerBase
from transload.specs import AppDef, BindMount, CfgVal, MountType
from transload_testing.schedulers import Program, SchedulerConformance

_APART = "REAL_CLUSTER" not in os.environ  # else it runs on this machine

_GONE = dict.fromkeys(
    ("test_notice_of_a_cancel", "test_what_does_not_heed_its_notice_is_killed"),
    "a pod that is cancelled takes its log with it",
)
_GONE["test_notice_before_the_time_limit"] = (
    "a pod that gets its notice for the time limit has failed, however it ends"
)
_UNREAD = dict.fromkeys(
    ("test_progress", "test_progress_that_makes_no_sense", "test_what_is_no_progress"),
    "nobody reads the file of a pod's progress",
)
_NO_CLAIM = dict.fromkeys(
    (
        "test_attempts_share_their_checkpoints",
        "test_checkpoints_go_with_the_last_job",
    ),
    "the namespace has no claim; see test_interruptions",
)
_NO_FOLDER = {}
if _APART:
    _NO_FOLDER["test_each_apps_results_are_its_own"] = "pods see no folder of this machine"


@pytest.mark.usefixtures("namespace")
class TestJobs(SchedulerConformance):
    """Kubernetes keeps the contract with a Job for each role."""

    image: ClassVar[str] = os.environ.get("REAL_IMAGE", "transload-test:1")
    cfg: ClassVar[Mapping[str, CfgVal]] = {
        "image_pull_policy": "IfNotPresent",
        "jobset": "never",
    }
    inherits_environment: ClassVar[bool] = False  # a container has its image's environment
    timeout: ClassVar[float] = 90.0
    longest_pause: ClassVar[float] = 0.5
    cannot: ClassVar[Mapping[str, str]] = {
        **_GONE,
        **_UNREAD,
        "test_packages_of_a_file": "pods do not reach an index of this machine",
        **_NO_CLAIM,
        **_NO_FOLDER,
    }

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return a scheduler on the cluster that KUBECONFIG names."""
        from transload_kubernetes.scheduler import create_scheduler

        scheduler = create_scheduler("suite")
        # a device takes run option privileged, so that without it the suite looks for a refusal
        scheduler.mounts = scheduler.mounts - {MountType.DEVICE}
        return scheduler

    def make_app(
        self,
        programs: Mapping[str, Program],
        replicas: int,
        folder: Path,
        fields: Mapping[str, Any],
    ) -> AppDef:
        """Make a job that counts failed starts by what the cluster tells.

        Only on a cluster of this machine pods see the folder.
        """
        counted = {name: _counted(each, folder) for name, each in programs.items()}
        app = super().make_app(counted, replicas, folder, fields)
        if not _APART:
            for role in app.roles:
                role.mounts = [*role.mounts, BindMount(str(folder), str(folder))]
        return app


def _counted(program: Program, folder: Path) -> Program:
    if not program.failures:
        return program
    rest = replace(program, failures=0).shell(folder)
    return replace(
        program,
        command=f'if [ "$TRANSLOAD_RETRY" -lt {program.failures} ]; then exit 9; fi; {rest}',
    )


class TestJobSets(TestJobs):
    """The same with JobSets."""

    cfg: ClassVar[Mapping[str, CfgVal]] = {**TestJobs.cfg, "jobset": "always"}
