"""Keep uv and files of requirements beside the jobs of a cluster, where its nodes see them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from transload.errors import SubmitError
from transload.schedulers.folder.home import make_private
from transload.specs.job_variables import REQUIREMENTS

if TYPE_CHECKING:
    from transload.schedulers.environments import Packages
    from transload.specs import Role
    from transload_slurm.options import SlurmOptions

_KEPT_LINES: Final = 12
_CACHE: Final = "UV_CACHE_DIR"
_PROGRAM: Final = "uv-"
"""Begins the name of uv. Its version follows."""


def folder_of(root: str) -> str:
    """Return the folder of uv and files of requirements, below the folder of the jobs."""
    return f"{root}/.packages"


# -- where the job is submitted


def with_packages(role: Role, packages: Packages, opts: SlurmOptions, root: str) -> Role:
    """Return a role that is started by the uv beside the jobs.

    Args:
        role: the role, which is not changed.
        packages: what it needs.
        opts: the run options.
        root: the folder of the jobs.
    """
    from transload.schedulers import environments

    folder = folder_of(root)
    uv = "uv"
    found = environments.travelling_uv()
    if found is not None:
        uv = f"{folder}/{_PROGRAM}{environments.uv_version(found)}"
    python = opts.python
    changed = environments.run_by_uv(
        role,
        packages,
        uv=uv,
        file=f"{folder}/{packages.file_name}",
        python="" if python == "python3" else python,
        offline=opts.prefetch,
    )
    changed.env.setdefault(_CACHE, f"{folder}/cache")
    return changed


def names_of(role: Role) -> list[str]:
    """Return the names of the files that a role needs, as `with_packages` returned it."""
    paths = [role.env[REQUIREMENTS], role.entrypoint]
    return [os.path.basename(path) for path in paths if "/" in path]


@contextlib.contextmanager
def collected(packages: Packages, names: Collection[str]) -> Iterator[str]:
    """Provide a folder with those of the files of `names_of` that are wanted."""
    from transload.schedulers import environments

    with tempfile.TemporaryDirectory(prefix="transload-") as folder:
        for name in names:
            if name.startswith(_PROGRAM):
                shutil.copy(str(environments.travelling_uv()), f"{folder}/{name}")
            else:
                environments.write_requirements(folder, packages)
        yield folder


def prefetching(role: Role) -> list[str]:
    """Return the command that fetches a role's packages, as `with_packages` returned the role."""
    words = [role.entrypoint, *role.args]
    before = [word for word in words[: words.index("--")] if word != "--offline"]
    return [*before, "--", "python", "-c", ""]


# -- on the login node


def missing(root: str, names: Collection[str]) -> list[str]:
    """Return those of these files that are not there."""
    return [name for name in names if not os.path.exists(f"{folder_of(root)}/{name}")]


def lay(root: str, folder: str) -> None:
    """Put the files of a folder beside the jobs, each at once with all its content."""
    target = folder_of(root)
    make_private(target)
    for name in os.listdir(folder):
        aside = f"{target}/.{os.urandom(6).hex()}"
        shutil.copy(f"{folder}/{name}", aside)
        os.replace(aside, f"{target}/{name}")


def prefetch(words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Have uv fetch packages into its cache, which the nodes see.

    Args:
        words: what `prefetching` returned. A path may begin with ``~``.
        variables: what uv reads, likewise.

    Raises:
        SubmitError: if they cannot be fetched, with uv's last lines.
    """
    env = {name: os.path.expanduser(value) for name, value in variables.items()}
    done = subprocess.run(
        [os.path.expanduser(word) for word in words],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        lines = done.stdout.decode("utf-8", "replace").splitlines()[-_KEPT_LINES:]
        raise SubmitError("packages cannot be fetched on the login node", lines=lines)
