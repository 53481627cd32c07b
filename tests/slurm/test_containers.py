"""Images on the nodes are tested for real where they are here, and by command lines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, UnsupportedFeature
from transload.runner import Runner
from transload.schedulers.api import Stream
from transload.specs import AppDef, AppState, BindMount, Notice, Resource, Role, Workspace
from transload_slurm import convert
from transload_slurm.options import SlurmOptions

Eventually = Callable[..., Any]


def _plan(role: Role, kind: str) -> dict[str, Any]:
    request = convert.convert(AppDef("app", [role]), SlurmOptions.read({"container": kind}))
    found: dict[str, Any] = convert.plan(request, "app-1", {}, ["/shared/app-1"])["roles"][0]
    return found


def test_command_lines() -> None:
    """Each kind's command has the job's folder and the mounts at the same places, and GPUs."""
    mounts = [BindMount("/data", "/in", read_only=True), BindMount("/out", "/out")]
    role = Role(
        "main", "/images/torch.sif", entrypoint="true", mounts=mounts, resource=Resource(1, 2, 100)
    )
    assert _plan(role, "apptainer")["container"] == [
        *(
            "apptainer",
            "exec",
            "--bind=/shared/app-1:/shared/app-1",
            "--bind=/data:/in:ro",
            "--bind=/out:/out",
        ),
        *("--pwd=/", "--nv", "/images/torch.sif"),
    ]
    pyxis = _plan(role, "pyxis")
    assert pyxis["container"] == []
    assert pyxis["srun"][-3:] == [
        "--container-image=/images/torch.sif",
        "--container-mounts=/shared/app-1:/shared/app-1,/data:/in:ro,/out:/out",
        "--container-workdir=/",
    ]
    plain = Role("main", "/images/torch", entrypoint="true")
    assert _plan(plain, "charliecloud")["container"] == [
        *("ch-run", "--bind=/shared/app-1:/shared/app-1", "--cd=/", "/images/torch", "--"),
    ]
    assert _plan(Role("main", "", entrypoint="true"), "apptainer")["container"] == []


_TRIED = ("apptainer", "charliecloud")
_READ_ONLY = BindMount("/data", "/in", read_only=True)


@pytest.mark.parametrize(
    ("image", "mount", "kind", "match"),
    [
        ("/tmp", _READ_ONLY, "none", r"roles\[0\].mounts\[0\]"),
        ("", _READ_ONLY, "apptainer", "the role has no image"),
        ("/i", _READ_ONLY, "charliecloud", "read_only"),
        ("/i", BindMount("/a:b", "/c"), "pyxis", "/a:b"),
    ],
)
def test_mounts_that_cannot_be(image: str, mount: BindMount, kind: str, match: str) -> None:
    """Mounts need a container, and charliecloud knows none that is read only."""
    with pytest.raises(UnsupportedFeature, match=match):
        _plan(Role("main", image, entrypoint="true", mounts=[mount]), kind)


def test_kinds_have_names() -> None:
    """Another kind of container is refused, with those that there are."""
    with pytest.raises(ConfigError, match="container='docker': must be one of: none, apptainer"):
        _plan(Role("main", "/i", entrypoint="true"), "docker")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Make a folder that is an image, with busybox and nothing else."""
    root = tmp_path / "image"
    for folder in ("bin", "dev", "proc", "sys", "tmp", "etc", "usr", "root", "home", "mnt"):
        (root / folder).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "cat", "ls", "echo", "sleep", "test", "pwd", "mkdir"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "only-here").write_text("in the image\n")
    return root


@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=pytest.mark.engine(name)) for name in _TRIED]
)
def test_containers(
    runner: Runner, image: Path, tmp_path: Path, eventually: Eventually, kind: str
) -> None:
    """A program runs in its image with its files, the workspace, a mount and results.

    Exit codes and signals come out.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("mounted\n")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "own").write_text("workspace\n")
    body = '{"schema": 1, "key": "final", "results": {"loss": 0.5}}'
    report = f"mkdir -p $TRANSLOAD_TRACKER_BASE; echo '{body}' > $TRANSLOAD_TRACKER_BASE/final.json"
    command = f"cat /only-here /data/file own; {report}; test -e /usr/bin/sbatch && exit 9; exit 4"
    role = Role(
        "main",
        str(image),
        entrypoint="sh",
        args=["-c", command],
        mounts=[BindMount(str(tmp_path / "data"), "/data")],
        workspace=Workspace({str(tmp_path / "ws"): ""}),
    )
    cfg = {"container": kind}
    handle = runner.run(AppDef("boxed", [role]), "slurm", cfg)
    status = runner.wait(handle, timeout=60)
    assert status is not None
    said = list(runner.log_lines(handle, "main", streams=Stream.STDOUT))
    assert said == ["in the image\n", "mounted\n", "workspace\n"], status
    assert [replica.exit_code for replica in status.roles[0].replicas] == [4]
    assert runner.results(handle).value("loss") == 0.5
    role.num_replicas = 2
    role.args = ["-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done"]
    handle = runner.run(AppDef("boxed", [role]), "slurm", cfg)

    def out(k: int) -> list[str]:
        return list(runner.log_lines(handle, "main", k, streams=Stream.STDOUT))

    eventually(lambda: all(out(k) == ["up\n"] for k in range(2)), timeout=30)
    runner.cancel(handle)
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is AppState.CANCELLED
    for k in range(2):
        assert out(k) == ["up\n", "bye\n"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(name, marks=pytest.mark.engine(name)) for name in _TRIED]
)
def test_a_container_without_scontrol_goes_on(runner: Runner, image: Path, kind: str) -> None:
    """The keeper outside gives notice into the container, and requeues the job.

    The program finds its checkpoint.
    """
    command = (
        "test -e /usr/bin/scontrol && exit 9; cd $TRANSLOAD_CHECKPOINT_DIR || exit 8; "
        'test -e saved && { echo "went on"; exit 0; }; '
        "trap 'echo x > saved; exit 75' USR1; echo began; while :; do sleep 0.1; done"
    )
    role = Role(
        "main",
        str(image),
        entrypoint="sh",
        args=["-c", command],
        notice=Notice(4, "USR1"),
        checkpoints=True,
    )
    app = AppDef("boxed", [role], segment=8.0)
    handle = runner.run(app, "slurm", {"container": kind})
    status = runner.wait(handle, timeout=110)
    assert status is not None and status.state is AppState.SUCCEEDED, status
    assert list(runner.log_lines(handle, "main")) == ["began\n", "went on\n"]
    assert [each.cause for each in status.roles[0].replicas[0].earlier] == ["segment"]
