"""Choose the files and variables that travel with a job, and resolve its relative paths."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase, translate
from typing import Final

from transload.components.programs.torchrun import program_of_torchrun
from transload.errors import ConfigError, SpecError
from transload.specs import AppDef, Role, Workspace, looks_secret, macros
from transload.specs.job_variables import of_other_jobs

LARGEST: Final = 500 << 20
"""Bytes of a folder that travels without being asked to."""
WANTED: Final = (
    *(
        "HF_*",
        "HUGGINGFACE_*",
        "TRANSFORMERS_*",
        "MLFLOW_*",
        "WANDB_*",
        "COMET_*",
        "NEPTUNE_*",
        "CLEARML_*",
    ),
    *(
        "AWS_*",
        "GOOGLE_*",
        "AZURE_*",
        "OPENAI_*",
        "PYTHONPATH",
        "TORCH_*",
        "KERAS_*",
        "RAY_*",
        "OTEL_*",
    ),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""Names of variables that programs usually want, and that reach no job by themselves."""


def resolve_relative_paths(app: AppDef, folder: str) -> None:
    """Make the local paths in ``app`` absolute that are relative to a folder."""
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


def add_default_workspace(
    app: AppDef, code: str | None, folder: str, without_image: Collection[str] = ()
) -> None:
    """Give roles without a workspace the folder that they need.

    This is for schedulers whose jobs do not see the submitter's files. A role whose image is a
    folder says itself where its files are. ``app`` is changed.

    Args:
        app: the job.
        code: the folder of the component file that it comes from, if it does.
        folder: what a role without an image works in.
        without_image: roles that were written without one, or whose code is in the folder all the
            same, whatever was set over them since.

    Raises:
        SpecError: if the folder is too large to travel unasked.
    """
    for index, role in enumerate(app.roles):
        if role.workspace or role.image.startswith("/"):
            continue
        has_no_image = not role.image or role.name in without_image
        found = code or (folder if has_no_image else None)
        if found is None or os.path.realpath(found) in (
            "/",
            os.path.realpath(os.path.expanduser("~")),
        ):
            continue
        role.workspace = Workspace({found: ""})
        _refuse_large(role, f"roles[{index}].workspace={found!r}")


def refuse_windows_scripts(app: AppDef, folder: str | None) -> None:
    """Refuse a program whose first line ends as on Windows, if it lies on this machine.

    Args:
        app: the job, with absolute paths.
        folder: what roles without a workspace run in, if that is a folder of this machine.

    Raises:
        SpecError: naming the program and what to type.
    """
    for index, role in enumerate(app.roles):
        name = role.entrypoint.removeprefix(f"{macros.img_root}/")
        if "/" not in role.entrypoint or os.path.isabs(name):
            continue
        from transload.schedulers.local.convert import refuse_windows_script  # few need it

        folders = [folder]
        if role.workspace is not None:
            folders = [path for path, target in role.workspace.projects.items() if not target]
        for each in filter(None, folders):
            path = os.path.join(os.path.expanduser(each), name)
            where = f"role {role.name!r}: roles[{index}].entrypoint={role.entrypoint!r}"
            refuse_windows_script(path, where)


def code_named_in(role: Role, folder: str) -> str | None:
    """Return the file or module of a folder that the command of a role names first, or None.

    Args:
        role: the role, such as that of ``dist.ddp --script train.py`` or ``utils.python -m pkg``.
        folder: what relative paths are relative to.
    """
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
    text = " ".join(words[2:3])
    try:
        return [*words[3:], *(program_of_torchrun(text) or shlex.split(text))]
    except ValueError:  # a quote that is not closed, which may be a comment's
        return words


def _has_module(folder: str, name: str) -> bool:
    path = os.path.join(folder, *name.split("."))
    return os.path.isfile(f"{path}.py") or os.path.isdir(path)


def _refuse_large(role: Role, path: str) -> None:
    from transload.workspace import file_sizes

    assert role.workspace is not None
    size = 0
    for each in file_sizes(role.workspace):
        size += each
        if size > LARGEST:
            raise SpecError(
                f"{path}: holds more than {LARGEST >> 20} MiB, too much to travel unasked: leave "
                "out what is not "
                "needed by .transloadignore, or say what travels by workspace"
            )


def pass_env(app: AppDef, patterns: Iterable[str], environ: Mapping[str, str]) -> None:
    """Give each role in ``app`` the variables whose names match.

    Secret-looking ones are given by reference. What belongs to the job that runs this process alone
    is passed only where a pattern is its name.
    """
    asked = list(patterns)
    if not asked:
        return
    own = of_other_jobs(environ).difference(asked)
    names = [
        name
        for name in environ
        if name not in own and any(fnmatchcase(name, pattern) for pattern in asked)
    ]
    for role in app.roles:
        for name in names:
            if name not in role.env and name not in role.secrets:
                if looks_secret(name):
                    role.secrets[name] = f"env:{name}"
                else:
                    role.env[name] = environ[name]


def not_passed(app: AppDef | None, environ: Mapping[str, str], inherited: bool) -> list[str]:
    """Return the variables that programs usually want, are set here, and reach no role of the job.

    Args:
        app: the job as it is submitted.
        environ: the variables that are set here.
        inherited: the job inherits all of them.
    """
    if inherited:
        return []
    given = {
        name
        for role in (app.roles if app is not None else ())
        for name in (*role.env, *role.secrets)
    }
    return sorted(name for name in environ if _wanted().match(name) and name not in given)


def named_first(names: Iterable[str]) -> list[str]:
    """Return those of these variables that were not named on this machine before.

    From now on they are. Where that cannot be kept, all are returned.
    """
    from transload.schedulers.local.home import make_private, state_home

    found = []
    for name in names:
        try:
            folder = f"{state_home()}/not-passed"
            make_private(folder)
            os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        except (OSError, ConfigError):
            pass
        found.append(name)
    return found


@functools.cache
def _wanted() -> re.Pattern[str]:
    return re.compile("|".join(map(translate, WANTED)))
