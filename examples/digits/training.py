"""The training that both trainers share: arguments, the loop over epochs, what is reported when."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from group import Group, GroupError
from model import Network, Split, load_shard

Report = Callable[[str, dict[str, float]], None]


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; a mistake ends the program with exit code 2 and one line."""
    parser = argparse.ArgumentParser(
        description="Train a digit classifier, data-parallel over several replicas."
    )
    parser.add_argument("--rank", type=int, required=True, help="this replica's number, from 0")
    parser.add_argument("--replicas", type=int, required=True, help="how many replicas there are")
    parser.add_argument(
        "--app-id", required=True, help="what the replicas of this app have in common"
    )
    parser.add_argument(
        "--rank0-env",
        required=True,
        help="NAME of the environment variable that holds rank 0's host",
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=0.5, help="step size")
    parser.add_argument("--hidden", type=int, default=32, help="width of the hidden layer")
    parser.add_argument(
        "--batch", type=int, default=96, help="pictures per step, over all replicas"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--port", type=int, default=0, help="rank 0's port; 0: one that follows from the app id"
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds to wait for another replica"
    )
    parser.add_argument("--result-key", default="final", help="key of the final result")
    options = parser.parse_args(argv)
    if not 0 <= options.rank < options.replicas:
        parser.error(
            f"--rank {options.rank}: must be 0 or more and below --replicas {options.replicas}"
        )
    for name in ("epochs", "hidden", "batch"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be 1 or more")
    if options.seed < 0:
        parser.error(f"--seed {options.seed}: must be 0 or more")
    if not 0 <= options.port < 65536:
        parser.error(f"--port {options.port}: must be 0 to 65535")
    return options


def _epoch(
    network: Network, shard: Split, group: Group, options: argparse.Namespace, epoch: int
) -> None:
    """Walk once over this replica's shard, in step with the others: each step applies the mean of
    all gradients.
    """
    local = max(1, options.batch // group.world)
    smallest = (
        len(shard.train_y) if group.rank == group.world - 1 else 0
    )  # the last rank's shard is the shortest
    steps = int(group.sum(np.array([float(smallest)]))[0]) // local
    order = np.random.default_rng([options.seed, 2, epoch, group.rank]).permutation(
        len(shard.train_y)
    )
    for step in range(max(1, steps)):
        chosen = order[step * local : (step + 1) * local]
        gradient = network.gradient(shard.train_x[chosen], shard.train_y[chosen])
        total = group.sum(np.append(gradient, float(len(chosen))))
        network.parameters -= options.lr * total[:-1] / total[-1]


def _evaluate(network: Network, shard: Split, group: Group) -> tuple[float, float, int]:
    """Return (mean training loss, accuracy on the held-out pictures, how many these are), over all
    replicas.
    """
    train_loss, _ = network.score(shard.train_x, shard.train_y)
    _, correct = network.score(shard.test_x, shard.test_y)
    mine = [train_loss, len(shard.train_y), correct, len(shard.test_y)]
    loss, trained, right, held_out = group.sum(np.array(mine, dtype=np.float64))
    return float(loss / trained), float(right / held_out), int(held_out)


def train(options: argparse.Namespace, group: Group, report: Report) -> None:
    """Train; rank 0 prints a line per epoch and reports it, and the final result last."""
    began = time.monotonic()
    network = Network(options.hidden, options.seed)
    shard = load_shard(options.rank, options.replicas, options.seed)
    loss = accuracy = float("nan")
    held_out = 0
    for epoch in range(1, options.epochs + 1):
        _epoch(network, shard, group, options, epoch)
        loss, accuracy, held_out = _evaluate(network, shard, group)
        if group.rank == 0:
            print(
                f"epoch {epoch:3d}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}",
                flush=True,
            )
            report(f"epoch-{epoch:03d}", {"train_loss": loss, "test_accuracy": accuracy})
    if group.rank == 0:
        seconds = time.monotonic() - began
        report(options.result_key, {"accuracy": accuracy, "loss": loss, "seconds": seconds})
        print(
            f"accuracy {accuracy:.4f} on {held_out} held-out digits, {group.world} replicas, "
            f"{seconds:.1f} s"
        )


def main(report: Report, argv: list[str] | None = None) -> int:
    """Join the other replicas and train with them; return the exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    host = os.environ.get(options.rank0_env, "")
    if not host and options.rank:
        print(
            f"rank {options.rank}: {options.rank0_env} is not set: where is rank 0?",
            file=sys.stderr,
        )
        return 2
    try:
        with Group.join(
            options.rank, options.replicas, host, options.app_id, options.port, options.timeout
        ) as group:
            print(f"rank {options.rank} of {options.replicas}: joined", flush=True)
            train(options, group, report)
    except GroupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
