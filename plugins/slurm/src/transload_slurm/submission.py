"""Submit jobs once per id, whatever crashes in between.

A submit that fails leaves no job. The job's folder appears in one step with its record inside,
which is the lock. Then ``sbatch`` is called with the job's id as its name and in its comment. So a
Slurm job is found again if its submitter died before it noted Slurm's job id.

If none is found, a new token is written, and another one is submitted. Should the first one start
later, it finds a token of another submit, and ends immediately.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pkgutil
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from transload.errors import AppExists, ConfigError, SchedulerUnavailable, SpecError, SubmitError
from transload.keeper import kernel, layout, processes
from transload.runtime.tracking.names import local_path
from transload.schedulers.api import Submission
from transload.schedulers.asked import asked_words
from transload.schedulers.folder import store
from transload.schedulers.folder.home import make_private
from transload.schedulers.folder.request import record_of
from transload.schedulers.folder.store import safe_id
from transload.schedulers.local.convert import inherited
from transload_slurm import checkpoints, commands, preemption, waiting
from transload_slurm.convert import SlurmRequest, comment_of, plan, script, with_roots
from transload_slurm.job import OF_THE_CORE
from transload_slurm.jobs import Job, squeue
from transload_slurm.store import (
    BULKY,
    ensure,
    make_marked,
    read_word,
    remove,
    slurm_job,
    write_file,
)

_LONGEST_ASKED: Final = 500
"""Bytes of a comment that say who asked. Slurm takes 1024, with ours and the user's own."""
_SBATCH_S: Final = 120.0
_STALE_S: Final = 300.0
_WAIT_S: Final = 60.0
_PASSING: Final = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
)
_JOB: Final = (
    "__init__",
    "__main__",
    "agent",
    "keeper",
    "limits",
    "rank0",
    "requeue",
    "starts",
    "steps",
    "tasks",
)

Lay = Callable[[Any, str], None]
"""Makes the copy of a workspace in a folder."""

Check = Callable[[], object]
"""Raises SubmitError if whoever submits has given up."""


def copy(workspace: Any, folder: str) -> None:
    """Copy a workspace of this machine."""
    from transload.workspace import copy_workspace

    copy_workspace(workspace, folder)


def still_wanted() -> None:
    """Raise nothing, since whoever submits is in this process, and waits."""


def submit(
    home: str,
    request: SlurmRequest,
    app_id: str,
    submission: Submission,
    mark: str = "",
    lay: Lay = copy,
    check: Check = still_wanted,
) -> bool:
    """Submit a job, or reattach to it.

    Raises:
        AppExists: if the id is, or was, another job's.
        ConfigError: if ``job_dir`` has something of that name.
        SpecError: if the id is no folder's name, a workspace is not there or a secret was not
            resolved.
        SubmitError: if Slurm did not take it. Nothing runs, now or later.
    """
    if not safe_id(app_id):
        raise SpecError(
            f"app_id={app_id!r}: must be 1 to 200 characters, no '/', not beginning with '.'"
        )
    request = _with_asked(request, submission)
    ensure(home)
    if store.is_gone(home, app_id) and store.read_record(home, app_id) is None:
        raise AppExists(
            app_id, f"job id {app_id!r} was a job that has been deleted; choose another id"
        )
    record = _record(home, request, app_id, submission, mark)
    try:
        created = _create(home, app_id, record)
    except OSError as exc:
        raise SubmitError(
            f"job {app_id!r} was not submitted: {exc}", transient=exc.errno in _PASSING
        ) from exc
    if created:
        _launch(home, request, app_id, submission, lay, check, fresh=True)
        return True
    found = store.read_record(home, app_id)
    if found == {}:
        raise AppExists(app_id, f"job {app_id!r} is there: {store.damaged_record(home, app_id)}")
    if found is None or found["digest"] != submission.digest:
        raise AppExists(app_id)
    return _reattach(home, request, app_id, submission, mark, lay, check)


def _with_asked(request: SlurmRequest, submission: Submission) -> SlurmRequest:
    """Return a request whose comment also says who asked, as far as there is room."""
    words = [f"{name}={value}" for name, value in asked_words(submission.asked).items()]
    text = "".join(char for char in " ".join(words) if char.isprintable())
    asked = text.encode()[:_LONGEST_ASKED].decode(errors="ignore")
    return replace(request, comment=f"{request.comment} {asked}".strip())


def _record(
    home: str, request: SlurmRequest, app_id: str, submission: Submission, mark: str
) -> dict[str, Any]:
    files = layout.app_folder(home, app_id)
    if request.job_dir:
        files = f"{request.job_dir}/{app_id}"
    notices = [role.notice for role in request.roles if role.notice is not None]
    slurm = {
        "files": files,
        "mark": mark or os.urandom(16).hex(),
        "requeue": "--requeue" in request.sbatch,
        "notice": max(notices, default=0.0),
    }
    more: dict[str, Any] = {}
    if submission.checkpoints:
        more["checkpoint_base"] = request.checkpoint_base
    return record_of(app_id, submission, f"{files}/logs", slurm=slurm, **more)


def _me() -> str:
    return json.dumps(
        {
            "host": os.uname().nodename,
            "boot": kernel.boot_id(),
            "pid": os.getpid(),
            "started": processes.start_time(os.getpid()),
        }
    )


def _create(home: str, app_id: str, record: dict[str, Any]) -> bool:
    """Make the job's folder in one step. Return False if it is there."""
    if os.path.lexists(layout.app_folder(home, app_id)):
        return False  # an empty one too: the rename would take its place
    staged = layout.app_folder(home, f".new-{os.urandom(8).hex()}")
    os.mkdir(staged, 0o700)
    try:
        write_file(f"{staged}/record.json", json.dumps(record))
        write_file(f"{staged}/submitting", _me())
        os.rename(
            staged, layout.app_folder(home, app_id)
        )  # onto a folder that is not empty: refused by the file system
    except OSError:
        layout.remove_tree(staged)
        if os.path.isdir(layout.app_folder(home, app_id)):
            return False
        raise
    return True


def being_submitted(folder: str) -> bool:
    """Tell whether somebody is submitting the job.

    That is a living process of this machine, or one elsewhere that began a moment ago.
    """
    path = f"{folder}/submitting"
    holder = layout.read_json(path)
    if holder is None or not {"host", "boot", "pid", "started"} <= holder.keys():
        return False
    if holder["host"] == os.uname().nodename and holder["boot"] == kernel.boot_id():
        started = processes.start_time(holder["pid"])
        return started > 0 and started == holder["started"]
    try:
        return time.time() - os.stat(path).st_mtime < _STALE_S
    except FileNotFoundError:
        return False


def token_of(home: str, app_id: str) -> str:
    """Return what tells the latest submit of a job from earlier ones, or ``""`` if not readable."""
    return read_word(f"{layout.app_folder(home, app_id)}/token") or ""


def jobs_of(app_id: str, known: str | None = None) -> list[Job]:
    """Return this user's Slurm jobs of a job id, by any submit, from any folder of jobs.

    Args:
        app_id: the app.
        known: id of its job, which counts by its name, too: a user may have changed its comment.

    Raises:
        SchedulerUnavailable: if Slurm cannot be asked.
    """
    found = squeue(f"--user={os.getuid()}")
    start = comment_of(app_id, "")
    return [
        job
        for job in found.values()
        if job.comment.startswith(start) or (job.id == known and job.name == app_id)
    ]


def find_again(home: str, app_id: str) -> str | None:
    """Return the id of a job in Slurm that its submitter could not note, and note it now.

    Raises:
        SchedulerUnavailable: if Slurm cannot be asked.
    """
    known = slurm_job(home, app_id)
    if known is not None:
        return known
    # a stranger may have the name: the comment, with the token of the submit, tells
    ours = comment_of(app_id, token_of(home, app_id))
    mine = [job.id for job in jobs_of(app_id) if f"{job.comment} ".startswith(f"{ours} ")]
    if not mine:
        return None
    job_id = max(mine, key=int)
    write_file(f"{layout.app_folder(home, app_id)}/job.json", json.dumps({"id": job_id}))
    return job_id


def _reattach(
    home: str,
    request: SlurmRequest,
    app_id: str,
    submission: Submission,
    mark: str,
    lay: Lay,
    check: Check,
) -> bool:
    """Reattach to a job that is there. If its submitter died before the end, finish the submit."""
    folder = layout.app_folder(home, app_id)
    deadline = time.monotonic() + _WAIT_S
    while slurm_job(home, app_id) is None:
        record = store.read_record(home, app_id)
        if record is None:  # the other one failed, and took it back
            return submit(home, request, app_id, submission, mark, lay, check)
        if not being_submitted(folder) and _take_over(folder):
            try:
                if find_again(home, app_id) is not None:
                    return False
            except SchedulerUnavailable as exc:
                raise SubmitError(
                    f"job {app_id!r}: an earlier submit was interrupted; {exc}", transient=True
                ) from exc
            finally:
                if slurm_job(home, app_id) is not None:
                    _unlink(f"{folder}/submitting")
            _launch(home, request, app_id, submission, lay, check, fresh=False)
            return True
        if time.monotonic() >= deadline:
            raise SubmitError(
                f"job {app_id!r} is being submitted by another process, for too long",
                transient=True,
            )
        time.sleep(0.02)
    return False


def _take_over(folder: str) -> bool:
    """Take the place of a submitter that has died. Return False if another process was faster."""
    mine = f"{folder}/.submitting-{os.urandom(8).hex()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{folder}/submitting", mine)
            os.unlink(mine)
        write_file(mine, _me())
        os.link(mine, f"{folder}/submitting")
        return True
    except OSError:
        return False
    finally:
        _unlink(mine)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _launch(
    home: str,
    request: SlurmRequest,
    app_id: str,
    submission: Submission,
    lay: Lay,
    check: Check,
    *,
    fresh: bool,
) -> None:
    """Fill the job's folder and call ``sbatch``.

    If that fails, the folder goes, and with it any job that starts later.
    """
    folder = layout.app_folder(home, app_id)
    try:
        token = os.urandom(8).hex()
        write_file(f"{folder}/token", token)
        if not fresh and _claimed(folder):
            _unlink(f"{folder}/submitting")
            return
        request = preemption.with_signals(request, os.environ)
        _fill(folder, store.read_record(home, app_id) or {}, request, token, lay, again=not fresh)
        check()
        job_id = _sbatch(folder, request, app_id, submission)
        _check_again(check, job_id)  # before anybody can see that it was submitted
        write_file(f"{folder}/job.json", json.dumps({"id": job_id}))
    except BaseException as exc:
        refused = isinstance(exc, SubmitError) and not exc.transient
        unanswered = isinstance(exc, (SubmitError, SchedulerUnavailable)) and not refused
        if unanswered and _runs_all_the_same(folder):
            _unlink(f"{folder}/submitting")
            return
        if refused or not isinstance(exc, Exception):  # else Slurm cannot be asked
            take_back(home, app_id)
        remove(home, app_id, forget=True)
        if isinstance(exc, OSError):
            raise SubmitError(
                f"job {app_id!r} was not submitted: {exc}", transient=exc.errno in _PASSING
            ) from exc
        if isinstance(exc, SchedulerUnavailable):
            raise SubmitError(f"job {app_id!r} was not submitted: {exc}", transient=True) from exc
        raise
    _unlink(f"{folder}/submitting")
    if os.path.exists(f"{folder}/cancel"):
        commands.run(["scancel", job_id], _SBATCH_S)


def _check_again(check: Check, job_id: str) -> None:
    """End a job whose submitter gave up while it was submitted."""
    try:
        check()
    except SubmitError:
        with contextlib.suppress(SchedulerUnavailable):
            commands.run(["scancel", job_id], _SBATCH_S)
        raise


def _runs_all_the_same(folder: str) -> bool:
    """Tell whether the Slurm job of an ``sbatch`` that gave no answer runs the job.

    If it does not, it will not do so any more.
    """
    _unlink(f"{folder}/token")
    return _claimed(folder)


def take_back(home: str, app_id: str) -> None:
    """End the job of an ``sbatch`` that failed though it had submitted.

    If the job is not found, it ends by itself.
    """
    with contextlib.suppress(SchedulerUnavailable, OSError):
        job_id = find_again(home, app_id)
        if job_id is not None:
            commands.run(["scancel", job_id], _SBATCH_S)


def _claimed(folder: str) -> bool:
    """Tell whether a Slurm job of an earlier submit runs the job.

    One that has just found the new token ends immediately.
    """
    for _ in range(3):
        if read_word(f"{folder}/claim") is None:
            return False
        time.sleep(0.2)
    return True


def _fill(
    folder: str, record: dict[str, Any], request: SlurmRequest, token: str, lay: Lay, *, again: bool
) -> None:
    app_id = record["app_id"]
    files = record["slurm"]["files"]
    if files != folder:
        try:
            make_marked(files, record["slurm"]["mark"], again=again)
        except FileExistsError as exc:
            raise ConfigError(
                f"run option job_dir={request.job_dir}: {files} is there already, and not made by "
                "this job: "
                "choose another folder, or another job id"
            ) from exc
    for name in BULKY:
        make_private(f"{files}/{name}")
        if files != folder:
            with contextlib.suppress(FileExistsError):
                os.symlink(f"{files}/{name}", f"{folder}/{name}")
    _make_results_folder(record["tracker_base"])
    checkpoints.make(request)
    copies: dict[str, str] = {}
    folders: dict[int, str] = {}
    for index, role in enumerate(request.roles):
        if role.workspace is None:
            continue
        key = str(role.workspace)
        if key not in copies:
            copies[key] = os.path.realpath(f"{folder}/workspace/{len(copies)}")
            shutil.rmtree(copies[key], ignore_errors=True)
            lay(role.workspace, copies[key])
        folders[index] = copies[key]
    request = with_roots(request, folders)
    package = f"{folder}/job/transload_slurm_job"
    make_private(package)
    for part in ("transload", "transload/keeper", "transload/runtime"):
        make_private(f"{folder}/job/{part}")
    for module in OF_THE_CORE:
        source = f"{module.replace('.', '/')}.py"
        _place("transload", source, f"{folder}/job/transload/{source}")
    for name in _JOB:
        target = f"{folder}/job/{name}.py" if name == "__main__" else f"{package}/{name}.py"
        _place("transload_slurm", f"job/{name}.py", target)
    own = sorted({os.path.realpath(folder), os.path.realpath(files)})
    write_file(f"{folder}/plan.json", json.dumps(plan(request, app_id, folders, own)))
    write_file(f"{folder}/job.sh", script(request, app_id, folder, token, folders.get(0, "")))


def _make_results_folder(base: str | None) -> None:
    """Make the folder where a job reports. One that is missing later was removed.

    Raises:
        SubmitError: if it cannot be made.
    """
    if not base or local_path(base) != base:
        return
    try:
        os.makedirs(base, exist_ok=True)
    except OSError as exc:
        raise SubmitError(
            f"tracker_base: the folder {base} cannot be made: {exc.strerror}",
            transient=exc.errno in _PASSING,
        ) from exc


def _place(package: str, source: str, target: str) -> None:
    """Copy a file of a package, which may lie in an archive."""
    data = pkgutil.get_data(package, source)
    assert data is not None
    with open(target, "wb") as file:
        file.write(data)


def _sbatch(folder: str, request: SlurmRequest, app_id: str, submission: Submission) -> str:
    env = commands.environment(inherited(os.environb, submission.inherit_env))
    for index, role in enumerate(request.roles):
        values = submission.secrets.get(role.name, {})
        missing = [name for name in role.secrets if name not in values]
        if missing:
            raise SpecError(f"role {role.name!r}: the secrets {missing} were not resolved")
        # by the job's environment: never in the script, nor in a file of ours
        env.update(
            {
                f"TRANSLOAD_SECRET_{index}_{number}": values[name]
                for number, name in enumerate(role.secrets)
            }
        )
    for name in commands.PREFERENCES:
        # what is asked for in the script is stronger than the submitter's habits
        flag = f"--{name[len('SBATCH_') :].lower()}="
        if any(option.startswith(flag) for role in request.roles for option in role.sbatch):
            env.pop(name, None)
    answer = commands.run(["sbatch", "--parsable", f"{folder}/job.sh"], _SBATCH_S, env)
    # a site's own filters may say something before the id
    job_id = next(iter(re.findall(r"^(\d+)(?:;.*)?$", answer.out.strip(), re.MULTILINE)[-1:]), "")
    if answer.code != 0 or not job_id:
        text = f"job {app_id!r} was not submitted: sbatch: {answer.complaint}"
        if not answer.unreachable:
            partition = str(submission.cfg.get("partition") or "")
            advice = waiting.remedy(answer.complaint, partition)
            text = "; ".join(filter(None, (text, advice)))
        raise SubmitError(text, transient=answer.unreachable)
    return job_id
