"""Built-in components that run one program, such as ``utils.echo`` and ``utils.python``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import transload
from transload import specs
from transload.errors import SpecError

__all__ = ["binary", "booth", "echo", "python", "sh"]


def echo(
    msg: str = "hello world", image: str = transload.IMAGE, num_replicas: int = 1
) -> specs.AppDef:
    """Print a message (runs ``echo``).

    Args:
        msg: the message
        image: image to run in
        num_replicas: number of replicas
    """
    return _one_role("echo", image, "echo", [msg], num_replicas=num_replicas)


def sh(
    *args: str,
    image: str = transload.IMAGE,
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,  # noqa: N803
    h: str | None = None,
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
) -> specs.AppDef:
    """Run a command through ``sh``.

    Each argument is quoted, so ``$HOME`` and ``*`` are not expanded. To expand them, start another
    shell: ``utils.sh -- sh -c 'echo $HOME'``.

    Args:
        args: the command and its arguments
        image: image to run in
        num_replicas: number of replicas
        cpu: cores of each replica
        gpu: GPUs of each replica
        memMB: main memory of each replica, in MB
        h: a named resource, which takes precedence over cpu, gpu and memMB
        env: environment variables (ENV1=v1,ENV2=v2)
        max_retries: largest number of restarts of a failed replica
        mounts: mounts (type=<bind|volume|device>,src=/host,dst=/job[,readonly];
            job=HANDLE:outputs,dst=/job)
    """
    env = dict(env or {})
    env.setdefault("LOGLEVEL", os.getenv("LOGLEVEL", "WARNING"))
    resource = specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h)
    return _one_role(
        "sh",
        image,
        "sh",
        ["-c", shlex.join(args)],
        num_replicas,
        resource,
        max_retries=max_retries,
        mounts=specs.parse_mounts(mounts or []),
        env=env,
    )


def python(
    *args: str,
    m: str | None = None,
    c: str | None = None,
    script: str | None = None,
    image: str = transload.IMAGE,
    name: str = "transload_utils_python",
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,  # noqa: N803
    h: str | None = None,
    num_replicas: int = 1,
) -> specs.AppDef:
    """Run a Python module, command or script with the ``python`` of the image.

    Arguments of the program come after ``--``: ``utils.python -m my.main -- --epochs 3``. An
    exception that ends the program is the error of the job.

    Args:
        args: arguments of the program, its sys.argv[1:]
        m: module to run as a script
        c: program as text
        script: file to run
        image: image to run in
        name: name of the job
        cpu: cores of each replica
        gpu: GPUs of each replica
        memMB: main memory of each replica, in MB
        h: a named resource, which takes precedence over cpu, gpu and memMB
        num_replicas: number of replicas
    """
    if sum(item is not None for item in (m, c, script)) != 1:
        raise SpecError(
            f"utils.python: give exactly one of -m, -c and --script; given: {m=}, {c=}, {script=}"
        )
    if script is not None:
        command = [script]
    elif m is not None:
        command = ["-m", m]
    else:
        command = ["-c", c or ""]
    if not command[-1]:
        raise SpecError("utils.python: the module, program or script must not be empty")
    env = {}
    if m:
        env["HYDRA_MAIN_MODULE"] = m
    resource = specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h)
    made = _one_role("python", image, "python", [*command, *args], num_replicas, resource, env=env)
    return replace(made, name=name)


def binary(
    *args: str,
    entrypoint: str,
    name: str = "transload_utils_binary",
    num_replicas: int = 1,
    cpu: int = 1,
    gpu: int = 0,
    memMB: int = 1024,  # noqa: N803
    h: str | None = None,
) -> specs.AppDef:
    """Run a program with arguments.

    Args:
        args: arguments of the program
        entrypoint: the program
        name: name of the job
        num_replicas: number of replicas
        cpu: cores of each replica
        gpu: GPUs of each replica
        memMB: main memory of each replica, in MB
        h: a named resource, which takes precedence over cpu, gpu and memMB
    """
    resource = specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h)
    return replace(
        _one_role("binary", specs.NONE, entrypoint, [*args], num_replicas, resource), name=name
    )


def booth(
    x1: float,
    x2: float,
    trial_idx: int = 0,
    tracker_base: str = "/tmp/transload-util-booth",  # noqa: S108 - gives way to the job's own, see booth_main
    image: str = transload.IMAGE,
) -> specs.AppDef:
    """Evaluate Booth's function and report it as ``booth_eval``.

    The function is ``(x1 + 2 x2 - 7)^2 + (2 x1 + x2 - 5)^2``.

    Args:
        x1: first coordinate
        x2: second coordinate
        trial_idx: key of the result
        tracker_base: place of the result, a path or a URL (default: the job's own place)
        image: image to run in, which must contain transload
    """
    command = ["-m", "transload.components.programs.booth_main", "--x1", str(x1), "--x2", str(x2)]
    command += ["--trial_idx", str(trial_idx), "--tracker_base", tracker_base]
    return _one_role("transload-utils-booth", image, "python", command)


def _one_role(
    name: str,
    image: str,
    entrypoint: str,
    args: list[str],
    num_replicas: int = 1,
    resource: specs.Resource | None = None,
    *,
    max_retries: int = 0,
    mounts: Sequence[specs.Mount] = (),
    env: Mapping[str, str] = MappingProxyType({}),
) -> specs.AppDef:
    role = specs.Role(
        name,
        image,
        entrypoint=entrypoint,
        args=args,
        num_replicas=num_replicas,
        resource=resource or specs.Resource(cpu=1, gpu=0, memMB=1024),
        max_retries=max_retries,
        mounts=list(mounts),
        env=dict(env),
    )
    return specs.AppDef(name, [role])
