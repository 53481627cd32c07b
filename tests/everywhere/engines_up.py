"""Starts the engines of the table, says in one line of JSON how to reach them, and ends them when stdin is closed.

    python engines_up.py FOLDER PYTHON…

FOLDER gets the settings file, and every engine's jobs see it; images hold a Python, with scikit-learn, at the path of
each PYTHON.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
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
        for engine, start in (("docker", docker), ("slurm", slurm), ("kubernetes", kubernetes)):
            why = missing(engine)
            if why is not None and engine not in engines.required():
                answer["left_out"][engine] = why
                continue
            environment, table = start(stack, folder, pythons)
            answer["environment"] |= environment
            answer["engines"][engine] = ""
            tables.append(table)
        settings.write_text("\n".join(tables))
        answer["environment"] |= {"TRANSLOAD_CONFIG": str(settings), "EVERYWHERE_SHARED": str(folder)}
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


def kubernetes(stack: contextlib.ExitStack, folder: Path, pythons: list[str]) -> tuple[dict[str, str], str]:
    """Make a namespace in the real cluster, whose nodes have the folders of this machine."""
    real = runpy.run_path(str(Path(__file__).resolve().parents[1] / "real_kubernetes" / "conftest.py"))
    cluster, image = real["RealCluster"](os.environ["REAL_KUBECONFIG"]), real["IMAGE"]
    stack.callback(cluster.wait_removed)
    stack.callback(cluster.remove)
    # the image has Python and no scikit-learn: the interpreters of the hosts are mounted from the node, and a folder
    # for what gets a tracker base
    folders = dict.fromkeys([sys.base_prefix, *(str(Path(python).parents[1]) for python in pythons), str(folder)])
    mounts = [{"name": f"mount-{number}", "mountPath": path} for number, path in enumerate(folders)]
    volumes = [{"name": each["name"], "hostPath": {"path": each["mountPath"]}} for each in mounts]
    pod = {"containers": [{"name": "main", "volumeMounts": mounts}], "volumes": volumes}
    table = {
        "kubeconfig": cluster.kubeconfig,
        "namespace": cluster.namespace(),
        "image": image,
        "image_pull_policy": "IfNotPresent",
        "helper_image": image,
        "overlay": json.dumps({"spec": {"template": {"spec": pod}}}),
    }
    # a text of JSON is one of TOML
    return {}, "[schedulers.kubernetes]\n" + "".join(f"{name} = {json.dumps(text)}\n" for name, text in table.items())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
