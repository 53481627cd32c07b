"""The tasks of one role, as the keeper sees them. It sends orders and receives reports."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time

from transload.keeper import layout

from . import agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KILL_S = 10.0
_ASK_S = 20.0
_TASKS = re.compile(r"error: [^\n:]+: tasks? ([0-9]+(?:[,-][0-9]+)*): ")
_ERROR = re.compile(r"(?:: |\] )error: (.*)")
UNREACHABLE = (
    "unable to contact",
    "connection refused",
    "connect failure",
    "timed out",
    "temporarily",
    "zero bytes",
    "communication",
    "not responding",
    "requested nodes are busy",
    "configuration source",
    "slurm backup controller in standby",
    "socket",
    "munge",
    "authentication",
)
"""What Slurm's tools say, in small letters, when its controller does not answer.

The controller may be away, cannot be asked, or refuses for the moment.
"""
_REFUSED = "task launch for"
"""What ``srun`` says, in small letters, if Slurm has made the step, and a node does not start its task."""
_SECRET = "TRANSLOAD_SECRET_"  # noqa: S105 - a prefix of names


def complain(text: str) -> None:
    """Write a line into the batch log. On a full disk the line is lost, and the job goes on."""
    with contextlib.suppress(OSError):
        os.write(2, f"transload: {text}\n".encode("utf-8", "replace"))


def run_tool(command: list[str]) -> tuple[int, str, str]:
    """Run a tool, and return its exit code, its output, and its error output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
        )
    except OSError as exc:
        return 127, "", f"{command[0]}: {exc.strerror}"
    except subprocess.TimeoutExpired:
        return 124, "", f"{command[0]} timed out"
    texts = [part.decode("utf-8", "replace").strip() for part in (done.stdout, done.stderr)]
    return done.returncode, texts[0], texts[1]


class Step:
    """The tasks of one role, which one ``srun`` starts.

    A single task has one too. A user's signals to a job go to its steps alone, and some options of
    ``srun``, such as a container, need a step.
    """

    def __init__(self, folder: str, plan: dict[str, Any], role: int) -> None:
        self.role = role
        self.name = plan["roles"][role]["name"]
        self.buffer = b""
        self.broken = False
        self._log, self._begins = f"{folder}/batch.log", 0
        with contextlib.suppress(OSError):
            self._begins = os.stat(self._log).st_size
        env = {name: value for name, value in os.environ.items() if not name.startswith(_SECRET)}
        env.update(
            {
                name: value
                for name, value in os.environ.items()
                if name.startswith(f"{_SECRET}{role}_")
            }
        )
        task = layout.dumps(agent.task_of(plan, role))
        layout.write_file(f"{folder}/role-{role}", task)
        wrapper = [
            plan["python"],
            "-I",
            "-S",
            os.path.join(folder, "job", "__main__.py"),
            "agent",
            folder,
            str(role),
        ]
        self.process = subprocess.Popen(
            ["srun", *plan["roles"][role]["srun"], *wrapper],  # noqa: S607 - Slurm's own, on PATH
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=folder,
            preexec_fn=_let_be,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.pid = self.process.pid
        self.noise: int | None = self.process.stderr.fileno()
        self.begun, self.said = False, ""
        self.orders, self.reports = self.process.stdin.fileno(), self.process.stdout.fileno()

    def tell(self, line: str) -> None:
        """Send an order to the tasks. If they are gone, nothing happens."""
        with contextlib.suppress(OSError):
            os.write(self.orders, f"{line}\n".encode())

    def dismiss(self) -> None:
        """Close the stream of orders, upon which the tasks end what they run, and themselves."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.orders = -1

    def lines(self) -> list[bytes] | None:
        """Return the reports that have come, or None at their end."""
        data = os.read(self.reports, 1 << 16)
        *whole, self.buffer = (self.buffer + data).split(b"\n")
        self.begun = self.begun or bool(whole)
        return whole if data else None

    def dead_tasks(self) -> list[int] | None:
        """Pass on what ``srun`` complains of, and find the tasks that it says are gone.

        Returns:
            The numbers of those tasks, or None at the end of the output.
        """
        assert self.noise is not None
        data = os.read(self.noise, 1 << 16)
        with contextlib.suppress(OSError):  # a full disk
            os.write(2, data)
        self.said = (self.said + data.decode("utf-8", "replace"))[-4000:]
        found: list[int] = []
        for numbers in _TASKS.findall(data.decode("utf-8", "replace")):
            for part in numbers.split(","):
                first, _, last = part.partition("-")
                found += range(int(first), int(last or first) + 1)
        return found if data else None

    def never_began(self) -> str:
        """Return why ``srun``, which has ended, started no task because Slurm could not be asked.

        Returns:
            The complaint, or "" if a task began or the reason is another one.
        """
        while self.noise is not None and self.dead_tasks() is not None:
            pass
        said = [line.partition(": error: ")[2] or line for line in self.said.splitlines()]
        if self.begun or any(_REFUSED in line.lower() for line in said):
            return ""
        return next(
            (line.strip() for line in said if any(word in line.lower() for word in UNREACHABLE)), ""
        )

    def complaint(self) -> str:
        """Return what ``srun`` and Slurm complained of last.

        A complaint about memory goes first, and then one about a node that starts no task.
        """
        text = ""
        # newer releases say it there alone
        with contextlib.suppress(OSError):
            with open(layout.open_own(self._log, os.O_RDONLY), "rb") as file:
                file.seek(self._begins)
                text = file.read().decode("utf-8", "replace")[-4000:]
        errors = [found.strip() for found in _ERROR.findall(f"{text}\n{self.said}")]
        memory = [line for line in errors if "memory" in line.lower() or "oom" in line.lower()]
        refused = [line for line in errors if _REFUSED in line.lower()]
        return next(reversed(memory or refused or errors), "")[:300]

    def wait(self, timeout: float) -> None:
        """Wait until the tasks are gone, and kill them when the time is over."""
        deadline = time.monotonic() + timeout
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        while not ended:
            if time.monotonic() >= deadline:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGTERM)  # srun kills its tasks at this
                deadline += _KILL_S
            time.sleep(0.01)
            ended, status = os.waitpid(self.pid, os.WNOHANG)
        self.process.returncode = 0
        if os.WIFSIGNALED(status):
            self._cancel()

    def _cancel(self) -> None:
        """End the tasks of an ``srun`` that was killed. Slurm would let them run."""
        whole = os.environ.get("SLURM_JOB_ID", "")
        job = os.environ.get(f"SLURM_JOB_ID_HET_GROUP_{self.role}", whole)
        _, said, _ = run_tool(["squeue", "-h", "-s", "-j", job, "-o", "%i %j"])
        steps = [line.split()[0] for line in said.splitlines() if line.split()[1:] == [self.name]]
        if steps:
            run_tool(["scancel", *steps])


def _let_be() -> None:
    """Ignore signals that may be sent to all processes of a job, so that ``srun`` survives them.

    ``scancel --full`` sends them.
    """
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX + 1):
        signal.signal(number, signal.SIG_IGN)
