"""With a state folder on a network disk local jobs are kept on this machine, if safe."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.errors import ConfigError
from transload.schedulers.folder import home
from transload.schedulers.local import LocalScheduler
from transload.specs import AppState


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a home directory that counts as a network one, with a tmpfs standing in."""
    folder = tmp_path / "home"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("not run: no file system can be mounted here")
    monkeypatch.setattr(home, "_NETWORK", frozenset({"tmpfs"}))
    monkeypatch.setattr(home, "FALLBACK", str(tmp_path / "var-tmp-{}"))
    monkeypatch.delenv("TRANSLOAD_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def fallback(remote: Path) -> Iterator[Path]:
    """Where apps are kept then."""
    folder = Path(home.FALLBACK.format(os.geteuid()))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_apps_are_kept_on_this_machine(
    local, remote: Path, fallback: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first submit says where jobs are kept. All works there, and later ones are silent."""
    other = type(local)(fallback)
    with caplog.at_level(logging.WARNING, "transload.local"):
        assert other.wait(other.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
        (said,) = caplog.messages
        assert str(remote) in said and str(fallback / "local") in said and "tmpfs" in said
        assert other.wait(other.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
        again = LocalScheduler("tests")
        assert {row.app_id for row in again.list()} == {"app-1", "app-2"}
        assert len(caplog.messages) == 1
    assert fallback.stat().st_mode & 0o777 == 0o700
    assert ("jobs", True, f"{said}; 2 known") in again.diagnose()
    assert not (remote / ".local").exists()
    other.scheduler.close()


@pytest.mark.parametrize("how", ["link", "open", "file", "of another user"])
def test_unsafe_folder_of_this_machine_is_refused(
    local, fallback: Path, tmp_path: Path, how: str
) -> None:
    """What somebody put there first is neither followed nor used, to submit or to look."""
    if how == "link":
        (tmp_path / "trap").mkdir(mode=0o700)
        fallback.symlink_to(tmp_path / "trap")
    elif how == "file":
        fallback.touch(mode=0o600)
    else:
        fallback.mkdir(mode=0o700)
        if how == "open":
            fallback.chmod(0o750)
        elif os.geteuid() == 0:
            os.chown(fallback, 65534, 65534)
        else:
            pytest.skip("not run: only root can make another user's folder")
    with pytest.raises(ConfigError, match=str(fallback)):
        LocalScheduler("tests")
    assert how != "link" or os.listdir(tmp_path / "trap") == []


def test_trap_set_after_the_look(local, fallback: Path, tmp_path: Path) -> None:
    """The check is made again when the folder is first needed."""
    other = type(local)(fallback)
    (tmp_path / "trap").mkdir(mode=0o700)
    fallback.symlink_to(tmp_path / "trap")
    with pytest.raises(ConfigError, match="is not a folder"):
        other.run(local.sh("exit 0"))
    assert os.listdir(tmp_path / "trap") == []


def test_what_was_asked_for_is_not_replaced(
    local, remote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TRANSLOAD_HOME on a network disk is refused, unless TRANSLOAD_ALLOW_NETWORK_HOME=1."""
    monkeypatch.setenv("TRANSLOAD_HOME", str(remote / "mine"))
    other = type(local)(remote / "mine")
    with pytest.raises(ConfigError, match="network file system") as caught:
        other.run(local.sh("exit 0"))
    assert "\n" not in str(caught.value)
    assert [well for what, well, _ in other.scheduler.diagnose() if what == "jobs"] == [False]
    monkeypatch.setenv("TRANSLOAD_ALLOW_NETWORK_HOME", "1")
    assert other.wait(other.run(local.sh("exit 0"))).state is AppState.SUCCEEDED
    other.scheduler.close()


def test_this_machine_has_no_network_root() -> None:
    """The kernel's list of mounts is read for what is there, and for what is not there yet."""
    assert home.network_file_system("/") is None
    assert home.network_file_system("/no/such/folder") is None
    assert home.network_file_system("/proc/self/fd") is None
