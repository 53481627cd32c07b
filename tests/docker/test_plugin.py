"""The plugin has two names, and imports nothing heavy until a job is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from transload.errors import ConfigError, SchedulerUnavailable
from transload.plugins import Plugins
from transload.runner import get_runner
from transload.specs import AppDef, Role
from transload_docker.options import DockerConnection
from transload_docker.scheduler import DockerScheduler, create_docker


def _at(host: str) -> DockerScheduler:
    scheduler = create_docker("x")
    scheduler.connect(DockerConnection(docker_host=host))
    return scheduler


def test_two_names() -> None:
    """``docker`` and TorchX's ``local_docker`` are registered, through the entry point."""
    plugins = Plugins([("docker", "transload_docker.plugin", "transload-docker", "0")])
    assert {"docker", "local_docker"} <= set(plugins.names("schedulers"))
    for name in ("docker", "local_docker"):
        assert plugins.get("schedulers", name)("session").name == name
    assert plugins.get("schedulers", "docker")("session", name="gpu-box").name == "gpu-box"


def test_torchx_name_is_no_kind_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of kind ``local_docker`` cannot have another name, but one of ``docker`` can."""
    monkeypatch.chdir(tmp_path)
    Path("transload.toml").write_text('[schedulers.x]\nkind = "local_docker"\n')
    app = AppDef("a", [Role("main", "i", entrypoint="true")])
    with get_runner() as runner, pytest.raises(ConfigError, match="has no other name"):
        runner.run(app, "x")


def test_dry_run_imports_no_client() -> None:
    """Neither the plugin, nor a scheduler, nor a conversion imports the client."""
    code = (
        "import sys, transload_docker.plugin\n"
        "from transload_docker.scheduler import create_docker\n"
        "from transload.specs import AppDef, Role\n"
        "s = create_docker('x')\n"
        "s.connect(s.connection(docker_host='tcp://nowhere.invalid:1'))\n"
        "s.format_request(s.convert(AppDef('a', [Role('r', 'i', entrypoint='e')]), "
        "s.options.read({})))\n"
        "print(s.reach, *sorted({'docker', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("network", "")


def test_reach_follows_the_address() -> None:
    """A socket is of this host, everything else is on the network."""
    assert _at("unix:///run/x.sock").reach == "host"
    assert _at("tcp://10.0.0.1:2376").reach == "network"
    assert _at("tcp://10.0.0.1:2376").results_folder("a", {}) is None


def test_client_that_is_missing(monkeypatch: pytest.MonkeyPatch, transload_home: Path) -> None:
    """Without the engine's Python client doctor says so in its rows, and everything else in one
    line.
    """
    scheduler = _at("tcp://127.0.0.1:1")
    for module in ("docker", "docker.errors"):
        monkeypatch.setitem(sys.modules, module, None)
    client, folder = scheduler.diagnose()
    assert client[:2] == ("client", False) and "cannot be imported" in client[2]
    assert folder[:2] == ("state folder", True)
    with pytest.raises(SchedulerUnavailable, match="client of docker cannot be imported"):
        scheduler.list()
