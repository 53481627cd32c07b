"""The conformance suite against the fake cluster: its pods are processes of this machine, the cluster is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from transload.schedulers.api import Scheduler
from transload.testing.schedulers import SchedulerConformance


@pytest.mark.usefixtures("fake")
class TestKubernetes(SchedulerConformance):
    """Kubernetes keeps the contract, as far as a fake can tell."""

    image: ClassVar[str] = "registry.example/shell:1"
    inherits_environment: ClassVar[bool] = False  # a container has its image's environment
    cannot: ClassVar[Mapping[str, str]] = {
        "test_streams": "Kubernetes keeps stdout and stderr of a container in one log: all lines count as stdout"
    }

    def make_scheduler(self, folder: Path) -> Scheduler:
        """Return a scheduler on the cluster that KUBECONFIG names."""
        from transload_kubernetes.scheduler import create_scheduler

        return create_scheduler("suite")
