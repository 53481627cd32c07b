"""The built-in components make their jobs, and rewrite nothing of the user's."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.components import build, dist, materialize, utils
from transload.components.programs import booth_main
from transload.components.structured_arg import StructuredJArgument, StructuredNameArgument
from transload.runtime.tracking import FsspecResultTracker
from transload.specs import BindMount, Resource, Role, SpecError, macros

VALUES = macros.Values("/root", "app-1", "0", "TRANSLOAD_RANK0_HOST")


def role_of(name: str, argv: list[str]) -> Role:
    """Return the only role of a built-in component."""
    app = materialize(name, argv)
    assert len(app.roles) == 1
    return app.roles[0]


def test_echo() -> None:
    """The simplest one."""
    role = role_of("utils.echo", ["--msg", "hi", "--num_replicas", "2"])
    assert (role.name, role.entrypoint, role.args, role.num_replicas) == ("echo", "echo", ["hi"], 2)
    assert role.image == transload.IMAGE
    assert role.resource == Resource(1, 0, 1024)


@pytest.mark.parametrize(
    "text", ["$$", "$app_id", "it's", "a  b", "*", "$(pwd)", "`id`", "\\", '"', "\n", "", "-n", "é"]
)
def test_sh_does_not_mangle(text: str) -> None:
    """Whatever the argument is, the command gets exactly it, after macros were replaced."""
    code = "import sys; sys.stdout.write(sys.argv[1])"
    role = VALUES.apply(role_of("utils.sh", ["--", sys.executable, "-c", code, text]))
    result = subprocess.run(
        [role.entrypoint, *role.args], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout == text


def test_sh_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Macros are replaced, options reach the role, the caller's dict is left alone."""
    monkeypatch.setenv("LOGLEVEL", "DEBUG")
    argv = [
        "--env",
        "A=1,B=x,y",
        "--mounts",
        "type=bind,src=/a,dst=/b,readonly",
        "--max_retries",
        "2",
        "-h",
        "cpu.small",
    ]
    role = role_of("utils.sh", [*argv, "echo", "${app_id}"])
    assert role.env == {"A": "1", "B": "x,y", "LOGLEVEL": "DEBUG"}
    assert role.mounts == [BindMount("/a", "/b", True)]
    assert (role.max_retries, role.resource) == (2, Resource(1, 0, 2048))
    assert VALUES.apply(role).args == ["-c", "echo 'app-1'"]
    env = {"A": "1"}
    utils.sh("true", env=env)
    assert env == {"A": "1"}


@pytest.mark.parametrize(
    ("argv", "args", "env"),
    [
        (
            ["-m", "my.main", "--", "--lr", "1"],
            ["-m", "my.main", "--lr", "1"],
            {"HYDRA_MAIN_MODULE": "my.main"},
        ),
        (["-c", "print(1)"], ["-c", "print(1)"], {}),
        (["--script", "a.py", "x"], ["a.py", "x"], {}),
    ],
)
def test_python(argv: list[str], args: list[str], env: dict[str, str]) -> None:
    """A module, a command or a script."""
    role = role_of("utils.python", argv)
    assert (role.entrypoint, role.args, role.env) == ("python", args, env)
    assert materialize("utils.python", argv).name == "transload_utils_python"


@pytest.mark.parametrize("argv", [[], ["-m", "a", "-c", "b"], ["-m", ""], ["--script", ""]])
def test_python_needs_one_program(argv: list[str]) -> None:
    """None, two or an empty program is refused."""
    with pytest.raises(SpecError, match=r"utils\.python"):
        materialize("utils.python", argv)


def test_binary() -> None:
    """Any program with its arguments."""
    role = role_of("utils.binary", ["--entrypoint", "/bin/ls", "--", "-l"])
    assert (role.name, role.image, role.entrypoint, role.args) == (
        "binary",
        "<NONE>",
        "/bin/ls",
        ["-l"],
    )


@pytest.mark.parametrize(
    ("j", "expected"),
    [
        ("2", (1, 1, 2, "1")),
        ("2x3", (2, 2, 3, "2")),
        ("2:4x1", (2, 4, 1, "2:4")),
        ("1:1x1", (1, 1, 1, "1:1")),
    ],
)
def test_parse_nnodes(j: str, expected: tuple[int, int, int, str]) -> None:
    """All forms of -j."""
    assert dist.parse_nnodes(j) == expected


@pytest.mark.parametrize(
    "j", ["", "x", "0x1", "1x0", "4:2x1", "1x2x3", "-1x2", "1.5x2", "٣x1", "2x", "a"]
)
def test_parse_nnodes_refuses(j: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(SpecError, match=r"j='"):
        materialize("dist.ddp", ["--script", "a.py", f"-j={j}"])


def test_ddp_single_host() -> None:
    """On one host torchrun chooses a free port."""
    role = role_of(
        "dist.ddp",
        [
            "--script",
            "jobs/my train.py",
            "-j",
            "1x2",
            "--name",
            "tuning/first",
            "--",
            "--lr",
            "a b",
        ],
    )
    assert (role.name, role.entrypoint, role.args[0], role.num_replicas) == (
        "my_train",
        "bash",
        "-c",
        1,
    )
    assert "--rdzv_endpoint localhost:$port " in role.args[1] and "port=0\n" in role.args[1]
    assert role.args[2:] == ["torchrun", "jobs/my train.py", "--lr", "a b"]
    assert role.env["TRANSLOAD_TRACKING_EXPERIMENT_NAME"] == "tuning"
    assert role.port_map == {}


@pytest.fixture
def torchrun(tmp_path: Path) -> Callable[..., list[str]]:
    """Return the words that a torchrun gets, by ``torchrun(args, env)``, from the shell."""
    program = tmp_path / "torchrun"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    program.chmod(0o755)

    def run(args: list[str], env: dict[str, str]) -> list[str]:
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", **env}
        done = subprocess.run(
            ["/bin/bash", *args], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    return run


def test_ddp_rendezvous_is_expanded_by_the_shell(torchrun: Callable[..., list[str]]) -> None:
    """With several hosts, the shell puts in replica 0's host, or localhost, and nothing else."""
    argv = ["-m", "my.train", "-j", "2:3x4", "--rdzv_port", "29500", "--debug", "--", "$HOME", "$$"]
    app = materialize("dist.ddp", argv)
    role = VALUES.apply(app.roles[0])
    assert (role.min_replicas, role.num_replicas, app.name) == (2, 3, "train")
    assert role.env["NCCL_DESYNC_DEBUG"] == "1"
    assert role.port_map == {"c10d": 29500}
    for env, host in (({"TRANSLOAD_RANK0_HOST": "node-7"}, "node-7"), ({}, "localhost")):
        words = torchrun(role.args, env)
        assert words[words.index("--rdzv_endpoint") + 1] == f"{host}:29500"
        assert words[words.index("--rdzv_id") + 1] == "app-1"
        assert words[words.index("--role") + 1] == ""
        assert words[-4:] == ["-m", "my.train", "$HOME", "$$"]


def test_ddp_chooses_a_port_for_each_job(torchrun: Callable[..., list[str]]) -> None:
    """The port follows from the job's id alone, so replicas agree and two jobs of a host do not
    meet.
    """
    role = role_of("dist.ddp", ["-m", "my.train", "-j", "2x1"])
    assert role.port_map == {}

    def port(app_id: str, replica: int) -> int:
        values = macros.Values("", app_id, str(replica), "TRANSLOAD_RANK0_HOST")
        words = torchrun(values.apply(role).args, {})
        assert words[words.index("--rdzv_conf") + 1] == f"is_host={int(replica == 0)}"
        return int(words[words.index("--rdzv_endpoint") + 1].partition(":")[2])

    found = {port(f"train-{number}", replica) for number in range(5) for replica in range(2)}
    assert len(found) == 5
    assert found <= set(range(20000, 30000))


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_ddp_refuses_a_port_that_there_is_not(port: str) -> None:
    """A port is 1 to 65535, or 0 for one that is chosen."""
    with pytest.raises(SpecError, match=f"rdzv_port={port}: must be 1 to 65535"):
        materialize("dist.ddp", ["-m", "a", "-j", "2x1", f"--rdzv_port={port}"])


def test_ddp_without_torchrun_says_what_is_missing(tmp_path: Path) -> None:
    """The job ends as for any missing program, with what to do."""
    args = VALUES.apply(role_of("dist.ddp", ["--script", "a.py"])).args
    done = subprocess.run(
        ["/bin/bash", *args],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127
    assert done.stderr == "torchrun is not on PATH: install torch where the job runs\n"


def test_ddp_static_backend_hands_out_ranks() -> None:
    """Only the static rendezvous is told the node's rank."""
    static = role_of(
        "dist.ddp", ["--script", "a.py", "-j", "2x1", "--rdzv_backend", "static"]
    ).args[1]
    assert "--node_rank ${replica_id} " in static and static.endswith('"$@"')
    assert "--node_rank" not in role_of("dist.ddp", ["--script", "a.py"]).args[1]


@pytest.mark.parametrize("argv", [[], ["--script", "a.py", "-m", "b"], ["--script", ""]])
def test_ddp_needs_one_program(argv: list[str]) -> None:
    """None, two or an empty program is refused."""
    with pytest.raises(SpecError, match="exactly one"):
        materialize("dist.ddp", argv)


def test_spmd() -> None:
    """The processes follow from the host's GPUs, or are given."""
    assert (
        "--nproc_per_node 8"
        in role_of("dist.spmd", ["-h", "gpu.xlarge", "-j", "2", "-m", "a.b"]).args[1]
    )
    with pytest.warns(UserWarning, match="3 processes on each node, but gpu.small has 1 GPUs"):
        command = role_of("dist.spmd", ["-h", "gpu.small", "-j", "2x3", "-m", "a.b"]).args[1]
    assert "--nproc_per_node 3" in command
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert role_of("dist.spmd", ["-h", "gpu.small", "-j", "1", "-m", "a.b"]).resource.gpu == 1
        for j, processes in (("2", 1), ("2x3", 3)):  # no host is named: no GPU is asked for
            role = role_of("dist.spmd", ["-j", j, "-m", "a.b"])
            assert (role.resource.gpu, role.num_replicas) == (0, 2)
            assert f"--nproc_per_node {processes}" in role.args[1]
    for argv, says in (
        (["-h", "cpu.small", "-j", "2"], "no GPUs"),
        (["-j", "1:2x1"], "must be"),
        (["-h", "x"], "'x'"),
    ):
        with pytest.raises(SpecError, match=says):
            materialize("dist.spmd", ["-m", "a.b", *argv])


@pytest.mark.parametrize(
    ("name", "kwargs", "expected"),
    [
        ("foo/bar", {"script": "bar/baz.py"}, ("foo", "bar")),
        ("foo/", {"script": "bar/baz.py"}, ("foo", "baz")),
        ("/bar", {"script": "bar/baz.py"}, ("default-experiment", "bar")),
        ("foobar", {"m": "foo.bar"}, ("default-experiment", "foobar")),
        ("foo/", {"m": "foo.bar.baz"}, ("foo", "baz")),
        ("/", {"m": "a", "default_experiment_name": "e"}, ("e", "a")),
        ("a/b/c", {"m": "x"}, ("a", "b/c")),
    ],
)
def test_structured_name(name: str, kwargs: dict[str, Any], expected: tuple[str, str]) -> None:
    """What is left out of the name is filled in."""
    parsed = StructuredNameArgument.parse_from(name, **kwargs)
    assert (parsed.experiment_name, parsed.run_name) == expected
    assert str(parsed) == "/".join(expected)


def test_structured_j() -> None:
    """The text form is the one that was read."""
    assert str(StructuredJArgument.parse_from("gpu.medium", "3")) == "3x2"
    assert StructuredJArgument(2, 4) == StructuredJArgument(2, 4)


def run_role(role: Role, **env: str) -> subprocess.CompletedProcess[str]:
    """Run what a role would run, with this interpreter for ``python``."""
    assert role.entrypoint == "python"
    command = [sys.executable, *role.args]
    return subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_booth_reports(tmp_path: Path) -> None:
    """The value is reported to the base that was given, else to the job's own."""
    given = run_role(
        role_of("utils.booth", ["--x1", "1", "--x2", "3", "--tracker_base", str(tmp_path / "a")])
    )
    assert given.returncode == 0, given.stderr
    assert FsspecResultTracker(tmp_path / "a")[0] == {"booth_eval": 0.0}
    role = materialize("utils.booth", ["--x1", "0", "--x2", "0", "--trial_idx", "4"]).roles[0]
    own = run_role(role, TRANSLOAD_TRACKER_BASE=str(tmp_path / "b"))
    assert own.returncode == 0, own.stderr
    assert FsspecResultTracker(tmp_path / "b")[4] == {"booth_eval": 74.0}


def test_booth_default_base_is_one() -> None:
    """The component's default and the program's are the same text."""
    role = build("utils.booth", {"x1": 1, "x2": 2}).roles[0]
    assert role.args[-1] == booth_main.DEFAULT_BASE
    assert role.args[3:6] == ["1.0", "--x2", "2.0"]


def test_booth_says_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A base that cannot be written is one line and status 1."""
    file = tmp_path / "file"
    file.write_text("")
    assert booth_main.main(["--x1", "1", "--x2", "3", "--tracker_base", str(file / "below")]) == 1
    assert capsys.readouterr().err.startswith("booth: cannot report to")
