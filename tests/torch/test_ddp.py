"""`dist.ddp` with a real torch: torchrun, gloo, several processes, a model that learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from transload.runner import get_runner

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "examples" / "ddp" / "train.py"


@pytest.mark.parametrize(("shape", "world"), [("1x2", 2), ("2x1", 2)])
def test_ddp_trains_the_digits(transload_home: Path, free_port: int, shape: str, world: int) -> None:
    """Processes in one replica, or replicas of one process: they find each other, learn, and report."""
    arguments = ["--script", str(SCRIPT), "-j", shape, "--rdzv_port", str(free_port), "--", "--epochs", "8"]
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
