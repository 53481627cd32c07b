"""Options of ``sbatch`` and ``srun`` that this plugin sets, and what to use in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from transload.errors import ConfigError

_JOBS: Final = "jobs are found by it; use the run option comment for your own text"
_LOGS: Final = "each replica has separate logs; use transload log"
_INPUT: Final = "no file is read as input; use the program's arguments"
_REPLICAS: Final = "use run --replicas (Role.num_replicas)"
_ROLES: Final = "use roles of the job"
_CPU: Final = "use run --cpu (Resource.cpu)"
_VARIABLES: Final = "use run --env (Role.env) or --pass-env"

SBATCH: Final[Mapping[str, str]] = {
    "job-name": _JOBS,
    "comment": _JOBS,
    "output": _LOGS,
    "error": _LOGS,
    "input": _INPUT,
    "open-mode": _LOGS,
    "export": _VARIABLES,
    "export-file": _VARIABLES,
    "array": "submit a job for each element, as transload.map and searches do",
    "ntasks": _REPLICAS,
    "cpus-per-task": _CPU,
    "requeue": "use the run option requeue=true",
    "no-requeue": "use the run option requeue=false",
    "kill-on-invalid-dep": "use the run option dependency",
    "het-group": _ROLES,
    "parsable": "it is always given",
    "wrap": "use the program of the role",
    "wait": "use transload wait",
    "test-only": "use transload run --dry-run",
}
"""Long option → what to use in its place."""

SRUN: Final[Mapping[str, str]] = {
    "job-name": "it is the name of the role",
    "output": _LOGS,
    "error": _LOGS,
    "input": _INPUT,
    "open-mode": _LOGS,
    "label": _LOGS,
    "pty": "replicas have no terminal",
    "export": _VARIABLES,
    "ntasks": _REPLICAS,
    "cpus-per-task": _CPU,
    "het-group": _ROLES,
    "multi-prog": _ROLES,
    "kill-on-bad-exit": "use Role.min_replicas",
    "wait": "use Role.min_replicas",
    "immediate": "tasks that cannot start are tried again",
    "jobid": "it is the job's own",
}


def refuse_own(name: str, words: Sequence[str]) -> None:
    """Refuse words of ``sbatch_args`` or ``srun_args`` that this plugin writes itself.

    Only whole names are known. Short or shortened ones are left to Slurm.

    Args:
        name: the run option.
        words: its options, each in one word (``--x=y``, ``--x y``).

    Raises:
        ConfigError: for the first of them, with what to use in its place.
    """
    own = SBATCH if name == "sbatch_args" else SRUN
    for word in words:
        option = re.split("[= ]", word, maxsplit=1)[0]
        advice = own.get(option.removeprefix("--"))
        if advice:
            raise ConfigError(
                f"run option {name}: {word!r}: {option} is set by transload itself: {advice}"
            )
