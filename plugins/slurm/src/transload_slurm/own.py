"""Options of ``sbatch`` and ``srun`` that this plugin sets, and what to use in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from transload.errors import ConfigError
from transload_slurm.tables import PER_JOB, PER_ROLE

_JOBS: Final = "jobs are found by it; use the run option comment for your own text"
_LOGS: Final = "each replica has separate logs; use transload log"
_INPUT: Final = "no file is read as input; use the program's arguments"
_REPLICAS: Final = "use run --replicas (Role.num_replicas)"
_ROLES: Final = "use roles of the job"
_CPU: Final = "use run --cpu (Resource.cpu)"
_MEMORY: Final = "use run --mem (Resource.memMB)"
_GPUS: Final = "use run --gpu (Resource.gpu) and the run option gpu_type"
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
    "array": "use the run option gang=false, with --replicas",
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

_RESOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "memory": dict.fromkeys(("mem", "mem-per-cpu", "mem-per-gpu"), _MEMORY),
    "gpus": dict.fromkeys(("gpus-per-task", "gpus"), _GPUS),
}

_SHORT: Final[Mapping[str, str]] = {
    "J": "job-name",
    "o": "output",
    "e": "error",
    "i": "input",
    "a": "array",
    "n": "ntasks",
    "c": "cpus-per-task",
    "W": "wait",
    "G": "gpus",
    "K": "kill-on-bad-exit",
    "I": "immediate",
    "l": "label",
    "p": "partition",
    "A": "account",
    "q": "qos",
    "t": "time",
    "C": "constraint",
    "N": "nodes",
    "w": "nodelist",
    "x": "exclude",
    "d": "dependency",
    "b": "begin",
}
_WITHOUT_VALUE: Final = "EHOQXkluv"
"""Short options that may be followed by another in the same word."""
_WHOLE: Final = frozenset({"mem", "gpus"})
"""Options that are whole although longer ones begin so. All others may be shortened."""

_PROLOGUE: Final = "use the run option prologue, whose lines run first: 'module load cuda'"

INSTEAD: Final[Mapping[str, str]] = {
    **SBATCH,
    **_RESOURCES["memory"],
    **_RESOURCES["gpus"],
    **dict.fromkeys(("gres", "gpus-per-node"), _GPUS),
    "job-name": "use run --name (AppDef.name)",
    "chdir": "use the run option working_dir",
    "signal": "use run --notice and --notice-signal (Role.notice)",
    **dict.fromkeys(("module", "modules", "conda"), _PROLOGUE),
}
"""Option of ``sbatch`` that is no run option → what to use in its place."""


def in_place_of_short() -> dict[str, str]:
    """Return what to use in place of each short option of ``sbatch``, such as ``p``."""
    found = {}
    for short, option in _SHORT.items():
        known = f"use the run option {option} (-c {option}=VALUE)"
        if option not in PER_JOB and option not in PER_ROLE:
            known = INSTEAD.get(option, "")
        if known:
            found[short] = known
    return found


def refuse_own(name: str, words: list[str], *, memory: bool, gpus: bool) -> None:
    """Refuse words of ``sbatch_args`` or ``srun_args`` that this plugin writes itself.

    Args:
        name: the run option.
        words: its options, each in one word (``--x=y``, ``--x y``, ``-J y``, ``-Jy``).
        memory: whether the role's memory is said already.
        gpus: whether its GPUs are.

    Raises:
        ConfigError: for the first of them, with what to use in its place.
    """
    known = dict(SBATCH if name == "sbatch_args" else SRUN)
    if memory:
        known.update(_RESOURCES["memory"])
    if gpus:
        known.update(_RESOURCES["gpus"])
    for word in words:
        for option, value in _options(word):
            full = _full(option, known, name)
            advice = known.get(full) or _of_tables(full, value, name)
            if advice:
                raise ConfigError(
                    f"run option {name}: {word!r}: --{full} is set by transload itself: {advice}"
                )


def _options(word: str) -> Iterator[tuple[str, str | None]]:
    """Yield the options that a word holds, and the value of each.

    sbatch splits a line of the script at its blanks.
    """
    head, equals, value = word.partition("=")
    tokens = head.split()
    for number, token in enumerate(tokens):
        if not token.startswith("-"):
            continue
        given: str | None = None
        following = tokens[number + 1 :]
        if following and not following[0].startswith("-"):
            given = following[0]
        elif not following and equals:
            given = value
        if token.startswith("--"):
            yield token[2:], given
            continue
        for place, letter in enumerate(token[1:], 2):
            yield _SHORT.get(letter, letter), token[place:] or given
            if letter not in _WITHOUT_VALUE:
                break


def _full(option: str, known: Mapping[str, str], name: str) -> str:
    """Return the full name of an option that may be shortened."""
    flags = [flag[2:] for flag, _, _ in _tables(name)]
    if option in _WHOLE or option in known or option in flags or len(option) < 2:
        return option
    return next((each for each in (*known, *flags) if each.startswith(option)), option)


def _tables(name: str) -> list[tuple[str, type | object, str]]:
    """Return the tables of run options that are options of sbatch.

    For ``srun_args`` there is none.
    """
    if name != "sbatch_args":
        return []
    return [*PER_ROLE.values(), *PER_JOB.values()]


def _of_tables(full: str, value: str | None, name: str) -> str:
    """Return which run option says the same, or ``""`` if none does.

    The option ``--nodes=2-4`` says more than the run option ``nodes`` can.
    """
    if name != "sbatch_args":
        return ""
    for own, (flag, kind, _) in {**PER_ROLE, **PER_JOB}.items():
        if flag != f"--{full}":
            continue
        if kind is bool and value is not None:
            return ""
        if kind is int and not (value or "").isdigit():
            return ""
        return f"use the run option {own}"
    return ""
