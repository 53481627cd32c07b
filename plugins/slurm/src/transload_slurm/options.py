"""The options of the Slurm scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from transload.errors import ConfigError
from transload.specs import Connection, Options, Role, option
from transload.specs.options import RunOptions
from transload.specs.values import at_least


@dataclass(frozen=True, kw_only=True)
class SlurmConnection(Connection):
    """The settings that say which cluster this is."""

    ssh: str | None = option(
        "login node, [USER@]HOST or a Host of ~/.ssh/config; default: Slurm is on this machine"
    )
    folder: str | None = option(
        "folder of its jobs, shared with the nodes; default: by name, in TRANSLOAD_SLURM_DIR; "
        "behind ssh ~/.transload/slurm"
    )
    login_python: str = option("Python (3.8 or newer) of the login node", "python3")


@dataclass(frozen=True, kw_only=True)
class RoleFlags(RunOptions):
    """The options of ``sbatch`` that roles may differ in, each a flag of the same name."""

    partition: str | None = option("partition (queue)")
    account: str | None = option("account that is charged")
    qos: str | None = option("quality of service")
    time: str | None = option(
        "limit of time: minutes, [hours:]minutes:seconds or days-hours[:minutes[:seconds]]"
    )
    constraint: str | None = option("features that the nodes must have")
    nodes: Annotated[int, at_least(1)] | None = option(
        "number of nodes over which the replicas of a role are spread"
    )
    ntasks_per_node: Annotated[int, at_least(1)] | None = option("replicas of a role on one node")
    reservation: str | None = option("reservation to run in")
    nodelist: str | None = option("nodes that must be among those given")
    exclude: str | None = option("nodes that must not be given")
    exclusive: bool | None = option("share the nodes with no other job")


@dataclass(frozen=True, kw_only=True)
class RoleOptions(RoleFlags):
    """The options that a role may set for itself, by metadata such as ``{"slurm.time": "10"}``."""

    gpu_type: str | None = option("type of the GPUs that Resource.gpu counts, for example a100")
    sbatch_args: list[str] = option(
        "more options of sbatch, by their whole names, for every role, for example "
        "--hint=nomultithread",
        [],
    )
    srun_args: list[str] = option(
        "more options of srun, by their whole names, for every role, for example --cpu-bind=cores",
        [],
    )


@dataclass(frozen=True, kw_only=True)
class JobFlags(RunOptions):
    """The options of ``sbatch`` for the job as a whole, each a flag of the same name."""

    dependency: str | None = option("jobs to wait for, for example afterok:1234")
    begin: str | None = option("earliest start, for example now+1hour")
    nice: int | None = option("lower (or, for operators, raise) the priority")
    mail_user: str | None = option("whom Slurm writes mail")
    mail_type: str | None = option("when Slurm writes mail, for example END,FAIL")


@dataclass(frozen=True, kw_only=True)
class SlurmOptions(JobFlags, RoleOptions, Options):
    """The run options of the Slurm scheduler."""

    working_dir: str | None = option(
        "where jobs without a folder as image work; default: the current one, behind ssh ~"
    )
    comment: str | None = option(
        "text added to the comment of the Slurm job, which begins with the job id"
    )
    container: Literal["none", "apptainer", "charliecloud", "pyxis"] = option(
        "what runs the roles' images on the nodes", "none"
    )
    prologue: str | None = option(
        "shell that runs first, in the workspace: module load, pip install; what fails there fails "
        "the job"
    )
    requeue: bool | None = option(
        "may Slurm start the job again (node lost, pre-empted); default: if roles retry"
    )
    job_dir: str | None = option(
        "shared folder of logs, workspace, results (<job_dir>/<app_id>); default: the job's"
    )
    checkpoint_base: str | None = option(
        "shared folder of checkpoints (<checkpoint_base>/<name>/<role>); default: the jobs'"
    )
    prefetch: bool = option(
        "the login node fetches the packages of jobs, for nodes that reach no index", False
    )
    keep_days: float | None = option(
        "days after which a submit removes jobs that have ended, once a day; none: never"
    )
    python: str = option(
        "Python (3.8 or newer) of the nodes: for the keeper of the replicas, and, if it is "
        "named, for jobs that need packages",
        "python3",
    )


def role_options(role: Role, index: int, opts: SlurmOptions) -> RoleOptions:
    """Return the options of one role, from those of the job and its metadata under ``slurm.``.

    Raises:
        ConfigError: for an unknown option (the nearest valid name is suggested) or a wrong type.
    """
    own = {
        key.removeprefix("slurm."): value
        for key, value in role.metadata.items()
        if key.startswith("slurm.")
    }
    try:
        given = RoleOptions.read(own)
    except ConfigError as exc:
        raise ConfigError(f"roles[{index}].metadata: {exc}") from exc
    values = {name: getattr(opts, name) for name in RoleOptions.table()}
    values |= {name: value for name, value in given.to_dict().items() if value is not None}
    values["sbatch_args"] = [*opts.sbatch_args, *given.sbatch_args]
    values["srun_args"] = [*opts.srun_args, *given.srun_args]
    return RoleOptions(**values)
