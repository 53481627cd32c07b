"""A cluster behind ssh with a wrong name, or that lets nobody in, is one error line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SchedulerUnavailable, SubmitError
from transload.runner import get_runner
from transload.specs import AppDef, AppState, UnknownSchedulerException
from transload_slurm.connection import Connection

ShellApp = Callable[..., AppDef]


@pytest.fixture
def settings(login: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Set the name of the cluster at the end of an ssh, by ``settings("hpc")``."""
    file = tmp_path / "transload.toml"
    monkeypatch.setenv("TRANSLOAD_CONFIG", str(file))
    return lambda name, host="login": file.write_text(
        f'[schedulers.{name}]\nkind = "slurm"\nssh = "{host}"\n'
    )


def test_renamed_while_an_app_runs(settings: Any, shell_app: ShellApp, tmp_path: Path) -> None:
    """The handle of a renamed cluster is an error that says so, never a job that is gone.

    What an orchestrator has kept goes on, and so does its id.
    """
    settings("hpc")
    with get_runner("tests") as runner:
        handle = runner.run(
            shell_app(f"until test -e {tmp_path}/go; do sleep 0.2; done; exit 3"), "hpc"
        )
        kept = runner.cluster("hpc")
    settings("prod")
    with get_runner("tests") as runner:
        for ask in (runner.status, runner.cancel, runner.results):
            with pytest.raises(
                UnknownSchedulerException, match=r"'hpc' is not installed or configured here.*prod"
            ):
                ask(handle)
        found = runner.status(handle.replace("hpc", "prod"))  # the same folder of apps
        assert found is not None and not found.is_terminal()
    (tmp_path / "go").touch()
    with get_runner("tests", clusters=[kept]) as runner:
        status = runner.wait(handle, timeout=60)
        assert status is not None and status.state is AppState.FAILED
        runner.delete(handle)


def test_unknown_cluster(settings: Any, shell_app: ShellApp) -> None:
    """A name that no table has gets an error with the names that there are."""
    settings("hpc")
    with (
        get_runner("tests") as runner,
        pytest.raises(UnknownSchedulerException, match="'hcp' is not .* did you mean 'hpc'"),
    ):
        runner.run(shell_app("true"), "hcp")


@pytest.mark.parametrize(
    ("host", "match"),
    [("nowhere.invalid", "Could not resolve hostname"), ("closed", "Connection refused")],
)
def test_unreachable_host(
    settings: Any, login: Any, shell_app: ShellApp, host: str, match: str
) -> None:
    """A submit is refused as a passing trouble, and a state is unknown. Both say what ssh said."""
    with open(login.base / "ssh_config", "a") as file:
        file.write(f"Host closed\n    HostName {login.address}\n    Port 1\n")
    settings("hpc", host)
    with get_runner("tests") as runner:
        with pytest.raises(SubmitError, match=match) as caught:
            runner.run(shell_app("true"), "hpc")
        assert caught.value.transient and "\n" not in str(caught.value)
        assert str(caught.value).endswith(f"without a question: ssh {host} true")
        with pytest.raises(SchedulerUnavailable, match=match):
            runner.list("hpc")


def test_a_host_that_is_an_option(settings: Any, shell_app: ShellApp) -> None:
    """Nothing is called."""
    settings("hpc", "-oProxyCommand=touch /tmp/x")
    with get_runner("tests") as runner, pytest.raises(ConfigError, match="must not begin with"):
        runner.run(shell_app("true"), "hpc")


def test_certificate_that_has_run_out(login: Any) -> None:
    """A good certificate lets one in. One that has run out is named by the message."""
    keys, ca = login.base / "authorized_keys", login.base / "ca"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ca)], check=True)
    kept = keys.read_text()
    certificate = login.base / "user_key-cert.pub"
    try:
        keys.write_text(f"cert-authority {ca.with_suffix('.pub').read_text()}")
        for valid, good in (("-1h:+1h", True), ("-2h:-1h", False)):
            login.hang_up()
            signed = [
                "ssh-keygen",
                "-q",
                "-s",
                str(ca),
                "-I",
                "me",
                "-n",
                "root",
                "-V",
                valid,
                f"{login.base}/user_key",
            ]
            subprocess.run(signed, check=True)
            connection = Connection("login", "~/.transload/slurm", "python3")
            if good:
                assert connection.call("list") == []
            else:
                with pytest.raises(
                    SchedulerUnavailable, match="no key, .* lets you in.*ssh-copy-id login"
                ):
                    connection.call("list")
            connection.close()
    finally:
        keys.write_text(kept)
        certificate.unlink(missing_ok=True)
