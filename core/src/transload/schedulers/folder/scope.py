"""Keep jobs that a service has submitted from ending with it, by a scope of systemd's."""

from __future__ import annotations

import functools
import logging
import os
from typing import Final

LINGERING: Final = "/var/lib/systemd/linger"
CONTROL_GROUPS: Final = "/proc/self/cgroup"
ADVICE: Final = (
    "jobs submitted from this service end when it is stopped or restarted: write KillMode=process "
    "into its unit, or have its user's manager run by `loginctl enable-linger`"
)


def in_service() -> bool:
    """Tell whether this process is in the control group of a service, which systemd ends whole."""
    names = {name for path in _groups() for name in path.split("/")}
    return any(name.endswith(".service") and not name.startswith("user@") for name in names)


def command() -> list[str]:
    """Return what is put in front of a keeper that is to outlive this service, or []."""
    if not in_service() or not _has_lasting_manager():
        return []
    import shutil  # few submits come from a service

    program = shutil.which("systemd-run")
    if program is None:
        return []
    return [program, "--user", "--scope", "--quiet", "--collect", "--description=transload", "--"]


def runtime_folder() -> str:
    """Return the folder where the user's systemd manager listens, also in a service without it."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def explain() -> str:
    """Return in a line what ends the jobs that are submitted from here, beside themselves."""
    if not in_service():
        return "outlive the program that submits them"
    if command():
        return "outlive this service, each in a scope of its own (systemd-run --user --scope)"
    return ADVICE


@functools.cache
def warn_once() -> None:
    """Say what a service has to do for its jobs to outlive it."""
    if in_service() and not command():
        logging.getLogger("transload.local").warning("%s", ADVICE)


def _groups() -> list[str]:
    try:
        with open(CONTROL_GROUPS, encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n").split(":", 2)[-1] for line in file]
    except OSError:
        return []


def _has_lasting_manager() -> bool:
    """Tell whether the user's systemd manager is here, and outlives this service.

    Otherwise a log-out would end what it holds.
    """
    import pwd

    uid = os.geteuid()
    if not os.path.exists(f"{runtime_folder()}/systemd/private"):
        return False
    try:
        lingers = os.path.exists(f"{LINGERING}/{pwd.getpwuid(uid).pw_name}")
    except KeyError:
        lingers = False
    return lingers or any(f"/user@{uid}.service/" in path for path in _groups())
