"""Define `Plan`, which a dry-run returns and a submit starts."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from transload.errors import ConfigError
from transload.runner.job import Job
from transload.runner.job_env import resolve_secrets
from transload.runner.packaging import named_first, not_passed
from transload.runtime.tracking.names import given_base, local_path
from transload.schedulers import environments
from transload.schedulers.api import Submission
from transload.schedulers.follower import emit
from transload.specs import (
    AppDef,
    AppDryRunInfo,
    AppHandle,
    AppState,
    AppStatus,
    CfgVal,
    make_app_handle,
)

if TYPE_CHECKING:
    from transload.runner.api import Runner
    from transload.schedulers.api import SchedulerBase

T = TypeVar("T")


@dataclass(repr=False, eq=False, kw_only=True)
class Plan(AppDryRunInfo[T]):
    """A job that can be submitted, with all that is known of it before it runs.

    ``print()`` shows the request, and `to_json` everything. Nothing outside of this process has
    been touched. The request alone may be changed before the submit.

    Attributes:
        request: the scheduler's own request.
        scheduler: name of the scheduler that it goes to.
        session: name of the session that submits it.
        app_id: its id, as the scheduler will know it.
        app: its definition, which ``describe`` will show.
        resolved: the definition that the scheduler converted. It is ``app`` with its id, the
            variables that tell it where it reports, what is passed on, and what travels with it.
        cfg: the run options in force.
        tracker_base: where it reports results. None means nowhere.
        parent_run_id: the run that it derives from.
        id_given: the caller gave the id.
        inherit_env: it gets the whole environment of the process that submits it, where its
            scheduler can do that.
        checkpoints: the name under which its checkpoints are kept. None means that it has none.
        asked: who asks, in an orchestrator's words (see `transload.schedulers.Submission`).
        reattached: the submit found the job, and started nothing.
    """

    scheduler: str
    session: str
    app_id: str
    app: AppDef
    resolved: AppDef
    cfg: dict[str, CfgVal] = field(default_factory=dict)
    tracker_base: str | None = None
    parent_run_id: str | None = None
    id_given: bool = False
    inherit_env: bool = True
    checkpoints: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    reattached: bool = False
    _runner: Runner
    _unchanged: T | None = None
    """A copy of the request, where it may have to be converted again at the submit."""

    @property
    def handle(self) -> AppHandle:
        """Return the handle that the job will have."""
        return make_app_handle(self.scheduler, self.session, self.app_id)

    @property
    def digest(self) -> str:
        """Return the digest of its definition."""
        return self.app.digest()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, with secret-looking values masked."""
        return {
            "app_id": self.app_id,
            "scheduler": self.scheduler,
            "cfg": dict(self.cfg),
            "app": self.app.masked().to_dict(),
            "request": str(self),
        }

    def to_json(self) -> str:
        """Return `to_dict` as text."""
        return json.dumps(self.to_dict())

    def variables_not_passed(self) -> list[str]:
        """Return the variables that programs usually want, are set here, and would not reach it.

        Returns:
            Their names, such as ``HF_TOKEN``, sorted. ``pass_env`` passes those that it names.
        """
        capabilities = self._runner.scheduler(self.scheduler).capabilities
        inherits = self.inherit_env and capabilities.inherits_env
        return not_passed(self.resolved, os.environ, inherits)

    def variables_to_name(self) -> list[str]:
        """Return those of `variables_not_passed` that this machine has not named before.

        From now on they count as named.
        """
        return named_first(self.variables_not_passed())

    def submit(self) -> Job:
        """Submit it, with the errors of `Runner.schedule`."""
        scheduler = self._runner.scheduler(self.scheduler)
        # before anything is copied, so that what is missing here leaves nothing behind
        secrets = resolve_secrets(
            self.resolved, scheduler, self._runner._environ, self._runner._secret_sources
        )
        submission = self._submission(secrets)
        request = self._prepared_request(scheduler, secrets)
        started = scheduler.submit(request, self.app_id, submission)
        self.reattached = not started
        if started:
            self._make_given_folder(scheduler)
            emit(self.handle, AppStatus(AppState.SUBMITTED))
        return Job(self.handle, self._runner)

    def _make_given_folder(self, scheduler: SchedulerBase) -> None:
        """Make the job's folder below a tracker base that was given for it, if it is on this disk.

        One that is missing later was removed. If it cannot be made, the job will say so.
        """
        base = self.tracker_base
        if not base or not given_base(base) or not scheduler.capabilities.shares_disk:
            return
        if local_path(base) == base:
            with contextlib.suppress(OSError):
                os.makedirs(base, exist_ok=True)

    def _submission(self, secrets: Mapping[str, Mapping[str, str]]) -> Submission:
        return Submission(
            app=self.app,
            digest=self.digest,
            session=self.session,
            cfg=self.cfg,
            tracker_base=self.tracker_base,
            parent_run_id=self.parent_run_id,
            id_given=self.id_given,
            inherit_env=self.inherit_env,
            secrets=secrets,
            checkpoints=self.checkpoints,
            asked=self.asked,
        )

    def _prepared_request(
        self, scheduler: SchedulerBase, secrets: Mapping[str, Mapping[str, str]]
    ) -> T:
        """Return the request to submit, after building what it needs.

        That may be packages or a copied workspace.

        Raises:
            ConfigError: if the caller changed the request, and what was built needs a new one.
        """
        resolved = self.resolved
        if any(role.environment for role in resolved.roles):
            self._refuse_changed(scheduler)  # before anything is installed
            resolved = environments.provide_environments(scheduler, resolved, self.cfg, secrets)
        if not scheduler.capabilities.shares_disk and any(
            each.workspace for each in resolved.roles
        ):
            from transload.runner.large_folders import announce

            announce(resolved, self.scheduler)
        prepared = scheduler.prepare(resolved, self.cfg)
        if prepared is self.resolved:
            return self.request
        self._refuse_changed(scheduler)
        request: T = scheduler.convert(prepared, self.cfg)
        return request

    def _refuse_changed(self, scheduler: SchedulerBase) -> None:
        """Refuse a request that the caller has changed, and that must be built anew.

        Raises:
            ConfigError: if it differs from what the dry-run has made.
        """
        unchanged = self._unchanged or scheduler.convert(self.resolved, self.cfg)
        if self.request != unchanged:
            raise ConfigError(
                "the request was changed after the dry-run, but it must be built anew (workspace, "
                "environment)"
            )
