"""Built-in components for one program on many hosts, ``dist.ddp`` and ``dist.spmd``.

Both use ``torchrun``.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from typing import Final

import transload
from transload import specs
from transload.components.structured_arg import StructuredJArgument, StructuredNameArgument
from transload.errors import SpecError
from transload.specs import macros

__all__ = ["ddp", "get_role_name", "parse_nnodes", "spmd"]

_DEBUG_ENV: Final = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}

_NEEDED: Final = """\
type -P torchrun >/dev/null || { echo "torchrun is not on PATH: install torch where the job runs" >&2; exit 127; }
"""

_PORTS: Final = range(20000, 30000)
"""The range of chosen ports, below those that systems assign by themselves."""

# it is the same for all replicas of a job, and differs between jobs
_CHOSEN: Final = f"""\
id='{macros.app_id}' port=0
for ((i = 0; i < ${{#id}}; i++)); do
printf -v code %d "'${{id:i:1}}"
port=$(((port * 31 + code) % {len(_PORTS)}))
done
port=$((port + {_PORTS.start}))
"""


def spmd(
    *args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = transload.IMAGE,
    name: str = "/",
    h: str | None = None,
    j: str = "1x1",
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    mounts: list[str] | None = None,
    debug: bool = False,
) -> specs.AppDef:
    """Run copies of one program on one or more hosts (single program, multiple data).

    ``-j 2x8`` starts 8 processes on each of 2 hosts. ``-h gpu.small -j 2`` starts one for each GPU
    of 2 hosts. The program may call ``torch.distributed.init_process_group`` in any case. The hosts
    must be able to reach one another.

    Args:
        args: arguments of the program
        script: file to run, as a path in the image
        m: module to run
        image: image to run in
        name: experiment/run, each part may be left out
        h: a named resource (default: 2 cores, 1024 MB and no GPU on each host)
        j: HOSTSxPROCESSES, or HOSTS alone for a process for each GPU of h (without h one process)
        env: environment variables (ENV1=v1,ENV2=v2)
        max_retries: largest number of restarts after failures
        mounts: mounts (type=<bind|volume|device>,src=/host,dst=/job[,readonly];
            job=HANDLE:outputs,dst=/job)
        debug: set the environment variables that make PyTorch and NCCL explain themselves
    """
    return ddp(
        *args,
        script=script,
        m=m,
        image=image,
        name=name,
        h=h,
        j=str(StructuredJArgument.parse_from(h, j)),
        env=env,
        max_retries=max_retries,
        mounts=mounts,
        debug=debug,
    )


def ddp(
    *script_args: str,
    script: str | None = None,
    m: str | None = None,
    image: str = transload.IMAGE,
    name: str = "/",
    h: str | None = None,
    cpu: int = 2,
    gpu: int = 0,
    memMB: int = 1024,  # noqa: N803
    j: str = "1x2",
    env: dict[str, str] | None = None,
    max_retries: int = 0,
    rdzv_port: int = 0,
    rdzv_backend: str = "c10d",
    mounts: list[str] | None = None,
    debug: bool = False,
    tee: int = 3,
) -> specs.AppDef:
    """Run a distributed data parallel program with ``torchrun``, with a replica for each host.

    The processes meet at replica 0. On a single host they use a free port and ignore ``rdzv_port``.
    The first exception or kill that ends one of them is the error of the job. A notice must be TERM,
    which torchrun passes on.

    Args:
        script_args: arguments of the program
        script: file to run, as a path in the image
        m: module to run
        image: image to run in
        name: experiment/run, each part may be left out; the run's default is the script or module
        h: a named resource, which takes precedence over cpu, gpu and memMB
        cpu: cores of each replica
        gpu: GPUs of each replica
        memMB: main memory of each replica, in MB
        j: [MIN_HOSTS:]HOSTSxPROCESSES, or PROCESSES alone for one host
        env: environment variables (ENV1=v1,ENV2=v2)
        max_retries: largest number of restarts after failures
        rdzv_port: port of the rendezvous on replica 0, where 0 chooses one from 20000 to 29999 by
            the job's id
        rdzv_backend: kind of rendezvous
        mounts: mounts (type=<bind|volume|device>,src=/host,dst=/job[,readonly];
            job=HANDLE:outputs,dst=/job)
        debug: set the environment variables for debug output of PyTorch and NCCL
        tee: which output of the processes is shown and kept (0 none, 1 stdout, 2 stderr, 3 both)
    """
    program = _program(script, m, script_args)
    min_hosts, hosts, processes, nnodes = parse_nnodes(j)
    if not 0 <= rdzv_port <= 65535:
        raise SpecError(f"rdzv_port={rdzv_port}: must be 1 to 65535, or 0 for one that is chosen")
    structured = StructuredNameArgument.parse_from(name=name, m=m, script=script)
    meeting = _meeting(hosts, rdzv_backend)
    torchrun = _torchrun(meeting, rdzv_backend, nnodes, processes, tee)
    port_map = {}
    if hosts > 1 and rdzv_port:
        port_map["c10d"] = rdzv_port
    role = specs.Role(
        name=get_role_name(script, m),
        image=image,
        min_replicas=min_hosts,
        entrypoint="bash",
        num_replicas=hosts,
        resource=specs.resource(cpu=cpu, gpu=gpu, memMB=memMB, h=h),
        args=["-c", _port(hosts, rdzv_port) + torchrun, "torchrun", *program],
        env=_variables(env, structured.experiment_name, debug),
        port_map=port_map,
        max_retries=max_retries,
        mounts=specs.parse_mounts(mounts or []),
    )
    return specs.AppDef(name=structured.run_name, roles=[role])


def _variables(env: dict[str, str] | None, experiment: str, debug: bool) -> dict[str, str]:
    """Return the environment of the role."""
    variables = {**(env or {}), "TRANSLOAD_TRACKING_EXPERIMENT_NAME": experiment}
    variables.setdefault("LOGLEVEL", os.getenv("LOGLEVEL", "WARNING"))
    if debug:
        variables.update(_DEBUG_ENV)
    return variables


def _port(hosts: int, given: int) -> str:
    """Return the shell lines that set ``port``. On a single host torchrun chooses a free port."""
    if hosts == 1:
        return "port=0\n"
    if given:
        return f"port={given}\n"
    return _CHOSEN


def _meeting(hosts: int, backend: str) -> str:
    """Return the options for the meeting point of the processes, which the shell expands.

    Some schedulers give the host of replica 0 only to the other replicas, so there is a fallback.
    """
    if hosts == 1:
        return "--rdzv_endpoint localhost:$port"
    endpoint = f'--rdzv_endpoint "${{{macros.rank0_env}:=localhost}}:$port"'
    if backend == "c10d":
        # torchrun would compare host names to choose the host that listens, but a scheduler may
        # use other names than the host itself
        return f"{endpoint} --rdzv_conf is_host=$(({macros.replica_id} == 0))"
    if backend == "static":
        # this kind has no rendezvous that could assign ranks
        return f"{endpoint} --node_rank {macros.replica_id}"
    return endpoint


def _program(script: str | None, m: str | None, arguments: Sequence[str]) -> list[str]:
    """Return the words of the program that ``torchrun`` starts, the shell's arguments."""
    if (script is None) == (m is None):
        raise SpecError(f"dist.ddp: give exactly one of --script and -m; given: {script=}, {m=}")
    program = ["-m", str(m)] if script is None else [script]
    return [*program, *arguments]


def _torchrun(meeting: str, backend: str, nnodes: str, processes: int, tee: int) -> str:
    """Return the part of the shell command that starts ``torchrun``.

    The shell only adds the meeting point.
    """
    options = ["--rdzv_backend", backend, "--rdzv_id", macros.app_id, "--nnodes", nnodes]
    options += ["--nproc_per_node", str(processes), "--tee", str(tee), "--role", ""]
    return f'{_NEEDED}exec torchrun {meeting} {shlex.join(options)} "$@"'


def get_role_name(script: str | None, m: str | None) -> str:
    """Return the role's name.

    It is the script without folder and ending, or the last part of the module. Characters that a
    role's name may not contain become ``_``.

    Raises:
        SpecError: if both are empty.
    """
    if script:
        name = os.path.splitext(os.path.basename(script))[0]
    elif m:
        name = m.rpartition(".")[2]
    else:
        raise SpecError("dist: the script or module must not be empty")
    return re.sub(r"[^\w.-]", "_", name).lstrip(".-")[:128] or "main"


def parse_nnodes(j: str) -> tuple[int, int, int, str]:
    """Parse ``[[MIN_HOSTS:]HOSTSx]PROCESSES``.

    Returns:
        The smallest and largest number of hosts, the processes on each, and the hosts in torchrun's
        form.

    Raises:
        SpecError: if the form is wrong, a number is below 1, or the minimum is above the maximum.

    Example:
        >>> parse_nnodes("2:4x8")
        (2, 4, 8, '2:4')
    """
    match = re.fullmatch(r"(?:(?:([1-9]\d*):)?([1-9]\d*)x)?([1-9]\d*)", j)
    if match is None:
        raise SpecError(
            f"j={j!r}: must be [MIN:]HOSTSxPROCESSES or PROCESSES, each 1 or more, such as 1:2x4, "
            "1x4 or 4"
        )
    least, hosts, processes = match.groups()
    hosts = hosts or "1"
    if least is None:
        return int(hosts), int(hosts), int(processes), hosts
    if int(least) > int(hosts):
        raise SpecError(f"j={j!r}: the minimum of {least} hosts is above {hosts}")
    return int(least), int(hosts), int(processes), f"{least}:{hosts}"
