"""Make the virtual environments of this machine's jobs, once for their content.

They are removed when no job uses them.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from transload.errors import SchedulerUnavailable
from transload.runtime.forks import fork_lock
from transload.schedulers import environments
from transload.schedulers.local import store
from transload.schedulers.local.convert import VIRTUAL_ENV
from transload.specs import Role

if TYPE_CHECKING:
    from transload.schedulers.environments import MadeEnvironment, Recipe


def environments_folder(local: str) -> str:
    """Return the folder of the virtual environments of a local scheduler."""
    return f"{local}/environments"


@dataclass(slots=True)
class LocalEnvironments:
    """The virtual environments below the folder of a local scheduler.

    One that `provide` returned cannot be removed before `release`. Then a record says that the job
    uses it.

    Args:
        local: the folder of the scheduler.
    """

    local: str
    _held: dict[str, list[int]] = field(default_factory=dict)  # descriptors that hold their locks
    _lock: threading.RLock = field(default_factory=fork_lock)

    @property
    def root(self) -> str:
        """Return the folder of all environments."""
        return environments_folder(self.local)

    def provide(
        self, role: Role, recipe: Recipe, python: str, variables: Mapping[str, str]
    ) -> Role:
        """Return a role that runs in a virtual environment, made if it is not there.

        Args:
            role: the role.
            recipe: what is to be installed.
            python: the interpreter that the user has named, or ``""`` for none.
            variables: for the installer alone.

        Raises:
            SubmitError: if it cannot be made.
        """
        folder, lock = environments.make_here(
            self.root,
            recipe.to_dict(),
            recipe.environment,
            python=python,
            place=_place_of_python(),
            variables=variables,
        )
        with self._lock:
            self._held.setdefault(folder, []).append(lock)
        path = role.env.get("PATH", os.environ.get("PATH", os.defpath))
        added = {
            VIRTUAL_ENV: f"{folder}/venv",
            "PATH": f"{folder}/venv/bin{os.pathsep}{path}",
        }
        return replace(role, env={**role.env, **added})

    def release(self, folders: Iterable[str]) -> None:
        """Let environments be removed that a job was given, unless its record names them."""
        with self._lock:
            locks = [self._held[folder].pop() for folder in folders if self._held.get(folder)]
        for lock in locks:
            os.close(lock)

    def listed(self) -> list[MadeEnvironment]:
        """Return those that were made, and which of them jobs use."""
        if not os.path.isdir(self.root):
            return []
        return [
            environments.MadeEnvironment.of_record(record, self._is_used(record["path"]))
            for record in environments.listed(self.root)
        ]

    def delete(self, older_than: float | None, *, dry_run: bool) -> list[MadeEnvironment]:
        """Delete those that no job uses and, if that is given, that nobody used for so long."""
        deleted = []
        for each in self.listed():
            age = time.time() - (each.last_used or 0.0)
            is_due = older_than is None or age >= older_than
            if each.in_use or not is_due:
                continue
            if dry_run or self._remove(each):
                deleted.append(each)
        return deleted

    def _remove(self, found: MadeEnvironment) -> bool:
        try:
            return environments.remove(self.root, found.key, self._is_used)
        except OSError as exc:
            raise SchedulerUnavailable(
                f"environment {found.path} cannot be removed: {exc.strerror}"
            ) from exc

    def _is_used(self, folder: str) -> bool:
        """Tell whether a job uses an environment that has not ended.

        A job whose record cannot be read may use any of them.
        """
        for app_id in store.app_ids(self.local):
            try:
                if store.has_ended(self.local, app_id):
                    continue
                record = store.read_record(self.local, app_id)
            except SchedulerUnavailable:
                return True
            if record == {} or folder in ((record or {}).get("environments") or ()):
                return True
        return False


def _place_of_python() -> str:
    """Return the path of the Python that jobs find. Another path makes another environment."""
    return os.path.realpath(shutil.which("python3") or sys.executable)
