"""The training that both trainers share: arguments, the loop over epochs, what is reported when."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from checkpoints import EXIT_INTERRUPTED, Checkpoints
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
        "--port", type=int, default=0, help="rank 0's port; 0: one that follows from the job id"
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds to wait for another replica"
    )
    parser.add_argument("--result-key", default="final", help="key of the final result")
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        default=5,
        help="epochs between checkpoints, if there is a folder for them",
    )
    options = parser.parse_args(argv)
    if not 0 <= options.rank < options.replicas:
        parser.error(
            f"--rank {options.rank}: must be 0 or more and below --replicas {options.replicas}"
        )
    for name in ("epochs", "hidden", "batch", "checkpoint-every"):
        value = getattr(options, name.replace("-", "_"))
        if value < 1:
            parser.error(f"--{name} {value}: must be 1 or more")
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


def train(
    options: argparse.Namespace, group: Group, report: Report, checkpoints: Checkpoints
) -> bool:
    """Train; rank 0 prints a line per epoch and reports it, and the final result last.

    Returns:
        False if the training stopped after a notice, and is to go on later.
    """
    began = time.monotonic()
    network = Network(options.hidden, options.seed)
    shard = load_shard(options.rank, options.replicas, options.seed)
    first = checkpoints.load(network.parameters) + 1
    if first > 1 and group.rank == 0:
        print(f"goes on after epoch {first - 1}", flush=True)
    for epoch in range(first, options.epochs + 1):
        _epoch(network, shard, group, options, epoch)
        loss, accuracy, _ = _evaluate(network, shard, group)
        if group.rank == 0:
            print(
                f"epoch {epoch:3d}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}",
                flush=True,
            )
            report(f"epoch-{epoch:03d}", {"train_loss": loss, "test_accuracy": accuracy})
        checkpoints.epoch_done(epoch, options.epochs, network.parameters)
        if epoch < options.epochs and _anybody_noticed(group, checkpoints):
            checkpoints.save(epoch, network.parameters)
            return False
    loss, accuracy, held_out = _evaluate(network, shard, group)
    if group.rank == 0:
        seconds = time.monotonic() - began
        report(options.result_key, {"accuracy": accuracy, "loss": loss, "seconds": seconds})
        print(
            f"accuracy {accuracy:.4f} on {held_out} held-out digits, {group.world} replicas, "
            f"{seconds:.1f} s"
        )
    return True


def _anybody_noticed(group: Group, checkpoints: Checkpoints) -> bool:
    """Tell whether any replica has had its notice: all stop after the same epoch, or none does."""
    if checkpoints.path is None:
        return False
    return bool(group.sum(np.array([float(checkpoints.noticed)]))[0])


def main(report: Report, argv: list[str] | None = None) -> int:
    """Join the other replicas and train with them; return the exit code."""
    options = parse(sys.argv[1:] if argv is None else argv)
    checkpoints = Checkpoints(options.rank, options.checkpoint_every)
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
            finished = train(options, group, report, checkpoints)
    except GroupError as error:
        print(f"error: {error}", file=sys.stderr)
        # after a notice the others may be gone already: that is no failure of this one
        return EXIT_INTERRUPTED if checkpoints.noticed else 1
    return 0 if finished else EXIT_INTERRUPTED
