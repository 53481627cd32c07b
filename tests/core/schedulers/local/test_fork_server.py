"""Test the fork server and what it starts.

It must work without descriptors or close_range, with long paths, and with systemd around it.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transload.schedulers import Submission
from transload.schedulers.local import connection, scope
from transload.schedulers.local.connection import import_fork_server
from transload.schedulers.local.convert import submission_body
from transload.schedulers.local.supervisor import kernel, layout, protocol
from transload.specs import AppState, Role


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def test_out_of_descriptors(local, eventually) -> None:
    """With more connections than it has descriptors for, the fork server waits without work, then
    goes on.
    """
    local.run(local.sh("sleep 300"))
    # what it has just forked looks like it for a moment
    eventually(lambda: len(local.fork_servers()) == 1, 10)
    (pid,) = local.fork_servers()
    opened = len(os.listdir(f"/proc/{pid}/fd"))
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened, hard))
    (path,) = (local.home / "local").glob("spawner-*.sock")
    clients = [socket.socket(socket.AF_UNIX) for _ in range(12)]
    try:
        for client in clients:
            client.connect(str(path))
        before = cpu_seconds(pid)
        time.sleep(1.0)  # the time over which its work is measured
        assert cpu_seconds(pid) - before < 0.3
    finally:
        for client in clients:
            client.close()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    assert local.fork_servers() == [pid]


def test_each_job_has_a_guard_and_a_supervisor(local, eventually) -> None:
    """Guard and supervisor end with the job, and the fork server ends a moment later."""
    go = local.home / "go"
    ids = [local.run(local.sh(f"until test -e {go}; do sleep 0.05; done")) for _ in range(3)]
    # a replica has its supervisor's name until it is its program, and that has its guard's at first
    eventually(lambda: len(local.supervisors()) == len(local.guards()) == 3)
    supervisors = {local.supervisor(app_id) for app_id in ids}
    assert supervisors == set(local.supervisors())
    go.touch()
    for app_id in ids:
        assert local.wait(app_id).state is AppState.SUCCEEDED
    eventually(lambda: not local.supervisors() and not local.guards())
    eventually(lambda: not local.fork_servers())
    assert os.listdir(local.home / "local" / "helpers") == []


def test_a_job_that_was_refused_leaves_no_process(local, eventually) -> None:
    """The supervisor that refused its job ends, and so does its guard."""
    local.wait(local.run(local.sh("exit 0"), "taken"))
    request = submission_body_of(local, local.sh("exit 1"), "taken")
    for _ in range(20):
        assert connection.submit(local.scheduler.location(), request) == {"error": "exists"}
    eventually(lambda: not local.supervisors() and not local.guards())


@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b"{}", b"nonsense"])
def test_what_is_no_request_starts_nothing(local, eventually, sent: bytes) -> None:
    """What is no request leaves no process, and the next job runs."""
    running = local.run(local.sh("sleep 300"))
    (path,) = (local.home / "local").glob("spawner-*.sock")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    eventually(lambda: local.supervisors() == [local.supervisor(running)])
    eventually(lambda: len(local.guards()) == 1)


def submission_body_of(local, role: Role, app_id: str) -> dict[str, Any]:
    """Return what is sent for an app of this role, whatever is known of its id."""
    app, options = local.app(role), local.scheduler.run_opts().resolve({})
    submission = Submission(app, app.digest(), "tests", options, secrets={role.name: {}})
    request = local.scheduler.convert(local.scheduler.prepare(app, options), options)
    return submission_body(request, app_id, submission, str(local.folder(app_id)))


def test_the_fork_server_loads_little() -> None:
    """The fork server imports none of the slow parts of the standard library."""
    slow = [
        "collections",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
        "json",
        "re",
        "signal",
        "socket",
        "typing",
    ]
    code = f"{import_fork_server()}; print([name for name in {slow} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(JSON)
def test_json_as_others_write_and_read_it(value: object) -> None:
    """What the fork server and supervisors write is what the library writes, and they read what it
    wrote.
    """
    assert layout.dumps(value) == json.dumps(value).encode()
    assert layout.loads(json.dumps(value, indent=1).encode()) == value


@pytest.mark.parametrize("text", [b"", b"{", b"[1] 2", b"\xff", b"{'a': 1}"])
def test_what_is_no_json(text: bytes) -> None:
    """Damaged text is a ValueError, whatever is wrong with it."""
    with pytest.raises(ValueError):
        layout.loads(text)


WITHOUT_CLOSE_RANGE = """
    import ctypes, errno, os, struct, sys, time
    sys.path.insert(0, {folder!r})
    from supervisor import kernel
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    load, equal, ret = 0x20, 0x15, 0x06
    rules = [(load, 0, 0, 0), (equal, 0, 1, 436), (ret, 0, 0, 0x00050000 | errno.ENOSYS), (ret, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.c_void_p)]
    libc = kernel.libc()
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(program)))) == 0
    assert libc.syscall(436, 3, 4, 0) == -1
    before = time.process_time()
    kernel.close_from(3)
    took = time.process_time() - before
    print(took < 0.02, sum(os.path.exists(f"/proc/self/fd/{{fd}}") for fd in fds))
"""


def test_without_close_range() -> None:
    """Where the kernel has no close_range, descriptors are not tried out one by one, up to a
    million.
    """
    script = WITHOUT_CLOSE_RANGE.format(folder=str(Path(kernel.__file__).parent.parent))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "True 0\n", done.stderr


@pytest.mark.parametrize("has_proc", [True, False])
def test_long_address_leaves_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_proc: bool
) -> None:
    """A socket below a long path is reached without changing the working directory for others.

    No file is left.
    """
    if not has_proc:  # as on macOS
        monkeypatch.setattr(protocol.os.path, "isdir", lambda path: False)
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    protocol.with_address(str(folder), "s.sock", listener.bind)
    listener.listen(64)
    (tmp_path / "here").touch()
    monkeypatch.chdir(tmp_path)
    stop, wrong = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            if not os.path.exists("here"):
                wrong.append(os.getcwd())

    before = set(os.listdir("/tmp"))
    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(50):
            with socket.socket(socket.AF_UNIX) as client:
                protocol.with_address(str(folder), "s.sock", client.connect)
    finally:
        stop.set()
        thread.join()
        listener.close()
    assert not wrong
    fresh = [Path("/tmp") / name for name in set(os.listdir("/tmp")) - before]
    assert not [
        path
        for path in fresh
        if (path / "l").is_symlink() and os.readlink(path / "l") == str(folder)
    ]


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for systemd-run and a user manager that lingers, as there is no systemd here."""
    (tmp_path / "run" / "systemd").mkdir(parents=True)
    (tmp_path / "run" / "systemd" / "private").touch()
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / subprocess.check_output(["id", "-un"], text=True).strip()).touch()
    stub = tmp_path / "bin" / "systemd-run"
    stub.parent.mkdir()
    asked = tmp_path / "asked"
    stub.write_text(
        f'#!/bin/sh\necho "$XDG_RUNTIME_DIR" "$@" >> {asked}\nwhile [ "$1" != -- ]; do shift; '
        'done\nshift\nexec "$@"\n'
    )
    stub.chmod(0o755)
    monkeypatch.setattr(scope, "LINGERING", str(tmp_path / "linger"))
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


def test_scope_of_its_own(local, systemd: Path) -> None:
    """A lasting user manager (a stub here) starts the fork server, as doctor says."""
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    asked = (systemd / "asked").read_text()
    assert asked.startswith(f"{systemd / 'run'} --user --scope --quiet --collect")
    assert "supervisor.fork_server" in asked and len(asked.splitlines()) == 1
    assert ("fork server", True, scope.explain()) in local.scheduler.diagnose()
    assert "separate systemd scope" in scope.explain()


def test_scope_that_cannot_be_had(local, systemd: Path) -> None:
    """A manager that refuses costs the scope, not the app."""
    (systemd / "bin" / "systemd-run").write_text(f"#!/bin/sh\necho no >> {systemd}/asked\nexit 1\n")
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    assert (systemd / "asked").read_text() == "no\n"


def test_scope_that_would_not_last(local, systemd: Path) -> None:
    """A manager that ends with the last log-out is not used, as it would take jobs along."""
    for name in (systemd / "linger").iterdir():
        name.unlink()
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    assert not (systemd / "asked").exists()
    assert "enable-linger" in scope.explain()
