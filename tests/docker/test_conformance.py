"""The conformance suite on a real engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from transload.schedulers.api import SchedulerBase
from transload.specs import AppDef, BindMount
from transload_testing.schedulers import Program, SchedulerConformance


@pytest.mark.usefixtures("engine")
class TestDocker(SchedulerConformance):
    """Docker keeps the contract."""

    image: ClassVar[str] = "transload-test/busybox:1"
    inherits_environment: ClassVar[bool] = False  # a container has its image's environment

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return a scheduler on the test engine; state goes to the test's TRANSLOAD_HOME."""
        from transload_docker.scheduler import create_docker

        return create_docker("suite")

    def make_app(
        self, programs: Mapping[str, Program], replicas: int, folder: Path, fields: Mapping[str, Any]
    ) -> AppDef:
        """Return an app that sees the test's folder."""
        app = super().make_app(programs, replicas, folder, fields)
        for role in app.roles:
            role.mounts = [*role.mounts, BindMount(str(folder), str(folder))]
        return app
