"""The scripted scheduler."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from transload.errors import AppExists, AppNotFound, SchedulerUnavailable, SpecError, SubmitError
from transload.schedulers.api import (
    AppDescription,
    ListAppResponse,
    LogPage,
    LogQuery,
    SchedulerBase,
    Stream,
    Submission,
    Visibility,
    cancel_each,
    check_replica,
)
from transload.schedulers.chains import number_in_chain
from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    Connection,
    MountType,
    Options,
    Progress,
    ReplicaAttempt,
    ReplicaStatus,
    RetryPolicy,
    RoleStatus,
    option,
)
from transload_testing.scripted.folder import Folder, default_folder
from transload_testing.scripted.script import GONE, UNAVAILABLE, Line, Moment, Script

OUTAGE: Final = "outage"
CANCEL: Final = "cancel"
END_SEEN: Final = "end seen"
ENV_REACH: Final = "TRANSLOAD_SCRIPTED_REACH"
"""Environment variable with the scheduler's ``reach``, by default ``network``."""


_app_of = functools.lru_cache(4096)(AppDef.from_json)  # of a job that is asked for again and again


@dataclass(frozen=True)
class ScriptedRequest:
    """The native request, which has the app definition and the script."""

    app: AppDef
    script: Script


@dataclass(frozen=True, kw_only=True)
class ScriptedConnection(Connection):
    """Where its jobs are."""

    scripted_dir: str | None = option("the folder of its jobs")
    token: str | None = option("not used; for tests of what becomes of secrets")


@dataclass(frozen=True, kw_only=True)
class ScriptedOptions(Options):
    """The run options of the scripted scheduler."""

    script: str | None = option(
        "the script as JSON, in place of the one in the first role's metadata"
    )
    api_key: str | None = option("not used; for tests of what becomes of secrets")


class ScriptedScheduler(SchedulerBase[ScriptedOptions]):
    """Runs nothing. The states of each job follow its script.

    The script is JSON, in the run option ``script`` or in the metadata ``scripted`` of the first
    role.

    Args:
        session_name: name of the session.
        scripted_dir: the folder, by default ``TRANSLOAD_SCRIPTED_DIR``, else below
            ``TRANSLOAD_HOME``.
        reach: from where its jobs can be watched, by default ``TRANSLOAD_SCRIPTED_REACH``, else
            ``network``.
        name: under which it is asked for.
    """

    fields = frozenset({"roles", "num_replicas", "min_replicas", "retry_delay", "timeout"})
    retries = frozenset({RetryPolicy.REPLICA, RetryPolicy.ROLE, RetryPolicy.APPLICATION})
    mounts = frozenset({MountType.BIND, MountType.VOLUME})
    options = ScriptedOptions
    connection = ScriptedConnection

    def __init__(
        self,
        session_name: str,
        scripted_dir: str | None = None,
        reach: Visibility | None = None,
        name: str = "scripted",
    ) -> None:
        self.session = session_name
        self.name = name
        self.folder = Folder(scripted_dir or default_folder())
        named: Any = os.environ.get(ENV_REACH)
        self.reach = reach or named or "network"

    def connect(self, connection: ScriptedConnection) -> None:
        """Use the folder of these settings."""
        self.connected = connection
        if connection.scripted_dir:
            self.folder = Folder(connection.scripted_dir)

    def location(self) -> str:
        """Return the folder of its jobs."""
        return str(self.folder.root)

    def convert(self, app: AppDef, opts: ScriptedOptions) -> ScriptedRequest:
        """Return the job with its script."""
        try:
            data = (
                json.loads(opts.script)
                if opts.script
                else app.roles[0].metadata.get("scripted", {})
            )
        except ValueError as exc:
            raise SpecError(f"run option script: not valid JSON: {exc}") from exc
        if not isinstance(data, Mapping):
            raise SpecError(f"script={data!r}: must be a JSON object")
        return ScriptedRequest(app, Script.from_dict(data))

    def format_request(self, request: ScriptedRequest) -> str:
        """Return the request as text."""
        return json.dumps(
            {"app": request.app.masked().to_dict(), "script": request.script.to_dict()}, indent=2
        )

    def submit(self, request: ScriptedRequest, app_id: str, submission: Submission) -> bool:
        """Start the job, with the failures in its script."""
        script = request.script
        self._play_mishaps(script, app_id, submission.app.name)
        record = {
            "app": submission.app.masked().to_json(),
            "script": script.to_dict(),
            "digest": submission.digest,
            "session": submission.session,
            "cfg": {key: value for key, value in submission.cfg.items() if key != "api_key"},
            "tracker_base": submission.tracker_base,
            "parent_run_id": submission.parent_run_id,
            "created": time.time(),
            "id_given": submission.id_given,
            "inherit_env": submission.inherit_env,
            "converted": request.app.masked().to_json(),
            "asked": dict(submission.asked),
        }
        if submission.id_given and not script.forget:
            self.folder.remember(app_id)
        started = self.folder.add(app_id, record)
        self.folder.log(call="submit", app_id=app_id, started=started, name=submission.app.name)
        if not started:
            known = self.folder.record(app_id)
            if known is not None and known["digest"] != submission.digest:
                raise AppExists(app_id)
            return False
        base = submission.tracker_base
        if base and base == self.results_folder(app_id, self.options.read(submission.cfg)):
            os.makedirs(base, exist_ok=True)
        if script.results and submission.tracker_base:
            from transload.runtime.tracking import FsspecResultTracker

            tracker = FsspecResultTracker(submission.tracker_base)
            for key, values in script.results.items():
                tracker[key] = values
        if (
            script.crash == "after"
            and self.folder.count(f"crash {submission.app.name}") < script.crashes
        ):
            self._die(app_id)
        return True

    def _play_mishaps(self, script: Script, app_id: str, name: str) -> None:
        if script.submit_seconds:
            time.sleep(script.submit_seconds)
        if script.crash == "before" and self.folder.count(f"crash {name}") < script.crashes:
            self._die(app_id)
        if self.folder.marked(OUTAGE):
            self.folder.log(call="submit", app_id=app_id, error="unavailable")
            raise SubmitError("the scripted scheduler plays an outage", transient=True)
        if script.submit_error and self.folder.count(f"error {name}") < script.submit_errors:
            self.folder.log(call="submit", app_id=app_id, error=script.submit_error)
            raise SubmitError(
                f"as its script says ({script.submit_error})",
                transient=script.submit_error == "transient",
            )

    def _die(self, app_id: str) -> None:
        self.folder.log(call="crash", app_id=app_id)
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # the signal is on its way

    def describe(self, app_ids: Collection[str]) -> dict[str, AppDescription | None]:
        """Return the current descriptions of jobs, as one query."""
        self.folder.log(call="describe", count=len(app_ids), app_id=next(iter(app_ids), None))
        records = [self.folder.record(app_id) for app_id in app_ids]
        latency = max((record["script"]["latency"] for record in records if record), default=0.0)
        if latency:
            time.sleep(latency)
        found: dict[str, AppDescription | None] = {}
        for app_id in app_ids:
            found[app_id] = self._describe_or_unknown(app_id)
        return found

    def _describe_or_unknown(self, app_id: str) -> AppDescription | None:
        try:
            return self._describe(app_id)
        except SchedulerUnavailable as exc:
            if self.folder.marked(OUTAGE):
                raise
            return AppDescription(app_id, AppStatus(AppState.UNKNOWN, msg=str(exc)))

    def _describe(self, app_id: str) -> AppDescription | None:
        if self.folder.marked(OUTAGE):
            raise SchedulerUnavailable("the scripted scheduler plays an outage")
        record = self.folder.record(app_id)
        if record is None:
            return None
        self._play_outage_at_end(app_id)
        script, moment = self._moment(app_id, record)
        if moment.ended and script.outage_at_end:
            self.folder.mark(END_SEEN, app_id)
        if moment.step.state == UNAVAILABLE:
            raise SchedulerUnavailable("as its script says")
        if moment.step.state == GONE:
            return None
        app = _app_of(record["app"])
        return AppDescription(
            app_id=app_id,
            status=_status(app, script, moment),
            app=app,
            session=record["session"],
            cfg=record["cfg"],
            digest=record["digest"],
            tracker_base=record["tracker_base"],
            parent_run_id=record["parent_run_id"],
            created=record["created"],
            log_url=script.page or str(self.folder.root),
            asked=record["asked"],
        )

    def _play_outage_at_end(self, app_id: str) -> None:
        record = self.folder.record(app_id)
        seen = self.folder.marks(app_id).get(END_SEEN)
        if record is None or seen is None:
            return
        if time.time() < seen + record["script"]["outage_at_end"]:
            raise SchedulerUnavailable("as its script says, after the end")

    def _moment(self, app_id: str, record: dict[str, Any]) -> tuple[Script, Moment]:
        script = Script.from_dict(record["script"])
        marks = self.folder.marks(app_id)
        return script, script.at(time.time(), record["created"], marks.get(CANCEL), marks)

    def existed(self, app_id: str) -> bool:
        """Tell whether an id was ever submitted."""
        if self.folder.marked(OUTAGE):
            raise SchedulerUnavailable("the scripted scheduler plays an outage")
        record = self.folder.record(app_id)
        if record is not None:
            return (
                not record["script"]["forget"] or self._moment(app_id, record)[1].step.state != GONE
            )
        return self.folder.remembered(app_id)

    def chain(self, prefix: str) -> Sequence[tuple[int, AppDescription | None]]:
        """Return the jobs of a chain, those whose ids are remembered too, as one query."""
        ids = {}
        for app_id in (*self.folder.app_ids(), *self.folder.remembered_ids()):
            number = number_in_chain(prefix, app_id)
            if number is not None:
                ids[number] = app_id
        self.folder.log(call="chain", prefix=prefix, app_id=ids.get(max(ids, default=0)))
        if self.folder.marked(OUTAGE):
            raise SchedulerUnavailable("the scripted scheduler plays an outage")
        found = []
        for number, app_id in sorted(ids.items()):
            description = self._describe_or_unknown(app_id)
            if description is not None or self.existed(app_id):
                found.append((number, description))
        return found

    def list(self) -> list[ListAppResponse]:
        """Return all jobs, newest first."""
        rows = []
        for app_id in self.folder.app_ids():
            found = self._describe(app_id)
            if found is not None and found.app is not None:
                row = ListAppResponse(
                    app_id, found.status.state, name=found.app.name, created=found.created
                )
                row.session = found.session or ""
                rows.append(row)
        return sorted(rows, key=lambda row: -(row.created or 0.0))

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Replace the rest of the scripts by the steps after a cancel."""
        return cancel_each(app_ids, self._cancel)

    def _cancel(self, app_id: str) -> bool:
        self.folder.log(call="cancel", app_id=app_id)
        if self.folder.marked(OUTAGE):
            raise SchedulerUnavailable("the scripted scheduler plays an outage")
        self.folder.mark(CANCEL, app_id)
        return self.folder.record(app_id) is not None

    def delete(self, app_id: str) -> bool:
        """Delete the job."""
        self.folder.log(call="delete", app_id=app_id)
        record = self.folder.record(app_id)
        self.folder.remove(app_id)
        if record is not None and not record["id_given"]:
            self.folder.forget(app_id)
        return record is not None

    def log_read(self, app_id: str, query: LogQuery) -> LogPage:
        """Return the next lines. The cursor counts lines."""
        if self.folder.marked(OUTAGE):
            raise SchedulerUnavailable("the scripted scheduler plays an outage")
        self._play_outage_at_end(app_id)
        lines, ended = self._source(app_id, query.role, query.replica, query.stream)
        position = skip = int(query.cursor or 0)
        max_bytes = query.max_bytes
        page: list[str] = []
        for line in lines:
            if skip >= line.repeat:
                skip -= line.repeat
                continue
            text = line.text + "\n"
            many = min(line.repeat - skip, max(1, max_bytes // len(text)))
            page += [text] * many
            position += many
            max_bytes -= many * len(text)
            skip = 0
            if max_bytes <= 0 or many < line.repeat:
                break
        total = sum(line.repeat for line in lines)
        complete = ended and position >= total
        self.folder.log(call="log_read", app_id=app_id, lines=len(page), complete=complete)
        return LogPage(page, str(position), complete, left=0 if position >= total else None)

    def _source(
        self, app_id: str, role_name: str, k: int, stream: Stream
    ) -> tuple[Sequence[Line], bool]:
        """Return the lines of one stream so far, and whether no more will come."""
        record = self.folder.record(app_id)
        if record is None:
            raise AppNotFound(app_id)
        app = AppDef.from_json(record["app"])
        check_replica(app_id, {role.name: role.num_replicas for role in app.roles}, role_name, k)
        _, moment = self._moment(app_id, record)
        first = app.roles[0].name
        lines = [
            line
            for step, _ in moment.reached
            for line in step.lines
            if (line.role or first) == role_name
            and line.replica in (k, -1)
            and (stream is Stream.COMBINED or line.stream == stream.value)
        ]
        return lines, moment.ended

    def results_folder(self, app_id: str, opts: ScriptedOptions) -> str | None:
        """Return a folder below the scheduler's own."""
        return str(self.folder.root / "results" / app_id)


def _status(app: AppDef, script: Script, moment: Moment) -> AppStatus:
    step = moment.step
    state = AppState[step.state]
    runs = [began for each, began in moment.reached if each.state == AppState.RUNNING.name]
    roles = []
    for index, role in enumerate(app.roles):
        replicas = []
        for k in range(role.num_replicas):
            replica = ReplicaStatus(k, state, role.name, "scripted", restarts=step.restarts)
            replica.start_time = runs[-1] if runs else None
            replica.interruptions = len(step.interrupted)
            replica.earlier = [
                ReplicaAttempt(AppState.CANCELLED, **attempt) for attempt in step.interrupted
            ]
            if moment.ended:
                replica.end_time = moment.since
                _end(
                    replica,
                    state,
                    failing=index == 0 and k == script.failing,
                    exit_code=script.exit_code,
                )
            replicas.append(replica)
        roles.append(RoleStatus(role.name, replicas))
    status = AppStatus(
        state, step.restarts, step.msg, roles=roles, cancel_requested=moment.cancel_requested
    )
    if step.progress is not None:
        status.progress = Progress(**{"at": moment.since, **step.progress})
    if step.ends_in is not None:
        status.ends_by = moment.since + step.ends_in
    return status


def _end(replica: ReplicaStatus, state: AppState, *, failing: bool, exit_code: int) -> None:
    if state is AppState.SUCCEEDED:
        replica.exit_code = 0
    elif state is AppState.FAILED and failing:
        replica.exit_code = exit_code
    else:
        replica.state, replica.exit_code = AppState.CANCELLED, -int(signal.SIGTERM)


def create_scheduler(session_name: str, name: str = "scripted") -> ScriptedScheduler:
    """Return a scripted scheduler. This is the factory that is registered."""
    return ScriptedScheduler(session_name, name=name)
