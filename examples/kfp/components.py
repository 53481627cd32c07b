"""The stages as component functions; each would run as it is on any scheduler."""

from __future__ import annotations

from transload.specs import AppDef, Resource, Role, macros

APP = "/app"
"""Where the image has the folder of the examples."""

IMAGE = "digits:1"
"""An image with Python, NumPy, scikit-learn, and this repository's examples below ``/app``."""

THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def split(seed: int = 0, image: str = IMAGE) -> AppDef:
    """Split the digits.

    Args:
        seed: decides the split
        image: where it runs
    """
    args = [f"{APP}/kfp/split.py", str(seed)]
    return AppDef("split", [Role("split", image, entrypoint="python3", args=args, env=THREADS)])


def train(lr: float = 0.5, seed: int = 0, epochs: int = 3, image: str = IMAGE) -> AppDef:
    """Train the digits classifier: the same program as everywhere else, here alone.

    Args:
        lr: step size
        seed: decides the split, the first parameters and the order
        epochs: how often each picture is seen
        image: where it runs
    """
    arguments = {
        "rank": macros.replica_id,
        "replicas": "1",
        "app-id": macros.app_id,
        "rank0-env": macros.rank0_env,
        "epochs": str(epochs),
        "lr": str(lr),
        "seed": str(seed),
    }
    args = [f"{APP}/digits/trainer.py", *(f"--{name}={value}" for name, value in arguments.items())]
    role = Role(
        "trainer", image, entrypoint="python3", args=args, env=THREADS, resource=Resource(1, 0, 512)
    )
    return AppDef("train", [role])


def evaluate(split: str, trained: str, wanted: float = 0.8, image: str = IMAGE) -> AppDef:
    """Judge a training.

    Args:
        split: folder of the split's results
        trained: folder of the training's results
        wanted: least accuracy
        image: where it runs
    """
    args = [f"{APP}/kfp/evaluate.py", split, trained, str(wanted)]
    return AppDef("evaluate", [Role("evaluate", image, entrypoint="python3", args=args)])
