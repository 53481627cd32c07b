"""The run options of the Slurm scheduler, and how each becomes an option of ``sbatch``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from transload.errors import ConfigError
from transload.specs import CfgVal, Role, runopts
from transload_slurm.own import refuse_own
from transload_slurm.tables import PER_JOB, PER_ROLE

_TIME = re.compile(r"(\d+-)?\d+(:\d+){0,2}\Z|UNLIMITED\Z|INFINITE\Z", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def run_opts() -> runopts:
    """Return the options."""
    opts = runopts()
    for table in (PER_ROLE, PER_JOB):
        for name, (_, kind, text) in table.items():
            opts.add(name, type_=kind, help=text)
    own: dict[str, tuple[type | object, str, CfgVal]] = {
        "working_dir": (
            str,
            "where jobs without a folder as image work; default: the current one, behind ssh ~",
            None,
        ),
        "comment": (
            str,
            "text added to the comment of the Slurm job, which begins with the job id",
            None,
        ),
        "gpu_type": (str, "type of the GPUs that Resource.gpu counts, for example a100", None),
        "sbatch_args": (
            list[str],
            (
                "more options of sbatch, by their whole names, for every role, for example "
                "--hint=nomultithread"
            ),
            None,
        ),
        "srun_args": (
            list[str],
            "more options of srun, by their whole names, for every role, for example --cpu-bind=cores",
            None,
        ),
        "container": (
            str,
            "what runs the roles' images on the nodes: none, apptainer, charliecloud or pyxis",
            "none",
        ),
        "prologue": (
            str,
            (
                "shell that runs first, in the workspace: module load, pip install; what fails there "
                "fails the job"
            ),
            None,
        ),
        "requeue": (
            bool,
            "may Slurm start the job again (node lost, pre-empted); default: if roles retry",
            None,
        ),
        "job_dir": (
            str,
            "shared folder of logs, workspace, results (<job_dir>/<app_id>); default: the job's",
            None,
        ),
        "checkpoint_base": (
            str,
            "shared folder of checkpoints (<checkpoint_base>/<name>/<role>); default: the jobs'",
            None,
        ),
        "prefetch": (
            bool,
            "the login node fetches the packages of jobs, for nodes that reach no index",
            False,
        ),
        "keep_days": (
            float,
            "days after which a submit removes jobs that have ended, once a day; none: never",
            None,
        ),
        "python": (
            str,
            (
                "Python (3.8 or newer) of the nodes: for the supervisor of the replicas, and, if it "
                "is named, for jobs that need packages"
            ),
            "python3",
        ),
    }
    for name, (kind, text, default) in own.items():
        opts.add(name, type_=kind, help=text, default=default)
    return opts


def role_options(role: Role, index: int, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
    """Return the options of one role, from those of the job and its metadata under ``slurm.``.

    Raises:
        InvalidRunConfigException: for an unknown option (the nearest valid name is suggested) or a
            wrong type.
    """
    allowed = runopts()
    for name, (_, kind, text) in PER_ROLE.items():
        allowed.add(name, type_=kind, help=text)
    allowed.add("gpu_type", type_=str, help="type of the GPUs")
    for name in ("sbatch_args", "srun_args"):
        allowed.add(
            name,
            type_=list[str],
            help=f"more options of {name[:-5]} for this role, after those for all",
        )
    own = {
        key.removeprefix("slurm."): value
        for key, value in role.metadata.items()
        if key.startswith("slurm.")
    }
    try:
        checked = allowed.resolve(own)
    except ConfigError as exc:
        raise ConfigError(f"roles[{index}].metadata: {exc}") from exc
    more = {
        name: [*_words(cfg.get(name)), *_words(checked.pop(name))]
        for name in ("sbatch_args", "srun_args")
    }
    found = {name: cfg.get(name) if value is None else value for name, value in checked.items()}
    return {**found, **more}


def _words(value: CfgVal) -> list[str]:
    return value if isinstance(value, list) else []


def prologue(value: CfgVal) -> str:
    """Return the lines of ``prologue``, as they stand in the script.

    Raises:
        ConfigError: if they hold control characters other than line ends and tabs.
    """
    text = str(value or "").replace("\r\n", "\n")
    if _CONTROL.search(text.replace("\n", "").replace("\t", "")):
        raise ConfigError(f"run option prologue={text!r}: must be printable text")
    return text.strip("\n")


def flags(
    table: Mapping[str, tuple[str, type | object, str]], values: Mapping[str, CfgVal]
) -> list[str]:
    """Return the flags of ``sbatch`` for the options of a table that are set.

    Raises:
        ConfigError: for a value that Slurm could not have.
    """
    found = []
    for name, (flag, _, _) in table.items():
        value = values.get(name)
        if value is None or value is False:
            continue
        if name == "time" and not _TIME.match(str(value)):
            raise ConfigError(
                f"run option time={value!r}: must be minutes, hours:minutes:seconds or days-hours"
            )
        if name in ("nodes", "ntasks_per_node") and isinstance(value, int) and value < 1:
            raise ConfigError(f"run option {name}={value}: must be 1 or more")
        found.append(flag if value is True else f"{flag}={plain(name, str(value))}")
    return found


def plain(name: str, value: str) -> str:
    """Return ``value`` if it may stand in a line of the script.

    Raises:
        ConfigError: if it is empty or holds control characters.
    """
    if not value or _CONTROL.search(value):
        raise ConfigError(f"run option {name}={value!r}: must be printable text of one line")
    return value


def extra(name: str, values: CfgVal) -> list[str]:
    """Return the words of ``sbatch_args`` or ``srun_args`` for a role.

    Raises:
        ConfigError: for a word that is no option, or one that is set by this plugin itself.
    """
    words = [plain(name, word) for word in values] if isinstance(values, list) else []
    for word in words:
        if not word.startswith("-"):
            raise ConfigError(
                f"run option {name}: {word!r}: must be an option in one word, for example "
                "--hint=nomultithread"
            )
    refuse_own(name, words)
    return words
