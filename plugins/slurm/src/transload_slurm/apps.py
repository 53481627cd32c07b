"""The jobs of a cluster whose tools and disk are here, on this machine or a login node."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from transload.errors import SchedulerUnavailable
from transload.keeper import layout
from transload.keeper.rules import cancelled_for
from transload.schedulers.api import (
    ExecCommand,
    Submission,
    Watch,
    cancel_each,
    check_replica,
)
from transload.schedulers.cancelling import asker
from transload.schedulers.folder import store
from transload.schedulers.folder.scheduler import FolderScheduler
from transload.schedulers.patience import backoff
from transload.specs import AppDef, AppState, AppStatus, SpecError
from transload_slurm import commands, packages
from transload_slurm import diagnose as _diagnose
from transload_slurm import submission as submitting
from transload_slurm.blobs import Blobs
from transload_slurm.convert import COMMENT, SlurmRequest, comment_of, convert
from transload_slurm.decide import FORGOTTEN, decide, is_unreported, written_end
from transload_slurm.inside import RunningRole
from transload_slurm.jobs import Job, Jobs, seconds_until
from transload_slurm.states import PUT_BACK, clean, ended, to_state
from transload_slurm.store import (
    ensure,
    is_due,
    last_line,
    of_slurm,
    remove,
    roles_of,
    slurm_job,
    state_of,
    write_file,
)
from transload_slurm.watch import OVER, SlurmWatch

if TYPE_CHECKING:
    from transload_slurm.options import SlurmOptions

_CANCEL_S: Final = 60.0
_OVERDUE_S: Final = 60.0
_LOG_AGE_S: Final = 10.0
_FIRST_LOOK_S: Final = 0.2
_LONGEST_LOOK_S: Final = 2.0
_LIFT_S: Final = 2.0
_HOLD_S: Final = 3
_DOUBT_S: Final = 10.0
_DAY_S: Final = 86400.0


class Apps(FolderScheduler):
    """Runs jobs on the Slurm whose tools are here, and describes them.

    It is thread-safe. Threads that ask Slurm live as long as the question.

    Args:
        root: the folder of the jobs, which the nodes share.
        blobs: has the workspaces, if they travel. By default they are on this machine.
    """

    name = "slurm"

    def __init__(self, root: str, blobs: Blobs | None = None) -> None:
        self.home = root
        self._blobs = blobs
        self.jobs = Jobs(f"{root}/.asked-{os.uname().nodename}")
        self._lifted: dict[str, tuple[str, float]] = {}
        self._doubted: dict[str, float] = {}
        self._seen: dict[str, tuple[dict[str, Any] | None, float]] = {}

    def convert(self, app: AppDef, opts: SlurmOptions) -> SlurmRequest:
        """Return the request for ``app``. Pure."""
        return convert(app, opts)

    def slurm_job(self, app_id: str) -> str | None:
        """Return the id of a job in Slurm, once it has one."""
        return slurm_job(self.home, app_id)

    def submit(self, request: SlurmRequest, app_id: str, submission: Submission) -> bool:
        """Submit a job, or reattach to it, as `submit_once` does."""
        return self.submit_once(request, app_id, submission)

    def submit_once(
        self,
        request: SlurmRequest,
        app_id: str,
        submission: Submission,
        mark: str = "",
        check: submitting.Check = submitting.still_wanted,
    ) -> bool:
        """Submit a job, or reattach to it.

        If this fails, nothing has been submitted.

        Args:
            request: the request.
            app_id: id of the app.
            submission: what comes with it.
            mark: tells this submit from others when it is tried again.
            check: raises SubmitError once the submitter has given up. By default it waits in this
                process.

        Raises:
            AppExists: if the id is, or was, another job's.
            SpecError: if a workspace is not there, or a secret was not resolved.
            SubmitError: if Slurm did not take it. Nothing runs, now or later.
        """
        lay: submitting.Lay = submitting.copy
        if self._blobs is not None:
            lay = self._blobs.lay
        started = submitting.submit(self.home, request, app_id, submission, mark, lay, check)
        if started:
            job_id = self.slurm_job(app_id)
            if job_id is not None:
                self.jobs.accepted(job_id, app_id)
        keep = submission.cfg.get("keep_days")
        if isinstance(keep, (int, float)) and is_due(self.home, _DAY_S):
            with contextlib.suppress(SchedulerUnavailable, OSError):
                self.prune(older_than=keep * _DAY_S)
        record = store.read_record(self.home, app_id) or {}
        return started or of_slurm(record).get("mark") == mark

    def missing_packages(self, names: Collection[str]) -> list[str]:
        """Return those of these files, beside the jobs, that are not there."""
        return packages.missing(self.home, names)

    def lay_packages(self, folder: str) -> None:
        """Put the files of a folder beside the jobs."""
        ensure(self.home)
        packages.lay(self.home, folder)

    def prefetch(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Have uv fetch packages into its cache (see `packages.prefetch`)."""
        packages.prefetch(words, variables)

    def withdraw(self, app_id: str, mark: str) -> None:
        """Take back a submit that bears ``mark``, since its submitter does not want it any more."""
        record = store.read_record(self.home, app_id) or {}
        if of_slurm(record).get("mark") == mark:
            submitting.take_back(self.home, app_id)
            remove(self.home, app_id, forget=True)

    # -- afterwards

    def statuses(self, app_ids: Collection[str]) -> dict[str, AppStatus | None]:
        """Return how jobs are doing, with one query to Slurm for all that have not ended."""
        return self._statuses(app_ids, 0.0)

    def _statuses(self, app_ids: Collection[str], max_age: float) -> dict[str, AppStatus | None]:
        found: dict[str, AppStatus | None] = {}
        open_: dict[str, tuple[dict[str, Any], str]] = {}
        for app_id in app_ids:
            found[app_id] = None
            try:
                record = store.read_record(self.home, app_id)
            except SchedulerUnavailable as exc:
                found[app_id] = AppStatus(AppState.UNKNOWN, msg=str(exc))
                continue
            if record is None:
                continue
            if not record:
                found[app_id] = self._damaged(app_id)
                continue
            status, job_id = self._without_asking(app_id, record)
            if status is not None:
                found[app_id] = status
            elif job_id is not None:
                open_[app_id] = (record, job_id)
        if open_:
            found.update(self._asked(open_, max_age))
        return {app_id: self._completed(app_id, status) for app_id, status in found.items()}

    def _asked(
        self, open_: Mapping[str, tuple[dict[str, Any], str]], max_age: float
    ) -> dict[str, AppStatus | None]:
        """Return how jobs are doing that Slurm has to be asked about."""
        problem = ""
        jobs: dict[str, Job | None] = {}
        try:
            # a keeper may write the end while Slurm takes its time
            jobs = self.jobs.ask(
                {job_id for _, job_id in open_.values()},
                max_age,
                lambda: all(map(self._is_known, open_)),
            )
        except SchedulerUnavailable as exc:
            problem = str(exc)
        if not jobs and not problem:
            return self._statuses(open_, max_age)
        asked = {job_id: self.jobs.asked_at(job_id, job) for job_id, job in jobs.items()}
        found: dict[str, AppStatus | None] = {}
        for app_id, (record, job_id) in open_.items():
            if problem:
                found[app_id] = self._unreachable(app_id, record, problem)
            else:
                found[app_id] = self._judge(app_id, record, job_id, jobs[job_id], asked[job_id])
        return found

    def _completed(self, app_id: str, status: AppStatus | None) -> AppStatus | None:
        """Return a status with the time of its end, and the number that Slurm's tools know."""
        if status is None:
            return None
        if status.is_terminal():
            status.close(self.ended_at(app_id))
        if "slurm_job" not in status.engine:
            job_id = self.slurm_job(app_id)
            if job_id is not None:
                status.engine = {"slurm_job": job_id, **status.engine}
        return status

    def _damaged(self, app_id: str) -> AppStatus:
        """Return what is known of a job whose record is damaged: its end, if it was written."""
        state = state_of(self.home, app_id)
        if state is not None and written_end(state):
            return AppStatus.from_dict(state)
        return AppStatus(AppState.UNKNOWN)

    def _without_asking(
        self, app_id: str, record: dict[str, Any]
    ) -> tuple[AppStatus | None, str | None]:
        """Return a job's status if its folder is enough to know it, else the id of its Slurm job.

        Both are None if there is no such job.
        """
        folder = layout.app_folder(self.home, app_id)
        state = state_of(self.home, app_id)
        request = self._request(app_id)
        last = _last_word(folder)
        if written_end(state):
            return decide(record, state, None, request=request), None
        if last is not None:
            return self._concluded(app_id, record, state, last), None
        job_id = self.slurm_job(app_id)
        if job_id is not None:
            self._seen_at(app_id, state)  # before Slurm is asked
            return None, job_id
        if submitting.being_submitted(folder):
            return decide(
                record,
                None,
                Job("", "", "PENDING", "being submitted"),
                request=request,
            ), None
        try:
            return None, submitting.find_again(self.home, app_id)
        except SchedulerUnavailable as exc:
            return AppStatus(AppState.UNKNOWN, msg=str(exc)), None

    def _request(self, app_id: str) -> str:
        """Return who asked for the end of a job through us, in words, or ``""`` if nobody did."""
        folder = layout.app_folder(self.home, app_id)
        if not layout.is_end_asked(folder):
            return ""
        return cancelled_for(layout.who_asked(folder))

    def _unreachable(self, app_id: str, record: dict[str, Any], problem: str) -> AppStatus:
        state = state_of(self.home, app_id)
        status = decide(record, state, None, request=self._request(app_id))
        if not written_end(state):
            status.state = AppState.UNKNOWN
            status.msg = problem
        return status

    def _seen_at(self, app_id: str, state: dict[str, Any] | None) -> float:
        """Return when this process first saw what a keeper has written, by the monotonic clock."""
        known = self._seen.get(app_id)
        if known is not None and known[0] == state:
            return known[1]
        now = time.monotonic()
        self._seen[app_id] = (state, now)
        return now

    def _judge(
        self, app_id: str, record: dict[str, Any], job_id: str, job: Job | None, asked: float
    ) -> AppStatus:
        """Return the status of a job by Slurm's answer, and the time when Slurm was asked for it."""
        if job is not None and not self._is_ours(app_id, job):
            job = None  # Slurm has begun to count anew: that is another job
        state = state_of(
            self.home, app_id
        )  # after Slurm was asked: its end may have come meanwhile
        present = self.slurm_job(app_id)
        if job is not None and present not in (job_id, None):  # it was submitted again meanwhile
            job = replace(job, id=str(present), state="PENDING", reason="")
        elif job is not None and _runs(state) and asked < self._seen_at(app_id, state):
            # Slurm was asked before the replicas started: that the job waits is out of date
            job = replace(job, state=_not_waiting(job.state))
        if job is not None:
            job = self._as_believed(record, state, job)
        if job is not None and ended(job.state):
            with contextlib.suppress(OSError):
                write_file(
                    f"{layout.app_folder(self.home, app_id)}/slurm.json", json.dumps(asdict(job))
                )
            self._seen.pop(app_id, None)
        self._lift(app_id, job)
        return self._concluded(app_id, record, state, job)

    @staticmethod
    def _is_ours(app_id: str, job: Job) -> bool:
        """Tell whether a Slurm job is ours, by its comment, and else by its name."""
        if f"{job.comment} ".startswith(f"{COMMENT}{app_id} "):
            return True
        return job.name in (app_id, "")

    def _as_believed(self, record: dict[str, Any], state: dict[str, Any] | None, job: Job) -> Job:
        """Return the job, as one that has not ended while its end is in doubt.

        For some seconds after Slurm reports an end, the job may be put back into the queue, or its
        keeper may still write.
        """
        if job.source == "squeue":
            if (
                of_slurm(record).get("requeue")
                and clean(job.state) in PUT_BACK
                and self._is_doubted(job)
            ):
                return replace(job, state="PENDING", reason=clean(job.state))
            if ended(job.state) and is_unreported(state, job) and self._is_doubted(job):
                return replace(job, state="COMPLETING")
        if not ended(job.state):
            self._doubted.pop(job.id, None)
        return job

    def _is_doubted(self, job: Job) -> bool:
        """Tell whether the job's end was seen for the first time a few seconds ago."""
        return time.monotonic() - self._doubted.setdefault(job.id, time.monotonic()) < _DOUBT_S

    def _concluded(
        self, app_id: str, record: dict[str, Any], state: dict[str, Any] | None, job: Job | None
    ) -> AppStatus:
        """Return the status of a job, from what its keeper wrote and Slurm says."""
        folder = layout.app_folder(self.home, app_id)
        note = ""
        if job is not None and ended(job.state):
            note = last_line(f"{folder}/batch.log")
        return decide(
            record,
            state,
            job,
            request=self._request(app_id),
            note=note,
        )

    def _lift(self, app_id: str, job: Job | None) -> None:
        """Shorten the two minutes for which Slurm holds a job that it has put back in the queue.

        Some seconds are left: within the second in which the job was ended, its nodes take the new
        start for the old one.
        """
        if job is None or job.reason != "BeginTime":
            return
        if not os.path.exists(f"{layout.app_folder(self.home, app_id)}/claim"):
            return  # it has not run before
        # only once: by a clock that is behind the controller's it would seem held for ever
        done, tried = self._lifted.get(job.id, ("", -_LIFT_S))
        now = time.monotonic()
        if job.start <= done or now - tried < _LIFT_S or seconds_until(job.start) < 2 * _HOLD_S:
            return
        command = ["scontrol", "update", f"jobid={job.id}", f"StartTime=now+{_HOLD_S}"]
        with contextlib.suppress(SchedulerUnavailable):
            if commands.run(command, _CANCEL_S).code == 0:
                done = job.start
            self._lifted[job.id] = (done, now)

    def existed(self, app_id: str) -> bool:
        """Tell whether a job of that id is or was here.

        Of deleted jobs, only those count whose id the caller gave.
        """
        record = store.read_record(self.home, app_id)
        if not record:
            return super().existed(app_id)
        # a submitter that died before it reached Slurm leaves a folder, but no job
        return self._without_asking(app_id, record) != (None, None)

    def watch(self, changed: Callable[[Collection[str]], object]) -> Watch:
        """Return a new watch."""
        return SlurmWatch(self._places, self._words, changed)

    def _places(self, app_id: str) -> list[str]:
        folder = layout.app_folder(self.home, app_id)
        return [folder, f"{folder}/slurm.json", layout.state_file(folder)]

    def _record_or_none(self, app_id: str) -> dict[str, Any] | None:
        """Return the record of a job, or None if there is none or it cannot be read."""
        try:
            return store.read_record(self.home, app_id) or None
        except SchedulerUnavailable:
            return None

    def _words(self, app_ids: Collection[str]) -> dict[str, str]:
        """Return Slurm's words for those jobs that have not ended."""
        jobs: dict[str, str] = {}
        for app_id in app_ids:
            record = self._record_or_none(app_id)
            if record is not None and _last_word(layout.app_folder(self.home, app_id)) is None:
                job_id = self.slurm_job(app_id)
                if job_id is not None and not written_end(state_of(self.home, app_id)):
                    jobs[app_id] = job_id
        if not jobs:
            return {}
        known = self.jobs.ask(set(jobs.values()))
        words = {}
        for app_id, job_id in jobs.items():
            job = known[job_id]
            self._lift(app_id, job)
            words[app_id] = _word_of(job)
        return words

    def cancel(self, app_ids: Collection[str]) -> set[str]:
        """Ask Slurm to end jobs, without waiting for it.

        An ended job stays.

        Returns:
            Those of the ids that there are jobs of.

        Raises:
            SchedulerUnavailable: if Slurm cannot be asked for one, or refuses.
        """
        return cancel_each(app_ids, self._cancel)

    def _cancel(self, app_id: str) -> bool:
        record = store.read_record(self.home, app_id)
        if record == {}:
            self._cancel_damaged(app_id)
            return True
        if record is None or self._is_known(app_id):
            return record is not None
        folder = layout.app_folder(self.home, app_id)
        first = False
        with contextlib.suppress(OSError):
            was_asked = layout.is_end_asked(folder)
            layout.ask_for_end(folder, asker())
            first = not was_asked
        job_id = self.slurm_job(app_id)
        if job_id is None:  # whoever submits it sees the file
            if submitting.being_submitted(folder):
                return True
            job_id = submitting.find_again(self.home, app_id)
        if job_id is not None:
            answer = self._scancel(app_id, record, job_id, first=first)
            self.jobs.drop(job_id)
            if answer.code != 0 and not answer.too_late:
                if first and not answer.unreachable:
                    with contextlib.suppress(
                        OSError
                    ):  # refused: nothing is to end later on account of this
                        os.unlink(f"{folder}/cancel")
                raise SchedulerUnavailable(
                    f"job {app_id!r} was not cancelled: scancel: {answer.complaint}"
                )
        return True

    def _scancel(
        self, app_id: str, record: dict[str, Any], job_id: str, *, first: bool
    ) -> commands.Answer:
        """End a job. Its keeper ends one that gets a notice before.

        Args:
            app_id: the job.
            record: its record.
            job_id: its Slurm job.
            first: its end was not asked for before.
        """
        seconds = float(of_slurm(record).get("notice") or 0.0)
        if not seconds or not self._may_run(app_id):
            return commands.run(["scancel", job_id], _CANCEL_S)
        asked = time.time()
        if not first:
            with contextlib.suppress(OSError):
                asked = os.stat(f"{layout.app_folder(self.home, app_id)}/cancel").st_mtime
        if time.time() - asked > seconds + _OVERDUE_S:  # its keeper has not seen it
            return commands.run(["scancel", job_id], _CANCEL_S)
        # a job that waits, perhaps once more, gets no notice
        commands.run(["scancel", "--state=PENDING", job_id], _CANCEL_S)
        # the batch script alone gets it: its keeper looks for the file
        return commands.run(["scancel", "--batch", "--signal=CONT", job_id], _CANCEL_S)

    def signal(self, app_id: str, replicas: Collection[tuple[str, int]], name: str) -> None:
        """Send a signal to the main processes of replicas, by one step for each role."""
        by_role: dict[str, list[int]] = {}
        for role, k in replicas:
            by_role.setdefault(role, []).append(k)
        for role, numbers in by_role.items():
            self._running(app_id, role, max(numbers)).signal(numbers, name)

    def exec_command(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> ExecCommand:
        """Return how to run a command on a replica's node, by a step of its Slurm job."""
        argv = self.step_beside(app_id, role, k, command, terminal=terminal)
        return ExecCommand(argv, commands.environment(os.environ))

    def step_beside(
        self, app_id: str, role: str, k: int, command: Sequence[str], *, terminal: bool
    ) -> Sequence[str]:
        """Return the command line of this machine that runs a command where a replica runs."""
        return self._running(app_id, role, k).command(k, command, terminal=terminal)

    def _running(self, app_id: str, role: str, k: int) -> RunningRole:
        """Return the role of a replica of a job that runs."""
        record = self._readable(app_id)
        sizes = {each["name"]: each["num_replicas"] for each in roles_of(record)}
        check_replica(app_id, sizes, role, k)
        job_id = self.slurm_job(app_id)
        if job_id is None or self.has_ended(app_id):
            raise SpecError(f"{role}/{k}: it does not run (any more)")
        group = list(sizes).index(role) if len(sizes) > 1 else None
        python = str((record.get("cfg") or {}).get("python") or "python3")
        return RunningRole(job_id, group, python, app_id, role)

    def _may_run(self, app_id: str) -> bool:
        """Tell whether replicas may run now. Their keeper writes a moment later that they do."""
        if not os.path.exists(f"{layout.app_folder(self.home, app_id)}/claim"):
            return False
        state = state_of(self.home, app_id)
        return state is None or not _is_away(state)

    def _is_known(self, app_id: str) -> bool:
        """Tell, from the folder alone, whether a job has ended."""
        state = state_of(self.home, app_id)
        return written_end(state) or _last_word(layout.app_folder(self.home, app_id)) is not None

    def has_ended(self, app_id: str) -> bool:
        """Tell whether a job has ended, by an answer of Slurm that may be some seconds old.

        Raises:
            SchedulerUnavailable: if its record is damaged, and somebody is submitting it.
        """
        record = store.read_record(self.home, app_id)
        if record is None:
            return True
        if not record:
            return self._has_damaged_ended(app_id)
        if self._is_known(app_id):
            return True
        status = self._statuses([app_id], _LOG_AGE_S)[app_id]
        return status is None or status.is_terminal()

    def _has_damaged_ended(self, app_id: str) -> bool:
        if submitting.being_submitted(layout.app_folder(self.home, app_id)):
            raise SchedulerUnavailable(
                f"job {app_id}: somebody is submitting it; try again when that is over"
            )
        return not self._cancel_damaged(app_id)

    def _cancel_damaged(self, app_id: str) -> Sequence[str]:
        """Cancel Slurm's jobs of a job whose record is damaged, and return those that still run.

        They are known by the token of the submit in their comment, or by their id. A job of the
        same name may belong to another folder.

        Raises:
            SchedulerUnavailable: if Slurm cannot be asked, refuses, or a job may be another job's.
        """
        known = self.slurm_job(app_id)
        alive = [job for job in submitting.jobs_of(app_id, known) if not ended(job.state)]
        if not alive:
            return []
        token = submitting.token_of(self.home, app_id)
        ours = f"{comment_of(app_id, token)} "
        mine = [
            job.id
            for job in alive
            if job.id == known or (token and f"{job.comment} ".startswith(ours))
        ]
        others = [job.id for job in alive if job.id not in mine]
        if others and not token:
            raise SchedulerUnavailable(
                f"job {app_id}: Slurm job {others[0]} may be of it, or of a job of that id in another "
                "folder: "
                f"`scancel {others[0]}` if it is, then try again"
            )
        if not mine:
            return []
        answer = commands.run(["scancel", *mine], _CANCEL_S)
        if answer.code != 0 and not answer.too_late:
            raise SchedulerUnavailable(
                f"job {app_id!r} was not cancelled: scancel: {answer.complaint}"
            )
        return mine

    def prune(
        self,
        older_than: float | None = None,
        max_size: int | None = None,
        now: float | None = None,
        *,
        dry_run: bool = False,
    ) -> Collection[str]:
        """Delete ended jobs, and blobs of workspaces that no submit uses, as the base says."""
        removed = super().prune(older_than, max_size, now, dry_run=dry_run)
        if self._blobs is not None and not dry_run:
            self._blobs.sweep()
        return removed

    def ended_at(self, app_id: str) -> float:
        """Return when the end of a job was written, by its keeper or by us for Slurm."""
        noted = f"{layout.app_folder(self.home, app_id)}/slurm.json"
        return max(super().ended_at(app_id), store.changed_at(noted) or 0.0)

    def size_of(self, app_id: str) -> int:
        """Return how many bytes a job takes on disk, with what lies in ``job_dir``."""
        folder = layout.app_folder(self.home, app_id)
        record = store.read_record(self.home, app_id) or {}
        return sum(map(store.size_of, {folder, str(of_slurm(record).get("files") or folder)}))

    def remove(self, app_id: str) -> None:
        """Remove all that is left of a job, in ``job_dir`` too."""
        remove(self.home, app_id)

    def _await_end(self, app_id: str, patience: float) -> None:
        """Wait until a job has ended, or Slurm has forgotten it. The queue may be slow."""
        deadline = time.monotonic() + 2 * patience
        pause = _FIRST_LOOK_S
        while not self._is_over(app_id):
            if time.monotonic() >= deadline:
                raise SchedulerUnavailable(f"job {app_id} does not end{self._doing(app_id)}")
            time.sleep(pause)
            pause = backoff(pause, _LONGEST_LOOK_S)

    def _is_over(self, app_id: str) -> bool:
        if store.read_record(self.home, app_id) == {}:
            return self._has_damaged_ended(app_id)
        status = self.statuses([app_id])[app_id]
        return status is None or status.is_terminal() or status.msg == FORGOTTEN

    def diagnose(self) -> Sequence[_diagnose.Check]:
        """Return checks for ``transload doctor``.

        Each has a subject, whether it is well, and details.
        """
        return _diagnose.diagnose(self.home)


def _is_away(state: Mapping[str, Any]) -> bool:
    """Tell whether a keeper has written that it has ended, or left its allocation."""
    return written_end(state) or bool(state.get("left_at"))


def _runs(state: Mapping[str, Any] | None) -> bool:
    """Tell whether a keeper has written last that replicas run."""
    return state is not None and state["state"] == "RUNNING" and not state.get("left_at")


def _not_waiting(word: str) -> str:
    """Return Slurm's word for a job that runs, though Slurm has seen it wait."""
    return "RUNNING" if to_state(word) is AppState.PENDING else word


def _last_word(folder: str) -> Job | None:
    """Return what was noted of a job's end, or None if nothing was, or the note is damaged."""
    found = layout.read_json(f"{folder}/slurm.json")
    if found is None:
        return None
    if not all(isinstance(value, str) for value in found.values()):
        return None
    try:
        return Job(**found)
    except TypeError:
        return None


def _word_of(job: Job | None) -> str:
    """Return a text that changes whenever something of a job may have changed."""
    if job is None:
        return f"{OVER}{job!r} "
    if ended(job.state):
        # an end is looked at again, until it is believed
        return f"{OVER}{job!r} {time.monotonic()}"
    if clean(job.state) == "COMPLETING":
        return f"{OVER}{job!r} "
    return f"{job!r} "
