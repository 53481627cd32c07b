"""Starts the engines of the table, says in one line of JSON how to reach them, and ends them when
stdin is closed.

    python engines_up.py FOLDER PYTHON…

FOLDER gets the settings file, and every engine's jobs see it; images hold a Python, with
scikit-learn, at the path of each PYTHON. ``hpc`` is the engine ``slurm`` again, by ssh from a place
that has neither its tools nor its disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "slurm"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

import engines
import outside

TESTS = Path(__file__).resolve().parents[2] / "tests"
ENGINES = ("docker", "slurm", "hpc", "kubernetes")
FROZEN_S = 20


def missing(engine: str) -> str:
    """Return why an engine cannot be started here, or ``""``."""
    if engine == "hpc":
        return missing("slurm") or engines.missing("sshd") or (outside.missing() or "")
    if engine == "slurm" and os.geteuid() != 0:
        return "the fake GPUs of the test cluster are device files, which root alone can make"
    return engines.missing(engine)


class Engines:
    """What is started, each by the method of its name, which returns its table of settings.

    Attributes:
        environment: leads to them.
        places: engine → what goes before a command that is to run where the engine is used from,
            and its environment.
    """

    def __init__(self, stack: contextlib.ExitStack, folder: Path, pythons: list[str]) -> None:
        self._stack, self._folder, self._pythons = stack, folder, pythons
        self._cluster: Any = None
        self._docker: Any = None
        self._login: Any = None
        self.environment = {
            "TRANSLOAD_CONFIG": f"{folder}/transload.toml",
            "ONCE_STRIKES": f"{folder}/strikes",
        }
        self.places: dict[str, tuple[list[str], dict[str, str]]] = {"local": ([], {})}

    def docker(self) -> str:
        """Start a container engine with an image."""
        from private_engine import PrivateEngine

        engine = PrivateEngine()
        self._stack.callback(engine.close)
        self._docker = engine
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
        self._login = login
        self._stack.callback(login.stop)
        login.start()
        hidden = [str(self._cluster.base), str(login.home)]
        nothing = {"SLURM_CONF": "/nowhere", "TRANSLOAD_SLURM_DIR": "/nowhere"}
        leads = login.leads | {"PATH": f"{login.client}/bin:{os.environ['PATH']}"}
        self.places["hpc"] = place.command(hidden, self._cluster.env["PATH"]), leads | nothing
        return '[schedulers.hpc]\nkind = "slurm"\nssh = "login"\n'

    def kubernetes(self) -> str:
        """Make a namespace in the real cluster, whose nodes have the folders of this machine."""
        real = runpy.run_path(str(TESTS / "real_kubernetes" / "conftest.py"))
        cluster, image = real["RealCluster"](os.environ["REAL_KUBECONFIG"]), real["IMAGE"]
        self._stack.callback(cluster.wait_removed)
        self._stack.callback(cluster.remove)
        # the image has Python and no scikit-learn: the interpreters of the hosts are mounted from
        # the node
        pythons = (str(Path(python).parents[1]) for python in self._pythons)
        folders = dict.fromkeys([sys.base_prefix, *pythons])
        mounts = [
            {"name": f"mount-{number}", "mountPath": path} for number, path in enumerate(folders)
        ]
        volumes = [
            {"name": each["name"], "hostPath": {"path": each["mountPath"]}} for each in mounts
        ]
        pod = {"containers": [{"name": "main", "volumeMounts": mounts}], "volumes": volumes}
        table = {
            "kubeconfig": cluster.kubeconfig,
            "namespace": cluster.namespace(),
            "image": image,
            "image_pull_policy": "IfNotPresent",
            "overlay": json.dumps({"spec": {"template": {"spec": pod}}}),
        }
        # a text of JSON is one of TOML
        lines = (f"{name} = {json.dumps(text)}\n" for name, text in table.items())
        return "[schedulers.kubernetes]\n" + "".join(lines)

    # -- strikes: `benchmarks/once` asks for them on a socket

    def listen(self) -> None:
        """Obey, as long as this process lives, who writes ``VICTIM WAY`` on the socket
        ONCE_STRIKES.
        """
        server = socket.socket(socket.AF_UNIX)
        self._stack.callback(server.close)
        server.bind(self.environment["ONCE_STRIKES"])
        server.listen()
        threading.Thread(target=self._obey, args=(server,), daemon=True).start()

    def _obey(self, server: socket.socket) -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:  # closed: the engines are being ended
                return
            with link:
                victim, way = link.recv(100).decode().split()
                try:
                    self.strike(victim, way)
                    link.sendall(b"done")
                except Exception as exc:
                    link.sendall(repr(exc).encode())

    def strike(self, victim: str, way: str) -> None:
        """Kill a daemon (``kill``, ``term``) and start it again at once, or ``freeze`` it for 20
        s.
        """
        if victim in ("apiserver", "kubelet"):
            self._strike_kubernetes(victim, way)
        elif victim == "connection":
            self._strike_connection(way)
        elif victim == "dockerd":
            if way == "freeze":
                self._docker.freeze(FROZEN_S)
            else:
                self._docker.stop(signal.SIGKILL if way == "kill" else signal.SIGTERM)
                self._docker.start()
        else:
            self._strike_slurm("slurmctld" if victim == "slurmctld" else "node1", way)

    def _strike_slurm(self, name: str, way: str) -> None:
        process = self._cluster.processes[name]
        if way == "freeze":
            _freeze(process.pid)
            return
        process.send_signal(signal.SIGKILL if way == "kill" else signal.SIGTERM)
        try:
            process.wait(30)
        except (
            subprocess.TimeoutExpired
        ):  # on a busy machine; systemd, too, kills what does not end
            process.kill()
            process.wait(30)
        if name == "slurmctld":
            self._cluster.start_controller()
        else:
            self._cluster.start_node(name)

    def _strike_connection(self, way: str) -> None:
        if way == "freeze":
            self._login.freeze(True)
            time.sleep(FROZEN_S)
            self._login.freeze(False)
            return
        if way == "term":
            self._login.refuse()
        self._login.cut()
        if way == "term":  # nobody gets in for a while
            time.sleep(FROZEN_S / 4)
            self._login.let_in()

    def _strike_kubernetes(self, part: str, way: str) -> None:
        program = os.environ["REAL_CLUSTER"]
        with open(os.environ["REAL_KUBECONFIG"]) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may strike the same cluster
            if way == "freeze":
                said = subprocess.run([program, "status"], check=True, text=True, stdout=-1).stdout
                _freeze(int(re.search(rf"^{part}\D+(\d+)", said, re.MULTILINE)[1]))
                return
            subprocess.run([program, "kill" if way == "kill" else "stop", part], check=True)
            subprocess.run([program, "start", part], check=True)


def _freeze(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(FROZEN_S)
    os.kill(pid, signal.SIGCONT)


def main(folder: Path, pythons: list[str]) -> None:
    """Start what can be started; wait; end it."""
    left_out = {}
    with contextlib.ExitStack() as stack:
        started = Engines(stack, folder, pythons)
        tables = []
        only = os.environ.get("EVERYWHERE_ONLY", "").split()
        only += ["slurm"] if "hpc" in only else []
        for engine in ENGINES:
            if only and engine not in only:
                continue
            why = missing(engine)
            if why:
                left_out[engine] = why
                continue
            started.places[engine] = ([], {})
            tables.append(getattr(started, engine)())
        Path(started.environment["TRANSLOAD_CONFIG"]).write_text("\n".join(tables))
        started.listen()
        answer = {
            "environment": started.environment,
            "left_out": left_out,
            "engines": started.places,
        }
        print(json.dumps(answer), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
