"""The conformance suite on a real engine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from transload.schedulers.api import SchedulerBase
from transload.specs import AppDef, BindMount
from transload_docker import names
from transload_docker.plan import RECORD
from transload_testing.schedulers import Damage, Program, SchedulerConformance, damaged_text


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
        """Replace the volume of the record by one with a damaged label.

        No volume can be a folder or a FIFO.
        """
        if damaged_text("{}", damage) is None:
            return False
        import docker  # noqa: TID251 - the tests of the plugin may

        with contextlib.closing(docker.APIClient(base_url=os.environ["DOCKER_HOST"])) as client:
            name = names.volume_name(app_id, RECORD)
            labels = client.inspect_volume(name)["Labels"]
            labels[names.LABEL_DATA] = damaged_text(labels[names.LABEL_DATA], damage)
            client.remove_volume(name)
            client.create_volume(name, labels=labels)
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
