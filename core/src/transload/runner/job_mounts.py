"""Turn mounts of what another job has made (``type=job``) into what the scheduler can do."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from transload.errors import AppNotFound, SpecError, UnsupportedFeature
from transload.runtime.tracking import local_path, output_folder
from transload.specs import AppDef, BindMount, CfgVal, JobMount, Mount, Role, parse_app_handle

if TYPE_CHECKING:
    from transload.runner.api import Runner

_ADVICE = "copy them (transload get {job}), and let them travel as a workspace"


def with_job_mounts(
    runner: Runner, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]
) -> AppDef:
    """Return a job whose mounts of other jobs are replaced.

    They become binds. Where nothing is mounted, the job's texts name the folders.

    Args:
        runner: asks for the other jobs.
        app: the job, which is not changed.
        scheduler: where it goes.
        cfg: its run options.

    Raises:
        AppNotFound: if there is no such job.
        SpecError: if a job has no such folder, or nothing names the place where it is not mounted.
        UnsupportedFeature: if its scheduler, or that of the other job, cannot do it.
    """
    if not any(isinstance(mount, JobMount) for role in app.roles for mount in role.mounts):
        return app
    roles = [
        _role(runner, role, f"roles[{index}]", scheduler, cfg)
        for index, role in enumerate(app.roles)
    ]
    return replace(app, roles=roles)


def _role(runner: Runner, role: Role, path: str, scheduler: str, cfg: Mapping[str, CfgVal]) -> Role:
    files = runner.scheduler(scheduler).mounts_jobs(role, cfg)
    mounts: list[Mount] = []
    for number, mount in enumerate(role.mounts):
        if not isinstance(mount, JobMount):
            mounts.append(mount)
            continue
        field = f"{path}.mounts[{number}]"
        if files == "out of reach":
            raise UnsupportedFeature(
                f"{field}: not possible on scheduler {scheduler!r}: files of a job are mounted by "
                "local, docker (on "
                f"this machine) and slurm; {_ADVICE.format(job=mount.job)}",
                field,
            )
        folder = _folder(runner, mount, field, scheduler)
        if files == "in place":
            role = _named(role, mount, folder, field, scheduler)
        else:
            mounts.append(BindMount(folder, mount.dst_path, read_only=files == "mounted"))
    return replace(role, mounts=mounts)


def _folder(runner: Runner, mount: JobMount, field: str, scheduler: str) -> str:
    """Return the folder of what a job has made."""
    other = parse_app_handle(mount.job)
    if other.scheduler_backend != scheduler:
        raise UnsupportedFeature(
            f"{field}: {mount.job} is on scheduler {other.scheduler_backend!r}, and this job goes "
            f"to {scheduler!r}: "
            f"its files are not there; {_ADVICE.format(job=mount.job)}",
            field,
        )
    try:
        job = runner.job(mount.job)
        description = job.need_description()
    except AppNotFound as exc:
        raise AppNotFound(mount.job, f"{field}: there is no job {mount.job}") from exc
    base = description.tracker_base
    path = None if base is None else local_path(base)
    if path is None:
        where = (
            f"its files are in {base}: read them there" if base else "it has no folder for files"
        )
        raise SpecError(f"{field}: {mount.job}: {where}")
    folder = output_folder(path)
    if job.scheduler.results_store(description.app_id) is None and (
        os.path.islink(folder) or not os.path.isdir(folder)
    ):
        raise SpecError(f"{field}: {mount.job} has made no files: {folder} is no folder")
    return folder


def _named(role: Role, mount: JobMount, folder: str, field: str, scheduler: str) -> Role:
    """Return the role with the folder in place of the mount's path in arguments and variables."""
    place = re.compile(rf"(?<![\w./~-]){re.escape(mount.dst_path)}(?![\w.-])")
    args = [place.sub(lambda _: folder, arg) for arg in role.args]
    env = {name: place.sub(lambda _: folder, value) for name, value in role.env.items()}
    if args == role.args and env == role.env:
        raise SpecError(
            f"{field}: scheduler {scheduler!r} mounts nothing; name {mount.dst_path} in the "
            f"arguments or variables, where {folder} then takes its place"
        )
    return replace(role, args=args, env=env)
