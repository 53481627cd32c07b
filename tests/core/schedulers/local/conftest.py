"""A local scheduler on a fresh state folder, and looks at the real processes behind it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from transload.runner import log_lines
from transload.schedulers import Changes, Submission
from transload.schedulers.local import LocalScheduler
from transload.specs import AppDef, AppStatus, CfgVal, Role, resolve_secret


def sh(script: str, name: str = "main", *args: str, **fields: object) -> Role:
    """Return a role that runs a shell script."""
    return Role(name, "", entrypoint="sh", args=["-c", script, name, *args], **fields)  # type: ignore[arg-type]


def app(*roles: Role, timeout: float | None = None) -> AppDef:
    """Return an app of these roles."""
    return AppDef("demo", list(roles), timeout=timeout)


def alive(pid: int) -> bool:
    """Tell whether a process lives (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


class Local:
    """A scheduler and shorthands around it."""

    sh = staticmethod(sh)
    app = staticmethod(app)
    alive = staticmethod(alive)

    def __init__(self, home: Path, name: str = "local") -> None:
        self.home = home
        self.scheduler = LocalScheduler("tests", name, always_cwd=name == "local_cwd")
        self._count = 0

    def run(
        self,
        what: AppDef | Role,
        app_id: str | None = None,
        cfg: Mapping[str, CfgVal] | None = None,
        *,
        given: bool = False,
        inherit_env: bool = True,
        checkpoints: str | None = None,
    ) -> str:
        """Submit a job or a role, and return its id."""
        definition = what if isinstance(what, AppDef) else app(what)
        options = self.scheduler.options.read(cfg or {})
        if checkpoints is not None:
            for role in definition.roles:
                role.env["TRANSLOAD_CHECKPOINT_NAME"] = checkpoints
                folder = self.scheduler.checkpoint_folder(checkpoints, role, options)
                if role.checkpoints and folder is not None:
                    role.env["TRANSLOAD_CHECKPOINT_DIR"] = folder
        self._count += 1
        app_id = app_id or f"app-{self._count}"
        submission = Submission(
            definition,
            definition.digest(),
            "tests",
            options.cfg(),
            id_given=given,
            inherit_env=inherit_env,
            checkpoints=checkpoints,
            secrets={
                r.name: {k: resolve_secret(v, k) for k, v in r.secrets.items()}
                for r in definition.roles
            },
        )
        prepared = self.scheduler.prepare(definition, options)
        self.started = self.scheduler.submit(
            self.scheduler.convert(prepared, options), app_id, submission
        )
        return app_id

    def status(self, app_id: str) -> AppStatus:
        """Return the status of an app that exists."""
        found = self.scheduler.describe([app_id])[app_id]
        assert found is not None, f"{app_id} does not exist"
        return found.status

    def wait(
        self,
        app_id: str,
        until: Callable[[AppStatus], bool] = AppStatus.is_terminal,
        timeout: float = 60,
    ) -> AppStatus:
        """Wait, by a watch, until the status is as wanted, by default terminal."""
        deadline = time.monotonic() + timeout
        changes = Changes()
        watch = self.scheduler.watch(changes.add)
        assert watch is not None
        try:
            watch.update([app_id])
            while not until(status := self.status(app_id)):
                left = deadline - time.monotonic()
                assert left > 0, f"{app_id} is still {status!r} after {timeout} s"
                changes.wait(left)
            return status
        finally:
            watch.close()

    def log(self, app_id: str, role: str = "main", k: int = 0, **options: object) -> list[str]:
        """Return a replica's log."""
        return list(log_lines(self.scheduler, app_id, role, k, **options))  # type: ignore[arg-type]

    def line(self, app_id: str, text: str, role: str = "main", k: int = 0) -> str:
        """Wait, by tailing, for a line that contains ``text``."""
        for line in log_lines(self.scheduler, app_id, role, k, follow=True):
            if text in line:
                return line
        raise AssertionError(f"{app_id} ended without writing {text!r}: {self.status(app_id)!r}")

    def folder(self, app_id: str) -> Path:
        """Return the app's folder."""
        return self.home / "local" / "apps" / app_id

    def keeper(self, app_id: str) -> int:
        """Return the pid of the job's keeper, which has the job's record open and locked."""
        lock = str(self.folder(app_id) / "record.json")
        for pid in self.keepers():
            if lock in _open_files(pid):
                return pid
        raise AssertionError(f"{app_id} has no keeper")

    def keepers(self) -> list[int]:
        """Return the pids of the keepers of this state folder."""
        mark = str(self.home).encode()
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and alive(int(entry)):
                try:
                    named = Path(f"/proc/{entry}/comm").read_text().strip() == "tl-keeper"
                    if named and mark in Path(f"/proc/{entry}/cmdline").read_bytes():
                        found.append(int(entry))
                except OSError:
                    continue
        return found


def _open_files(pid: int) -> set[str]:
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue
    except OSError:
        pass
    return found


@pytest.fixture
def local(transload_home: Path) -> Iterator[Local]:
    """Return the scheduler ``local`` on a fresh state folder, and cancel jobs at the end."""
    wrapped = Local(transload_home)
    yield wrapped
    for row in wrapped.scheduler.list():
        wrapped.scheduler.cancel([row.app_id])
    for row in wrapped.scheduler.list():
        wrapped.wait(row.app_id)
    wrapped.scheduler.close()


@pytest.fixture
def local_cwd(transload_home: Path) -> Iterator[Local]:
    """The same under the name ``local_cwd``."""
    wrapped = Local(transload_home, "local_cwd")
    yield wrapped
    wrapped.scheduler.close()
