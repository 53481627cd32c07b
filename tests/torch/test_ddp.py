"""`dist.ddp` trains a model with a real torch, torchrun, gloo and several processes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import transload
from transload.errors import AppFailed
from transload.runner import get_runner
from transload.specs import AppDef, Role, macros

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp" / "train.py"


@pytest.mark.timeout(300)  # beyond its own wait, whose failure shows what was printed
@pytest.mark.parametrize(
    ("shape", "world"), [pytest.param("1x2", 2, marks=pytest.mark.slow), ("2x1", 2)]
)
def test_ddp_trains_the_digits(
    transload_home: Path, tmp_path: Path, shape: str, world: int
) -> None:
    """Processes in one replica, or replicas of one process, meet, learn and report."""
    own = ["--env", f"TMPDIR={tmp_path}"]  # torchrun leaves a folder of logs there
    arguments = ["--script", str(SCRIPT), "-j", shape, *own, "--", "--epochs", "8"]
    with get_runner() as runner:
        handle = runner.run_component("dist.ddp", arguments, "local")
        status = runner.wait(handle, timeout=240)
        lines = [
            line
            for replica in range(int(shape[0]))
            for line in runner.log_lines(handle, "train", replica)
        ]
        if status is None or str(status.state) != "SUCCEEDED":
            pytest.fail(f"{status}\n{''.join(lines)}")
        results = runner.results(handle)
    assert results.value("accuracy") > 0.9
    assert results.value("world") == world
    assert any("epoch   8/8" in line for line in lines)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("own", ["", "@record\n"], ids=["plain", "record"])
def test_the_first_exception_is_the_error_of_the_app(
    transload_home: Path, tmp_path: Path, own: str
) -> None:
    """The first exception's type, message, frames, replica and host are the job's error."""
    script = tmp_path / "fails.py"
    source = (
        "import os, time\nfrom torch.distributed.elastic.multiprocessing.errors import record\n"
    )
    source += f"{own}def train():\n    if os.environ['RANK'] == '1':\n        raise ValueError('no such batch')\n"
    script.write_text(f"{source}    time.sleep(60)\ntrain()\n", encoding="utf-8")
    app = transload.run(
        "dist.ddp", ["--script", str(script), "-j", "1x2", "--env", f"TMPDIR={tmp_path}"]
    )
    with pytest.raises(AppFailed) as caught:
        app.check(timeout=240)
    said, _, lines = str(caught.value).partition("last lines of fails/0")
    assert "fails/0 exit code 1 on " in said
    assert "ValueError: no such batch" in said
    assert "fails.py" in said and "in train" in said
    assert "exitcode" in lines  # torchrun's own report


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 killed by SIGKILL"),
        pytest.param("os._exit(7)", "rank 1 exit code 7", marks=pytest.mark.slow),
    ],
    ids=["killed", "exit code"],
)
def test_a_process_that_says_nothing_is_named(
    transload_home: Path, tmp_path: Path, end: str, reason: str
) -> None:
    """What one of the processes ended with is the reason.

    That the other process lost it, and says so, is no reason.
    """
    script = tmp_path / "boom.py"
    source = "import os, signal, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    source += f"if os.environ['RANK'] == '1':\n    {end}\ndist.barrier()\n"
    script.write_text(source, encoding="utf-8")
    app = transload.run(
        "dist.ddp", ["--script", str(script), "-j", "1x2", "--env", f"TMPDIR={tmp_path}"]
    )
    status = app.wait(timeout=240)
    assert status is not None
    assert f"role 'boom', replica 0 failed (exit code 1): {reason}" in status.msg


@pytest.mark.timeout(300)
def test_torchrun_as_a_command(transload_home: Path, tmp_path: Path) -> None:
    """Without `dist.ddp` the error is the killed process, too, and not the one that lost it."""
    script = tmp_path / "train.py"
    source = "import os, signal, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    source += "if os.environ['RANK'] == '0':\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    script.write_text(f"{source}dist.barrier()\n", encoding="utf-8")
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    where = ["--nnodes", "2", "--node_rank", macros.replica_id, "--master_addr", "localhost"]
    role = Role(
        "train",
        "",
        entrypoint="torchrun",
        args=[*where, "--master_port", str(port), "--tee", "3", str(script)],
        env={"TMPDIR": str(tmp_path)},
        num_replicas=2,
    )
    with get_runner() as runner:
        status = runner.wait(runner.run(AppDef("train", [role]), "local"), timeout=240)
    assert status is not None
    assert "replica 0 failed (exit code 1): rank 0 killed by SIGKILL" in status.msg
