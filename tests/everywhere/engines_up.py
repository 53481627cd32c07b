"""Starts the engines of the table, says in one line of JSON how to reach them, and ends them when stdin is closed.

    python engines_up.py FOLDER PYTHON…

FOLDER gets the settings file, and every engine's jobs see it; images hold a Python, with scikit-learn, at the path of
each PYTHON. ``hpc`` is the engine ``slurm`` again, by ssh from a place that has neither its tools nor its disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slurm"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engines
import outside

ENGINES = ("docker", "slurm", "hpc", "kubernetes")


def missing(engine: str) -> str | None:
    """Return why an engine cannot be started here, or None."""
    if engine == "hpc":
        return missing("slurm") or engines.missing("sshd") or outside.missing()
    if engine == "slurm" and os.geteuid() != 0:
        return "the fake GPUs of the test cluster are device files, which root alone can make"
    return engines.missing(engine)


class Engines:
    """What is started, each by the method of its name, which returns its table of settings.

    Attributes:
        environment: leads to them.
        places: engine → what goes before a command that is to run where the engine is used from, and its environment.
    """

    def __init__(self, stack: contextlib.ExitStack, folder: Path, pythons: list[str]) -> None:
        self._stack, self._folder, self._pythons = stack, folder, pythons
        self._cluster: Any = None
        self.environment = {"TRANSLOAD_CONFIG": f"{folder}/transload.toml"}
        self.places: dict[str, tuple[list[str], dict[str, str]]] = {"local": ([], {})}

    def docker(self) -> str:
        """Start a container engine with an image."""
        from private_engine import PrivateEngine

        engine = PrivateEngine()
        self._stack.callback(engine.close)
        engine.start()
        self.environment["DOCKER_HOST"] = engine.url
        return f'[schedulers.docker]\nimage = "{engine.python_image(also=self._pythons)}"\n'

    def slurm(self) -> str:
        """Start a Slurm cluster of three nodes."""
        from cluster import Cluster

        self._cluster = Cluster()
        self._stack.callback(self._cluster.stop)
        self._cluster.start()
        leads = {"SLURM_CONF": str(self._cluster.conf), "PATH": self._cluster.env["PATH"]}
        self.environment |= leads | {"TRANSLOAD_SLURM_DIR": f"{self._folder}/slurm"}
        return ""

    def hpc(self) -> str:
        """Start a login node of that cluster, and a network from which it alone is reached."""
        from login import Login

        place = self._stack.enter_context(contextlib.closing(outside.Outside()))
        base = self._folder / "login"
        login = Login(base, self._cluster.env, place.address)
        self._stack.callback(login.stop)
        login.start()
        hidden = [str(self._cluster.base), str(login.home)]
        nothing = {"SLURM_CONF": "/nowhere", "TRANSLOAD_SLURM_DIR": "/nowhere"}
        leads = login.leads | {"PATH": f"{login.client}/bin:{os.environ['PATH']}"}
        self.places["hpc"] = place.command(hidden, self._cluster.env["PATH"]), leads | nothing
        return '[schedulers.hpc]\nkind = "slurm"\nssh = "login"\n'

    def kubernetes(self) -> str:
        """Make a namespace in the real cluster, whose nodes have the folders of this machine."""
        real = runpy.run_path(str(Path(__file__).resolve().parents[1] / "real_kubernetes" / "conftest.py"))
        cluster, image = real["RealCluster"](os.environ["REAL_KUBECONFIG"]), real["IMAGE"]
        self._stack.callback(cluster.wait_removed)
        self._stack.callback(cluster.remove)
        # the image has Python and no scikit-learn: the interpreters of the hosts are mounted from the node
        pythons = (str(Path(python).parents[1]) for python in self._pythons)
        folders = dict.fromkeys([sys.base_prefix, *pythons])
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
        lines = (f"{name} = {json.dumps(text)}\n" for name, text in table.items())
        return "[schedulers.kubernetes]\n" + "".join(lines)


def main(folder: Path, pythons: list[str]) -> None:
    """Start what can be started; wait; end it."""
    left_out = {}
    with contextlib.ExitStack() as stack:
        started = Engines(stack, folder, pythons)
        tables = []
        for engine in ENGINES:
            why = missing(engine)
            if why is not None and engine not in engines.required():
                left_out[engine] = why
                continue
            started.places[engine] = ([], {})
            tables.append(getattr(started, engine)())
        Path(started.environment["TRANSLOAD_CONFIG"]).write_text("\n".join(tables))
        answer = {"environment": started.environment, "left_out": left_out, "engines": started.places}
        print(json.dumps(answer), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
