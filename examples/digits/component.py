"""The digits trainer as a component: ``transload run examples/digits/component.py --replicas
3``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transload.specs import AppDef, Resource, Role, macros

HERE = Path(__file__).resolve().parent


def digits(
    replicas: int = 3,
    epochs: int = 15,
    lr: float = 0.5,
    seed: int = 0,
    hidden: int = 32,
    batch: int = 96,
    port: int = 0,
    tracked: bool = False,
    result_key: str = "final",
    checkpoint_every: int = 5,
) -> AppDef:
    """Train a classifier of handwritten digits, data-parallel over several replicas.

    The same seed and number of replicas give the same accuracy, bit for bit, on every scheduler.

    Args:
        replicas: how many processes share the work
        epochs: how often each picture is seen
        lr: step size of the gradient descent
        seed: decides the split, the first parameters and the order of the pictures
        hidden: width of the hidden layer
        batch: pictures per step, over all replicas
        port: port of rank 0; 0 takes one that follows from the app's id
        tracked: report through transload.runtime.tracking instead of writing the files directly
        result_key: key under which the final accuracy, loss and seconds are reported
        checkpoint_every: epochs between checkpoints, if the job has a folder for them
    """
    script = "trainer_tracked.py" if tracked else "trainer.py"
    arguments: dict[str, object] = {
        "rank": macros.replica_id,
        "replicas": replicas,
        "app-id": macros.app_id,
        "rank0-env": macros.rank0_env,
        "epochs": epochs,
        "lr": lr,
        "seed": seed,
        "hidden": hidden,
        "batch": batch,
        "port": port,
        "result-key": result_key,
        "checkpoint-every": checkpoint_every,
    }
    trainer = Role(
        name="trainer",
        image=str(HERE),
        entrypoint=sys.executable,
        args=[str(HERE / script), *(f"--{name}={value}" for name, value in arguments.items())],
        # One thread each: the replicas are the parallelism, and sums then have one order only.
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        num_replicas=replicas,
        resource=Resource(cpu=1, gpu=0, memMB=512),
    )
    return AppDef(name="digits", roles=[trainer])
