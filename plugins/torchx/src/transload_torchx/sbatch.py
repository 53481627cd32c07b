"""A batch script of Slurm becomes a component and a table of settings.

The options of sbatch are those of its manual page: https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from transload.errors import SpecError
from transload_torchx.sources import Left

_SHORT: Final = {
    "-A": "account",
    "-C": "constraint",
    "-G": "gpus",
    "-J": "job-name",
    "-N": "nodes",
    "-a": "array",
    "-b": "begin",
    "-c": "cpus-per-task",
    "-d": "dependency",
    "-e": "error",
    "-n": "ntasks",
    "-o": "output",
    "-p": "partition",
    "-q": "qos",
    "-t": "time",
    "-w": "nodelist",
    "-x": "exclude",
}
_SETTINGS: Final = (
    "partition",
    "account",
    "qos",
    "constraint",
    "reservation",
    "nodelist",
    "exclude",
    "mail-user",
    "mail-type",
)
"""Options of sbatch that are run options of the Slurm scheduler, under the same name."""
_OF_ONE_RUN: Final = ("dependency", "begin")
"""Likewise, but a table of settings counts for every job."""
_NOT_NEEDED: Final = {
    "output": "logs are kept for each replica: transload log HANDLE",
    "error": "logs are kept for each replica: transload log HANDLE",
    "open-mode": "each attempt has a separate log",
    "export": "variables are passed on by pass_env",
    "get-user-env": "variables are passed on by pass_env",
    "chdir": "the job works in its workspace",
}
_DIRECTIVE: Final = re.compile(r"#SBATCH\s+(.*)")
_SET_UP: Final = re.compile(r"(module|ml|source|\.|conda|mamba|export|spack)\b")
_TASK_ID: Final = "SLURM_ARRAY_TASK_ID"
_SLURM_NAMES: Final = re.compile(r"SLURM_(?!ARRAY_TASK_ID\b|SUBMIT_DIR\b)")
"""Variables of Slurm, apart from those that the component sets."""
_MEMORY_UNITS: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass
class _Script:
    """What a batch script asks for, and what it runs."""

    options: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each option."""
    body: list[tuple[int, str]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def leave(self, option: str, why: str) -> None:
        """Note that an option has no counterpart."""
        self.left.append(Left(self.lines[option], f"--{option}={self.options[option]}: {why}"))


def convert_batch_script(text: str, name: str) -> tuple[str, str, list[Left]]:
    """Return a component file, settings as TOML, and what is left to do by hand.

    Each replica of the component runs the command that the script starts by ``srun``. A script
    without ``srun`` becomes one replica.

    Args:
        text: the batch script.
        name: the name of the script's file, and of the job if the script gives none.

    Raises:
        SpecError: if an option cannot be read. The message has its line.
    """
    script = _read(text)
    command = _command(script)
    options = script.options
    role = [f'"{_NAME_OF_ROLE}"', 'image=""', 'entrypoint="bash"', 'args=["-lc", SCRIPT]']
    role.append("num_replicas=replicas")
    resource = _resource(script)
    if resource:
        role.append(f"resource=Resource({resource})")
    notice = _notice(script)
    if notice:
        role.append(f"notice={notice}")
    app = [json.dumps(options.get("job-name", name)), "[role]"]
    if "time" in options:
        app.append(f"timeout={_seconds(script)}")
    used = ["AppDef", *(["Notice"] if notice else []), *(["Resource"] if resource else []), "Role"]
    arguments = "".join(f"\n        {each}," for each in role)
    component = f'''"""The job of {name}, made by `transload migrate`."""

from transload.specs import {", ".join(used)}

SCRIPT = {_literal(command)}


def job(replicas: int = {_replicas(script)}) -> AppDef:
    """Run what {name} ran.

    Args:
        replicas: how many copies of the program run.
    """
    role = Role({arguments}
    )
    return AppDef({", ".join(app)})
'''
    settings = _settings(script)
    handled = {*_HANDLED, *_SETTINGS}
    others: list[str] = []
    for option in options:
        if option in _NOT_NEEDED:
            script.leave(option, f"not needed, {_NOT_NEEDED[option]}")
        elif option == "array":
            script.leave(option, _about_array(script))
        elif option in _OF_ONE_RUN:
            script.leave(option, f"of one run: run -c {option}={options[option]}")
        elif option not in handled:
            others.append(_spelled(option, options[option]))
    if others:
        settings["sbatch_args"] = others
    rows = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    toml = "\n".join(["[schedulers.slurm]", *rows]) + "\n" if rows else ""
    return component, toml, sorted(script.left)


_NAME_OF_ROLE: Final = "main"
_HANDLED: Final = (
    "job-name",
    "nodes",
    "ntasks",
    "ntasks-per-node",
    "cpus-per-task",
    "mem",
    "mem-per-cpu",
    "gres",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "time",
    "signal",
    "requeue",
    "no-requeue",
    "exclusive",
)


def _read(text: str) -> _Script:
    """Take a batch script apart. Options count until its first command, as in sbatch."""
    script = _Script()
    for number, line in enumerate(text.splitlines(), 1):
        directive = _DIRECTIVE.match(line)
        if directive and not script.body:
            for option, value in _options(directive[1], number):
                script.options[option] = value
                script.lines[option] = number
        elif line.strip() and not line.lstrip().startswith("#"):
            script.body.append((number, line))
    return script


def _options(text: str, number: int) -> list[tuple[str, str]]:
    """Return the options of a line of ``#SBATCH`` by their long names."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as exc:
        raise SpecError(f"line {number}: #SBATCH {text}: {exc}") from exc
    found = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            option, equals, value = word[2:].partition("=")
        elif word[:2] in _SHORT:
            option = _SHORT[word[:2]]
            value = word[2:].removeprefix("=")
            equals = value
        else:
            raise SpecError(f"line {number}: #SBATCH {text}: cannot read {word!r}")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        found.append((option, value))
    return found


def _command(script: _Script) -> str:
    """Return the shell script that each replica runs."""
    lines = _as_on_slurm(script)
    known = len(lines)
    starts = 0
    last, _ = script.body[-1] if script.body else (0, "")
    for number, line in script.body:
        words = line.split()
        if words[0] != "srun":
            lines.append(line)
            continue
        starts += 1
        if starts > 1:
            script.left.append(Left(number, f"a second srun is a separate job: {line.strip()}"))
            continue
        options, command = _without_srun(line)
        if options:
            script.left.append(Left(number, f"options of srun: -c srun_args='{options}'"))
        lines.append(f"exec {command}" if number == last else command)
    others = [line for line in lines[known:] if not _SET_UP.match(line.strip())]
    if starts and len(others) > 1:
        script.left.append(
            Left(script.body[0][0], "lines beside srun now run in each replica: see SCRIPT")
        )
    if _SLURM_NAMES.search("\n".join(lines[known:])):
        script.left.append(
            Left(script.body[0][0], "SLURM_… exists on Slurm only: see TRANSLOAD_REPLICA_ID")
        )
    return "\n".join(lines)


def _as_on_slurm(script: _Script) -> list[str]:
    """Return lines of shell that set what the script reads of Slurm, from what a job has."""
    lines = []
    if "SLURM_SUBMIT_DIR" in "\n".join(line for _, line in script.body):
        lines.append('export SLURM_SUBMIT_DIR="$PWD"')  # a job begins in its folder
    array = _array(script)
    if array is not None:
        number = "$TRANSLOAD_REPLICA_ID"
        if array.first:
            number = f"$((TRANSLOAD_REPLICA_ID + {array.first}))"
        lines.append(f"export {_TASK_ID}={number}")
    return lines


def _without_srun(line: str) -> tuple[str, str]:
    """Return the options of a line ``srun OPTIONS COMMAND``, and the command as it is spelled."""
    rest = line.strip()[len("srun") :].lstrip()
    options = []
    while rest.startswith("-"):
        word, _, after = rest.partition(" ")
        options.append(word)
        rest = after.lstrip()
        if "=" not in word and word in _SRUN_WITH_VALUE:
            word, _, after = rest.partition(" ")
            options.append(word)
            rest = after.lstrip()
    return " ".join(options), rest


_SRUN_WITH_VALUE: Final = ("-n", "-N", "-c", "-p", "--ntasks", "--nodes", "--cpus-per-task")


def _whole(script: _Script, option: str, default: int) -> int:
    """Return the value of an option that is a number."""
    value = script.options.get(option)
    if value is None:
        return default
    if not value.isdecimal() or int(value) < 1:
        raise SpecError(
            f"line {script.lines[option]}: --{option}={value}: must be a whole number of 1 or more"
        )
    return int(value)


def _tasks(script: _Script) -> int:
    """Return how many tasks the script starts by ``srun``."""
    if not any(line.split()[0] == "srun" for _, line in script.body):
        return 1
    nodes = _whole(script, "nodes", 1)
    per_node = _whole(script, "ntasks-per-node", 1)
    return _whole(script, "ntasks", nodes * per_node)


@dataclass(frozen=True)
class _Array:
    """Elements of an array whose numbers follow each other.

    Attributes:
        first: number of the first.
        count: how many there are.
        parallel: how many may run at the same time, or "" for all.
    """

    first: int
    count: int
    parallel: str


def _array(script: _Script) -> _Array | None:
    """Return the array, if each of its elements can be a replica."""
    found = re.fullmatch(r"(\d+)-(\d+)(?:%(\d+))?", script.options.get("array", ""))
    if found is None or _tasks(script) > 1:
        return None
    first = int(found[1])
    return _Array(first=first, count=int(found[2]) - first + 1, parallel=found[3] or "")


def _about_array(script: _Script) -> str:
    """Return what is left to do for an array."""
    array = _array(script)
    if array is None:
        return "give --replicas, or submit a job for each element"
    about = f"its {array.count} elements are replicas, which start together"
    if array.parallel:
        about = f"{about}, not {array.parallel} at a time"
    return about


def _replicas(script: _Script) -> int:
    """Return how many replicas the job has, by its tasks or the elements of an array."""
    array = _array(script)
    if array is None:
        return _tasks(script)
    return array.count


def _resource(script: _Script) -> str:
    """Return the arguments of the `Resource` of a replica, or ``""`` if the script names none."""
    options = script.options
    parts = []
    cpus = _whole(script, "cpus-per-task", 1)
    if "cpus-per-task" in options:
        parts.append(f"cpu={cpus}")
    gpus = _gpus(script)
    if gpus:
        parts.append(f"gpu={gpus}")
    if "mem-per-cpu" in options:
        parts.append(f"memMB={_megabytes(script, 'mem-per-cpu') * cpus}")
    elif "mem" in options:
        on_a_node = math.ceil(_tasks(script) / _whole(script, "nodes", 1))
        parts.append(f"memMB={max(_megabytes(script, 'mem') // on_a_node, 1)}")
    if parts and "cpu" not in parts[0]:
        parts.insert(0, "cpu=1")
    if parts and not any(part.startswith("memMB") for part in parts):
        parts.append("memMB=-1")
    if parts and not gpus:
        parts.append("gpu=0")
    return ", ".join(parts)


def _gpus(script: _Script) -> int:
    """Return the GPUs of a replica."""
    replicas = _tasks(script)
    nodes = _whole(script, "nodes", 1)
    per: Mapping[str, Callable[[int], float]] = {
        "gpus-per-task": lambda count: count,
        "gpus-per-node": lambda count: count * nodes / replicas,
        "gres": lambda count: count * nodes / replicas,
        "gpus": lambda count: count / replicas,
    }
    for option, share in per.items():
        value = script.options.get(option)
        if value is None:
            continue
        if option == "gres" and not value.startswith("gpu"):
            script.leave(option, "give it by -c sbatch_args")
            continue
        count = re.search(r"(\d+)$", value)
        found = share(int(count[1]) if count else 1)
        if found != int(found):
            script.leave(option, f"{found:g} GPUs for each replica: choose a whole number")
        return math.ceil(found)
    return 0


def _gpu_type(options: Mapping[str, str]) -> str:
    """Return the type of GPUs that is asked for, as in ``gpu:a100:2``, or ``""`` for any."""
    for option in ("gpus-per-task", "gpus-per-node", "gpus", "gres"):
        parts = options.get(option, "").removeprefix("gpu:").split(":")
        if len(parts) > 1 or (parts[0] and not parts[0].isdecimal() and option != "gres"):
            return parts[0]
    return ""


def _megabytes(script: _Script, option: str) -> int:
    """Return a size of memory in MiB."""
    value = script.options[option]
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", value.upper())
    if found is None:
        raise SpecError(
            f"line {script.lines[option]}: --{option}={value}: must be a size such as 500M or 16G"
        )
    return max(int(int(found[1]) * _MEMORY_UNITS[found[2]]), 1)


def _seconds(script: _Script) -> int:
    """Return in seconds a limit of time, given as ``minutes``, ``[h:]m:s`` or ``d-h[:m[:s]]``."""
    value = script.options["time"]
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value)
    if found is None:
        raise SpecError(
            f"line {script.lines['time']}: --time={value}: must be minutes, [hours:]minutes:seconds "
            "or days-hours[:minutes[:seconds]]"
        )
    days, first, second, third = (int(part) if part else None for part in found.groups())
    if days is not None:
        return days * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    if third is not None:
        return (first or 0) * 3600 + (second or 0) * 60 + third
    return (first or 0) * 60 + (second or 0)


def _notice(script: _Script) -> str:
    """Return the `Notice` that stands for ``--signal=[B:]SIGNAL[@SECONDS]``, or ``""`` for none."""
    value = script.options.get("signal")
    if value is None:
        return ""
    signal, _, seconds = value.rpartition(":")[2].partition("@")
    name = signal.upper().removeprefix("SIG")
    if not name.isidentifier() or not (seconds or "60").isdecimal():
        script.leave("signal", "give --notice and --notice-signal, with the signal's name")
        return ""
    return f'Notice(seconds={int(seconds or "60")}, signal="{name}")'


def _settings(script: _Script) -> dict[str, str | int | list[str]]:
    """Return the run options of Slurm that stand for those of sbatch."""
    options = script.options
    found: dict[str, str | int | list[str]] = {
        name.replace("-", "_"): options[name] for name in _SETTINGS if name in options
    }
    kind = _gpu_type(options)
    if kind:
        found["gpu_type"] = kind
    for name in ("nodes", "ntasks-per-node"):
        if name in options and _tasks(script) > 1:
            found[name.replace("-", "_")] = _whole(script, name, 1)
    if "exclusive" in options:
        found["exclusive"] = True
    if "requeue" in options or "no-requeue" in options:
        found["requeue"] = "requeue" in options
    return found


def _spelled(option: str, value: str) -> str:
    if not value:
        return f"--{option}"
    return f"--{option}={value}"


def _literal(text: str) -> str:
    """Return a Python literal of a shell script that is read as the script is."""
    if "'''" in text or text.endswith("'"):
        return json.dumps(text)
    return f"r'''\n{text}\n'''"
