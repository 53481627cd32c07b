"""Digits again, with PyTorch's DistributedDataParallel on the CPU (gloo): an application for the
component `dist.ddp`.

    transload run dist.ddp --script examples/ddp/train.py -j 1x2

torchrun, which `dist.ddp` starts, sets RANK, WORLD_SIZE and where the processes meet; nothing here
knows of transload. Rank 0 reports by the public file format, if TRANSLOAD_TRACKER_BASE is set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def load(seed: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return shuffled pictures ``(n, 64)``, their digits ``(n,)``, and how many from the front are
    held out.
    """
    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(pixels, dtype=torch.float32) / 16.0
    return x[order], torch.tensor(digits)[order], len(digits) // 5


def train(epochs: int, lr: float, seed: int) -> float:
    """Train on this process's share, gradients averaged by DDP; return the accuracy on the held-out
    pictures.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    x, y, held_out = load(seed)
    share = (len(y) - held_out) // world
    mine = slice(held_out + rank * share, held_out + (rank + 1) * share)
    for epoch in range(1, epochs + 1):
        for batch_x, batch_y in zip(x[mine].split(32), y[mine].split(32), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch_x), batch_y)
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch:3d}/{epochs}  loss {loss.item():.4f}", flush=True)
    with torch.no_grad():
        right: torch.Tensor = (model(x[:held_out]).argmax(dim=1) == y[:held_out]).sum()
    return right.item() / held_out


def report(key: str, results: dict[str, float]) -> None:
    """Write one result file aside and rename it."""
    base = os.environ.get("TRANSLOAD_TRACKER_BASE")
    if base:
        aside = Path(base) / f".{key}.tmp"
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(
            json.dumps({"schema": 1, "key": key, "results": results}), encoding="utf-8"
        )
        aside.replace(Path(base) / f"{key}.json")


def leave() -> None:
    """End this process with code 0, without the interpreter's own shutting down.

    Once DistributedDataParallel was used, gloo's threads live on after ``destroy_process_group``
    (seen with torch 2.13). One that lets go of its last tensor while the interpreter shuts down
    aborts the process (SIGABRT, "terminate called without an active exception"), although all the
    work was done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Join the process group, train, report, and leave together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        accuracy = train(options.epochs, options.lr, options.seed)
        if dist.get_rank() == 0:
            report("final", {"accuracy": accuracy, "world": dist.get_world_size()})
            print(f"accuracy {accuracy:.4f} with {dist.get_world_size()} processes", flush=True)
        dist.barrier()  # nobody closes a connection that another one still uses
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
    leave()
