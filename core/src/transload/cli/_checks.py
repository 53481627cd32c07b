"""What ``transload doctor`` looks at; each check is a row of what works and what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from transload.errors import TransloadError

if TYPE_CHECKING:
    from transload.runner import Runner

OK: Final = "ok"
MISSING: Final = "missing"
BROKEN: Final = "broken"

_RUN_TIMEOUT_S: Final = 30.0
_LITTLE_SPACE: Final = 100 << 20


Check = tuple[str, str, str, str]
"""Area (``python``, ``state``, ``scheduler``, ``plugin``, ``settings``), what was looked at, status (``ok``,
``broken``, ``missing``: not installed, not needed), and what was found, or what to do."""


def all_checks(run_app: bool) -> Iterator[Check]:
    """Yield every check, in the order in which people read it."""
    yield from _guarded("python", "transload", check_versions)
    yield from _guarded("state", "folder", check_state_folder)
    yield from _guarded("state", "limits", check_limits)
    yield from _guarded("settings", "files", check_settings)
    yield from _guarded("scheduler", "all", lambda: check_schedulers(run_app))
    yield from _guarded("plugin", "all", check_plugins)


def _guarded(area: str, name: str, check: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """A doctor must not die of what it looks for: an unexpected error is a row too."""
    try:
        yield from check()
    except Exception as exc:
        yield area, name, BROKEN, f"{type(exc).__name__}: {exc}"


def check_versions() -> Iterator[Check]:
    """Python, platform and our own version."""
    import platform

    from transload import __version__

    yield "python", "python", OK, f"{platform.python_version()} at {sys.executable}"
    system = platform.system()
    known = {"Linux": "fully supported", "Darwin": "supported; not tested by us on every release"}
    yield "python", "platform", OK, f"{system} {platform.release()} ({known.get(system, 'not known to us')})"
    yield "python", "transload", OK, __version__


def check_state_folder() -> Iterator[Check]:
    """The state folder: writable, private, with room."""
    from transload.schedulers.local.home import state_home

    home = state_home()
    there = home
    while not os.path.lexists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        yield "state", "folder", BROKEN, f"{home}: {there} is not a folder; set TRANSLOAD_HOME to another"
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield "state", "folder", BROKEN, f"{home}: not writable; set TRANSLOAD_HOME to a folder of your own"
        return
    mode = os.stat(home).st_mode & 0o777 if os.path.isdir(home) else 0o700
    if mode & 0o022:
        yield "state", "folder", BROKEN, f"{home}: writable for others (mode {mode:o}); chmod 700 it"
    else:
        yield "state", "folder", OK, home if os.path.isdir(home) else f"{home} (made when first needed)"
    from transload.cli._quantities import size_text

    free = shutil.disk_usage(there).free
    yield "state", "free space", OK if free > _LITTLE_SPACE else BROKEN, size_text(free)


def check_limits() -> Iterator[Check]:
    """What the kernel allows: open files."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "state", "open files", OK if soft >= 256 else BROKEN, f"limit {soft} (hard {hard})"


def check_settings() -> Iterator[Check]:
    """The configuration files and the trackers that they name."""
    from transload.runner import load_settings
    from transload.specs import masked_url

    try:
        settings = load_settings()
    except TransloadError as exc:
        yield "settings", "files", BROKEN, str(exc)
        return
    sources = sorted({item.source for item in settings.all() if os.path.isabs(item.source)})
    yield "settings", "files", OK, ", ".join(sources) or "none"
    for name, config in settings.trackers().items():
        from transload.tracker import build_trackers

        try:
            build_trackers({name: config})
        except TransloadError as exc:
            yield "settings", f"tracker {name}", BROKEN, str(exc)
        else:
            yield "settings", f"tracker {name}", OK, masked_url(config or "")


def check_schedulers(run_app: bool) -> Iterator[Check]:
    """Whether each scheduler can be asked, and whether the local one runs an app."""
    from transload.cli._session import open_runner

    with open_runner() as runner:
        for name in runner.scheduler_backends():
            yield from _guarded("scheduler", name, lambda name=name: _check_scheduler(runner, name))  # type: ignore[misc]
        if run_app:
            yield _run_tiny_app()


def _check_scheduler(runner: Runner, name: str) -> Iterator[Check]:
    """Whether one scheduler can be asked; in its own words, if it has any."""
    unwell = BROKEN if name == runner.settings.scheduler else MISSING
    try:
        scheduler = runner.scheduler(name)
        kind, location = runner.cluster(name).kind, scheduler.location()
        if location or kind != name:
            yield "scheduler", f"{name}: leads to", OK, f"{location or name} (kind: {kind})"
        checks = scheduler.diagnose()
        for what, well, found in checks:
            yield "scheduler", f"{name}: {what}", OK if well else unwell, found
        if not checks:
            yield "scheduler", name, OK, f"answers; knows {len(scheduler.list())} apps"
    except TransloadError as exc:
        yield "scheduler", name, unwell, str(exc)


def _run_tiny_app() -> Check:
    """Run ``true`` on the local scheduler: its helper process starts, an app starts and ends, changes are pushed."""
    import time

    from transload.cli._quantities import duration_text
    from transload.cli._session import open_runner
    from transload.specs import AppDef, AppState, Role

    app = AppDef("doctor", [Role("check", "", entrypoint=shutil.which("true") or "true")])
    try:
        with open_runner() as runner:
            began = time.monotonic()
            handle = runner.run(app, "local")
            status = runner.wait(handle, timeout=_RUN_TIMEOUT_S)
            took = time.monotonic() - began
            runner.delete(handle)
    except TransloadError as exc:
        return "scheduler", "local runs an app", BROKEN, str(exc)
    if status is None or status.state is not AppState.SUCCEEDED:
        return "scheduler", "local runs an app", BROKEN, "vanished" if status is None else status.summary()
    return "scheduler", "local runs an app", OK, f"submitted and ended in {duration_text(took)}"


def check_plugins() -> Iterator[Check]:
    """Third-party plugins, what each needs beside the core, and whatever is broken."""
    from transload.plugins import get_plugins

    for info in get_plugins().infos():
        if info.status == "broken":
            last = info.error.strip().splitlines()[-1:] or [""]
            yield "plugin", info.name, BROKEN, f"{last[0]} (`transload info {info.name}` has the traceback)"
        elif info.dist:
            there, lacking = _requirements(info.dist)
            status = MISSING if info.status == "disabled" else BROKEN if lacking else OK
            needs = [f"with {', '.join(there)}"] if there else []
            needs += [f"not installed: {', '.join(lacking)}"] if lacking else []
            yield "plugin", info.name, status, ", ".join([f"{info.dist} {info.version}", info.status, *needs])


def _requirements(dist: str) -> tuple[list[str], list[str]]:
    """Return what a distribution requires, with versions, and what of that is not installed; extras are left out."""
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    there, lacking = [], []
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
