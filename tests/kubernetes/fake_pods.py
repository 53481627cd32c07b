"""Run the pods of the fake cluster as processes of this machine, without their images."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

LINE_LIMIT = 1 << 20
AHEAD_S = 0.0  # of the cluster's clock, before this machine's
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z0-9_.-]+)\)")


def now_text() -> str:
    """Return the time by the cluster's clock as the API writes it, in whole seconds."""
    now = datetime.now(UTC) + timedelta(seconds=AHEAD_S)
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def expanded(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` and ``$$`` as a kubelet does. An unknown name stays as it is."""
    return _REFERENCE.sub(
        lambda match: "$" if match.group(0) == "$$" else env.get(match.group(1), match.group(0)),
        text,
    )


def container_environment(
    pod: dict[str, Any], container: dict[str, Any], secret: Callable[[str, str], str]
) -> dict[str, str]:
    """Return the environment of a container. Variables may refer to those before them."""
    env: dict[str, str] = {}
    for each in container.get("env") or ():
        source = each.get("valueFrom") or {}
        if "secretKeyRef" in source:
            env[each["name"]] = secret(
                source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]
            )
        elif "fieldRef" in source:
            match = re.fullmatch(
                r"metadata\.(annotations|labels)\['(.+)'\]", source["fieldRef"]["fieldPath"]
            )
            assert match is not None, source
            env[each["name"]] = (pod["metadata"].get(match[1]) or {}).get(match[2], "")
        else:
            env[each["name"]] = expanded(each.get("value", ""), env)
    return env


class Process:
    """The program of a pod, as one process group whose lines are taken with their time.

    Args:
        command: program and arguments.
        env: its environment, beside PATH.
        on_end: called with the exit code as a container runtime reports it. By default nobody wants
            to know.
    """

    def __init__(
        self,
        command: list[str],
        env: Mapping[str, str],
        on_end: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.lines: list[tuple[int, bytes]] = []
        self.condition = threading.Condition()
        self.ended = False
        self._on_end = on_end
        self._process = subprocess.Popen(
            command,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # as a cluster does: it keeps both in one log
            start_new_session=True,
            cwd="/",
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in iter(lambda: self._process.stdout.readline(LINE_LIMIT), b""):
            with self.condition:
                self.lines.append((time.time_ns(), line))
                self.condition.notify_all()
        code = self._process.wait()
        self._process.stdout.close()
        self.signal(signal.SIGKILL)  # what it has started ends with its container
        with self.condition:
            self.ended = True
            self.condition.notify_all()
        self._on_end(128 - code if code < 0 else code)

    def signal(self, number: int) -> None:
        """Send a signal to all of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def join(self) -> None:
        """Wait until it is gone."""
        self._thread.join(10)
