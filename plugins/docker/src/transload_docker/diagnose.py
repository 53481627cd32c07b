"""Check for ``transload doctor`` whether an engine can be reached, and what is missing."""

from __future__ import annotations

import getpass
import os

from transload.errors import ConfigError, SchedulerUnavailable
from transload.schedulers.folder.home import ensure
from transload_docker.engine import Engine, EngineError

Check = tuple[str, bool, str]


def diagnose(engine: Engine, home: str) -> list[Check]:
    """Return ``(check, ok, details)`` of all that must work. Nothing is changed on the engine."""
    checks = [_client(), _home(home)]
    if not checks[0][1]:
        return checks
    try:
        info = engine.query(lambda api: api.info())
        version = engine.query(lambda api: api.version())
    except (SchedulerUnavailable, EngineError) as exc:
        return [*checks, ("engine", False, f"{exc}; {_advice(engine)}")]
    system = f"{info.get('OperatingSystem', '?')}, {info.get('NCPU', '?')} CPUs, {info.get('Architecture', '?')}"
    limits = [
        name
        for key, name in (("MemoryLimit", "memory"), ("CpuCfsQuota", "cpu"))
        if not info.get(key)
    ]
    driver = str(info.get("LoggingDriver", "?"))
    readable = driver in ("json-file", "local", "journald")
    init = str(info.get("InitBinary") or "")
    has_gpus = "nvidia" in (info.get("Runtimes") or {}) or bool(info.get("CDISpecDirs"))
    limits_text = "memory, cpu"
    if limits:
        limits_text = f"the kernel cannot limit: {', '.join(limits)}"
    logs_text = f"logging driver {driver}"
    if not readable:
        logs_text += ": its logs cannot be read back"
    gpus_text = "none configured; roles that ask for a GPU will not start"
    if has_gpus:
        gpus_text = "NVIDIA runtime"
    return [
        *checks,
        (
            "engine",
            True,
            f"{engine.url}: {version.get('Version', '?')} on {info.get('Name', '?')} ({system})",
        ),
        ("user", True, f"{_user()}; whoever reaches this engine is as good as root on its machine"),
        (
            "limits",
            not limits,
            limits_text,
        ),
        (
            "logs",
            readable,
            logs_text,
        ),
        (
            "init",
            bool(init),
            init or "no docker-init: containers cannot be started with an init process",
        ),
        (
            "gpus",
            True,
            gpus_text,
        ),
    ]


def _client() -> Check:
    try:
        import docker
    except ImportError as exc:
        return "client", False, f"the Python client of docker cannot be imported: {exc}"
    return "client", True, f"docker {docker.__version__}"


def _home(home: str) -> Check:
    if not os.path.isdir(home):
        return "state folder", True, f"{home} (made when first needed)"
    try:
        ensure(home)
    except ConfigError as exc:
        return "state folder", False, str(exc)
    return "state folder", True, home


def _user() -> str:
    try:
        return f"as {getpass.getuser()} (uid {os.geteuid()})"
    except (KeyError, OSError):
        return f"as uid {os.geteuid()}"


def _advice(engine: Engine) -> str:
    path = engine.url.removeprefix("http+").removeprefix("unix://")
    if engine.reach != "host":
        return "check DOCKER_HOST, DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
    if not os.path.exists(path):
        return f"there is no {path}: start the engine, or set DOCKER_HOST"
    if not os.access(path, os.W_OK):
        return f"you may not write to {path}: join the group that owns it (usually docker)"
    return f"nothing answers at {path}: is the engine running?"
