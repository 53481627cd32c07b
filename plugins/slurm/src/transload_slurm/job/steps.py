"""The tasks of one role, as the supervisor sees them: orders go in, reports come out."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from . import agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KILL_S = 10.0
_TASKS = re.compile(r"error: [^\n:]+: tasks? ([0-9]+(?:[,-][0-9]+)*): ")
_SECRET = "TRANSLOAD_SECRET_"  # noqa: S105 - a prefix of names


def complain(text: str) -> None:
    """Write a line into the batch log; a full disk costs the line, not the app."""
    with contextlib.suppress(OSError):
        os.write(2, f"transload: {text}\n".encode("utf-8", "replace"))


class Step:
    """The tasks of one role: an ``srun``, or a fork of ours where there is one task only."""

    def __init__(self, folder: str, plan: dict[str, Any], role: int, only: int | None) -> None:
        self.role = role
        self.buffer = b""
        self.noise: int | None = None
        self.broken = False
        if only is not None or (len(plan["roles"]) == 1 and plan["roles"][role]["num_replicas"] == 1):
            self.process = None
            self.pid, self.orders, self.reports = _fork(folder, plan, role, only or 0)
            return
        env = {name: value for name, value in os.environ.items() if not name.startswith(_SECRET)}
        env.update({name: value for name, value in os.environ.items() if name.startswith(f"{_SECRET}{role}_")})
        import subprocess  # here: a single replica does without

        _write_role(folder, plan, role)
        wrapper = [plan["python"], "-I", "-S", os.path.join(folder, "job", "__main__.py"), "agent", folder, str(role)]
        self.process = subprocess.Popen(
            ["srun", *plan["roles"][role]["srun"], *wrapper],  # noqa: S607 - Slurm's own, on PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.pid, self.noise = self.process.pid, self.process.stderr.fileno()
        self.orders, self.reports = self.process.stdin.fileno(), self.process.stdout.fileno()

    def tell(self, line: str) -> None:
        """Give an order to the tasks; nothing happens if they are gone."""
        with contextlib.suppress(OSError):
            os.write(self.orders, f"{line}\n".encode())

    def dismiss(self) -> None:
        """End the orders: the tasks end what they run, and themselves."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        elif self.orders >= 0:
            os.close(self.orders)
        self.orders = -1

    def lines(self) -> list[bytes] | None:
        """Return the reports that have come; None at their end."""
        data = os.read(self.reports, 1 << 16)
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        return whole if data else None

    def dead_tasks(self) -> list[int] | None:
        """Pass on what ``srun`` complains of; return the numbers of tasks that it says are gone, None at the end."""
        assert self.noise is not None
        data = os.read(self.noise, 1 << 16)
        with contextlib.suppress(OSError):  # a full disk
            os.write(2, data)
        found: list[int] = []
        for numbers in _TASKS.findall(data.decode("utf-8", "replace")):
            for part in numbers.split(","):
                first, _, last = part.partition("-")
                found += range(int(first), int(last or first) + 1)
        return found if data else None

    def wait(self, timeout: float) -> None:
        """Wait for the tasks to be gone; kill them when the time is over."""
        deadline = time.monotonic() + timeout
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() >= deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGTERM)  # srun kills its tasks at this
                deadline += _KILL_S
            time.sleep(0.01)
        if self.process is not None:
            self.process.returncode = 0


def _write_role(folder: str, plan: dict[str, Any], role: int) -> None:
    path = os.path.join(folder, f"role-{role}")
    with open(os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(agent.pack(agent.task_of(plan, role)))
    os.replace(f"{path}.tmp", path)


def _fork(folder: str, plan: dict[str, Any], role: int, k: int) -> tuple[int, int, int]:
    orders_in, orders_out = os.pipe()
    reports_in, reports_out = os.pipe()
    pid = os.fork()
    if pid:
        os.close(orders_in)
        os.close(reports_out)
        return pid, orders_out, reports_in
    code = 1
    try:
        os.close(orders_out)
        os.close(reports_in)
        signal.set_wakeup_fd(-1)
        agent.Agent(folder, agent.task_of(plan, role), role, k, orders_in, reports_out).main()
        code = 0
    finally:
        os._exit(code)
    raise AssertionError
