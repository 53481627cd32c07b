"""Give the fork server a scope of its own, by systemd.

So stopping the service or session of who submits first spares other jobs.
"""

from __future__ import annotations

import os
from typing import Final

LINGERING: Final = "/var/lib/systemd/linger"


def command() -> list[str]:
    """Return the command that runs a program in a separate scope, or [] if none can last here."""
    if not os.path.exists(f"{runtime_folder()}/systemd/private") or not _lasts():
        return []
    import shutil

    program = shutil.which("systemd-run")
    options = ["--user", "--scope", "--quiet", "--collect", "--description=transload", "--"]
    return [program, *options] if program else []


def runtime_folder() -> str:
    """Return the folder where the user's systemd manager listens, also in a service without it."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def _lasts() -> bool:
    """Tell whether the user's service manager outlives the session or service of this process.

    Otherwise a log-out would end what it holds.
    """
    import pwd

    uid = os.geteuid()
    try:
        if os.path.exists(f"{LINGERING}/{pwd.getpwuid(uid).pw_name}"):
            return True
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            return f"/user@{uid}.service/" in file.read()
    except (KeyError, OSError):
        return False


def explain() -> str:
    """Return in a line where a fork server that is started from here is put."""
    if command():
        return "starts in a separate systemd scope (systemd-run --user --scope)"
    shared = "belongs to the service or login session of who submits first"
    if os.path.exists(f"{runtime_folder()}/systemd/private"):
        return f"{shared}, and ends with it; `loginctl enable-linger` gives it a separate systemd scope"
    return f"{shared} (no systemd user manager here)"
