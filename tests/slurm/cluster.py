"""A real Slurm cluster of three nodes on one machine, with its own munge, ports and state, for as
long as wanted.

As a program it runs a command (default: a shell) in which that cluster is Slurm, and then ends the
cluster.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

NODES = ("node1", "node2", "node3")
_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
_START_S = 60.0

_CONF = """
ClusterName=transload
SlurmctldHost=localhost
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={base}/munge/socket
CredType=cred/munge
SlurmctldPort={ctld}
StateSaveLocation={base}/state
SlurmdSpoolDir={base}/spool/%n
SlurmctldPidFile={base}/slurmctld.pid
SlurmdPidFile={base}/slurmd-%n.pid
SlurmctldLogFile={base}/log/slurmctld.log
SlurmdLogFile={base}/log/slurmd-%n.log
MailProg=/bin/true
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,batch_sched_delay=0,requeue_delay=0
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
GresTypes=gpu
PropagateResourceLimits=NONE
JobCompType=jobcomp/filetxt
JobCompLoc={base}/jobcomp.txt
NodeName=DEFAULT CPUs=16 RealMemory=8000 Gres=gpu:4
NodeName=node[1-2] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{second}] Feature=old
NodeName=node3 NodeHostname=localhost NodeAddr=127.0.0.1 Port={last} Feature=new,fast
PartitionName=main Nodes=node[1-3] Default=YES State=UP
PartitionName=other Nodes=node3 State=UP
PartitionName=gpu Nodes=node[1-3] State=UP
"""
_DEFAULTS = {
    "KillWait": "2",
    "MinJobAge": "300",
    "SlurmdTimeout": "8",
    "JobCompType": "jobcomp/filetxt",
}


def free_ports(count: int) -> int:
    """Return the first of that many neighbouring ports that nobody listened on a moment ago."""
    for first in range(17000 + os.getpid() % 4000 * 4, 60000, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    probe = stack.enter_context(socket.socket())
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


class Cluster:
    """A Slurm cluster to ``start`` and ``stop``, whose parts can be killed and started one by one.

    Args:
        accounting: keep a database: MariaDB and slurmdbd. Only those run jobs whom it knows: this
            user, with the account ``physics`` and the QOS ``normal`` and ``high``.
        partitions: lines of ``slurm.conf`` for more partitions.
        settings: lines of ``slurm.conf`` that differ from those of `_CONF`.
    """

    def __init__(
        self, *, accounting: bool = False, partitions: Sequence[str] = (), **settings: str
    ) -> None:
        self.accounting = accounting
        self.base = Path(tempfile.mkdtemp(prefix="tlsl-", dir="/tmp"))
        self.conf = self.base / "slurm.conf"
        self.settings = {**_DEFAULTS, **settings}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(6)
        self._database = (ports + 4, ports + 5)
        first, second, last = range(ports + 1, ports + 4)
        self._text = _CONF.format(
            base=self.base,
            user=getpass.getuser(),
            ctld=ports,
            first=first,
            second=second,
            last=last,
        )
        self._text += "".join(f"{line}\n" for line in partitions)
        self.env = {
            **os.environ,
            "SLURM_CONF": str(self.conf),
            "PATH": f"{os.environ['PATH']}:{_FOLDERS}",
        }

    # -- life

    def start(self) -> None:
        """Start munge, the controller and the nodes, and return when all nodes are idle."""
        for name in ("munge", "state", "spool", "log", *(f"spool/{node}" for node in NODES)):
            (self.base / name).mkdir(mode=0o700)
        key = self.base / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.base.chmod(0o711)
        gpus = []
        for number in range(4):
            path = self.base / f"gpu{number}"
            os.mknod(path, 0o666 | 0o020000, os.makedev(1, 3))
            gpus.append(str(path))
        (self.base / "gres.conf").write_text(
            f"NodeName=node[1-3] Name=gpu File={self.base}/gpu[0-3]\n"
        )
        self.write_conf()
        self.start_munge()
        if self.accounting:
            self._start_accounting()
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        self.until(
            lambda: self.tool("sinfo", "-h", "-p", "main", "-o", "%T %D").strip() == "idle 3",
            "nodes are idle",
        )

    def start_munge(self) -> None:
        """Start munged, and return when it listens."""
        place = self.base / "munge"
        (place / "socket").unlink(missing_ok=True)
        flags = ["--foreground", "--force", f"--key-file={place}/key", f"--socket={place}/socket"]
        self._spawn(
            "munged",
            [
                *flags,
                f"--pid-file={place}/pid",
                f"--log-file={place}/log",
                f"--seed-file={place}/seed",
            ],
        )
        self.until(lambda: (place / "socket").exists(), "munge listens")

    def _start_accounting(self) -> None:
        port, dbd = self._database
        data = self.base / "mysql"
        login = "root" if os.geteuid() == 0 else getpass.getuser()
        self.tool(
            "mariadb-install-db",
            f"--datadir={data}",
            f"--user={login}",
            "--auth-root-authentication-method=normal",
        )
        options = [
            f"--datadir={data}",
            f"--socket={self.base}/mysql.sock",
            f"--port={port}",
            f"--user={login}",
        ]
        small = [
            "--innodb-buffer-pool-size=16M",
            "--innodb-lock-wait-timeout=900",
            "--innodb-log-file-size=8M",
        ]
        self._spawn(
            "mariadbd",
            ["--no-defaults", *options, *small, "--bind-address=127.0.0.1", "--pid-file=db.pid"],
        )
        self.until(lambda: _listens(port), "the database listens")
        lines = [
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.base}/munge/socket",
            "DbdHost=localhost",
            f"DbdPort={dbd}",
            f"SlurmUser={login}",
            f"LogFile={self.base}/log/slurmdbd.log",
            f"PidFile={self.base}/slurmdbd.pid",
            "StorageType=accounting_storage/mysql",
            "StorageHost=127.0.0.1",
            f"StoragePort={port}",
            "StorageUser=root",
        ]
        conf = self.base / "slurmdbd.conf"
        conf.write_text("\n".join(lines) + "\n")
        conf.chmod(0o600)
        self.settings["AccountingStorageType"] = "accounting_storage/slurmdbd"
        self.settings["AccountingStorageHost"] = "localhost"
        self.settings["AccountingStoragePass"] = f"{self.base}/munge/socket"
        self.settings["AccountingStoragePort"] = str(dbd)
        self.settings["AccountingStorageEnforce"] = "associations,qos"
        self.write_conf()
        self.start_database()
        self.tool("sacctmgr", "-i", "add", "cluster", "transload")
        self.tool("sacctmgr", "-i", "add", "qos", "high")
        self.tool("sacctmgr", "-i", "add", "account", "physics")
        self.tool(
            "sacctmgr",
            "-i",
            "add",
            "user",
            login,
            "account=physics",
            "qos=normal,high",
            "defaultqos=normal",
        )

    def start_database(self) -> None:
        """Start slurmdbd, and return when it listens."""
        self._spawn("slurmdbd", ["-D"])
        self.until(lambda: _listens(self._database[1]), "slurmdbd listens")

    def write_conf(self) -> None:
        """Write ``slurm.conf`` from the settings."""
        lines = [
            line for line in self._text.splitlines() if line.partition("=")[0] not in self.settings
        ]
        lines += [f"{name}={value}" for name, value in self.settings.items()]
        self.conf.write_text("\n".join(lines) + "\n")

    def start_controller(self) -> None:
        """Start slurmctld, and return when it answers."""
        self._spawn("slurmctld", ["-D", "-f", str(self.conf)])
        # the clients themselves retry for many seconds where nobody listens: knock first
        port = int(self._text.partition("SlurmctldPort=")[2].split()[0])
        self.until(lambda: _listens(port), "the controller listens")
        self.until(lambda: "UP" in self.tool("scontrol", "ping"), "the controller answers")

    def start_node(self, node: str, without: str = "") -> None:
        """Start one slurmd, which lacks a plugin of Slurm's, such as ``mpi_pmi2.so``."""
        conf = self._conf_without(without) if without else self.conf
        self._spawn("slurmd", ["-D", "-f", str(conf), "-N", node], key=node)

    def _conf_without(self, plugin: str) -> Path:
        """Write the configuration of a node that lacks a plugin, and return its path."""
        shown = self.tool("scontrol", "show", "config").splitlines()
        installed = next(line.split()[-1] for line in shown if line.startswith("PluginDir"))
        plugins = self.base / "plugins"
        plugins.mkdir()
        for path in Path(installed).iterdir():
            if path.name != plugin:
                (plugins / path.name).symlink_to(path)
        conf = self.base / "uneven.conf"
        lines = [self.conf.read_text(), f"PluginDir={plugins}", "DebugFlags=NO_CONF_HASH"]
        conf.write_text("\n".join(lines) + "\n")
        return conf

    def stop_controller(self) -> None:
        """End slurmctld as an operator would, so that it saves its state."""
        process = self.processes.pop("slurmctld")
        process.terminate()
        process.wait(timeout=30)

    def kill(self, name: str) -> None:
        """Kill ``slurmctld``, ``slurmdbd``, ``munged`` or a node with its jobs' processes."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()
        if name in NODES:
            for pid in self._step_daemons(name):
                for victim in [pid, *_below(pid)]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)

    def _step_daemons(self, node: str | None) -> list[int]:
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                environ = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            steps = b"slurmstepd" in command and self._logs_as(
                entry, node
            )  # newer ones hide their environment
            ours = node is None and f"SLURM_CONF={self.conf}".encode() in environ
            if (steps or ours) and int(entry) != os.getpid():
                found.append(int(entry))
        return found

    def _logs_as(self, pid: str, node: str | None) -> bool:
        logs = [f"{self.base}/log/slurmd-{each}.log" for each in NODES if node in (None, each)]
        for number in range(3, 12):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{number}") in logs:
                    return True
        return False

    def stop(self) -> None:
        """End everything and remove all files, also when only half of it has started."""
        with contextlib.suppress(Exception):
            if "slurmctld" in self.processes:
                self.tool("scancel", "-u", getpass.getuser(), timeout=10)
                self.until(
                    lambda: not self.tool("squeue", "-h", timeout=10).strip(), "no job is left", 10
                )
        for name in [*NODES, "slurmctld", "slurmdbd", "mariadbd", "munged"]:
            process = self.processes.pop(name, None)
            if process is not None:
                process.terminate()
                try:
                    process.wait(timeout=5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        for pid in self._step_daemons(None):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.base, ignore_errors=True)

    def _spawn(self, program: str, arguments: list[str], key: str | None = None) -> None:
        path = shutil.which(program, path=self.env["PATH"])
        assert path is not None, program
        # should this process be killed, the daemons go too
        guard = shutil.which("setpriv")
        prefix = [guard, "--pdeathsig", "KILL"] if guard else []
        with open(self.base / "log" / f"{key or program}.out", "ab") as out:
            self.processes[key or program] = subprocess.Popen(
                [*prefix, path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self.env,
                cwd=self.base,
                start_new_session=True,
            )

    # -- use

    def tool(self, *command: str, timeout: float = 60.0) -> str:
        """Run one of Slurm's tools, and return its output."""
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.env, timeout=timeout, check=False
        )
        return done.stdout

    def until(self, condition: Callable[[], object], what: str, timeout: float = _START_S) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: with the end of the logs.
        """
        end = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > end:
                logs = "".join(
                    path.read_text(errors="replace")[-1500:]
                    for path in (self.base / "log").glob("*")
                )
                raise TimeoutError(f"{what}: not within {timeout} s\n{logs}")
            time.sleep(0.05)

    def reconfigure(self, **settings: str) -> None:
        """Change settings of the running cluster."""
        self.settings.update(settings)
        self.write_conf()
        self.tool("scontrol", "reconfigure")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _below(root: int) -> list[int]:
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry)] = int(
                    Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1]
                )
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def main(command: list[str]) -> int:
    """Run the command while the cluster is there, and return its exit code."""
    command = command or [os.environ.get("SHELL", "sh")]
    if shutil.which(command[0]) is None:
        print(f"{__doc__}\nThere is no program {command[0]!r} to run.", file=sys.stderr)
        return 2
    cluster = Cluster()
    folder = {"TRANSLOAD_SLURM_DIR": str(cluster.base / "apps")}
    try:
        cluster.start()
        return subprocess.run(command, env={**cluster.env, **folder}, check=False).returncode
    finally:
        cluster.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
