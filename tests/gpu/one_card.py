"""Try what transload promises about GPUs, on a machine with one NVIDIA card, in at most six minutes.

    python tests/gpu/one_card.py          # needs the core, PyTorch with CUDA, and the card
    python tests/gpu/one_card.py --cpu    # the same with gloo and a card that is made up

Each line says what was seen. The exit code is 0 if all of it was as promised, 1 if something was not, and
77 if nothing was run, since there is no card.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from transload import Job, run
from transload.errors import UnsupportedFeature
from transload.runner import Launch, Runner
from transload.specs import AppState

NOT_RUN = 77
PATIENCE_S = 60.0

HOLD = """
import os, sys, time
print("visible", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
if sys.argv[1] == "cuda":
    import torch
    print("cards", torch.cuda.device_count(), flush=True)
    held = torch.ones(1 << 20, device="cuda")
    print("sum", int(held.sum()), flush=True)
print("holds", flush=True)
time.sleep(300)
"""

TRAIN = """
import os, sys, time, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transload.runtime import exit_interrupted, interrupted, latest_checkpoint, report, save_checkpoint

interrupted()  # from now on a notice is noted
device, backend = sys.argv[1:]
dist.init_process_group(backend)
model = DistributedDataParallel(nn.Linear(64, 64).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
first = 0
saved = latest_checkpoint()
if saved is not None:
    state = torch.load(saved / "state.pt", map_location=device)
    first = state["step"]
    model.load_state_dict(state["model"])
    print("goes on at", first, "with", dist.get_backend(), flush=True)
for step in range(first, 10**6):
    if saved is not None and step == first + 20:
        break
    optimizer.zero_grad()
    loss = model(torch.randn(32, 64, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    stop = torch.tensor([float(interrupted())], device=device)
    dist.all_reduce(stop)
    if stop.item():
        state = {"step": step + 1, "model": model.state_dict()}
        save_checkpoint(lambda folder: torch.save(state, folder / "state.pt"))
        exit_interrupted()
    time.sleep(0.05)
report(step=step, loss=loss.item())
sys.stdout.flush()
os._exit(0)  # threads of gloo may live on
"""


def seen(what: str, well: bool, details: object = "") -> bool:
    """Say what was seen of a promise, and return whether it holds."""
    print(f"{'ok  ' if well else 'FAIL'}  {what}  {details}".rstrip(), flush=True)
    return well


def until(condition: Callable[[], object]) -> bool:
    """Wait until a condition holds, and return False if it does not."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def lines(job: Job) -> list[str]:
    """Return what a job has written so far."""
    return list(job.logs(follow=False))


def message(job: Job) -> str:
    """Return what a job's status says."""
    status = job.status()
    return "" if status is None else f"{status.state.name}: {status.msg}"


def assignment(device: str, script: Path) -> list[bool]:
    """Start two jobs that want the one card: the second waits until the first has ended."""
    command = [sys.executable, str(script), device]
    first = run(command=command, gpu=1)
    found = [seen("a job gets the card", until(lambda: "holds\n" in lines(first)), lines(first))]
    found.append(seen("CUDA_VISIBLE_DEVICES has one", "visible 0\n" in lines(first)))
    if device == "cuda":
        found.append(seen("the program sees one card", "cards 1\n" in lines(first)))
    second = run(command=command, gpu=1)
    waits = until(lambda: f"{first.app_id} has 0" in message(second))
    found.append(seen("a second job waits for it", waits, message(second)))
    try:
        run(command=command, gpu=2)
        found.append(seen("two cards are refused", False))
    except UnsupportedFeature as exc:
        found.append(seen("two cards are refused", True, exc))
    first.cancel()
    found.append(
        seen("it gets it then", until(lambda: "holds\n" in lines(second)), message(second))
    )
    second.cancel()
    for job in (first, second):
        job.wait(timeout=PATIENCE_S)
        job.delete()
    return found


def training(device: str, script: Path) -> list[bool]:
    """Train by DDP: a notice, a checkpoint, and a second start that goes on from it."""
    backend = "nccl" if device == "cuda" else "gloo"
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']},OMP_NUM_THREADS=1"
    launch = Launch(
        component="dist.ddp",
        args=["--script", str(script), "-j", "1x1", "--env", path, "--", device, backend],
        overrides={"gpu": 1, "segment": "45s", "notice": "20s", "checkpoints": True},
    )
    with Runner("gpu") as runner:
        job = launch.plan(runner).submit()
        status = job.wait(timeout=180)
        said = [line for line in lines(job) if "goes on at" in line]
        (replica,) = status.roles[0].replicas
        ended = status.state is AppState.SUCCEEDED
        found = [
            seen("a training by DDP ends well", ended, status.msg or lines(job)[-3:]),
            seen("it had its notice and went on", replica.interruptions >= 1, said),
            seen("from its checkpoint", bool(said) and f"with {backend}" in said[0]),
            seen("it reported", "loss" in str(job.results().results), job.results().results),
        ]
        job.delete()
    return found


def main() -> int:
    """Run all of it in a state folder of its own, which is removed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="use gloo, and make up a card")
    device = "cpu" if parser.parse_args().cpu else "cuda"
    if device == "cuda":
        tool = shutil.which("nvidia-smi")
        if tool is None or subprocess.run([tool, "-L"], check=False).returncode:
            print("not run: there is no NVIDIA card here", flush=True)
            return NOT_RUN
    else:
        os.environ["TRANSLOAD_LOCAL_GPUS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRANSLOAD_HOME"] = f"{folder}/state"
        hold, train = Path(folder, "hold.py"), Path(folder, "train.py")
        hold.write_text(HOLD, encoding="utf-8")
        train.write_text(TRAIN, encoding="utf-8")
        found = [*assignment(device, hold), *training(device, train)]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
