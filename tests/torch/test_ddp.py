"""`dist.ddp` with a real torch: torchrun, gloo, several processes, a model that learns."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

import pytest

import transload
from transload.errors import AppFailed
from transload.runner import get_runner

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp" / "train.py"


@pytest.fixture
def rendezvous_port() -> int:
    """A free port below those that the system hands out to others in the seconds that torchrun takes to bind it."""
    lowest = Path("/proc/sys/net/ipv4/ip_local_port_range")
    ceiling = int(lowest.read_text(encoding="ascii").split()[0]) if lowest.exists() else 32768
    for port in random.sample(range(ceiling // 2, ceiling), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    pytest.fail(f"no free port among 100 from {ceiling // 2} to {ceiling}")


@pytest.mark.timeout(300)  # beyond its own wait, whose failure shows what was printed
@pytest.mark.parametrize(("shape", "world"), [pytest.param("1x2", 2, marks=pytest.mark.slow), ("2x1", 2)])
def test_ddp_trains_the_digits(
    transload_home: Path, tmp_path: Path, rendezvous_port: int, shape: str, world: int
) -> None:
    """Processes in one replica, or replicas of one process: they find each other, learn, and report."""
    # torchrun leaves a folder of logs in TMPDIR
    own = ["--rdzv_port", str(rendezvous_port), "--env", f"TMPDIR={tmp_path}"]
    arguments = ["--script", str(SCRIPT), "-j", shape, *own, "--", "--epochs", "8"]
    with get_runner() as runner:
        handle = runner.run_component("dist.ddp", arguments, "local")
        status = runner.wait(handle, timeout=240)
        lines = [line for replica in range(int(shape[0])) for line in runner.log_lines(handle, "train", replica)]
        if status is None or str(status.state) != "SUCCEEDED":
            pytest.fail(f"{status}\n{''.join(lines)}")
        results = runner.results(handle)
    assert results.value("accuracy") > 0.9
    assert results.value("world") == world
    assert any("epoch   8/8" in line for line in lines)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("own", ["", "@record\n"], ids=["plain", "record"])
def test_the_first_exception_is_the_error_of_the_app(transload_home: Path, tmp_path: Path, own: str) -> None:
    """One of two processes raises: type, message, frames, replica and host are the app's, whatever torchrun says."""
    script = tmp_path / "fails.py"
    source = "import os, time\nfrom torch.distributed.elastic.multiprocessing.errors import record\n"
    source += f"{own}def train():\n    if os.environ['RANK'] == '1':\n        raise ValueError('no such batch')\n"
    script.write_text(f"{source}    time.sleep(60)\ntrain()\n", encoding="utf-8")
    app = transload.run("dist.ddp", ["--script", str(script), "-j", "1x2", "--env", f"TMPDIR={tmp_path}"])
    with pytest.raises(AppFailed) as caught:
        app.check(timeout=240)
    said, _, lines = str(caught.value).partition("last lines of fails/0")
    assert "fails/0 exit code 1 on " in said
    assert "ValueError: no such batch" in said
    assert "fails.py" in said and "in train" in said
    assert "no such batch" in lines
    assert "error_handler" not in lines
