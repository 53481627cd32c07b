"""Reach replicas on their nodes, by one more step of its Slurm job (``srun --overlap``)."""

from __future__ import annotations

import os
import shutil
import signal as signals
from collections.abc import Sequence
from typing import Final

from transload.errors import SchedulerUnavailable, SpecError
from transload_slurm import commands

_STEP_S: Final = 60.0

_ON_NODE: Final = """
import os, sys

def variables(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\\0") if "=" in line)

def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0

app, role, numbers, word, *rest = sys.argv[1:]
own = {}
for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
    env = variables(pid)
    if (env.get("TRANSLOAD_APP_ID"), env.get("TRANSLOAD_ROLE")) == (app, role):
        own[pid] = env
here = os.environ.get("SLURMD_NODENAME")
mains = {}
for pid, env in own.items():
    task = parent(pid)
    if task not in own and variables(task).get("SLURMD_NODENAME") == here:
        mains[env.get("TRANSLOAD_REPLICA_ID")] = pid
chosen = [k for k in numbers.split(",") if k in mains]
if word == "where":
    if chosen:
        print(here)
elif word == "signal":
    for k in chosen:
        os.kill(mains[k], int(rest[0]))
        print(k)
elif not chosen:
    sys.exit("transload: the replica does not run (any more)")
else:
    program = mains[chosen[0]]
    if os.path.basename(os.readlink(f"/proc/{program}/exe")).startswith("uv"):
        program = next((pid for pid in own if parent(pid) == program), program)
    os.chdir(os.readlink(f"/proc/{program}/cwd"))
    try:
        os.execvpe(rest[0], rest, own[program])
    except OSError as exc:
        sys.stderr.write(f"transload: {rest[0]}: {exc.strerror}\\n")
        sys.exit(127)
"""
"""Finds the main processes of replicas on their own node, and acts on them. It is for Python 3.8.

Such a process has the variables of the replica, and its parent, the task of Slurm, has not.
"""


class RunningRole:
    """A role of a job that runs.

    Args:
        job: the id of its Slurm job.
        group: the number of the role, if the job is heterogeneous, else None.
        python: the Python of the nodes.
        app_id: the job.
        role: name of the role.
    """

    def __init__(self, job: str, group: int | None, python: str, app_id: str, role: str) -> None:
        self._job = job
        self._component = job if group is None else f"{job}+{group}"
        self._srun = ["srun", "--overlap", "--quiet", f"--jobid={job}"]
        if group is not None:
            self._srun.append(f"--het-group={group}")
        self._program = [os.path.expanduser(python), "-I", "-S", "-c", _ON_NODE, app_id, role]
        self._role = role

    def signal(self, replicas: Sequence[int], name: str) -> None:
        """Send a signal to the main processes of replicas, by one step on all nodes.

        Raises:
            SchedulerUnavailable: if one of them does not run now, or Slurm makes no step.
        """
        number = str(int(getattr(signals, f"SIG{name}")))
        numbers = ",".join(map(str, replicas))
        done = self._asked([*self._everywhere(), *self._program, numbers, "signal", number])
        missed = sorted({*map(str, replicas)} - {*done.split()})
        if missed:
            raise SchedulerUnavailable(f"{self._role}/{missed[0]}: its process was not found")

    def command(self, k: int, words: Sequence[str], *, terminal: bool) -> list[str]:
        """Return the command line, on a machine of the cluster, that runs a command beside one.

        Raises:
            SpecError: if it does not run any more.
            SchedulerUnavailable: if Slurm makes no step.
        """
        said = self._asked([*self._everywhere(), *self._program, str(k), "where"]).split()
        if not said:
            raise SpecError(f"{self._role}/{k}: it does not run (any more)")
        step = [*self._srun, "--nodes=1", "--ntasks=1", f"--nodelist={said[0]}"]
        if terminal:
            step.append("--pty")
        return [*_tools(), *step, *self._program, str(k), "exec", *words]

    def _everywhere(self) -> list[str]:
        """Return how a step begins that has one task on each node of the role."""
        rows = self._asked(["squeue", "-h", "-j", self._job, "-o", "%i %D"])
        counts = dict(row.split()[:2] for row in rows.splitlines())
        count = counts.get(self._component)
        if count is None:
            raise SpecError(f"{self._role}: it does not run (any more)")
        return [*self._srun, f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]

    @staticmethod
    def _asked(command: list[str]) -> str:
        answer = commands.run(command, _STEP_S)
        if answer.code != 0:
            raise SchedulerUnavailable(f"{command[0]}: {answer.complaint}")
        return answer.out


def _tools() -> list[str]:
    """Return the beginning of a command line that finds Slurm's tools from any shell."""
    found = shutil.which("srun")
    settings = [f"PATH={os.environ.get('PATH', os.defpath)}"]
    if "SLURM_CONF" in os.environ:
        settings.append(f"SLURM_CONF={os.environ['SLURM_CONF']}")
    if found is None:
        raise SchedulerUnavailable(f"srun is not installed here; {commands.NAME_A_LOGIN_NODE}")
    return ["env", *settings]
