"""`dist.ddp` passes a notice on to its ranks, with a real torchrun and workers of a data loader."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.components.dist import ddp
from transload.specs.macro_values import macros

pytest.importorskip("torch")

TRAIN = """
import os, time, torch
from pathlib import Path
from torch.utils.data import DataLoader, Dataset
from transload.runtime import exit_interrupted, interrupted, save_checkpoint

class Numbers(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.tensor([float(index)])

torch.distributed.init_process_group("gloo")
rank = os.environ["RANK"]
here = Path(os.environ["HERE"])
if ANSWERS:
    interrupted()
total = torch.zeros(1)
for number, batch in enumerate(DataLoader(Numbers(), batch_size=8, num_workers=2)):
    total += batch.sum()
    stop = torch.tensor([float(ANSWERS and interrupted())])
    torch.distributed.all_reduce(stop)
    if number == 3:
        (here / f"ready-{rank}").touch()
    if stop.item():
        time.sleep(2.0 * int(rank == "0"))  # the others have ended while it saves
        save_checkpoint(lambda folder: torch.save({"total": total}, folder / "state.pt"))
        exit_interrupted()
"""


class Trained:
    """A training of two ranks on this machine, started as a scheduler starts it."""

    def __init__(self, folder: Path, source: str, name: str) -> None:
        script = folder / "train.py"
        script.write_text(source, encoding="utf-8")
        (role,) = ddp(script=str(script), j="1x2").roles
        values = macros.Values(img_root="", app_id="job", replica_id="0", rank0_env="RANK0")
        role = values.apply(role)
        own = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HERE": str(folder),
            "TMPDIR": str(folder),
            "TRANSLOAD_CHECKPOINT_DIR": str(folder / "checkpoints"),
            "TRANSLOAD_NOTICE_SIGNAL": name,
            "TRANSLOAD_ERROR_FILE": str(folder / "error.json"),
        }
        environment = {**os.environ, **role.env, **own}
        self.folder = folder
        self.process = subprocess.Popen(
            [role.entrypoint, *role.args],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def is_ready(self) -> bool:
        """Tell whether both ranks are in the midst of their work."""
        assert self.process.poll() is None
        return all((self.folder / f"ready-{rank}").exists() for rank in (0, 1))

    def is_empty(self) -> bool:
        """Tell whether nothing of it is left, no worker either."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["TERM", pytest.param("USR1", marks=pytest.mark.slow)])
def test_ranks_save_after_a_notice(tmp_path: Path, eventually: Any, name: str) -> None:
    """The signal goes to the ranks and not to their workers, and all save and end with 75."""
    training = Trained(tmp_path, TRAIN.replace("ANSWERS", "True"), name)
    try:
        eventually(training.is_ready, timeout=120)
        training.process.send_signal(getattr(signal, f"SIG{name}"))
        said, _ = training.process.communicate(timeout=60)
        assert training.process.returncode == 75, said
        assert (tmp_path / "checkpoints" / "checkpoint-000001" / "state.pt").exists(), said
        assert "Traceback" not in said
        assert "killed by signal" not in said
        eventually(training.is_empty, timeout=30)
    finally:
        if not training.is_empty():
            os.killpg(training.process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_ranks_that_know_of_no_notice_die_of_it(tmp_path: Path, eventually: Any) -> None:
    """Ranks without a handler die of the notice, and so does torchrun, which is no failure."""
    training = Trained(tmp_path, TRAIN.replace("ANSWERS", "False"), "USR1")
    try:
        eventually(training.is_ready, timeout=120)
        training.process.send_signal(signal.SIGUSR1)
        said, _ = training.process.communicate(timeout=60)
        assert training.process.returncode == -signal.SIGUSR1, said
        eventually(training.is_empty, timeout=30)
    finally:
        if not training.is_empty():
            os.killpg(training.process.pid, signal.SIGKILL)


@pytest.mark.timeout(240)
def test_exit_code_75_without_a_notice_is_a_failure(tmp_path: Path) -> None:
    """So it is for torchrun as for any program."""
    source = "import sys\nsys.exit(75)\n"
    training = Trained(tmp_path, source, "USR1")
    said, _ = training.process.communicate(timeout=120)
    assert training.process.returncode == 1, said
    assert "ended with exit code 75" in said
