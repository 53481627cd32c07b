"""An ordinary job gets what it should, is seen from outside, and is removed."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from transload.errors import (
    ConfigError,
    SchedulerUnavailable,
    SpecError,
    SubmitError,
    UnsupportedFeature,
)
from transload.keeper import layout
from transload.runner import Runner
from transload.schedulers import Changes, Stream
from transload.schedulers.api import LogQuery
from transload.schedulers.folder import watch as watch_module
from transload.schedulers.local import LocalScheduler
from transload.schedulers.local.program import import_keeper
from transload.specs import (
    AppDef,
    AppState,
    BindMount,
    Notice,
    RetryPolicy,
    Role,
    Workspace,
    macros,
)


def printed_env(local, app_id: str, k: int = 0) -> dict[str, str]:
    """Return the environment that ``env`` has printed."""
    return dict(line.rstrip("\n").split("=", 1) for line in local.log(app_id, k=k) if "=" in line)


def test_environment_of_a_replica(local) -> None:
    """Each replica knows who it is by its variables, and the macros stand for the same."""
    role = Role(
        "main",
        "",
        entrypoint="env",
        env={"MINE": f"{macros.replica_id} ${{other}} $$", "RANK0": macros.rank0_env},
        num_replicas=2,
    )
    app_id = local.run(role)
    local.wait(app_id)
    env = printed_env(local, app_id, 1)
    assert env["TRANSLOAD_APP_ID"] == app_id and env["TRANSLOAD_ROLE"] == "main"
    assert (env["TRANSLOAD_REPLICA_ID"], env["TRANSLOAD_NUM_REPLICAS"], env["TRANSLOAD_RETRY"]) == (
        "1",
        "2",
        "0",
    )
    assert env["MINE"] == "1 ${other} $$"
    assert env[env["RANK0"]] == "localhost"


def test_inherited_environment(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica has all of the submitter's environment, or an allow-list. Role.env goes first.

    Odd bytes survive.
    """
    monkeypatch.setenv("SUBMITTER_ONLY", "here")
    monkeypatch.setenv("TZ", "UTC")
    os.environb[b"ODD"] = b"\xff\xfe"
    try:
        role = Role("main", "", entrypoint="env", env={"TZ": "CET"})
        everything, little = local.run(role), local.run(role, inherit_env=False)
        local.wait(everything), local.wait(little)
    finally:
        del os.environb[b"ODD"]
    env = printed_env(local, everything)
    assert env["SUBMITTER_ONLY"] == "here" and env["TZ"] == "CET" and "ODD" in env
    env = printed_env(local, little)
    assert "SUBMITTER_ONLY" not in env and env["PATH"] == os.environ["PATH"] and env["TZ"] == "CET"


def test_where_it_runs(local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that is a folder is img_root and working directory, else the current one is."""
    image, here = tmp_path / "image", tmp_path / "here"
    image.mkdir(), here.mkdir()
    (image / "tool").write_text("#!/bin/sh\necho tool of the image in $PWD, root $1\n")
    (image / "tool").chmod(0o755)
    monkeypatch.chdir(here)
    app_id = local.run(Role("main", str(image), entrypoint="./tool", args=[macros.img_root]))
    local.wait(app_id)
    assert local.log(app_id) == [f"tool of the image in {image}, root {image}\n"]
    app_id = local.run(Role("main", "python:3.11-slim", entrypoint="pwd"))
    local.wait(app_id)
    assert local.log(app_id) == [f"{here}\n"]


def test_local_cwd(local_cwd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name local_cwd, replicas run in the current directory whatever the image."""
    monkeypatch.chdir(tmp_path)
    app_id = local_cwd.run(Role("main", "/", entrypoint="pwd"))
    local_cwd.wait(app_id)
    assert local_cwd.log(app_id) == [f"{tmp_path}\n"]


def test_prepend_cwd(local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """prepend_cwd finds programs of the working directory first."""
    (tmp_path / "ls").write_text("#!/bin/sh\necho mine\n")
    (tmp_path / "ls").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    app_id = local.run(Role("main", "", entrypoint="ls"), cfg={"prepend_cwd": True})
    local.wait(app_id)
    assert local.log(app_id) == ["mine\n"]


def test_log_dir(local, tmp_path: Path) -> None:
    """Logs go where log_dir says, and stay there when the job is deleted."""
    app_id = local.run(local.sh("echo out; echo err >&2"), cfg={"log_dir": str(tmp_path)})
    local.wait(app_id)
    folder = tmp_path / app_id / "main" / "0"
    assert (folder / "stdout.log").read_text() == "out\n" and (
        folder / "stderr.log"
    ).read_text() == "err\n"
    local.scheduler.delete(app_id)
    assert (folder / "stdout.log").exists()


def test_umask_and_limits_of_the_submitter(local, tmp_path: Path) -> None:
    """Replicas have the submitter's umask, limits and niceness, and default signal handling."""
    script = "umask; ulimit -S -n; trap; grep SigIgn /proc/self/status"
    before, soft_hard = os.umask(0o027), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (777, soft_hard[1]))
    try:
        app_id = local.run(local.sh(script))
    finally:
        os.umask(before)
        resource.setrlimit(resource.RLIMIT_NOFILE, soft_hard)
    local.wait(app_id)
    lines = local.log(app_id)
    assert lines[0].strip() in ("027", "0027") and lines[1] == "777\n"
    assert int(lines[-1].split()[1], 16) & 0x7FFFFFFF == 0


def test_workspace_is_copied_once(local, tmp_path: Path) -> None:
    """The workspace is copied for the submit, ignored files are not, replicas share it, delete
    removes it.
    """
    (tmp_path / "code.sh").write_text("echo from the workspace\n")
    role = Role(
        "main",
        "",
        entrypoint="sh",
        args=["code.sh"],
        num_replicas=2,
        workspace=Workspace({str(tmp_path): ""}),
    )
    app_id = local.run(role)
    assert local.wait(app_id).state is AppState.SUCCEEDED
    assert local.log(app_id, k=1) == ["from the workspace\n"]
    copies = local.home / "local" / "workspaces"
    assert len(list(copies.iterdir())) == 1
    local.scheduler.delete(app_id)
    assert list(copies.iterdir()) == []


def test_the_copy_of_another_app_is_left_alone(local, tmp_path: Path) -> None:
    """No failed submit or delete removes an image that is another job's copy."""
    (tmp_path / "code.sh").write_text("echo from the workspace\n")
    owner = local.run(Role("main", "", entrypoint="true", workspace=Workspace({str(tmp_path): ""})))
    local.wait(owner)
    (copy,) = (local.home / "local" / "workspaces").iterdir()
    with pytest.raises(SpecError, match="no such program"):
        local.run(Role("main", str(copy), entrypoint="no-such-program"))
    assert copy.is_dir()
    user = local.run(Role("main", str(copy), entrypoint="sh", args=["code.sh"]))
    assert local.wait(user).state is AppState.SUCCEEDED
    local.scheduler.delete(user)
    assert copy.is_dir()
    local.scheduler.delete(owner)
    assert not copy.exists()


def test_a_copy_that_fails_leaves_nothing(local, tmp_path: Path) -> None:
    """A copy that fails, as two projects have the same file, is removed again."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(name)
    both = Workspace({str(tmp_path / "one"): "", str(tmp_path / "two"): ""})
    with pytest.raises(SpecError, match=r"same\.py"):
        local.run(local.sh("true", workspace=both))
    assert os.listdir(local.home / "local" / "workspaces") == []


def test_prune_removes_copies_that_nobody_uses(local, tmp_path: Path) -> None:
    """A client killed between copy and submit leaves a copy, which prune removes after a day.

    A copy in use stays.
    """
    (tmp_path / "code").mkdir()
    app_id = local.run(
        local.sh("exec sleep 300", workspace=Workspace({str(tmp_path / "code"): ""}))
    )
    copies = local.home / "local" / "workspaces"
    used = os.listdir(copies)
    for name in ("left", "fresh"):
        (copies / name).mkdir()
    for name in (*used, "left"):
        os.utime(copies / name, (1.0, 1.0))
    assert local.scheduler.prune(older_than=0.0) == []
    assert sorted(os.listdir(copies)) == sorted([*used, "fresh"])
    (local.folder(app_id) / "record.json").write_text("{torn")
    os.utime(copies / "fresh", (1.0, 1.0))
    other = LocalScheduler("other")
    other.prune(older_than=0.0)
    assert sorted(os.listdir(copies)) == sorted([*used, "fresh"]), (
        "a damaged record may name any of them"
    )


def test_everything_is_private(local) -> None:
    """All folders are 0700 and all files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        app_id = local.run(local.sh("echo x; echo y >&2"))
    finally:
        os.umask(before)
    local.wait(app_id)
    found = list((local.home / "local").rglob("*"))
    for path in [local.home / "local", *found]:
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


def test_prune(local) -> None:
    """Ended jobs go by age and by size, oldest first, and what runs stays."""
    ended = [
        local.run(local.sh(f"head -c 200000 /dev/zero; exit {i}"), f"old-{i}", given=i == 0)
        for i in range(4)
    ]
    for place, app_id in enumerate(ended):
        local.wait(app_id)
        state = local.folder(app_id) / "states.jsonl"
        os.utime(state, (state.stat().st_atime, time.time() - 1000 * (4 - place)))
    running = local.run(local.sh("sleep 300"))
    assert list(local.scheduler.prune(older_than=3500)) == ["old-0"]
    assert local.scheduler.existed("old-0")
    assert list(local.scheduler.prune(max_size=500_000)) == ["old-1"]
    assert list(local.scheduler.prune()) == []
    assert list(local.scheduler.prune(older_than=0, now=time.time() + 10)) == ["old-2", "old-3"]
    assert [row.app_id for row in local.scheduler.list()] == [running]


def test_list_newest_first(local) -> None:
    """The list holds id, name, state and time, newest first."""
    first = local.run(local.sh("exit 0"))
    second = local.run(local.sh("exit 1"))
    local.wait(first), local.wait(second)
    rows = local.scheduler.list()
    assert [(row.app_id, row.state, row.name) for row in rows] == [
        (second, AppState.FAILED, "demo"),
        (first, AppState.SUCCEEDED, "demo"),
    ]
    assert all(row.created and datetime.fromtimestamp(row.created) for row in rows)


@pytest.mark.parametrize("seconds", [90 * 86400.0, 1e10])
def test_limits_of_months(local, seconds: float) -> None:
    """A limit that is longer than the kernel can sleep ends nothing, nor does a long notice."""
    app_id = local.run(
        local.app(local.sh("echo up; exec sleep 300", notice=Notice(seconds / 2)), timeout=seconds)
    )
    local.line(app_id, "up")
    local.scheduler.cancel([app_id])
    assert local.wait(app_id).state is AppState.CANCELLED
    assert local.status(app_id).msg == "cancelled on request"


def test_newer_state_is_unknown(local) -> None:
    """A state of a newer schema is UNKNOWN with that reason, and unknown fields are ignored."""
    app_id = local.run(local.sh("exit 0"))
    local.wait(app_id)
    path = local.folder(app_id) / "states.jsonl"
    state = layout.read_json(str(path)) | {"later": {"field": 1}}
    path.write_text(json.dumps(state))
    assert local.status(app_id).state is AppState.SUCCEEDED
    path.write_text(json.dumps(state | {"schema": 99}))
    alone = local.scheduler.describe([app_id])[app_id]
    assert alone.status.state is AppState.UNKNOWN and "newer version" in alone.status.msg
    assert [row.state for row in local.scheduler.list()] == [AppState.UNKNOWN]
    other = local.run(local.sh("exit 0"))
    local.wait(other)
    many = local.scheduler.describe([app_id, other, "nobody"])
    assert (
        many[app_id].status.state is AppState.UNKNOWN and "newer version" in many[app_id].status.msg
    )
    assert (many[other].status.state, many["nobody"]) == (AppState.SUCCEEDED, None)
    assert local.scheduler.prune(older_than=0.0) == [other]
    path.write_text(json.dumps(state))


REFUSED = {
    "roles[0].mounts[0]": {"mounts": [BindMount("/a", "/b")]},
    "roles[0].retry_policy": {"retry_policy": RetryPolicy.HOT_SPARE},
}


@pytest.mark.parametrize("field", REFUSED)
def test_refused_by_field(local, field: str) -> None:
    """What a local process cannot have is refused before a job is made, by the field's path."""
    app = local.app(local.sh("exit 0", max_retries=1, **REFUSED[field]))
    with Runner("t") as runner, pytest.raises(UnsupportedFeature) as caught:
        runner.dryrun(app, "local")
    assert caught.value.field == field and field in str(caught.value)


@pytest.mark.parametrize("option", [{"max_log_size": -1.0}, {"max_log_size": float("nan")}])
def test_options_out_of_range(local, option: dict[str, float]) -> None:
    """Options out of range are refused by name."""
    with pytest.raises(ConfigError, match=next(iter(option))):
        local.run(local.sh("exit 0"), cfg=option)


def test_bad_home(transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder open to others, somebody else's or no folder is a clear error."""
    app = AppDef("demo", [Role("main", "", entrypoint="true")])

    def submit() -> None:
        from transload.schedulers import Submission

        scheduler = LocalScheduler("tests")
        cfg = scheduler.options.read({})
        scheduler.submit(
            scheduler.convert(app, cfg), "a", Submission(app, app.digest(), "t", cfg.cfg())
        )

    transload_home.chmod(0o777)
    with pytest.raises(ConfigError, match="writable for others"):
        submit()
    transload_home.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(transload_home, 12345, -1)
        with pytest.raises(ConfigError, match="belongs to user 12345"):
            submit()
        os.chown(transload_home, 0, -1)
    (transload_home / "file").touch()
    monkeypatch.setenv("TRANSLOAD_HOME", str(transload_home / "file" / "below"))
    with pytest.raises(ConfigError, match="is not a folder"):
        submit()
    monkeypatch.setenv("TRANSLOAD_HOME", "/proc/transload")
    with pytest.raises((ConfigError, SubmitError)):
        submit()


def test_unreadable_state_is_not_absence(transload_home: Path) -> None:
    """A state folder that cannot be read says so, and is not taken for one without jobs."""
    (transload_home / "local").symlink_to("local")
    scheduler = LocalScheduler("tests")
    for ask in (
        scheduler.list,
        lambda: scheduler.describe(["x"])["x"],
        lambda: scheduler.log_read("x", LogQuery("main", 0, Stream.STDOUT)),
    ):
        with pytest.raises(SchedulerUnavailable, match="cannot read"):
            ask()
    scheduler.close()


def test_long_state_folder(transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder with a long path works."""
    import importlib.util

    deep = transload_home / ("d" * 120)
    deep.mkdir(0o700)
    monkeypatch.setenv("TRANSLOAD_HOME", str(deep))
    spec = importlib.util.spec_from_file_location(
        "local_conftest", Path(__file__).with_name("conftest.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wrapped = module.Local(deep)
    assert wrapped.wait(wrapped.run(wrapped.sh("exit 0"))).state is AppState.SUCCEEDED
    wrapped.scheduler.close()


def memory_of(pid: int) -> int:
    """Return the proportional memory of a process, in KiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))


def test_keeper_is_small(local) -> None:
    """The proportional memory of a job's keeper is at most 8 MiB."""
    apps = [local.run(local.sh("sleep 300")) for _ in range(3)]
    for app_id in apps:
        local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    assert max(memory_of(local.keeper(app_id)) for app_id in apps) < 8 * 1024


def test_an_idle_keeper_does_next_to_nothing(local) -> None:
    """The keeper of a job that writes nothing wakes up about once a second at most."""
    app_id = local.run(local.sh("exec sleep 300"))
    keeper = local.keeper(app_id)

    def wakings() -> int:
        text = Path(f"/proc/{keeper}/status").read_text()
        return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    time.sleep(15)  # until its looks are as seldom as they get
    before = wakings()
    time.sleep(10)  # the time over which its work is counted
    assert wakings() - before < 10


def test_keeper_imports_little_of_ours() -> None:
    """A keeper loads its own modules and two others of ours, and no heavy ones."""
    code = f"{import_keeper()}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.startswith("transload")}
    assert {name for name in ours if not name.startswith("transload.keeper")} == {
        "transload",
    }
    assert not loaded & {
        "dataclasses",
        "typing",
        "subprocess",
        "asyncio",
        "logging",
        "threading",
        "inspect",
    }


def test_watch_reports_a_dead_keeper(local) -> None:
    """A watch reports a job whose keeper was killed."""
    app_id = local.run(local.sh("sleep 300"))
    local.wait(app_id, lambda status: status.state is AppState.RUNNING)
    changes = Changes()
    watch = local.scheduler.watch(changes.add)
    watch.update([app_id])
    os.kill(local.keeper(app_id), 9)
    assert changes.wait(5) == {app_id}
    watch.close()
    assert local.status(app_id).state is AppState.FAILED


def test_watch(local) -> None:
    """A watch reports the jobs that have changed, and no others."""
    changes = Changes()
    watch = local.scheduler.watch(changes.add)
    try:
        fifo = local.home / "go"
        os.mkfifo(fifo)
        app_id = local.run(local.sh(f"read x < {fifo}"))
        other = local.run(local.sh("exit 0"))
        local.wait(app_id, lambda status: status.state is AppState.RUNNING)
        local.wait(other)
        watch.update([app_id])
        fifo.write_text("x\n")
        while not local.status(app_id).is_terminal():
            assert changes.wait(5) == {app_id}
    finally:
        watch.close()


def test_watch_of_more_jobs_than_descriptors(local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs beyond the few whose keepers are waited for are looked at."""
    apps = [local.run(local.sh("sleep 300")) for _ in range(3)]
    monkeypatch.setattr(watch_module, "_MOST_FDS", 1)
    changes = Changes()
    watch = local.scheduler.watch(changes.add)
    try:
        watch.update(apps)
        while changes.wait(0.5):
            pass
        for app_id in apps:
            os.kill(local.keeper(app_id), 9)
        found: set[str] = set()
        while found < set(apps):
            reported = changes.wait(10)
            assert reported
            found |= reported
    finally:
        watch.close()
    assert {local.status(app_id).state for app_id in apps} == {AppState.FAILED}
