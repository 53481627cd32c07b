"""Tests that a scheduler refuses unsupported fields by name, before anything happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from transload.errors import ConfigError, UnsupportedFeature
from transload.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Mount,
    MountType,
    Notice,
    RetryPolicy,
    VolumeMount,
)
from transload_testing.scheduler_stage import Program, SchedulerStage, SchedulerSuite, fresh_id

_MOUNTS: Final[Mapping[MountType, Mount]] = {
    MountType.BIND: BindMount("/tmp", "/mnt"),  # noqa: S108 - never mounted
    MountType.VOLUME: VolumeMount("suite", "/mnt"),
    MountType.DEVICE: DeviceMount("/dev/null", "/dev/suite"),
}


class RefusalTests(SchedulerSuite):
    """Tests of dry-runs, options and fields."""

    def test_convert_is_pure(self, stage: SchedulerStage) -> None:
        """Converting has no effect, and gives the same result each time."""
        app = stage.app(Program(out=("a",)))
        before = app.to_json()
        app_id = fresh_id()
        texts = [str(stage.plan(app, app_id)) for _ in range(2)]
        assert app.to_json() == before
        assert texts[0] == texts[1]
        assert texts[0].strip()
        assert stage.listed() == {}

    def test_dry_run_masks_secrets(self, stage: SchedulerStage) -> None:
        """The text of a request has no value of a variable whose name looks secret."""
        app = stage.app(Program(), env={"API_TOKEN": "hunter2-value", "PLAIN": "shown"})
        text = str(stage.plan(app))
        assert "hunter2-value" not in text
        assert "shown" in text

    def test_options_describe_themselves(self, stage: SchedulerStage) -> None:
        """Every option and connection setting has a help text, and none is both.

        A misspelt one is refused.
        """
        options = stage.scheduler.options.table()
        settings = stage.scheduler.connection.table()
        for name, option in {**options, **settings}.items():
            assert option.help, name
        assert not options.keys() & settings.keys()
        assert "\n" not in stage.scheduler.location()
        with pytest.raises(ConfigError, match="no_such_option"):
            stage.plan(stage.app(Program()), cfg={"no_such_option": 1})

    @pytest.mark.parametrize("kind", list(MountType))
    def test_mounts(self, stage: SchedulerStage, kind: MountType) -> None:
        """An unsupported kind of mount is refused by its path."""
        app = stage.app(Program(), mounts=[_MOUNTS[kind]])
        self._offered_or_refused(stage, app, kind in stage.scheduler.mounts, "roles[0].mounts[0]")

    def test_ports(self, stage: SchedulerStage) -> None:
        """Ports are offered, or refused by their path."""
        app = stage.app(Program(), port_map={"web": 8080})
        self._offered_or_refused(stage, app, stage.offers("port_map"), "roles[0].port_map")

    def test_replicas(self, stage: SchedulerStage) -> None:
        """Several replicas are offered, or refused by their path."""
        app = stage.app(Program(), replicas=2)
        self._offered_or_refused(stage, app, stage.offers("num_replicas"), "roles[0].num_replicas")

    def test_roles(self, stage: SchedulerStage) -> None:
        """Several roles are offered, or refused by their path."""
        app = stage.app({"one": Program(), "two": Program()})
        self._offered_or_refused(stage, app, stage.offers("roles"), "roles")

    def test_min_replicas_is_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``min_replicas`` is offered, or refused by its path."""
        if not stage.offers("num_replicas"):
            pytest.skip("one replica only")
        app = stage.app(Program(), replicas=2, min_replicas=1)
        self._offered_or_refused(stage, app, stage.offers("min_replicas"), "roles[0].min_replicas")

    def test_timeout_is_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``AppDef.timeout`` is offered, or refused by its path."""
        app = stage.app(Program(), timeout=100.0)
        self._offered_or_refused(stage, app, stage.offers("timeout"), "timeout")

    def test_environments_are_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``Role.environment`` is offered and shown in a dry-run, or refused by its path.

        Another content of its file is another request.
        """
        file = stage.folder / "packages.txt"
        file.write_text("numpy>=1.26\n")
        app = stage.app(Program())
        if not stage.offers("with_packages"):
            with pytest.raises(UnsupportedFeature) as caught:
                stage.plan(app, environment=str(file))
            assert caught.value.field == "roles[0].environment"
            return
        app_id = fresh_id()
        before = str(stage.plan(app, app_id, environment=str(file)))
        file.write_text("numpy>=1.27\n")
        assert "packages.txt" in before
        assert before != str(stage.plan(app, app_id, environment=str(file)))

    @pytest.mark.parametrize("name", ["TERM", "USR1"])
    def test_notice_is_offered_or_refused(self, stage: SchedulerStage, name: str) -> None:
        """A notice is offered, or it is refused by its path, or its signal is."""
        app = stage.app(Program(), notice=Notice(30, name))
        offered = stage.scheduler.notice_signals
        path = "roles[0].notice"
        if offered:
            path = "roles[0].notice.signal"
        self._offered_or_refused(stage, app, name in offered, path)

    def test_checkpoints_are_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``Role.checkpoints`` is offered with a place for them, or refused by its path."""
        app = stage.app(Program(), checkpoints=True)
        offered = stage.offers("checkpoint_folder")
        if not offered:
            self._offered_or_refused(stage, app, offered, "roles[0].checkpoints")
            return
        try:
            plan = stage.plan(app, checkpoints="name")
        except UnsupportedFeature:
            return  # these options name no place
        assert plan.resolved.roles[0].env["TRANSLOAD_CHECKPOINT_DIR"]

    def test_interruptions_are_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``Role.max_interruptions`` is offered, or refused by its path."""
        app = stage.app(Program(), max_interruptions=3)
        offered = stage.offers("max_interruptions")
        self._offered_or_refused(stage, app, offered, "roles[0].max_interruptions")

    def test_stalls_are_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``Role.stall_after`` is offered, or refused by its path."""
        app = stage.app(Program(), stall_after=60.0)
        offered = stage.offers("stall_after")
        self._offered_or_refused(stage, app, offered, "roles[0].stall_after")

    def test_segments_are_offered_or_refused(self, stage: SchedulerStage) -> None:
        """``AppDef.segment`` is offered, or refused by its path."""
        app = replace(stage.app(Program(), max_interruptions=3), segment=120.0)
        offered = stage.offers("segment")
        self._offered_or_refused(stage, app, offered, "segment")

    @pytest.mark.parametrize("policy", list(RetryPolicy))
    def test_retry_policies(self, stage: SchedulerStage, policy: RetryPolicy) -> None:
        """A retry policy is offered, or refused by its path, when there are retries."""
        app = stage.app(Program(), max_retries=1, retry_policy=policy)
        self._offered_or_refused(
            stage, app, policy in stage.scheduler.retries, "roles[0].retry_policy"
        )

    def _offered_or_refused(
        self, stage: SchedulerStage, app: AppDef, offered: bool, path: str
    ) -> None:
        if offered:
            stage.plan(app)
            return
        with pytest.raises(UnsupportedFeature) as caught:
            stage.plan(app)
        assert caught.value.field == path
        assert path in str(caught.value)
