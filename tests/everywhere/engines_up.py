"""Starts the engines of the table, says in one line of JSON how to reach them, and ends them when stdin is closed.

    python engines_up.py FOLDER PYTHON…

FOLDER gets the settings file; images hold a Python, with scikit-learn, at the path of each PYTHON.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slurm"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engines


def missing(engine: str) -> str | None:
    """Return why an engine cannot be started here, or None."""
    if engine == "slurm" and os.geteuid() != 0:
        return "the fake GPUs of the test cluster are device files, which root alone can make"
    return engines.missing(engine)


def main(folder: Path, pythons: list[str]) -> None:
    """Start what can be started; wait; end it."""
    answer: dict[str, dict[str, str]] = {"environment": {}, "left_out": {}, "engines": {"local": ""}}
    settings = folder / "transload.toml"
    tables = []
    with contextlib.ExitStack() as stack:
        for engine, start in (("docker", docker), ("slurm", slurm)):
            why = missing(engine)
            if why is not None and engine not in engines.required():
                answer["left_out"][engine] = why
                continue
            environment, table = start(stack, folder, pythons)
            answer["environment"] |= environment
            answer["engines"][engine] = ""
            tables.append(table)
        settings.write_text("\n".join(tables))
        answer["environment"]["TRANSLOAD_CONFIG"] = str(settings)
        print(json.dumps(answer), flush=True)
        sys.stdin.read()


def docker(stack: contextlib.ExitStack, _folder: Path, pythons: list[str]) -> tuple[dict[str, str], str]:
    """Start a container engine with an image; return the environment that leads to it, and its table of settings."""
    from private_engine import PrivateEngine

    engine = PrivateEngine()
    stack.callback(engine.close)
    engine.start()
    image = engine.python_image(also=pythons)
    return {"DOCKER_HOST": engine.url}, f'[schedulers.docker]\nimage = "{image}"\n'


def slurm(stack: contextlib.ExitStack, folder: Path, _pythons: list[str]) -> tuple[dict[str, str], str]:
    """Start a Slurm cluster of three nodes."""
    from cluster import Cluster

    cluster = Cluster()
    stack.callback(cluster.stop)
    cluster.start()
    leads = {"SLURM_CONF": str(cluster.conf), "PATH": cluster.env["PATH"]}
    return leads | {"TRANSLOAD_SLURM_DIR": str(folder / "slurm")}, ""


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
