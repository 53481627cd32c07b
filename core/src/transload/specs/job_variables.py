"""Name the variables that are one job's alone, and that a job which it submits must not get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["PYTHONUNBUFFERED", "REQUIREMENTS", "of_other_jobs"]

PYTHONUNBUFFERED: Final = "PYTHONUNBUFFERED"
"""The variable that has Python write each line at once."""

REQUIREMENTS: Final = "TRANSLOAD_REQUIREMENTS"
"""The variable with the file of what a replica needs installed. uv starts such a replica.

uv exits with 128 + n where its program was ended by signal n.
"""

_INSIDE: Final = "TRANSLOAD_JOB_ID"
"""The variable by which a process knows that it runs in a job."""

_OUR_NAMES: Final = """
    APP_COOKIE APP_ID CHECKPOINT_DIR CHECKPOINT_NAME ERROR_FILE INTERRUPTIONS JOB_ID NOTICE_SIGNAL
    NUM_REPLICAS OUTPUT_DIR PARENT_RUN_ID PROGRESS_FILE RANK0_HOST REPLICA_ID REQUIREMENTS
    RESULT_FILE RETRY ROLE ROLES TRACKER_BASE
"""
_OURS: Final = frozenset(f"TRANSLOAD_{name}" for name in _OUR_NAMES.split())
"""Who a job is, and where it writes."""

_OTHER_NAMES: Final = """
    RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE
    ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT JOB_COMPLETION_INDEX
    SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS
    WANDB_RUN_ID KUBEFLOW_TRAINER_SERVER_URL KUBEFLOW_TRAINER_SERVER_TOKEN
    KUBEFLOW_TRAINER_SERVER_CA_CERT
"""
_OTHERS: Final = frozenset(_OTHER_NAMES.split())
"""The same in the words of those who start replicas, or to whom a program reports."""

_PREFIXES: Final = ("TORCHELASTIC_", "TRANSLOAD_SECRET_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_")


def of_other_jobs(names: Iterable[str]) -> set[str]:
    """Return those of the variables of this process that belong to the job which runs it alone.

    Outside of a job, ranks and the like are a user's settings, and stay.

    Args:
        names: names of all variables of this process.
    """
    known = set(names)
    found = known & _OURS
    if _INSIDE in known:
        found |= known & _OTHERS
        found.update(name for name in known if name.startswith(_PREFIXES))
    return found
