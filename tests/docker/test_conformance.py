"""The conformance suite on a real engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from transload.schedulers.api import SchedulerBase
from transload.specs import AppDef, BindMount
from transload_testing.scheduler_stage import damage_file
from transload_testing.schedulers import Damage, Program, SchedulerConformance


@pytest.mark.usefixtures("engine")
class TestDocker(SchedulerConformance):
    """Docker keeps the contract."""

    image: ClassVar[str] = "transload-test/busybox:1"
    inherits_environment: ClassVar[bool] = False  # a container has its image's environment
    cannot: ClassVar[Mapping[str, str]] = {
        "test_packages_of_a_file": "its image has no Python; see test_environments"
    }

    def make_scheduler(self, folder: Path) -> SchedulerBase:
        """Return a scheduler on the test engine, with its state in the test's TRANSLOAD_HOME."""
        from transload_docker.scheduler import create_docker

        return create_docker("suite")

    def damage_record(self, folder: Path, app_id: str, damage: Damage) -> bool:
        """Damage the record in the job's folder."""
        (record,) = Path(os.environ["TRANSLOAD_HOME"]).glob(f"docker-*/apps/{app_id}/record.json")
        damage_file(record, damage)
        return True

    def make_app(
        self,
        programs: Mapping[str, Program],
        replicas: int,
        folder: Path,
        fields: Mapping[str, Any],
    ) -> AppDef:
        """Return an app that sees the test's folder."""
        app = super().make_app(programs, replicas, folder, fields)
        for role in app.roles:
            role.mounts = [*role.mounts, BindMount(str(folder), str(folder))]
        return app
