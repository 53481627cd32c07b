"""How a job goes on in a further allocation, and why Slurm has started it again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time

from .agent import open_own, start_number
from .starts import job_id, write_new
from .steps import UNREACHABLE, complain, job_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ENV_START = "TRANSLOAD_START_BASE"
"""How many starts there were before those of this Slurm job, for `start_number`."""

_ASK_S = 20.0
_PATIENCE_S = 60.0
_AGAIN_S = 2.0
_MOST = 1 << 20
_WORDS = (
    ("DUE TO PREEMPTION", "preempted"),
    ("DUE TO NODE FAILURE", "node"),
    ("DUE TO JOB REQUEUE", "requested"),
)
"""What Slurm writes into a job's log when it ends it → what that is."""
_INHERITED = re.compile(r"(SLURM|SBATCH|SRUN|SQUEUE|SACCT|SCANCEL|TRANSLOAD_START)_")
_KEPT = ("SLURM_CONF",)


def cause_of(before: dict[str, Any] | None, folder: str) -> str:
    """Return the cause of an interruption after which Slurm started a job again.

    Slurm's own words in the job's log count. Without any, and without a signal to the supervisor,
    the node that it ran on was lost.

    Args:
        before: what the start before has written, or None if it wrote nothing.
        folder: the job's folder.

    Returns:
        The cause, or "" if it is not known.
    """
    if before is None:
        return ""
    given = before.get("next")
    if isinstance(given, str) and given:
        return given
    said = _read(os.path.join(folder, "batch.log"), int(before.get("log_at") or 0))
    found = [(said.rfind(words), cause) for words, cause in _WORDS if words in said]
    cause = max(found)[1] if found else ""
    if cause == "requested" and _is_drained(str(before.get("nodes") or "")):
        return "drained"
    if not cause and not before.get("signalled"):
        return "node"
    return cause


def cancelled_before(before: dict[str, Any] | None) -> str:
    """Return the id of the Slurm job before this one if it was cancelled while it handed over.

    If Slurm has forgotten it, a signal that reached it in that moment counts.

    Args:
        before: what the start before has written, or None if it wrote nothing.

    Returns:
        The id, or "" if nobody cancelled that job.
    """
    if before is None or not before.get("next"):
        return ""
    earlier = str(before.get("job") or "")
    if earlier in ("", job_id()):
        return ""
    word = job_now(0, earlier).word
    forgotten = not word and before["next"] == "segment" and before.get("signalled")
    if word == "CANCELLED" or forgotten:
        return earlier
    return ""


def _read(path: str, since: int) -> str:
    try:
        fd = open_own(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, _MOST, max(since, size - _MOST)).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _is_drained(nodes: str) -> bool:
    """Tell whether somebody has taken one of these nodes out of service."""
    if not nodes:
        return False
    code, out, _ = run_tool(["sinfo", "-h", "-N", "-n", nodes, "-o", "%T"])
    return code == 0 and any(line.strip().startswith("drain") for line in out.splitlines())


def go_on(folder: str) -> str:
    """Continue the job in a further allocation. Return why that is not possible, else "".

    Slurm puts the job back into its queue. Where it may not, a successor of the same job is
    submitted that waits for the end of this one. Two of them never run together.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if _may_requeue():
                return _said(run_tool(["scontrol", "requeue", _own_id()]), "scontrol requeue")
            return _succeed(folder)
        except _Unreachable as exc:
            if time.monotonic() >= deadline:
                return str(exc)
            complain(f"Slurm does not answer, and is asked again: {exc}")
            time.sleep(_AGAIN_S)


class _Unreachable(Exception):
    """Slurm does not answer now."""


def _own_id() -> str:
    """Return the id of this job, or of this element of an array, as ``scontrol`` takes it."""
    env = os.environ
    if "SLURM_ARRAY_TASK_ID" in env:
        return f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    return env.get("SLURM_HET_JOB_ID") or env.get("SLURM_JOB_ID", "")


def run_tool(command: list[str], env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a tool, and return its exit code, its output, and its error output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            env=env,
            check=False,
        )
    except OSError as exc:
        return 127, "", f"{command[0]}: {exc.strerror}"
    except subprocess.TimeoutExpired:
        return 124, "", f"{command[0]} timed out"
    texts = [part.decode("utf-8", "replace").strip() for part in (done.stdout, done.stderr)]
    return done.returncode, texts[0], texts[1]


def _said(answer: tuple[int, str, str], what: str) -> str:
    """Return in one line why Slurm refused, or "" if it did what was asked.

    Raises:
        _Unreachable: if it did not answer.
    """
    code, _, err = answer
    if code <= 0:  # a requeue ends what has asked for it
        return ""
    line = "; ".join(line.strip() for line in err.splitlines() if line.strip())
    text = f"{what}: {line or f'exit code {code}'}"
    if any(words in line.lower() for words in UNREACHABLE):
        raise _Unreachable(text)
    return text


def _may_requeue() -> bool:
    """Tell whether Slurm may put this job back into its queue.

    Raises:
        _Unreachable: if it does not answer.
    """
    answer = run_tool(["scontrol", "-o", "show", "job", os.environ.get("SLURM_JOB_ID", "")])
    _said(answer, "scontrol show job")
    return " Requeue=0 " not in answer[1]


def _succeed(folder: str) -> str:
    """Submit a successor that waits for the end of this job, and give it the work."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or not _INHERITED.match(name)
    }
    env[ENV_START] = str(start_number() + 1)
    command = ["sbatch", "--parsable", f"--dependency=afterany:{job_id()}"]
    answer = run_tool([*command, os.path.join(folder, "job.sh")], env)
    refused = _said(answer, "sbatch")
    if refused:
        return refused
    found = re.findall(r"^(\d+)(?:;.*)?$", answer[1], re.MULTILINE)
    if not found:
        return f"sbatch: no id in {answer[1]!r}"
    for name, text in (("job.json", json.dumps({"id": found[-1]})), ("claim", found[-1])):
        aside = os.path.join(folder, f"{name}.next")
        write_new(aside, text)
        os.replace(aside, os.path.join(folder, name))
    return ""
