"""Choose the files that travel with a job, and find those of other jobs that it reads."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import transload
from transload.errors import AppNotFound, SpecError, UnsupportedFeature
from transload.runtime.tracking import local_path, output_folder
from transload.specs import (
    AppDef,
    BindMount,
    JobMount,
    Mount,
    Role,
    Workspace,
    macros,
    parse_app_handle,
)

if TYPE_CHECKING:
    from transload.runner.api import Runner
    from transload.runner.plan import Destination, Written

LARGEST: Final = 500 << 20
"""Bytes of a folder that travels without being asked to."""

LARGE: Final = 100 << 20
"""Bytes from which on it is said how much travels."""

_MOST_NAMED: Final = 6
"""So many names of what is left out are said."""
_ADVICE: Final = "copy them (transload get {job}), and let them travel as a workspace"
_log = logging.getLogger("transload.runner")


# -- the folders that travel


def add_files(app: AppDef, to: Destination, written: Written) -> None:
    """Make the local paths in ``app`` absolute, and add the folders that travel.

    Raises:
        SpecError: for a folder that is too large to travel unasked, or a program that cannot run.
    """
    if to.folder is not None:
        _resolve_relative_paths(app, to.folder)
    if not to.shares_disk:
        if to.scheduler.takes_workspace(to.opts):
            _add_default_workspace(app, to, written)
        else:
            _warn_of_code_left_here(app, to)
    for index, role in enumerate(app.roles):
        _refuse_windows_script(role, index, to)


def is_from_here(role: Role, to: Destination) -> bool:
    """Tell whether the code of a role lies in the working folder, which its job does not see.

    So it is if it has no image. One whose image holds no code counts too, if its command names a
    file or module of the folder.

    Args:
        role: as it was written, before anything was set over it.
        to: where it goes.
    """
    if to.shares_disk:
        return False
    if not role.image:
        return True
    is_default = role.image in (transload.IMAGE, to.cfg.get("image"))
    if not is_default and to.scheduler.uses_image(role, to.opts):
        return False
    return _code_named_in(role, to.here) is not None


def _resolve_relative_paths(app: AppDef, folder: str) -> None:
    for role in app.roles:
        if role.workspace:
            projects = role.workspace.projects
            role.workspace = Workspace(
                {_from(folder, path): target for path, target in projects.items()}
            )
        if role.image and os.path.isdir(_from(folder, role.image)):
            role.image = _from(folder, role.image)
        for name, source in role.secrets.items():
            if source.startswith("file:"):
                role.secrets[name] = f"file:{_from(folder, source.removeprefix('file:'))}"


def _from(folder: str, path: str) -> str:
    return path if path.startswith("~") else os.path.join(folder, path)


def _add_default_workspace(app: AppDef, to: Destination, written: Written) -> None:
    """Give roles without a workspace the folder of their component, or the one they work in.

    A role whose image is a folder says itself where its files are.
    """
    never = ("/", os.path.realpath(os.path.expanduser("~")))
    for index, role in enumerate(app.roles):
        if role.workspace or role.image.startswith("/"):
            continue
        found = written.code_folder
        if found is None and (not role.image or role.name in written.from_here):
            found = to.here
        if found is None or os.path.realpath(found) in never:
            continue
        role.workspace = Workspace({found: ""})
        _refuse_large(role.workspace, f"roles[{index}].workspace={found!r}")


def _refuse_large(workspace: Workspace, path: str) -> None:
    from transload.workspace import file_sizes

    size = 0
    for each in file_sizes(workspace):
        size += each
        if size > LARGEST:
            raise SpecError(
                f"{path}: holds more than {LARGEST >> 20} MiB, too much to travel unasked: leave "
                "out what is not needed by .transloadignore, or say what travels by workspace"
            )


def _warn_of_code_left_here(app: AppDef, to: Destination) -> None:
    """Log one line for a role that names code of the folder, which reaches it in no way."""
    for role in app.roles:
        if role.workspace or role.image != transload.IMAGE:
            continue
        word = _code_named_in(role, to.here)
        if word is not None:
            _log.warning(
                "role %s: %s lies in %s, which does not travel to scheduler %s with these run "
                "options; --workspace says what it needs, or give --image with the code in it",
                role.name,
                word,
                to.here,
                to.name,
            )


def _refuse_windows_script(role: Role, index: int, to: Destination) -> None:
    """Refuse a program whose first line ends as on Windows, if it lies on this machine."""
    name = role.entrypoint.removeprefix(f"{macros.img_root}/")
    if "/" not in role.entrypoint or os.path.isabs(name):
        return
    from transload.schedulers.local.convert import refuse_windows_script  # few need it

    folders = [to.here] if to.shares_disk else []
    if role.workspace is not None:
        folders = [path for path, target in role.workspace.projects.items() if not target]
    where = f"role {role.name!r}: roles[{index}].entrypoint={role.entrypoint!r}"
    for folder in filter(None, folders):
        refuse_windows_script(os.path.join(os.path.expanduser(folder), name), where)


def _code_named_in(role: Role, folder: str) -> str | None:
    """Return the file or module of a folder that the command of a role names first, or None."""
    words = _words_of(role)
    for index, word in enumerate(words):
        if os.path.isabs(word):
            continue
        if os.path.isfile(os.path.join(folder, word)):
            return word
        if words[index - 1 : index] == ["-m"] and _has_module(folder, word):
            return word
    return None


def _words_of(role: Role) -> list[str]:
    """Return the command of a role in words, with those that a shell is given as one text."""
    words = [role.entrypoint, *role.args]
    if role.entrypoint not in ("sh", "bash") or words[1:2] != ["-c"]:
        return words
    arguments = words[3:]
    if arguments[:1] == ["torchrun"]:
        return arguments
    try:
        return [*arguments, *shlex.split(" ".join(words[2:3]))]
    except ValueError:  # a quote that is not closed, which may be a comment's
        return words


def _has_module(folder: str, name: str) -> bool:
    path = os.path.join(folder, *name.split("."))
    return os.path.isfile(f"{path}.py") or os.path.isdir(path)


# -- what is said of it


def announce(app: AppDef, where: str) -> None:
    """Say in one line of each large workspace how much travels, and what is left out.

    Args:
        app: the job, as it is about to be submitted.
        where: the name of the scheduler that it goes to.
    """
    from transload.runtime.progress_lines import say
    from transload.workspace import file_sizes

    said: list[Workspace] = []
    for role in app.roles:
        if role.workspace and role.workspace not in said:
            said.append(role.workspace)
            sizes = list(file_sizes(role.workspace))
            if sum(sizes) >= LARGE:
                say(_line(role.workspace, sizes, where))


def _line(workspace: Workspace, sizes: Sequence[int], where: str) -> str:
    from transload.specs.text import size_text
    from transload.workspace import IGNORE_FILES

    what = ", ".join(os.path.abspath(os.path.expanduser(each)) for each in workspace.projects)
    return (
        f"{what} travels to {where}: {size_text(sum(sizes))} in {len(sizes):,} files; "
        f"{_left_out(workspace)}; {IGNORE_FILES[0]} says what is left out"
    )


def _left_out(workspace: Workspace) -> str:
    from transload.workspace import left_out

    names = sorted({name for project in workspace.projects for name in left_out(project)})
    if not names:
        return "nothing is left out"
    shown = ", ".join(names[:_MOST_NAMED])
    more = len(names) - _MOST_NAMED
    if more > 0:
        shown += f" and {more} more"
    return f"left out: {shown}"


# -- files of other jobs


def with_job_mounts(app: AppDef, to: Destination, runner: Runner) -> AppDef:
    """Return a job whose mounts of other jobs (``type=job``) are replaced.

    They become binds. Where nothing is mounted, the job's texts name the folders.

    Args:
        app: the job, which is not changed.
        to: where it goes.
        runner: asks for the other jobs.

    Raises:
        AppNotFound: if there is no such job.
        SpecError: if a job has no such folder, or nothing names the place where it is not mounted.
        UnsupportedFeature: if its scheduler, or that of the other job, cannot do it.
    """
    if not any(isinstance(mount, JobMount) for role in app.roles for mount in role.mounts):
        return app
    roles = [
        _with_folders(role, f"roles[{index}]", to, runner) for index, role in enumerate(app.roles)
    ]
    return replace(app, roles=roles)


def _with_folders(role: Role, path: str, to: Destination, runner: Runner) -> Role:
    files = to.scheduler.mounts_jobs(role, to.opts)
    mounts: list[Mount] = []
    for number, mount in enumerate(role.mounts):
        if not isinstance(mount, JobMount):
            mounts.append(mount)
            continue
        field = f"{path}.mounts[{number}]"
        if files == "out of reach":
            raise UnsupportedFeature(
                f"{field}: not possible on scheduler {to.name!r}: files of a job are mounted by "
                f"local, docker (on this machine) and slurm; {_ADVICE.format(job=mount.job)}",
                field,
            )
        folder = _folder_of(mount, field, to, runner)
        if files == "in place":
            role = _naming(folder, mount, field, role, to)
        else:
            mounts.append(BindMount(folder, mount.dst_path, read_only=files == "mounted"))
    return replace(role, mounts=mounts)


def _folder_of(mount: JobMount, field: str, to: Destination, runner: Runner) -> str:
    """Return the folder of what a job has made."""
    other = parse_app_handle(mount.job)
    if other.scheduler_backend != to.name:
        raise UnsupportedFeature(
            f"{field}: {mount.job} is on scheduler {other.scheduler_backend!r}, and this job goes "
            f"to {to.name!r}: its files are not there; {_ADVICE.format(job=mount.job)}",
            field,
        )
    try:
        job = runner.job(mount.job)
        description = job.need_description()
    except AppNotFound as exc:
        raise AppNotFound(mount.job, f"{field}: there is no job {mount.job}") from exc
    base = description.tracker_base
    if base is None:
        raise SpecError(f"{field}: {mount.job}: it has no folder for files")
    path = local_path(base)
    if path is None:
        raise SpecError(f"{field}: {mount.job}: its files are in {base}: read them there")
    folder = output_folder(path)
    store = job.scheduler.results_store(description.app_id)
    if store is None and (os.path.islink(folder) or not os.path.isdir(folder)):
        raise SpecError(f"{field}: {mount.job} has made no files: {folder} is no folder")
    return folder


def _naming(folder: str, mount: JobMount, field: str, role: Role, to: Destination) -> Role:
    """Return the role with the folder in place of the mount's path in arguments and variables."""
    place = re.compile(rf"(?<![\w./~-]){re.escape(mount.dst_path)}(?![\w.-])")
    args = [place.sub(lambda _: folder, arg) for arg in role.args]
    env = {name: place.sub(lambda _: folder, value) for name, value in role.env.items()}
    if args == role.args and env == role.env:
        raise SpecError(
            f"{field}: scheduler {to.name!r} mounts nothing; name {mount.dst_path} in the "
            f"arguments or variables, where {folder} then takes its place"
        )
    return replace(role, args=args, env=env)
