"""Messages about the commonest early mistakes say what is wrong, and what to type."""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NAMES = runpy.run_path(str(Path(__file__).parents[2] / "mistakes.py"))
WITHOUT = pytest.mark.skipif(
    importlib.util.find_spec("transload_slurm") is not None,
    reason="the plugins are installed: the session unit runs this, which has none",
)
MISTAKES = [
    *(pytest.param(*each, id=" ".join(each[0])) for each in NAMES["MISTAKES"]),
    *(
        pytest.param(*each, id=" ".join(each[0]), marks=[WITHOUT, pytest.mark.unit])
        for each in NAMES["WITHOUT_PLUGINS"]
    ),
]


@pytest.mark.parametrize(("typed", "said"), MISTAKES)
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
    NAMES["write_files"](tmp_path)
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


def test_a_cluster_without_its_table_of_schedulers(
    invoke: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``[hpc]`` in transload.toml."""
    monkeypatch.chdir(tmp_path)
    Path("transload.toml").write_text('[hpc]\nkind = "slurm"\n')
    result = invoke("run", "-s", "hpc", "--", "true")
    assert result.code == 2
    assert "did you mean [schedulers.hpc]?" in result.err


def test_jobs_of_a_cluster_that_is_not_the_default(
    invoke: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list without ``-s`` has them, and an id without a cluster says how to name that one's."""
    monkeypatch.chdir(tmp_path)
    Path("transload.toml").write_text('[schedulers.hpc]\nkind = "local"\n')
    handle = invoke("run", "-s", "hpc", "--wait", "--json", "--", "true").json["handle"]
    assert [each["handle"] for each in invoke("list", "--json").json["apps"]] == [handle]
    assert invoke("list", "-s", "local").out == ""
    assert "as in hpc://transload/digits" in invoke("status", "digits").err
    assert "as in" not in invoke("status", "hpc://transload/digits").err


def test_a_program_that_cannot_import_transload(invoke: Callable[..., Any]) -> None:
    """What to do is said below its last lines."""
    result = invoke("run", "--", "python3", "-S", "-c", "import transload.runtime")
    assert result.code == 1
    assert "install it there, or take one file along" in result.err


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
    doctor = invoke("doctor")
    assert (run.code, info.code, listed.code) == (2, 2, 0)
    assert said in run.err and said in info.out
    assert any(said in line for line in listed.lines if line.startswith("scheduler\thpc\tbroken\t"))
    assert any(said in line for line in doctor.lines if line.split("\t")[1] == "scheduler")


def test_a_group_without_a_command_shows_its_help(invoke: Callable[..., Any]) -> None:
    """``transload tracker`` alone shows several lines, as --help does."""
    result = invoke("tracker")
    assert result.code == 2
    assert "Commands:\n" in result.err and result.out == ""
