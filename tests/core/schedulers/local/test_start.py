"""Test how the keeper of a job is started, what of it is left, and systemd around it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transload.keeper import layout
from transload.schedulers import Submission
from transload.schedulers.folder import scope
from transload.schedulers.folder.start import start
from transload.schedulers.local.convert import submission_body
from transload.schedulers.local.program import import_keeper, program
from transload.specs import AppState, Role


def children() -> set[str]:
    """Return the children of this process, which may have started a cluster for other tests."""
    lists = Path("/proc/self/task").glob("*/children")
    return {pid for each in lists for pid in each.read_text().split()}


def test_each_job_has_a_keeper(local, eventually) -> None:
    """It ends with the job, and leaves no child to its client."""
    go = local.home / "go"
    before = children()
    ids = [local.run(local.sh(f"until test -e {go}; do sleep 0.05; done")) for _ in range(3)]
    # a replica has its keeper's name until it is its program, and some were started ahead
    eventually(lambda: {local.keeper(app_id) for app_id in ids} == set(local.keepers()))
    assert children() <= before
    go.touch()
    for app_id in ids:
        assert local.wait(app_id).state is AppState.SUCCEEDED
    eventually(lambda: not local.keepers())


def test_a_job_that_was_refused_leaves_no_process(local, eventually) -> None:
    """The keeper that refused its job ends."""
    local.wait(local.run(local.sh("exit 0"), "taken"))
    request = submission_body_of(local, local.sh("exit 1"), "taken")
    for _ in range(5):
        assert start(program(), local.scheduler.location(), request) == {"error": "exists"}
    eventually(lambda: not local.keepers())


def test_one_of_several_submits_finds_a_keeper(local, eventually) -> None:
    """It was started ahead, becomes the keeper of the next job, and ends when there is none."""

    def is_found() -> bool:
        ids = [local.run(local.sh("exec sleep 300")) for _ in range(2)]
        waiting = set(local.keepers()) - {local.keeper(app_id) for app_id in ids}
        return local.keeper(local.run(local.sh("exec sleep 300"))) in waiting

    eventually(is_found)


def test_a_keeper_that_was_started_ahead_is_as_the_submit(local) -> None:
    """A job gets the umask and the limits that its submitter has when it submits."""
    script = "umask; ulimit -n"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    umask = os.umask(0o022)
    try:
        ids = [local.run(local.sh(script)) for _ in range(3)]
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        ids.append(local.run(local.sh(script)))
    finally:
        os.umask(umask)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert local.wait(ids[-1]).state is AppState.SUCCEEDED
    assert [local.line(app_id, "").strip() for app_id in ids] == ["0022", "0022", "0022", "0027"]


def test_a_keeper_that_was_started_ahead_is_not_a_forks(local) -> None:
    """A process that is forked between two submits gives its request to a keeper of its own."""
    for _ in range(3):
        local.run(local.sh("true"))
    pid = os.fork()
    if pid == 0:
        local.run(local.sh("echo of the fork"), "forked")
        os._exit(0)
    local.run(local.sh("echo of the parent"), "parents")
    assert os.waitpid(pid, 0)[1] == 0
    assert local.wait("forked").state is local.wait("parents").state is AppState.SUCCEEDED


@pytest.mark.parametrize("sent", [b"", b"{", b"{}", b'{"record": {}}'])
def test_a_client_that_breaks_off_starts_nothing(local, sent: bytes) -> None:
    """Without the end of the line there is no request, whatever has come."""
    code = f"{import_keeper()}.main({str(local.home / 'local')!r}, 60.0)"
    local.wait(local.run(local.sh("exit 0")))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], input=sent, capture_output=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(os.listdir(local.home / "local" / "apps")) == 1


def test_what_the_client_has_open_is_its_own(local, tmp_path: Path, eventually) -> None:
    """A keeper holds no lock or pipe that the program which submits could inherit to it."""
    with open(tmp_path / "lock", "w") as lock:
        os.set_inheritable(lock.fileno(), True)
        keeper = local.keeper(local.run(local.sh("sleep 300")))
        links = {os.readlink(f"/proc/{keeper}/fd/{fd}") for fd in os.listdir(f"/proc/{keeper}/fd")}
        assert lock.name not in links


def test_a_client_without_streams(local, tmp_path: Path) -> None:
    """A program that has closed its standard streams submits like any other."""
    program = tmp_path / "client.py"
    program.write_text(
        "import os\nos.closerange(0, 3)\n"
        "from transload.runner import get_runner\nfrom transload.specs import AppDef, Role\n"
        "app = AppDef('demo', [Role('main', '', entrypoint='true')])\n"
        "with get_runner() as runner:\n    runner.run(app, 'local', app_id='silent')\n"
    )
    subprocess.run([sys.executable, str(program)], check=True, timeout=60)
    assert local.wait("silent").state is AppState.SUCCEEDED


def submission_body_of(local, role: Role, app_id: str) -> dict[str, Any]:
    """Return what is sent for an app of this role, whatever is known of its id."""
    app, options = local.app(role), local.scheduler.options.read({})
    submission = Submission(app, app.digest(), "tests", options.cfg(), secrets={role.name: {}})
    request = local.scheduler.convert(local.scheduler.prepare(app, options), options)
    return submission_body(request, app_id, submission, str(local.folder(app_id)))


def test_a_keeper_loads_little() -> None:
    """A keeper imports none of the slow parts of the standard library."""
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
    code = f"{import_keeper()}; print([name for name in {slow} if name in sys.modules])"
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
    """What keepers write is what the library writes, and they read what it wrote."""
    assert layout.dumps(value) == json.dumps(value).encode()
    assert layout.loads(json.dumps(value, indent=1).encode()) == value


@pytest.mark.parametrize("text", [b"", b"{", b"[1] 2", b"\xff", b"{'a': 1}"])
def test_what_is_no_json(text: bytes) -> None:
    """Damaged text is a ValueError, whatever is wrong with it."""
    with pytest.raises(ValueError):
        layout.loads(text)


WITHOUT_CLOSE_RANGE = """
    import ctypes, errno, os, struct, sys, time
    from transload.keeper import kernel
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
    print(took < 0.02, sum(os.path.exists(f"/proc/self/fd/{fd}") for fd in fds))
"""


def test_without_close_range() -> None:
    """Where the kernel has no close_range, descriptors are not tried out one by one, up to a
    million.
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT_CLOSE_RANGE)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True 0\n", done.stderr


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for a service, systemd-run, and a user manager that lingers: no systemd is here."""
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
    (tmp_path / "groups").write_text("0::/system.slice/worker.service\n")
    monkeypatch.setattr(scope, "CONTROL_GROUPS", str(tmp_path / "groups"))
    monkeypatch.setattr(scope, "LINGERING", str(tmp_path / "linger"))
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    scope.warn_once.cache_clear()
    return tmp_path


def test_scope_of_its_own(local, service: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From a service a lasting user manager (a stub here) starts each keeper, as doctor says."""
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    asked = (service / "asked").read_text()
    assert asked.startswith(f"{service / 'run'} --user --scope --quiet --collect")
    assert "transload.keeper" in asked and len(asked.splitlines()) == 1
    assert "in a scope of its own" in dict(lifetime(local))["lifetime"]
    assert not caplog.records


def test_scope_that_cannot_be_had(local, service: Path) -> None:
    """A manager that refuses costs the scope, not the job."""
    (service / "bin" / "systemd-run").write_text(f"#!/bin/sh\necho no >> {service}/asked\nexit 1\n")
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    assert (service / "asked").read_text() == "no\n"


def test_scope_that_would_not_last(local, service: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a manager that outlives the service, submit and doctor say what its unit needs."""
    for name in (service / "linger").iterdir():
        name.unlink()
    for _ in range(2):
        assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    assert not (service / "asked").exists()
    (record,) = caplog.records
    assert "KillMode=process" in record.message
    assert "KillMode=process" in dict(lifetime(local))["lifetime"]


def lifetime(local) -> list[tuple[str, str]]:
    """Return what doctor says of local jobs."""
    return [(name, said) for name, _, said in local.scheduler.diagnose()]


@pytest.mark.parametrize(
    "groups",
    [
        "0::/user.slice/user-1000.slice/session-3.scope",
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/shell.scope",
    ],
)
def test_no_scope_outside_of_services(local, service: Path, groups: str) -> None:
    """A session's keeper is started as it is, as no service takes it along."""
    (service / "groups").write_text(f"{groups}\n")
    assert local.wait(local.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    assert not (service / "asked").exists()
