"""Slurm works behind ssh, with refusals, transfers and connections that end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from transload.errors import AppNotFound, ConfigError, SchedulerUnavailable, SubmitError
from transload.runner import Runner
from transload.schedulers.api import LogQuery, Stream
from transload.specs import AppDef, AppState, JobMount, Role, Workspace, macros
from transload_slurm import SlurmScheduler, create_slurm, pack, ssh
from transload_slurm import connection as connection_module
from transload_slurm.connection import Connection
from transload_slurm.results import RemoteStore

Eventually = Callable[..., Any]


def _far(python: str = "python3") -> Connection:
    return Connection("login", "~/.transload/slurm", python)


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "", "a b", "host\n", "user@ho\tst"])
def test_values_that_would_be_more_than_a_host(host: str) -> None:
    """What begins with a dash, or holds white space, is refused before ssh is called."""
    with pytest.raises(ConfigError, match="ssh="):
        scheduler = create_slurm("tests")
        scheduler.connect(scheduler.connection.read({"ssh": host}))


def test_the_helper_is_for_old_pythons(tmp_path: Path) -> None:
    """The helper has the syntax and imports of Python 3.8, and loads there if one is at hand."""
    import ast
    import zipfile

    name, data = pack.packed()
    assert pack.pack() == data  # the same always: the name tells the content
    path = tmp_path / name
    path.write_bytes(data)
    inside = zipfile.ZipFile(path)
    for each in inside.namelist():
        ast.parse(inside.read(each), each, feature_version=(3, 8))
    modules = [
        each[: -len(".py")].replace("/", ".")
        for each in inside.namelist()
        if not each.endswith("__main__.py")
    ]
    old = next(Path("/").glob("root/.pyenv/versions/3.8.*/bin/python3.8"), None)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); [__import__(name) for name in sys.argv[2:]]"
    )
    for python in (sys.executable, *([] if old is None else [str(old)])):
        command = [python, "-I", "-S", "-W", "error", "-c", code, str(path), *modules]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_an_app_by_ssh(far: Runner, login: Any, shell_app: Callable[..., AppDef]) -> None:
    """A job is submitted, followed, listed and deleted from where Slurm's tools are not."""
    root = login.home / ".transload" / "slurm"
    before = set(root.iterdir()) if root.is_dir() else set()  # other tests log in there, too
    handle = far.run(shell_app("echo $HOME; echo no >&2; exit 3"), "slurm", app_id="one")
    assert far.scheduler("slurm").options
    assert list(far.log_lines(handle, "main", should_tail=True)) != []
    status = far.wait(handle, timeout=60)
    assert status is not None and (status.state, status.roles[0].replicas[0].exit_code) == (
        AppState.FAILED,
        3,
    )
    assert f"{login.home}\n" in list(far.log_lines(handle, "main"))
    assert far.scheduler("slurm").log_read("one", LogQuery("main", 0, Stream.STDERR)).lines == [
        "no\n"
    ]
    assert [row.app_id for row in far.list("slurm")] == ["one"]
    far.delete(handle)
    assert far.list("slurm") == []
    made = {path.name for path in {*root.iterdir()} - before}
    assert made <= {"apps", "gone", "bin", f".asked-{os.uname().nodename}"}
    assert [path.name for path in (login.home / ".transload" / "slurm" / "bin").iterdir()] == [
        pack.packed()[0]
    ]


def test_all_lies_in_the_folder_that_is_set(
    login: Any, tmp_path: Path, shell_app: Callable[..., AppDef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lies in the folder that is set, also the helper, where the home is not writable."""
    folder = tmp_path / "scratch" / "me" / "jobs"
    settings = tmp_path / "transload.toml"
    settings.write_text(
        f'[schedulers.hpc]\nkind = "slurm"\nssh = "login"\nfolder = "{folder}"\n', encoding="utf-8"
    )
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(settings))

    def at_home() -> dict[str, float]:
        return {str(path): path.stat().st_mtime for path in login.home.rglob("*") if path.is_file()}

    before = at_home()  # other tests log in there, too
    with Runner("tests") as runner:
        handle = runner.run(shell_app("exit 3"), "hpc")
        status = runner.wait(handle, timeout=60)
        assert status is not None and status.roles[0].replicas[0].exit_code == 3
        assert [path.name for path in (folder / "bin").iterdir()] == [pack.packed()[0]]
        assert [folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777] == [
            0o700,
            0o700,
        ]
        assert at_home() == before
        runner.delete(handle)


def test_the_next_job_reads_what_one_has_made(
    far: Runner, shell_app: Callable[..., AppDef]
) -> None:
    """The folder of another job is the cluster's, and named as the cluster knows it."""
    first = far.run(shell_app('echo 42 > "$TRANSLOAD_OUTPUT_DIR/model.pt"'), "slurm")
    far.wait(first, timeout=60)
    second = far.run(shell_app("cat /in/model.pt", mounts=[JobMount(first, "/in")]), "slurm")
    far.wait(second, timeout=60)
    assert list(far.log_lines(second, "main")) == ["42\n"]


def _words(runner: Runner, handle: str, role: str = "main") -> list[str]:
    """Wait for a job's success, and return what its first replica printed."""
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED, status
    return [line.rstrip("\n") for line in runner.log_lines(handle, role)]


@pytest.mark.parametrize("where", ["default", "tracker_base"])
def test_no_job_sees_a_tilde(far: Runner, login: Any, where: str, tmp_path: Path) -> None:
    """Every placeholder in arguments, variables and metadata is a path that is there on the cluster.

    A file that a job writes below ``${output_dir}`` is among its artifacts.
    """
    prolog = tmp_path / "cwd" / "say"  # srun's own, which runs before each task
    prolog.write_text("#!/bin/sh\necho export BEFORE=yes\n")
    prolog.chmod(0o755)
    script = (
        'echo "$BEFORE"; echo "$1"; echo "$2"; echo "$FILES"; echo "$ROOT"; '
        'echo "$3 $4 $(printenv "$5")"; pwd; echo "$TRANSLOAD_OUTPUT_DIR"; '
        'echo weights > "$2/model.pt"; echo more > "$FILES/more.pt"'
    )
    role = Role(
        "main",
        "",
        entrypoint="sh",
        args=["-c", script, "sh", *(macros.img_root, macros.output_dir, macros.replica_id)],
        env={"FILES": f"{macros.output_dir}", "ROOT": f"{macros.img_root}/bin"},
        metadata={"slurm.srun_args": [f"--task-prolog={macros.img_root}/say"]},
        workspace=Workspace({str(tmp_path / "cwd"): ""}),
    )
    role.args += [macros.app_id, macros.rank0_env]
    cfg: dict[str, Any] = {"job_dir": "~/other"} if where == "job_dir" else {}
    base = "~/runs" if where == "tracker_base" else None
    handle = far.run(AppDef("t", [role]), "slurm", cfg, tracker_base=base, app_id=f"tilde-{where}")
    said = _words(far, handle)
    assert said[0] == "yes"
    root, files, files_by_env, root_by_env, numbers, cwd, output_dir = said[1:]
    assert root == cwd and root_by_env == f"{root}/bin"
    assert files == files_by_env == output_dir
    assert numbers.split()[:2] == ["0", f"tilde-{where}"] and len(numbers.split()) == 3
    for path in (root, files):
        assert path.startswith(f"{login.home}/") and os.path.isdir(path)
    assert sorted(far.results(handle).artifacts) == ["model.pt", "more.pt"]


def test_a_component_is_given_a_path_of_the_cluster(
    far: Runner, login: Any, tmp_path: Path
) -> None:
    """A component that asks where its job reports hands on a path without a ``~``."""
    Path("jobs.py").write_text(
        "from transload.specs import AppDef, Role\n"
        "def train(tracker_base: str) -> AppDef:\n"
        "    return AppDef('t', [Role('main', '', entrypoint='echo', args=[f'--to={tracker_base}/x'])])\n"
    )
    handle = far.run_component("jobs.py:train", [], "slurm", app_id="component")
    assert _words(far, handle) == [f"--to={login.home}/.transload/slurm/apps/component/results/x"]


@pytest.mark.parametrize("trouble", ["not executable", "no program", "no folder for sockets"])
def test_an_ssh_that_cannot_be_started(
    login: Any, shell_app: Callable[..., AppDef], trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the machine says of ssh itself is the reason, of a submit too."""
    tools = login.client / "none"
    tools.mkdir(exist_ok=True)
    (tools / "ssh").write_bytes(b"\x7fELF, but not really")
    (tools / "ssh").chmod(0o644 if trouble == "not executable" else 0o755)
    named = "ssh login"
    if trouble == "no folder for sockets":
        named = str(login.client / "file")
        Path(named).touch()
        monkeypatch.setattr(ssh, "control_folder", lambda: f"{named}/sockets")
    else:
        monkeypatch.setenv("PATH", str(tools))
    scheduler = create_slurm("tests")
    scheduler.connect(scheduler.connection(ssh="login"))
    with Runner("tests", {"slurm": lambda session: scheduler}) as runner:
        with pytest.raises(SchedulerUnavailable, match=named):
            runner.list("slurm")
        with pytest.raises(SubmitError, match=named) as caught:
            runner.run(shell_app("true"), "slurm")
    assert "workspace" not in str(caught.value)


@pytest.mark.timeout(60)
def test_a_file_system_without_locks(far: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are not shared where nothing can be locked, which no file system here refuses."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert far.list("slurm") == []


def test_secrets_are_in_no_command_line_and_no_file(
    far: Runner,
    login: Any,
    shell_app: Callable[..., AppDef],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
) -> None:
    """Secrets go through the pipe. The job has them, and nobody else sees them."""
    value = token_hex(6)  # no file of these tests has it, which other jobs may have as a workspace
    monkeypatch.setenv("MY_TOKEN", value)
    handle = far.run(
        shell_app("test ${#T} = 12 || exit 9; echo ready; sleep 2", secrets={"T": "env:MY_TOKEN"}),
        "slurm",
    )
    eventually(lambda: list(far.log_lines(handle, "main")) == ["ready\n"], timeout=30)
    seen = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert value not in seen
    for path in (login.home / ".transload").rglob("*"):
        assert not path.is_file() or value.encode() not in path.read_bytes(), path
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED


def test_workspace_travels_once(far: Runner, login: Any, tmp_path: Path) -> None:
    """Only files whose content the cluster lacks are sent. Links, modes, empty folders come too."""
    project = tmp_path / "project"
    (project / "inner").mkdir(parents=True)
    (project / "outputs").mkdir()
    (project / "run.sh").write_text(
        "#!/bin/sh\ncat inner/data; cat link; echo changed > run.sh; echo x > outputs/new\n"
    )
    (project / "run.sh").chmod(0o755)
    (project / "inner" / "data").write_text("first\n")
    (project / "big").write_bytes(os.urandom((3 << 20) + 5))
    (project / "even").write_bytes(os.urandom(2 << 20))
    (project / "empty").touch()
    (project / "link").symlink_to(project / "inner" / "data")
    app = AppDef(
        "ws", [Role("main", "", entrypoint="./run.sh", workspace=Workspace({str(project): ""}))]
    )
    blobs = login.home / ".transload" / "slurm" / ".blobs"

    def run() -> list[str]:
        handle = far.run(app, "slurm")
        status = far.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED, status
        return list(far.log_lines(handle, "main"))

    assert run() == ["first\n", "first\n"]
    before = {path.name: path.stat().st_ino for path in blobs.rglob("*") if path.is_file()}
    assert run() == ["first\n", "first\n"]
    assert {path.name: path.stat().st_ino for path in blobs.rglob("*") if path.is_file()} == before
    (project / "inner" / "data").write_text("second\n")
    assert run() == ["second\n", "second\n"]
    after = {path.name: path.stat().st_ino for path in blobs.rglob("*") if path.is_file()}
    assert len(set(after.items()) - set(before.items())) == 2  # the file, and the new list


def test_the_script_of_a_built_in_component_travels(
    far: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``--script`` names lies in the working folder, without the public image."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import beside\nprint(beside.WORD)\n")
    Path("beside.py").write_text("WORD = 'trained'\n")
    handle = far.run_component("utils.python", ["--script", "train.py"], "slurm")
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED, status
    assert list(far.log_lines(handle, "python")) == ["trained\n"]
    plan = far.dryrun_component("dist.ddp", ["--script", "train.py"], "slurm")
    assert plan.resolved.roles[0].workspace == Workspace({str(tmp_path): ""})
    far.delete(handle)


def test_results_come_back(
    far: Runner, login: Any, shell_app: Callable[..., AppDef], tmp_path: Path
) -> None:
    """What an app reports in its folder on the cluster is read through the connection, from a given
    base, too.
    """
    body = '{"schema": 1, "key": "final", "results": {"loss": 0.25}}'
    script = f"cd \"$TRANSLOAD_TRACKER_BASE\" && printf '{body}' > final.json"
    for base in (None, f"{login.home}/runs"):
        handle = far.run(
            shell_app(f'mkdir -p "$TRANSLOAD_TRACKER_BASE"; {script}'), "slurm", tracker_base=base
        )
        status = far.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.SUCCEEDED, status
        assert far.results(handle).value("loss") == 0.25
    with pytest.raises(AppNotFound):
        far.scheduler("slurm").results_store("nobody")
    link = far.scheduler("slurm").login_node.connection  # type: ignore[attr-defined]
    (login.home / "large").write_bytes(b"x" * (9 << 20))
    (login.home / "none").touch()
    store = RemoteStore(link, str(login.home))
    assert (len(store.read("large")), store.read("none")) == (9 << 20, b"")
    told: list[int] = []
    store.fetch("large", str(tmp_path / "large"), told.append)
    assert (len(told) > 1, sum(told), (tmp_path / "large").stat().st_size) == (
        True,
        9 << 20,
        9 << 20,
    )
    assert {
        name: len(data) for name, data in store.read_many(["large", "none", "gone"]).items()
    } == {
        "large": 9 << 20,
        "none": 0,
    }


def test_hostile_files_on_the_cluster(
    far: Runner, login: Any, shell_app: Callable[..., AppDef], tmp_path: Path
) -> None:
    """A FIFO, a device, a huge file and links that a job left on the cluster are named, and the
    rest comes.
    """
    body = '{"schema": 1, "key": "good", "results": {"loss": 0.25}}'
    script = (
        f"cd \"$TRANSLOAD_TRACKER_BASE\" && printf '{body}' > good.json && mkfifo 0.json && ln -s "
        "/dev/zero 1.json && "
        "truncate -s 6G 2.json && cd outputs && echo weights > model.pt && ln -s /etc/passwd p && "
        "ln -s . a && mkfifo f"
    )
    handle = far.run(shell_app(f'mkdir -p "$TRANSLOAD_TRACKER_BASE/outputs"; {script}'), "slurm")
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED, status
    results = far.results(handle)
    assert results.results == {"good": {"loss": 0.25}} and list(results.artifacts) == ["model.pt"]
    assert {name: reason.partition(";")[0] for name, reason in results.refused.items()} == {
        "0.json": "a FIFO",
        "1.json": "a link that leads out of its folder",
        "2.json": "more than 16,777,216 bytes, which is as much as is read",
        "outputs/a": "a link to a folder, which is not followed",
        "outputs/f": "a FIFO",
        "outputs/p": "a link that leads out of its folder",
    }
    copied = far.job(handle).fetch(folder=str(tmp_path))
    assert (
        copied == [str(tmp_path / "model.pt")]
        and (tmp_path / "model.pt").read_text() == "weights\n"
    )


def test_unknown_host_key(login: Any) -> None:
    """The login node's key is checked.

    The message says what to do, and a retry is not worthwhile.
    """
    known = login.base / "known_hosts"
    kept = known.read_text()
    try:
        for text, match in (
            ("", "host key is not known here"),
            (kept.replace("AAAA", "AAAB", 1), "host key"),
        ):
            known.write_text(text)
            connection = _far()
            with pytest.raises(ssh.Refused, match=match) as caught:
                connection.call("list")
            assert "\n" not in str(caught.value)
    finally:
        known.write_text(kept)


def test_key_that_is_not_taken(login: Any, shell_app: Callable[..., AppDef]) -> None:
    """Nobody is asked for a password. The submit is refused, and not as a passing trouble."""
    keys = login.base / "authorized_keys"
    kept = keys.read_text()
    try:
        keys.write_text("")
        scheduler = create_slurm("tests")
        scheduler.connect(scheduler.connection(ssh="login"))
        with Runner("tests", {"slurm": lambda session: scheduler}) as runner:
            with pytest.raises(
                SubmitError, match="no key, certificate or agent of yours lets you in"
            ) as caught:
                runner.run(shell_app("true"), "slurm")
            assert not caught.value.transient
    finally:
        keys.write_text(kept)


@pytest.mark.parametrize(
    ("python", "match"), [("nopython3", "no such Python there"), ("/bin/false", "exit code 1")]
)
def test_no_python(login: Any, python: str, match: str) -> None:
    """A login node without a Python is told as such."""
    with pytest.raises(SchedulerUnavailable, match=match):
        _far(python).call("list")


def test_old_python(login: Any, tmp_path: Path) -> None:
    """So is one that is too old."""
    old = tmp_path / "old"
    old.write_text(
        f"#!{sys.executable}\nimport sys\nsys.version_info = (3, 6, 8)\nsys.version = "
        "'3.6.8'\nexec(sys.argv[-1])\n"
    )
    old.chmod(0o755)
    with pytest.raises(ssh.Refused, match="3.6.8 there is too old: 3.8 is needed"):
        _far(str(old)).call("list")


def test_no_room_for_the_helper(login: Any) -> None:
    """A home that cannot be written to (a quota, say) is one line."""
    (login.home / ".transload").mkdir(exist_ok=True)
    folder = login.home / ".transload" / "slurm"
    folder.rename(login.home / "aside") if folder.exists() else None
    folder.write_text("in the way")
    try:
        with pytest.raises(
            ssh.Refused,
            match=r"cannot be stored in ~/.transload/slurm/bin: .*Not a directory.*folder = ",
        ):
            _far().call("list")
    finally:
        folder.unlink()
        if (login.home / "aside").exists():
            (login.home / "aside").rename(folder)


def test_damaged_helper_is_sent_anew(login: Any) -> None:
    """What lies on the login node is checked before it is run."""
    connection = _far()
    assert connection.call("list") == []
    connection.close()
    place = login.home / ".transload" / "slurm" / "bin" / pack.packed()[0]
    place.write_bytes(place.read_bytes()[:-10])
    connection = _far()
    assert connection.call("list") == []
    connection.close()
    assert place.read_bytes() == pack.packed()[1]


def test_noise_of_a_login_shell(login: Any, tmp_path: Path) -> None:
    """What a profile prints before the helper speaks is passed over."""
    noisy = tmp_path / "noisy"
    noisy.write_text(
        f'#!/bin/sh\necho "Welcome to the cluster"; echo "{{"\nexec {sys.executable} "$@"\n'
    )
    noisy.chmod(0o755)
    connection = _far(str(noisy))
    assert connection.call("list") == []
    connection.close()


def test_connections_are_shared(login: Any) -> None:
    """Nine clients share two connections of eight sessions, since a server lets in ten."""
    name = hashlib.sha256(b"login").hexdigest()[:12]
    with contextlib.ExitStack() as stack:
        for _ in range(9):
            connection = stack.enter_context(contextlib.closing(_far()))
            assert connection.call("list") == []
        assert len(login.helpers()) == 9
        sockets = [path for path in (login.client / "run").rglob(f"{name}-*") if path.is_socket()]
        assert len(sockets) == 2
        assert all(len(str(path)) < 100 for path in sockets)


def test_schedulers_of_a_process_share_one(login: Any, eventually: Eventually) -> None:
    """Three schedulers share one helper, which ends with the last. Another folder has its own.

    A scheduler that is closed twice takes nothing from the others.
    """
    made = [create_slurm("tests", name) for name in ("one", "two", "three", "other")]
    for scheduler in made:
        folder = "~/other" if scheduler.name == "other" else None
        scheduler.connect(scheduler.connection.read({"ssh": "login", "folder": folder}))
        assert scheduler.list() == []
    helpers = sorted(login.helpers())
    assert len(helpers) == 2
    for scheduler in (*made[:2], *made[:2]):
        scheduler.close()
    assert (made[2].list(), sorted(login.helpers())) == ([], helpers)
    for scheduler in made[2:]:
        scheduler.close()
    eventually(lambda: not login.helpers(), timeout=10)


@pytest.mark.slow
def test_helpers_of_a_machine_share_what_slurm_says(
    far: Runner, login: Any, shell_app: Callable[..., AppDef]
) -> None:
    """What one of four has asked for, the others know. A cancel is seen at once."""
    calls = login.tools / "calls"
    # good for five times as long
    slow = f'#!/bin/sh\necho "$@" >> {calls}\nsleep 4\nexec /usr/bin/squeue "$@"\n'
    ids = [
        far.run(shell_app("true"), "slurm", {"begin": "now+1hour"}).rpartition("/")[2]
        for _ in range(4)
    ]
    made = [_far() for _ in ids]
    try:
        for connection in made:
            connection.call("ping")
        (login.tools / "squeue").write_text(slow)
        (login.tools / "squeue").chmod(0o755)
        made[0].call("describe", ids)
        for connection, app_id in zip(made, ids, strict=True):
            found = connection.call("describe", [app_id])[app_id]
            assert found.status.state is AppState.PENDING, found
        assert len(calls.read_text().splitlines()) == 1
        made[3].call("cancel", [ids[1]])
        found = made[3].call("describe", [ids[1]])[ids[1]]
        assert found.status.state is AppState.CANCELLED
        # jobs of earlier tests are among them, as long as somebody may ask for them
        first, second = (set(re.findall(r"\d+", line)) for line in calls.read_text().splitlines())
        assert second <= first
        assert len(second) >= len(ids)
    finally:
        (login.tools / "squeue").unlink(missing_ok=True)
        for connection in made:
            connection.close()


def test_old_copies_of_the_helper_go(tmp_path: Path) -> None:
    """What was packed of other sources is kept for a day."""
    for name, age in (("packed-old", 2 * 86400), ("packed-new", 60), ("else", 2 * 86400)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    pack.packed.cache_clear()
    assert pack.packed(str(tmp_path)) == pack.packed()
    assert {path.name for path in tmp_path.iterdir()} == {
        "packed-new",
        "else",
        f"packed-{pack._stamp()}",
    }


def test_nothing_stays(login: Any, eventually: Eventually) -> None:
    """The helper ends with its connection, however that ends, and no thread is left here."""
    for end in ("close", "cut", "kill"):
        connection = _far()
        connection.call("list")
        assert len(login.helpers()) == 1
        if end == "close":
            connection.close()
        elif end == "cut":
            login.cut()
        else:
            os.kill(connection.link()._process.pid, signal.SIGKILL)
        eventually(lambda: not login.helpers(), timeout=10)
        connection.close()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith("transload-slurm-ssh")
    ]


def test_cut_connection_is_opened_again(
    far: Runner, login: Any, shell_app: Callable[..., AppDef]
) -> None:
    """A wait and a log go on where they were. While nobody gets in, the state is unknown."""
    handle = far.run(shell_app("for i in $(seq 40); do echo $i; sleep 0.1; done"), "slurm")
    lines: list[str] = []
    reader = threading.Thread(
        target=lambda: lines.extend(far.log_lines(handle, "main", should_tail=True)), daemon=True
    )
    reader.start()
    for _ in range(3):
        time.sleep(0.7)
        login.refuse()
        login.cut()
        scheduler = far.scheduler("slurm")
        with pytest.raises(SchedulerUnavailable):
            for _ in range(3):
                scheduler.describe(["x"])["x"]
        login.let_in()
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    reader.join(30)
    assert lines == [f"{number}\n" for number in range(1, 41)]


def test_answer_of_a_submit_is_lost(
    far: Runner,
    login: Any,
    shell_app: Callable[..., AppDef],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A job whose connection breaks after ``sbatch`` is found again, and there is one."""
    scheduler = far.scheduler("slurm")
    assert isinstance(scheduler, SlurmScheduler)
    connection = scheduler.login_node.connection  # type: ignore[union-attr]
    link = connection.link()
    real = link.call

    def cut(method: str, *args: Any, **more: Any) -> Any:
        answer = real(method, *args, **more)
        if method == "submit":
            login.cut()
            raise_lost = link.lost.wait(20)
            assert raise_lost
            from transload_slurm.connection import Lost

            raise Lost("cut")
        return answer

    monkeypatch.setattr(link, "call", cut)
    ran = tmp_path / "ran"
    handle = far.run(shell_app(f"echo once >> {ran}"), "slurm", app_id="lost")
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert ran.read_text() == "once\n"
    assert connection.opened == 2


def test_a_submit_that_insists_is_in_a_hurry(
    far: Runner, login: Any, shell_app: Callable[..., AppDef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may have reached the cluster is tried again every two seconds, however long others are
    to pause.
    """
    monkeypatch.setattr(connection_module, "_PAUSE_S", (60.0, 60.0))
    scheduler = far.scheduler("slurm")
    connection = scheduler.login_node.connection  # type: ignore[attr-defined]
    link = connection.link()

    def cut(*_args: Any, **_more: Any) -> Any:
        login.refuse()
        login.cut()
        assert link.lost.wait(20)
        with pytest.raises(SchedulerUnavailable):
            connection.link()
        login.let_in()
        raise connection_module.Lost("cut")

    monkeypatch.setattr(link, "call", cut)
    began = time.monotonic()
    far.run(shell_app("true"), "slurm")
    assert time.monotonic() - began < 30


def test_a_submit_that_takes_too_long_is_in_doubt(
    far: Runner,
    login: Any,
    shell_app: Callable[..., AppDef],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A submit without an answer in time is repeated, and finds what it has begun."""
    monkeypatch.setattr("transload_slurm.remote._SUBMIT_S", 1.0)
    ran, slow = tmp_path / "ran", login.tools / "sbatch"
    slow.write_text('#!/bin/sh\nsleep 3\nexec /usr/bin/sbatch "$@"\n')
    slow.chmod(0o755)
    try:
        handle = far.run(shell_app(f"echo once >> {ran}"), "slurm")
    finally:
        slow.unlink()
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert ran.read_text() == "once\n"


@pytest.mark.slow
@pytest.mark.timeout(250)
@pytest.mark.parametrize("away", [75.0, 95.0])
def test_a_submit_outlives_a_long_refusal(
    far: Runner,
    login: Any,
    shell_app: Callable[..., AppDef],
    eventually: Eventually,
    tmp_path: Path,
    away: float,
) -> None:
    """A submit whose connection broke during ``sbatch`` is done once, soon after a long refusal.

    Nothing here is a stand-in: the link breaks, and sshd is gone. Whoever only asks, keeps asking
    meanwhile.
    """
    begun, ran = tmp_path / "begun", tmp_path / "ran"
    (login.tools / "sbatch").write_text(
        f'#!/bin/sh\ntouch {begun}\nsleep 3\nexec /usr/bin/sbatch "$@"\n'
    )
    (login.tools / "sbatch").chmod(0o755)
    done: list[tuple[str, float]] = []
    submit = threading.Thread(
        target=lambda: done.append(
            (far.run(shell_app(f"echo once >> {ran}"), "slurm"), time.monotonic())
        )
    )
    submit.start()
    try:
        eventually(begun.exists, 30)
        login.refuse()
        login.cut()
        end = time.monotonic() + away
        while time.monotonic() < end:
            with pytest.raises(SchedulerUnavailable):
                far.scheduler("slurm").describe(["x"])["x"]
            time.sleep(0.5)
    finally:
        login.let_in()
        back = time.monotonic()
        submit.join(60)
        (login.tools / "sbatch").unlink()
    [(handle, at)] = done
    assert at - back < 15
    status = far.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    assert ran.read_text() == "once\n"


def test_a_fork_opens_its_own(login: Any) -> None:
    """A child does not speak on its parent's connection, nor keep it open."""
    connection = _far()
    assert connection.call("list") == []
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if connection.call("list") == [] and connection.opened == 2 else 2
            connection.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert connection.call("list") == []
    assert connection.opened == 1
    connection.close()
