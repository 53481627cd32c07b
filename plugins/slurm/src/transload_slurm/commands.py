"""Running Slurm's command-line tools."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from transload.errors import SchedulerUnavailable
from transload_slurm.job.steps import UNREACHABLE

PREFERENCES = ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_QOS", "SBATCH_RESERVATION")
_UNCONFIGURED = "configuration source"
NAME_A_LOGIN_NODE = (
    "if this is no machine of the cluster, name its login node in transload.toml: "
    'kind = "slurm" and ssh = "me@login.example" in a table [schedulers.hpc]'
)
_OVER = ("invalid job id", "already completing", "already completed")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said."""

    code: int
    out: str
    err: str

    @property
    def unreachable(self) -> bool:
        """Tell whether the tool failed because the controller did not answer."""
        return self.code != 0 and any(word in self.err.lower() for word in UNREACHABLE)

    @property
    def too_late(self) -> bool:
        """Tell whether the tool failed only since its jobs have ended, or are forgotten."""
        lines = [line.lower() for line in self.err.splitlines() if line.strip()]
        return (
            self.code != 0
            and bool(lines)
            and all(any(words in line for words in _OVER) for line in lines)
        )

    @property
    def complaint(self) -> str:
        """Return what it complained of, as one line."""
        lines = [
            line.partition(": error: ")[2] or line for line in self.err.splitlines() if line.strip()
        ]
        text = "; ".join(dict.fromkeys(line.strip() for line in lines))
        if _UNCONFIGURED in text:
            return f"{text}; {NAME_A_LOGIN_NODE}"
        return text or f"exit code {self.code}"


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a tool, without what would change its answers.

    Variables of an outer job are taken out, and so are those by which a user sets defaults of a
    tool.

    ``SLURM_CONF`` stays, and so do defaults for account, partition, QOS and reservation.
    """
    kept = {
        name: value
        for name, value in base.items()
        if not name.startswith(("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_"))
        or name in PREFERENCES
    }
    if "SLURM_CONF" in os.environ:
        kept["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return kept


def run(command: list[str], timeout: float, env: Mapping[str, str] | None = None) -> Answer:
    """Run a tool to its end.

    Args:
        command: the tool and its arguments.
        timeout: seconds.
        env: its environment, which what it starts may inherit. By default this process's, cleaned.

    Raises:
        SchedulerUnavailable: if it is not installed, or does not end in time.
    """
    given = env
    if given is None:
        given = environment(os.environ)
        # times and words that this package can read, whatever the user's habits
        given.update(SLURM_TIME_FORMAT="standard", LC_MESSAGES="C")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            env=given,
            check=False,
        )
    except FileNotFoundError as exc:
        raise SchedulerUnavailable(
            f"{command[0]} is not installed here; {NAME_A_LOGIN_NODE}"
        ) from exc
    except subprocess.TimeoutExpired as exc:
        raise SchedulerUnavailable(f"{command[0]} did not answer within {timeout:g} s") from exc
    return Answer(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )
