"""Every job says who asked for it: the user, the machine, the folder and its commit."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECRET = "s3cr3t"
WHO = f"{getpass.getuser()} on {os.uname().nodename}"
IDENTITY = ["-c", "user.name=A", "-c", "user.email=a@example.org"]


def git(*words: str) -> str:
    """Run git in the working folder, and return what it says."""
    done = subprocess.run(["git", *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with one commit, which is the working folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "-q")
    Path("train.txt").write_text("one")
    git("add", "train.txt")
    git(*IDENTITY, "commit", "-q", "-m", "first")
    return folder


def submitted(invoke: Any) -> dict[str, Any]:
    """Submit a job, and return what `describe` says of it."""
    ended = invoke("run", "--json", "--wait", "--", "/bin/true")
    assert ended.code == 0, ended.err
    described: dict[str, Any] = invoke("describe", "--json", ended.json["handle"]).json
    return described


def asked_with(
    invoke: Any, eventually: Any, enough: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Submit until git has answered within its time, which it may not on a busy machine."""

    def once() -> dict[str, Any] | None:
        asked: dict[str, Any] = submitted(invoke)["asked"]
        return asked if enough(asked.get("git", {})) else None

    found: dict[str, Any] = eventually(once, 60, longest_pause=0.5)
    return found


def test_who_and_where(invoke: Any, plain_folder: str) -> None:
    """A job has the user, the machine and the folder. Text and JSON of two commands show them."""
    described = submitted(invoke)
    assert described["asked"] == {
        "user": getpass.getuser(),
        "machine": os.uname().nodename,
        "folder": os.getcwd(),
    }
    handle = described["handle"]
    assert invoke("status", "--json", handle).json["asked"] == described["asked"]
    for command in ("status", "describe"):
        assert f"asked by\t{WHO}, in {os.getcwd()}" in invoke(command, handle).lines


def test_commit(invoke: Any, eventually: Any, repository: Path) -> None:
    """A job of a folder below a repository has its commit, and whether files differ from it."""
    commit = git("rev-parse", "HEAD")
    folder = repository / "below"
    folder.mkdir()
    os.chdir(folder)
    asked = asked_with(invoke, eventually, lambda found: "dirty" in found)
    assert asked["git"] == {"commit": commit, "dirty": False}
    Path("../train.txt").write_text("two")
    Path("new.txt").touch()
    asked = asked_with(invoke, eventually, lambda found: bool(found.get("dirty")))
    assert asked["git"] == {"commit": commit, "dirty": True}
    (line,) = [
        line
        for line in invoke("describe", submitted(invoke)["handle"]).lines
        if line.startswith("code")
    ]
    assert line.startswith(f"code\t{commit}")
    listed = invoke("list", "--where", f"git.commit={commit}", "--where", "git.dirty=True")
    assert listed.code == 0 and listed.lines


@pytest.mark.parametrize(
    ("remote", "shown"),
    [
        (f"https://me:{SECRET}@example.org/a/b.git", "https://example.org/a/b.git"),
        (f"https://{SECRET}@example.org/a/b.git", "https://example.org/a/b.git"),
        (f"https://me:x/{SECRET}@example.org/b", "https://example.org/b"),
        (f"https://example.org/b?private_token={SECRET}", "https://example.org/b"),
        (f"https://example.org/b#{SECRET}", "https://example.org/b"),
        (f"ssh://me:{SECRET}@example.org:22/b", "ssh://example.org:22/b"),
        ("git@example.org:a/b.git", "git@example.org:a/b.git"),
        (f"git@example.org:a/b.git?token={SECRET}", "git@example.org:a/b.git"),
        (f"me:{SECRET}@example.org/a/b.git", "example.org/a/b.git"),
        (f"{SECRET}@example.org:a/b.git", "example.org:a/b.git"),
        (f"https://me:x#{SECRET}@example.org/b", None),
        (f"https://example.org/b?key=x@{SECRET}", None),
        (f"ext::helper --password {SECRET} example.org", None),
        ("/srv/b.git", "/srv/b.git"),
    ],
    ids=range(14),  # the folder of the test has its id in its name
)
def test_no_secret(
    invoke: Any,
    eventually: Any,
    repository: Path,
    transload_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    remote: str,
    shown: str | None,
) -> None:
    """A remote is shown without credentials. No variable of the environment is kept."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    git("remote", "add", "origin", remote)
    asked = asked_with(invoke, eventually, lambda found: "dirty" in found)  # the last answer
    assert asked["git"].get("remote") == shown
    records = list(transload_home.rglob("record.json"))
    assert records and not any(SECRET in path.read_text() for path in records)


def no_git(folder: Path) -> None:
    """Leave a PATH on which there is no git."""
    folder.joinpath("true").symlink_to("/bin/true")


def failing_git(folder: Path) -> None:
    """Put a git on the PATH that is none."""
    folder.joinpath("git").write_text("#!/bin/sh\necho garbage; exit 3\n")


@pytest.mark.parametrize("make", [no_git, failing_git])
def test_without_git(
    invoke: Any,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], None],
) -> None:
    """Without a git that answers, a job is submitted as ever, and nothing is said of a commit."""
    folder = tmp_path / "bin"
    folder.mkdir()
    make(folder)
    for path in folder.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert "git" not in submitted(invoke)["asked"]


def test_git_that_hangs(
    invoke: Any,
    eventually: Any,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Git is ended when its time is over, with what it has started, and the job is submitted."""
    fake = tmp_path / "git"
    fake.write_text(f"#!/bin/sh\nsleep 600 & echo $$ $! > {tmp_path}/pids\nwait\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    started = tmp_path / "pids"
    # on a busy machine it may be ended before it has written anything
    eventually(lambda: "git" not in submitted(invoke)["asked"] and started.exists(), 60)
    eventually(lambda: not any(map(is_running, started.read_text().split())))


def test_git_that_looks_at_its_files_for_long(
    invoke: Any,
    eventually: Any,
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit whose changes nobody knows does not read like a clean one."""
    real = shutil.which("git")
    fake = tmp_path / "git"
    fake.write_text(f'#!/bin/sh\ncase "$*" in *status*) sleep 600;; *) exec {real} "$@";; esac\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asked_with(invoke, eventually, lambda git: "commit" in git)
    newest = invoke("list", "-n", "1").lines[0].split()[0]
    assert "perhaps with uncommitted changes" in invoke("status", newest).out


def is_running(pid: str) -> bool:
    """Tell whether there is a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def broken_head() -> None:
    """Damage the name of the branch."""
    Path(".git/HEAD").write_bytes(b"\xff\x00garbage")


def lost_objects() -> None:
    """Remove all that was committed."""
    shutil.rmtree(".git/objects")


def elsewhere() -> None:
    """Have the folder name a repository that is not there."""
    shutil.rmtree(".git")
    Path(".git").write_text("gitdir: /nowhere\n")


def empty() -> None:
    """Leave a repository without a commit."""
    shutil.rmtree(".git")
    git("init", "-q")


@pytest.mark.parametrize("damage", [broken_head, lost_objects, elsewhere, empty])
def test_broken_repository(invoke: Any, repository: Path, damage: Callable[[], None]) -> None:
    """A job of a broken repository, or of one without a commit, is submitted as ever."""
    damage()
    asked = submitted(invoke)["asked"]
    assert asked["user"] == getpass.getuser()
    assert "git" not in asked


def test_switched_off(invoke: Any, repository: Path) -> None:
    """With ``[job] provenance = false`` nothing of it is kept, with a cancelled job neither."""
    Path("transload.toml").write_text("[job]\nprovenance = false\n")
    assert submitted(invoke)["asked"] == {}
    handle = invoke("run", "--detach", "--", "sleep", "600").lines[0]
    assert invoke("cancel", "--wait", handle).code == 0
    assert invoke("status", "--json", handle).json["status"]["msg"] == "cancelled on request"


@pytest.mark.parametrize("value", ['"no"', "0", "[]"])
def test_wrong_switch(invoke: Any, plain_folder: str, value: str) -> None:
    """A value that is neither true nor false is refused, and nothing is started."""
    Path("transload.toml").write_text(f"[job]\nprovenance = {value}\n")
    refused = invoke("run", "--", "true")
    assert refused.code == 2
    assert "job.provenance" in refused.err and "true or false" in refused.err
    Path("transload.toml").unlink()
    assert not invoke("list").lines


def test_cancelled_by(invoke: Any, plain_folder: str) -> None:
    """A cancelled job says who wanted that."""
    handle = invoke("run", "--detach", "--", "sleep", "600").lines[0]
    assert invoke("cancel", "--wait", handle).code == 0
    assert f"why\tcancelled on request of {WHO}" in invoke("status", handle).lines


def test_words_that_nobody_has(invoke: Any, plain_folder: str) -> None:
    """A filter that names an orchestrator which has asked for no job is refused."""
    submitted(invoke)
    assert invoke("list", "--where", f"user={getpass.getuser()}").lines
    assert not invoke("list", "--where", "user=nobody-else").lines
    refused = invoke("list", "--where", "airflow.dag=training")
    assert refused.code == 2
    assert "airflow.dag" in refused.err
    assert "did you mean 'machine'" in invoke("list", "--where", "machin=x").err
