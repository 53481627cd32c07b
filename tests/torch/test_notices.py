"""A training of `dist.ddp` saves at its notice, and goes on from there, with a real torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from transload.runner import Launch, Runner
from transload.specs import AppState

pytest.importorskip("torch")

TRAIN = """
import os, signal, sys, time, torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from transload.runtime import exit_interrupted, interrupted, latest_checkpoint, save_checkpoint

interrupted()  # from now on a notice is noted
dist.init_process_group("gloo")
saved = latest_checkpoint()
if saved is not None:
    print("goes on at", torch.load(saved / "state.pt")["step"], flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit()
def ignore(_):  # torchrun signals workers, too
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

for step, _ in enumerate(DataLoader(range(10**6), num_workers=1, worker_init_fn=ignore)):
    stop = torch.tensor([float(interrupted())])
    dist.all_reduce(stop)
    if stop.item():
        time.sleep(2.0 * (os.environ["RANK"] == "0"))  # the others have ended while it saves
        save_checkpoint(lambda folder: torch.save({"step": step}, folder / "state.pt"))
        exit_interrupted()
    time.sleep(0.05)
"""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "scheduler",
    ["local", pytest.param("slurm", marks=[pytest.mark.engine("slurm"), pytest.mark.slow])],
)
def test_a_training_goes_on_after_its_notice(
    transload_home: Path, tmp_path: Path, scheduler: str, request: pytest.FixtureRequest
) -> None:
    """Torchrun passes the notice on and waits for its processes. That it ends with 1 is no failure."""
    if scheduler == "slurm":
        request.getfixturevalue("cluster")
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    own = ["--env", f"PATH={path},TMPDIR={tmp_path},OMP_NUM_THREADS=1"]
    launch = Launch(
        component="dist.ddp",
        args=["--script", str(script), "-j", "1x2", *own],
        scheduler=scheduler,
        overrides={"segment": "60s", "notice": "20s", "checkpoints": True},
    )
    with Runner("tests") as runner:
        job = launch.plan(runner).submit()
        status = runner.wait(job.handle, timeout=360)
        lines = list(runner.log_lines(job.handle, "train", 0))
        runner.delete(job.handle)
    assert status is not None and status.state is AppState.SUCCEEDED, f"{status}\n{''.join(lines)}"
    assert [line for line in lines if "goes on at" in line], lines
    (replica,) = status.roles[0].replicas
    assert (replica.restarts, replica.interruptions) == (0, 1)
