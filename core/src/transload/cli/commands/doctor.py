"""The command ``transload doctor``, which asks each part what works and what is missing."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from transload import __version__
from transload.cli.exit_codes import ExitCode
from transload.cli.options import json_option
from transload.cli.output import emit_json, emit_table, is_terminal, paint
from transload.cli.session import open_runner
from transload.errors import TransloadError
from transload.pipelines.adapter import adapters, get_adapter
from transload.plugins import get_plugins
from transload.plugins.distributions import DISTRIBUTIONS, install_command
from transload.plugins.manager import CORE
from transload.runner import Runner, load_settings
from transload.specs import masked_url
from transload.tracker import build_trackers

_OK: Final = "ok"
_MISSING: Final = "missing"
_BROKEN: Final = "broken"
_LOOKS: Final = {
    _OK: ("✓ ok", "green"),
    _MISSING: ("– missing", "dim"),
    _BROKEN: ("✗ broken", "red"),
}
"""Status → its text on a terminal, and its colour."""


class _Check(NamedTuple):
    """What was found. The status is ``missing`` for what is not there, and perhaps not needed."""

    area: str
    name: str
    status: str
    detail: str


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Ask schedulers, plugins, orchestrators and settings what works here and what is missing.

    Exits with 0 if nothing is broken, else with 3. Software that is not installed is not broken.
    """
    with open_runner() as runner:
        checks = [
            _Check("python", "python", _OK, f"{platform.python_version()} at {sys.executable}"),
            _Check("python", "transload", _OK, __version__),
            *_settings(),
            *_schedulers(runner),
            *_plugins(),
            *_orchestrators(runner),
        ]
    ok = all(check.status != _BROKEN for check in checks)
    if as_json:
        emit_json({"ok": ok, "checks": [check._asdict() for check in checks]})
    else:
        rows = [(_status(check), check.area, check.name, check.detail) for check in checks]
        emit_table(("STATUS", "AREA", "WHAT", "FOUND"), rows)
    return ExitCode.OK if ok else ExitCode.UNAVAILABLE


def _status(check: _Check) -> str:
    text, colour = _LOOKS[check.status]
    return paint(text if is_terminal(sys.stdout) else check.status, colour)


def _settings() -> Iterator[_Check]:
    """Yield the settings files, and the trackers that they name."""
    settings = load_settings()
    yield _Check("settings", "files", _OK, ", ".join(settings.files()) or "none")
    for name, config in settings.trackers().items():
        try:
            build_trackers({name: config})
        except TransloadError as exc:
            yield _Check("settings", f"tracker {name}", _BROKEN, str(exc))
        else:
            yield _Check("settings", f"tracker {name}", _OK, masked_url(config or ""))


def _schedulers(runner: Runner) -> Iterator[_Check]:
    """Yield what each scheduler says. One that says the same as an earlier one names that one."""
    first_with: dict[tuple[tuple[str, str, str], ...], str] = {}
    for name in runner.known_schedulers():
        found = tuple(_of_scheduler(runner, name))
        first = first_with.setdefault(found, name)
        if first == name:
            for what, status, detail in found:
                yield _Check("scheduler", f"{name}: {what}" if what else name, status, detail)
            continue
        statuses = [status for _, status, _ in found]
        worst = max(statuses, key=(_OK, _MISSING, _BROKEN).index)
        yield _Check("scheduler", name, worst, f"the same as {first}")


def _of_scheduler(runner: Runner, name: str) -> Iterator[tuple[str, str, str]]:
    """Yield what a scheduler says of itself: the subject, a status, and what was found."""
    unwell = _BROKEN if name == runner.settings.scheduler else _MISSING
    try:
        kind = runner.cluster(name).kind
        scheduler = runner.scheduler(name)
        location = scheduler.location()
        if kind != name:
            location = f"{location} (kind: {kind})".lstrip()
        if location:
            yield "leads to", _OK, location
        try:
            runner.configured_options(name)  # with a wrong one, every run is refused
        except TransloadError as exc:
            yield "settings", _BROKEN, str(exc)
        checks = scheduler.diagnose()
        for what, well, detail in checks:
            yield what, _OK if well else unwell, detail
        if not checks:
            yield "", _OK, f"answers; knows {len(scheduler.list())} jobs"
    except TransloadError as exc:
        yield "", unwell, str(exc)
    except Exception as exc:  # a defect of one scheduler hides nothing that others say
        yield "", _BROKEN, f"{type(exc).__name__}: {exc}"


def _plugins() -> Iterator[_Check]:
    """Yield the plugins of other distributions, and what else can be installed."""
    infos = get_plugins().infos()
    for info in infos:
        if info.status == "broken":
            last = info.error.strip().rpartition("\n")[2]
            detail = f"{last} (`transload info {info.name}` has the traceback)"
            yield _Check("plugin", info.name, _BROKEN, detail)
        elif info.name != CORE:
            status = _MISSING if info.status == "disabled" else _OK
            yield _Check("plugin", info.name, status, f"{info.origin}, {info.status}")
    there = {info.name for info in infos}
    others = [each.plugin for each in DISTRIBUTIONS if each.plugin not in there]
    if others:
        detail = f"not installed: {', '.join(others)}. {install_command('NAME')}"
        yield _Check("plugin", "others", _OK, detail)


def _orchestrators(runner: Runner) -> Iterator[_Check]:
    """Yield what each adapter advises about its orchestrator's settings."""
    schedulers = {runner.settings.scheduler, *runner.settings.scheduler_tables()}
    for name in adapters():
        for line in get_adapter(name).advice(schedulers):
            yield _Check("orchestrator", name, _MISSING, line)
