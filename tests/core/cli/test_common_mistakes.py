"""The commonest mistakes of the first minutes: each message says what is wrong, and what to type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transload.plugins.distributions import install_command

FROM_TORCHX = """\
from torchx.specs import AppDef


def train() -> AppDef:
    return AppDef("train")
"""
BATCH_SCRIPT = """\
#!/bin/bash
#SBATCH --mem=8G
srun python train.py
"""
MISTAKES = [
    # what is typed, what the message must hold
    (["run", "ls", "-l"], "put -- before it: -- ls"),
    (["run", "train.py"], "to run the file itself: transload run -- python train.py"),
    (["run", "-s", "slrm", "--", "true"], "did you mean 'slurm'?"),
    (["run", "-s", "nowhere", "--", "true"], "[schedulers.NAME] in transload.toml"),
    (["run", "-s", "aws_batch", "--", "true"], "no counterpart of TorchX's aws_batch"),
    (["run", "--scratch_folder", "x", "--", "true"], "arguments of a component come after"),
    (["run", "--pass_env", "HF_*", "--", "true"], "-c pass_env=VALUE"),
    (["run", "-c", "nosuch=1", "--", "true"], "nosuch"),
    (["run", "-c", "mem=8G", "--", "true"], "use run --mem SIZE"),
    (["run", "-c", "job-name=x", "--", "true"], "use run --name NAME"),
    (["run", "-c", "working-dir=/tmp", "--", "true"], "did you mean 'working_dir'?"),
    (["run", "--gpus", "1", "--", "true"], "Use run --gpu N"),
    (["run", "--working-dir", "/tmp", "--", "true"], "-c working_dir=VALUE"),
    (["run", "train.sbatch"], "transload migrate train.sbatch"),
    (["run", "train.sh"], "to run the file itself: transload run -- bash train.sh"),
    (["run", "--", "train.py"], "to run the file: python train.py"),
    (["run", "utils.ecko"], "did you mean 'utils.echo'?"),
    (["run", "utils.echo", "--mgs", "hi"], "did you mean '--msg'?"),
    (["run", "from_torchx.py:train"], "`transload migrate"),
    (["run", "nothere.py"], "nothere.py: No such file or directory"),
    (["run", "--", "no-such-program"], "no-such-program"),
    (["run", "--gpu", "many", "--", "true"], "'many'"),
    (["run", "--time-limit", "soon", "--", "true"], "'soon'"),
    (["run"], "COMPONENT"),
    (["rum", "--", "true"], "did you mean 'run'?"),
    (["--partition", "x"], "no such option: '--partition'"),
    (["status", "nope"], "transload list -s local"),
    (["log", "local://transload/nope"], "transload list -s local"),
    (["cancel", "nope"], "no such job"),
    (["results", "nope"], "no such job"),
    (["get", "nope"], "no such job"),
    (["delete", "nope"], "no such job"),
    (["status", "slurm://transload/1"], install_command("slurm")),
    (["info", "slurm"], install_command("slurm")),
    (["runopts", "slurm"], install_command("slurm")),
    (["runopts", "lcal"], "did you mean 'local'?"),
    (["search", "run"], install_command("search")),
    (["migrate", "x.py"], install_command("torchx")),
    (["report", "nope"], install_command("report")),
]


@pytest.mark.parametrize(("typed", "said"), MISTAKES, ids=[" ".join(each[0]) for each in MISTAKES])
def test_the_message_says_what_to_type(
    typed: list[str],
    said: str,
    invoke: Callable[..., Any],
    transload_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is started, the exit code is 2, the last line holds the remedy, no traceback is shown."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('trained')\n")
    Path("from_torchx.py").write_text(FROM_TORCHX)
    Path("train.sbatch").write_text(BATCH_SCRIPT)
    Path("train.sh").write_text("#!/bin/sh\ntrue\n")
    result = invoke(*typed)
    assert result.code == 2, result
    assert said in result.err.splitlines()[-1], result.err
    assert "Traceback" not in result.err


def test_a_table_of_schedulers_by_a_wrong_name(
    invoke: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[scheduler.hpc]`` in transload.toml."""
    monkeypatch.chdir(tmp_path)
    Path("transload.toml").write_text('[scheduler.hpc]\nkind = "slurm"\n')
    result = invoke("run", "-s", "hpc", "--", "true")
    assert result.code == 2
    assert "did you mean [schedulers.…]?" in result.err


TABLES = [
    # what stands in transload.toml, what the message must hold
    (
        'kind = "local"\nworking_dri = "/tmp"',
        "hpc.working_dri: unknown option: did you mean 'working_d",
    ),
    ('kind = "local"\nmem = "8G"', "schedulers.hpc.mem: unknown option: use run --mem SIZE"),
    ('kind = "lcal"', "did you mean 'local'? ({file}: schedulers.hpc.kind)"),
    ('state_folder = "/tmp"', "{file}: [schedulers.hpc] lacks its kind, such as kind ="),
]


@pytest.mark.parametrize(("table", "said"), TABLES, ids=[said for _, said in TABLES])
def test_a_wrong_table_is_seen_before_a_job_is(
    table: str,
    said: str,
    invoke: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``run``, ``info`` and ``doctor`` name the same key, and what is nearest."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "transload.toml"
    file.write_text(f"[schedulers.hpc]\n{table}\n")
    said = said.format(file=file)
    run = invoke("run", "-s", "hpc", "--", "true")
    info = invoke("info", "hpc")
    listed = invoke("info")
    doctor = invoke("doctor", "--no-run")
    assert (run.code, info.code, listed.code) == (2, 2, 0)
    assert said in run.err and said in info.out
    assert any(said in line for line in listed.lines if line.startswith("scheduler\thpc\tbroken\t"))
    assert any(said in line for line in doctor.lines if line.split("\t")[1] == "scheduler")


def test_a_batch_script_as_a_program(
    invoke: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run, but that its options have no effect is said."""
    monkeypatch.chdir(tmp_path)
    Path("train.sbatch").write_text(BATCH_SCRIPT)
    Path("plain.sh").write_text("#!/bin/sh\ntrue\n")
    result = invoke("run", "--dry-run", "--", "bash", "train.sbatch")
    assert result.code == 0
    assert "its lines #SBATCH have no effect here" in result.err
    assert "SBATCH" not in invoke("run", "--dry-run", "--", "bash", "plain.sh").err


def test_a_group_without_a_command_shows_its_help(invoke: Callable[..., Any]) -> None:
    """``transload tracker`` alone: several lines, as --help shows them."""
    result = invoke("tracker")
    assert result.code == 2
    assert "Commands:\n" in result.out
