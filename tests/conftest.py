"""Fixtures for every suite, such as a state folder, waits with a deadline, ports and engines.

No test here sleeps for luck, and none may leave a process: ``transload_home`` looks, and fails the
test that did.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "tests", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # machines are busy
settings.load_profile("tests")

# It is set on many a machine of continuous integration, and hides output that is never flushed
os.environ.pop("PYTHONUNBUFFERED", None)

# under nohup, the clients that tests hang up would ignore it too
signal.signal(signal.SIGHUP, signal.SIG_DFL)

T = TypeVar("T")
# Processes that look after apps, which end by themselves when idle: no leak, unless they guard
# something that is.
_HELPERS: Final = (
    b"transload.keeper",
    b"transload_docker import process",
)
_SETTLE_S: Final = 3.0
# So long 32,768 new processes, as many as there are pids, take at least.
_ALL_PIDS_S: Final = 20.0
_REQUIRED: Final = os.environ.get("TRANSLOAD_REQUIRE", "").replace(",", " ").split()
"""Engines whose absence is a failure."""
_PROCESSES: Final = os.path.isdir("/proc/self")


def _load(neighbour: str) -> ModuleType:
    """Load a file of this folder by path, as no folder below ``tests`` is a package."""
    name = f"transload_test_{neighbour}"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{neighbour}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


engines = _load("engines")
snippets = _load("snippets")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell starts its background jobs so. The programs that these tests interrupt would inherit
    # it
    signal.signal(signal.SIGINT, signal.default_int_handler)

# -------------------------------------------------------------------------------------------------------
# waiting


class Eventually(Protocol):
    """The type of the ``eventually`` fixture, for tests' annotations."""

    def __call__(self, condition: Callable[[], T], timeout: float = 10.0, message: str = "") -> T:
        """Return the first truthy value of ``condition``, or fail the test after ``timeout``
        seconds.
        """
        ...


def _eventually(
    condition: Callable[[], T],
    timeout: float = 10.0,
    message: str = "",
    *,
    longest_pause: float = 0.05,
) -> T:
    """Poll with a small back-off, from 1 ms to 50 ms or as given.

    Exceptions of the condition pass.
    """
    __tracebackhide__ = True
    deadline = time.monotonic() + timeout
    pause = 0.001
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            pytest.fail(
                f"{message or 'the condition'}: not true within {timeout} s; last value: {value!r}"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, longest_pause)


@pytest.fixture
def eventually() -> Eventually:
    """Return ``eventually(condition, timeout=10.0, message="")``.

    It returns the condition's first truthy value, or fails.
    """
    return _eventually


@pytest.fixture
def free_port() -> int:
    """A TCP port on the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# ---------------------------------------------------------------------------------------------- the
# state folder


def _read(path: str) -> bytes:
    """Return a file's bytes, or none for a process that has ended or is another user's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces = []
    with contextlib.suppress(OSError), os.fdopen(fd, "rb", 0) as file:
        while piece := file.read(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def _links_below(pid: int, home: str) -> bool:
    """Tell whether the process stands in the folder or holds one of its files open."""
    names = [f"/proc/{pid}/cwd"]
    with contextlib.suppress(OSError):
        names += [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]
    for name in names:
        with contextlib.suppress(OSError):
            target = os.readlink(name)
            if target == home or target.startswith(home + "/"):
                return True
    return False


def _alive(pid: int) -> bool:
    """Tell whether a process runs, which a zombie does not.

    Process 1 of a container may never reap it.
    """
    stat = _read(f"/proc/{pid}/stat")
    return bool(stat) and stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


@dataclass(frozen=True)
class Moment:
    """A moment after which processes were started.

    Args:
        ticks: the time as the kernel dates processes, a little early.
        last_pid: the pid that was given last, or 0 if not known.
        seconds: monotonic time.
    """

    ticks: int
    last_pid: int
    seconds: float

    @staticmethod
    def now() -> Moment:
        """Return this moment. Only Linux finds processes."""
        if not _PROCESSES:
            return Moment(0, 0, 0.0)
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        ticks = int(boot * os.sysconf("SC_CLK_TCK")) - 1
        return Moment(ticks, _last_pid(), time.monotonic())

    def pids(self) -> list[int]:
        """Return the pids of processes that may be younger, which were given since.

        All are, if that is so long ago that the kernel may have begun anew twice.
        """
        if not _PROCESSES:
            return []
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        last = _last_pid()
        if not (self.last_pid and last) or time.monotonic() - self.seconds > _ALL_PIDS_S:
            return pids
        if self.last_pid <= last:
            return [pid for pid in pids if self.last_pid < pid <= last]
        return [pid for pid in pids if pid <= last or pid > self.last_pid]


def _last_pid() -> int:
    """Return the pid that was given last, or 0 if it is not known."""
    words = _read("/proc/loadavg").split()
    return int(words[4]) if len(words) == 5 else 0


def processes_of(home: Path, since: Moment) -> dict[int, bytes]:
    """Return the living processes that carry this TRANSLOAD_HOME, mention it, or hold files below
    it, by pid.

    Those that are older than the folder are not looked at: that would be most of the time of most
    tests.
    """
    found: dict[int, bytes] = {}
    folder = str(home)
    mark = folder.encode()
    for pid in since.pids():
        stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if pid == os.getpid() or not stat or int(stat[19]) < since.ticks:
            continue
        command = _read(f"/proc/{pid}/cmdline")
        environ = _read(f"/proc/{pid}/environ")
        named = b"TRANSLOAD_HOME=" + mark in environ or mark in command
        if (named or _links_below(pid, folder)) and _alive(pid):
            found[pid] = command.replace(b"\0", b" ").strip()
    return found


def _strangers(found: dict[int, bytes]) -> dict[int, bytes]:
    """Return those that no idle helper accounts for."""
    return {
        pid: command
        for pid, command in found.items()
        if not any(name in command for name in _HELPERS)
    }


def _end(home: Path, since: Moment) -> None:
    """End every process of the folder, first by its helpers, then by a kill."""
    for number, patience in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        victims = processes_of(home, since)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while any(map(_alive, victims)) and time.monotonic() < deadline:
            time.sleep(0.005)


def _sweep(home: Path, may_leave: bool, since: Moment) -> str | None:
    """Clean a state folder up, and return what is wrong, such as processes that still run."""
    deadline = time.monotonic() + _SETTLE_S
    found = processes_of(home, since)
    left = _strangers(found)
    while left and not may_leave and time.monotonic() < deadline:
        time.sleep(0.02)  # replicas of an app just cancelled may be on their way out
        found = processes_of(home, since)
        left = _strangers(found)
    if found:
        _end(home, since)
    shutil.rmtree(home, ignore_errors=True)
    if not left or may_leave:
        return None
    lines = [f"  {pid}: {command.decode(errors='replace')}" for pid, command in left.items()]
    return "processes left behind by this test (now killed):\n" + "\n".join(lines)


@pytest.fixture(scope="session", autouse=True)
def _no_real_home() -> Iterator[None]:
    """Keep tests off the developer's own folders of jobs, and settings of an outer job out of the
    tests.
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith("TRANSLOAD_")}
    for name in kept:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="tl-session-", dir=_short_folder()))
    os.environ["TRANSLOAD_HOME"] = str(home)
    os.environ["TRANSLOAD_SLURM_DIR"] = f"{home}/slurm"
    since = Moment.now()
    yield
    problem = _sweep(home, may_leave=False, since=since)
    for name in ("TRANSLOAD_HOME", "TRANSLOAD_SLURM_DIR"):
        os.environ.pop(name, None)
    os.environ.update(kept)
    if problem:
        pytest.fail(f"at the end of all tests, outside of any transload_home: {problem}")


def _short_folder() -> str:
    """Return a folder whose paths stay below the 100 bytes that a Unix socket's address may
    have.
    """
    folder = tempfile.gettempdir()
    return folder if len(folder) < 40 else "/tmp"


@pytest.fixture
def transload_home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Make a fresh TRANSLOAD_HOME, and fail the test that leaves a process of it alive.

    It has mode 0700, a short path, and the variable is set.

    A test that means to leave some says so with ``@pytest.mark.leaves_processes``. They are ended
    all the same.
    """
    home = Path(tempfile.mkdtemp(prefix="tl-", dir=_short_folder())).resolve()
    monkeypatch.setenv("TRANSLOAD_HOME", str(home))
    since = Moment.now()
    yield home
    problem = _sweep(home, request.node.get_closest_marker("leaves_processes") is not None, since)
    if problem:
        pytest.fail(problem, pytrace=False)


# -------------------------------------------------------------------------------------------------------
# engines


def _want(engine: str) -> None:
    """Skip the test whose engine is not here, or fail it where ``TRANSLOAD_REQUIRE`` names it."""
    why = engines.missing(engine)
    if why and engine in _REQUIRED:
        pytest.fail(f"{engine}: {why}, and TRANSLOAD_REQUIRE names it", pytrace=False)
    if why:
        pytest.skip(f"not run: {engine}: {why}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is marked with an engine that is not here."""
    for mark in item.iter_markers("engine"):
        for name in mark.args:
            _want(name)


def _needs(name: str) -> Any:
    """Make the fixture of one engine, for what starts it."""

    @pytest.fixture(scope="session", name=f"needs_{name}")
    def needs() -> None:
        _want(name)

    return needs


for _name in engines.ENGINES:
    globals()[f"needs_{_name}"] = _needs(_name)


@pytest.fixture(scope="session")
def private_engine(needs_docker: None) -> Iterator[Any]:
    """Start a container engine of this test process, as ``tests/private_engine.py`` describes."""
    engine = _load("private_engine").PrivateEngine(in_memory=True)
    try:
        engine.start()
        yield engine
    finally:
        engine.close()


# ---------------------------------------------------------------------------------------------------
# documentation


def _suite(test: Path) -> str:
    return test.relative_to(Path(__file__).parent).parts[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a test that asks for a ``docs_page`` every page of its suite (``tests/snippets.py``)."""
    if "docs_page" in metafunc.fixturenames:
        metafunc.parametrize("docs_page", snippets.pages_of(_suite(metafunc.definition.path)))


@pytest.fixture
def docs_reader(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    transload_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[snippets.Reader]:
    """Somebody who does what a page shows, in a folder with nothing but a copy of the examples."""
    shutil.copytree(
        snippets.ROOT / "examples",
        tmp_path / "examples",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    monkeypatch.chdir(tmp_path)
    variables, path = dict(os.environ), list(sys.path)
    yield snippets.Reader(_suite(request.path))
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:] = path
