"""Make the checks of ``transload doctor``. Each is a row about what works or is missing."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

from transload import __version__
from transload.cli.quantities import duration_text, size_text
from transload.cli.session import open_runner
from transload.errors import TransloadError
from transload.pipelines.adapter import adapters, get_adapter
from transload.plugins import PluginInfo, get_plugins
from transload.plugins.distributions import DISTRIBUTIONS, install_command
from transload.runner import Runner, load_settings
from transload.schedulers.local import LocalScheduler
from transload.schedulers.local.home import state_home
from transload.specs import AppDef, AppState, Role, masked_url
from transload.tracker import build_trackers

OK: Final = "ok"
MISSING: Final = "missing"
BROKEN: Final = "broken"

_RUN_TIMEOUT_S: Final = 30.0
_LITTLE_SPACE: Final = 100 << 20
_FEW_OPEN_FILES: Final = 256
_PLATFORMS: Final = {"Linux": "fully supported", "Darwin": "should work, but was not tried"}

Rows = Iterator[tuple[str, str, str]]
"""Subject, status and finding of a check.

The status is ``ok``, ``broken``, or ``missing`` for something that is not installed or not needed.
"""


def all_checks(run_app: bool) -> Iterator[tuple[str, str, str, str]]:
    """Yield each area with its checks, in the order of the output."""
    checks: tuple[tuple[str, str, Callable[[], Rows]], ...] = (
        ("python", "transload", _check_versions),
        ("state", "folder", _check_state_folder),
        ("settings", "files", _check_settings),
        ("scheduler", "all", lambda: _check_schedulers(run_app)),
        ("plugin", "all", _check_plugins),
        ("orchestrator", "all", _check_orchestrators),
    )
    for area, name, check in checks:
        for row in _guarded(name, check):
            yield area, *row


def _guarded(name: str, check: Callable[[], Rows]) -> Rows:
    """Yield the rows of a check. An unexpected error becomes a row, too."""
    try:
        yield from check()
    except Exception as exc:
        yield name, BROKEN, f"{type(exc).__name__}: {exc}"


def _check_versions() -> Rows:
    """Check Python, the platform and transload's version."""
    yield "python", OK, f"{platform.python_version()} at {sys.executable}"
    system = platform.system()
    support = _PLATFORMS.get(system, "not known to us")
    yield "platform", OK, f"{system} {platform.release()} ({support})"
    yield "transload", OK, __version__


def _check_state_folder() -> Rows:
    """Check that the state folder is writable, private and not full, and count open files."""
    try:
        home = state_home()
    except TransloadError as exc:
        yield "folder", BROKEN, str(exc)
        return
    there = _nearest_existing(home)
    if not os.path.isdir(there):
        yield "folder", BROKEN, f"{home}: {there} is not a folder; set TRANSLOAD_HOME to another"
    elif not os.access(there, os.W_OK | os.X_OK):
        yield "folder", BROKEN, f"{home}: not writable; set TRANSLOAD_HOME to a folder of your own"
    else:
        yield _check_mode(home)
        free = shutil.disk_usage(there).free
        yield "free space", _ok_if(free > _LITTLE_SPACE), size_text(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "open files", _ok_if(soft >= _FEW_OPEN_FILES), f"limit {soft} (hard {hard})"


def _ok_if(well: bool) -> str:
    return OK if well else BROKEN


def _nearest_existing(path: str) -> str:
    """Return the path, or the nearest of its parents that exists."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _check_mode(home: str) -> tuple[str, str, str]:
    """Return the row that says whether only the user can write to the state folder."""
    if not os.path.isdir(home):
        return "folder", OK, f"{home} (made when first needed)"
    mode = os.stat(home).st_mode & 0o777
    if mode & 0o022:
        return "folder", BROKEN, f"{home}: writable for others (mode {mode:o}); chmod 700 it"
    return "folder", OK, home


def _check_settings() -> Rows:
    """Check the configuration files and the trackers that they name."""
    try:
        settings = load_settings()
    except TransloadError as exc:
        yield "files", BROKEN, str(exc)
        return
    yield "files", OK, ", ".join(settings.files()) or "none"
    for name, config in settings.trackers().items():
        try:
            build_trackers({name: config})
        except TransloadError as exc:
            yield f"tracker {name}", BROKEN, str(exc)
        else:
            yield f"tracker {name}", OK, masked_url(config or "")


def _check_schedulers(run_app: bool) -> Rows:
    """Check that each scheduler answers, and that the local one runs a job.

    If a scheduler has the same rows as an earlier one, a single row names that one.
    """
    first_with: dict[str, str] = {}
    with open_runner() as runner:
        for name in runner.known_schedulers():
            rows = list(_guarded(name, partial(_check_scheduler, runner, name)))
            without_name = re.sub(rf"\b{name}(?=\)|: )", "", str(rows))
            first = first_with.setdefault(without_name, name)
            if first == name:
                yield from rows
                continue
            worst = min((status for _, status, _ in rows), key=(BROKEN, MISSING, OK).index)
            yield name, worst, f"the same as {first}"
        if run_app:
            well, found = _run_tiny_app(runner)
            yield "local runs a job", _ok_if(well), found


def _check_scheduler(runner: Runner, name: str) -> Rows:
    """Check that one scheduler answers, with its own checks if it has some."""
    unwell = BROKEN if name == runner.settings.scheduler else MISSING
    try:
        scheduler = runner.scheduler(name)
        kind = runner.cluster(name).kind
        location = scheduler.location()
        if location or kind != name:
            yield f"{name}: leads to", OK, f"{location or name} (kind: {kind})"
        yield from _check_options(runner, name)
        checks = scheduler.diagnose()
        for what, well, found in checks:
            yield f"{name}: {what}", OK if well else unwell, found
        if not checks:
            yield name, OK, f"answers; knows {len(scheduler.list())} jobs"
    except TransloadError as exc:
        yield name, unwell, str(exc)


def _check_options(runner: Runner, name: str) -> Rows:
    """Report the wrong options in the settings of a scheduler, for which every run is refused."""
    try:
        runner.configured_options(name)
    except TransloadError as exc:
        yield f"{name}: settings", BROKEN, str(exc)


def _run_tiny_app(runner: Runner) -> tuple[bool, str]:
    """Run ``true`` on the local scheduler, and return whether it succeeded, and a description.

    A local scheduler without a folder uses a temporary one, so that the check leaves nothing.
    """
    if os.path.isdir(runner.scheduler("local").location()):
        return _run_app(runner)
    with tempfile.TemporaryDirectory(prefix="transload-doctor-") as folder:

        def make(session: str, name: str = "local") -> LocalScheduler:
            scheduler = LocalScheduler(session, name)
            scheduler.connect({"state_folder": folder})
            return scheduler

        with Runner("doctor", {"local": make}, settings=runner.settings) as aside:
            return _run_app(aside)


def _run_app(runner: Runner) -> tuple[bool, str]:
    app = AppDef("doctor", [Role("check", "", entrypoint=shutil.which("true") or "true")])
    try:
        began = time.monotonic()
        handle = runner.run(app, "local")
        status = runner.wait(handle, timeout=_RUN_TIMEOUT_S)
        took = time.monotonic() - began
        runner.delete(handle)
    except TransloadError as exc:
        return False, str(exc)
    if status is None:
        return False, "vanished"
    if status.state is not AppState.SUCCEEDED:
        return False, status.summary()
    return True, f"submitted and ended in {duration_text(took)}"


def _check_plugins() -> Rows:
    """Check third-party plugins and their requirements, and list what else can be installed."""
    infos = get_plugins().infos()
    for info in infos:
        if info.status == "broken":
            last = info.error.strip().splitlines()[-1:] or [""]
            yield info.name, BROKEN, f"{last[0]} (`transload info {info.name}` has the traceback)"
        elif info.dist:
            yield _check_plugin(info)
    there = {info.name for info in infos}
    others = [each.plugin for each in DISTRIBUTIONS if each.plugin not in there]
    if others:
        yield "others", OK, f"not installed: {', '.join(others)}. {install_command('NAME')}"


def _check_orchestrators() -> Rows:
    """Yield what each adapter advises about its orchestrator's settings."""
    with open_runner() as runner:
        schedulers = {runner.settings.scheduler, *runner.settings.scheduler_tables()}
    for name in adapters():
        for line in get_adapter(name).advice(schedulers):
            yield name, MISSING, line


def _check_plugin(info: PluginInfo) -> tuple[str, str, str]:
    """Return the row of a loaded plugin, with the requirements of its distribution."""
    there, lacking = _requirements(info.dist)
    words = [f"{info.dist} {info.version}", info.status]
    if there:
        words.append(f"with {', '.join(there)}")
    if lacking:
        words.append(f"not installed: {', '.join(lacking)}")
    status = MISSING if info.status == "disabled" else _ok_if(not lacking)
    return info.name, status, ", ".join(words)


def _requirements(dist: str) -> tuple[list[str], list[str]]:
    """Return the requirements of a distribution with versions, and those not installed.

    Extras are left out.
    """
    there = []
    lacking = []
    for line in requires(dist) or ():
        requirement, _, marker = line.partition(";")
        found = re.match(r"[\w.-]+", requirement.strip())
        if found is None or marker or found[0] == "transload":
            continue
        try:
            there.append(f"{found[0]} {version(found[0])}")
        except PackageNotFoundError:
            lacking.append(found[0])
    return there, lacking
