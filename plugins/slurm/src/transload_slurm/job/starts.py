"""Decide which Slurm job, and which of its starts, has the right to run a job.

One Slurm job of all submits has it, and the newest of its starts.
"""

from __future__ import annotations

import contextlib
import os
import time

from transload.keeper import layout

from .agent import StartFolder

_CLAIM_S = 10.0
_PREFIX = ".start-"


class Start:
    """One start of a job.

    Slurm may start a job again while the processes of an earlier start still live. Only the newest
    start can write the job's state. Each start writes through a separate folder, and removes those
    of the starts before it. A file cannot be renamed out of a removed folder. So an old start
    cannot replace the state of a newer one.

    Args:
        place: the folder of ``states.jsonl``.
        number: how many starts there were before (``SLURM_RESTART_COUNT``).
        root: the folder of all jobs.
    """

    def __init__(self, place: str, number: int, root: str) -> None:
        self.place, self.number = place, number
        self.mine = os.path.join(place, f"{_PREFIX}{number}")
        self._folder = StartFolder(self.mine, root)

    def enter(self) -> bool:
        """End the right of all earlier starts to write.

        Return False if this start is not the newest.
        """
        os.makedirs(self.mine, mode=0o700, exist_ok=True)
        others = [
            name
            for name in os.listdir(self.place)
            if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdecimal()
        ]
        numbers = {int(name[len(_PREFIX) :]): name for name in others}
        if max(numbers) > self.number:
            return False
        for number, name in numbers.items():
            if number < self.number:
                _take_away(os.path.join(self.place, name))
        return True

    def replaced(self) -> bool:
        """Tell whether a newer start has taken over, or the job was deleted.

        A job counts as deleted once that is so for 10 s.
        """
        return self._folder.is_gone()

    def write(self, name: str, text: str) -> None:
        """Replace a file of the job's in one step.

        Raises:
            OSError: if it cannot be written. Not found: `replaced` may tell why.
        """
        aside = os.path.join(self.mine, name)
        _write(aside, text)
        target = os.path.join(self.place, name)
        try:
            os.replace(aside, target)
        except IsADirectoryError:
            os.rename(
                target, f"{target}.{os.urandom(4).hex()}.replaced"
            )  # the job has made a folder there
            os.replace(aside, target)


def _take_away(folder: str) -> None:
    gone = f"{folder}.{os.getpid()}.over"
    try:
        os.rename(folder, gone)
        for name in os.listdir(gone):
            os.unlink(os.path.join(gone, name))
        os.rmdir(gone)
    except OSError:
        pass  # somebody else took it away, and what is left hurts nobody


def claim(folder: str, token: str) -> bool:
    """Claim the job for this Slurm job. Only one may run it, and only that of the latest submit.

    A job of an earlier submit that comes up at the same moment may hold the claim until it has
    looked at the token.
    """
    path = os.path.join(folder, "claim")
    mine = job_id()
    aside = f"{path}.{mine}"
    deadline = time.monotonic() + _CLAIM_S
    while _read(os.path.join(folder, "token")) == token:
        _write(aside, mine)
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
        os.unlink(aside)
        holder = _read(path)
        if holder == mine:
            if _read(os.path.join(folder, "token")) == token:
                return True
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # the submit was done again in between
        elif holder and time.monotonic() >= deadline:
            return False
        else:
            time.sleep(0.02)
    return False


def _write(path: str, text: str) -> None:
    """Write a file in the place of whatever was there before."""
    layout.unlink(path)
    layout.write_new(path, text.encode())


def _read(path: str) -> str | None:
    try:
        with open(layout.open_own(path, os.O_RDONLY), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def job_id() -> str:
    """Return the id of the whole job, be it a heterogeneous job or a plain one."""
    return os.environ.get("SLURM_HET_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")
