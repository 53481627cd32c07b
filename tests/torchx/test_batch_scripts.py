"""``transload migrate`` converts a batch script of Slurm, and lists what is left."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from transload.cli import main
from transload.components import get_component
from transload.errors import SpecError
from transload.specs import AppDef, Notice, Resource
from transload_torchx import convert_batch_script

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=resnet
#SBATCH -N 2
#SBATCH --ntasks-per-node=4 --gpus-per-node=4
#SBATCH -c 8
#SBATCH --mem=64G
#SBATCH -t 1-12:00:00
#SBATCH -p gpu   # the fast one
#SBATCH --signal=B:USR1@300
#SBATCH --output=logs/%j.out
#SBATCH --hint=nomultithread
# a comment
export SAID=hello
srun --cpu-bind=cores bash -c 'echo $SAID "and goodbye"'
"""


def _component(text: str, folder: Path) -> AppDef:
    component, _, _ = convert_batch_script(text, "train")
    file = folder / "made_job.py"
    file.write_text(component)
    return get_component(f"{file}:job").fn()


def test_what_becomes_of_a_script(tmp_path: Path) -> None:
    """Tasks are replicas with their share of memory and GPUs. Queues and the like are settings."""
    app = _component(SCRIPT, tmp_path)
    (role,) = app.roles
    assert (app.name, app.timeout) == ("resnet", 36 * 3600)
    assert role.num_replicas == 8
    assert role.resource == Resource(cpu=8, gpu=1, memMB=16 * 1024)
    assert role.notice == Notice(seconds=300, signal="USR1")
    _, settings, left = convert_batch_script(SCRIPT, "train")
    assert tomllib.loads(settings)["schedulers"]["slurm"] == {
        "partition": "gpu",
        "nodes": 2,
        "ntasks_per_node": 4,
        "sbatch_args": ["--hint=nomultithread"],
    }
    assert [line for line, _ in left] == [10, 14]


def test_what_it_ran_runs_here(
    tmp_path: Path,
    transload_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The files that ``--write`` makes are a job, with quotes and variables of the shell."""
    monkeypatch.chdir(tmp_path)
    Path("say.sbatch").write_text(SCRIPT)
    assert main(["migrate", "say.sbatch", "--write"]) == 1
    assert "say.sbatch:10: left: --output=logs/%j.out" in capsys.readouterr().err
    made = Path("say_job.py").read_text()
    Path("say_job.py").write_text(
        made.replace("cpu=8, gpu=1, memMB=16384", "cpu=1, gpu=0, memMB=64")
    )
    assert main(["run", "say_job.py", "--replicas", "2"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "main/0 hello and goodbye",
        "main/1 hello and goodbye",
    ]


@pytest.mark.parametrize(
    ("option", "kind"),
    [
        ("--gres=gpu:a100:2", "a100"),
        ("--gpus=a100:2", "a100"),
        ("--gpus-per-node=h100", "h100"),
        ("--gpus-per-task=2", None),
        ("--gres=gpu:2", None),
        ("--gres=gpu", None),
    ],
)
def test_types_of_gpus(option: str, kind: str | None) -> None:
    """The type is kept as a setting."""
    _, settings, left = convert_batch_script(f"#!/bin/sh\n#SBATCH {option}\nsrun a\n", "x")
    assert tomllib.loads(settings).get("schedulers", {}).get("slurm", {}).get("gpu_type") == kind
    assert left == []


def test_existing_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Existing settings are not changed, and what to add to them is said."""
    monkeypatch.chdir(tmp_path)
    Path("say.sbatch").write_text(SCRIPT)
    Path("transload.toml").write_text('scheduler = "local"\n')
    assert main(["migrate", ".", "--write"]) == 1
    assert Path("transload.toml").read_text() == 'scheduler = "local"\n'
    assert Path("say_job.py").exists()
    said = capsys.readouterr().err
    _, _, block = said.partition("add to it:\n")
    block, _, _ = block.partition("1 file(s)")
    added = tomllib.loads(block)
    assert added["schedulers"]["slurm"]["partition"] == "gpu"


def test_a_table_of_that_cluster_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is to be added is for the cluster by its name, without what it has."""
    monkeypatch.chdir(tmp_path)
    Path("say.sbatch").write_text(SCRIPT)
    table = '[schedulers.hpc]\nkind = "slurm"\npartition = "gpu"\nnodes = 2\n'
    Path("transload.toml").write_text(table)
    assert main(["migrate", "say.sbatch"]) == 1
    said = capsys.readouterr().err
    assert "add to it:\n    [schedulers.hpc]\n    ntasks_per_node = 4\n    sbatch_args" in said
    rest = 'ntasks_per_node = 4\nsbatch_args = ["--hint=nomultithread"]\n'
    Path("transload.toml").write_text(f"{table}{rest}")
    assert main(["migrate", "say.sbatch"]) == 1
    assert "add to it" not in capsys.readouterr().err


ARRAY = """\
#!/bin/bash
#SBATCH --array=1-3%2
#SBATCH --dependency=afterok:7
cd $SLURM_SUBMIT_DIR
RATES=(none 0.1 0.2 0.3)
srun echo ${RATES[$SLURM_ARRAY_TASK_ID]} in "$SLURM_SUBMIT_DIR"
"""


def test_an_array_in_the_folder_of_its_submit(
    tmp_path: Path,
    transload_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Elements are replicas with the same numbers, and the job's folder is that of its submit."""
    monkeypatch.chdir(tmp_path)
    Path("sweep.sbatch").write_text(ARRAY)
    assert main(["migrate", "sweep.sbatch", "--write"]) == 1
    said = capsys.readouterr().err
    assert "its 3 elements are replicas, which start together, not 2 at a time" in said
    assert "of one run: run -c dependency=afterok:7" in said
    assert "SLURM_… exists" not in said
    assert not Path("transload.toml").exists()
    assert main(["run", "sweep_job.py"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"main/0 0.1 in {tmp_path}",
        f"main/1 0.2 in {tmp_path}",
        f"main/2 0.3 in {tmp_path}",
    ]


@pytest.mark.parametrize(
    ("lines", "replicas", "resource"),
    [
        ("#SBATCH -n 4 --gpus=8\nsrun a", 4, Resource(cpu=1, gpu=2, memMB=-1)),
        ("#SBATCH -n4 --gres=gpu:a100:2 -N 2\nsrun a", 4, Resource(cpu=1, gpu=1, memMB=-1)),
        ("#SBATCH --gpus-per-task 1\nsrun a", 1, Resource(cpu=1, gpu=1, memMB=-1)),
        ("#SBATCH -c 4 --mem-per-cpu=500M\na", 1, Resource(cpu=4, gpu=0, memMB=2000)),
        ("#SBATCH -n 4\npython alone.py", 1, None),
        ("#SBATCH -t 90\na\n#SBATCH -n 4\nsrun b", 1, None),
    ],
)
def test_sizes(lines: str, replicas: int, resource: Resource | None, tmp_path: Path) -> None:
    """All ways to ask for tasks, GPUs and memory count, except behind the first command."""
    (role,) = _component(f"#!/bin/sh\n{lines}\n", tmp_path).roles
    assert role.num_replicas == replicas
    if resource is not None:
        assert role.resource == resource


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400)],
)
def test_limits_of_time(text: str, seconds: int, tmp_path: Path) -> None:
    """The forms of sbatch's manual page."""
    assert _component(f"#!/bin/sh\n#SBATCH -t {text}\ntrue\n", tmp_path).timeout == seconds


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#SBATCH --mem=lots", "line 2: --mem=lots: must be a size such as 500M or 16G"),
        ("#SBATCH -t soon", "line 2: --time=soon: must be minutes"),
        ("#SBATCH -n many", "line 2: --ntasks=many: must be a whole number of 1 or more"),
        ("#SBATCH --job-name='x", "line 2: #SBATCH --job-name='x: No closing quotation"),
        ("#SBATCH -Zx", "line 2: #SBATCH -Zx: cannot read '-Zx'"),
    ],
)
def test_what_cannot_be_read(line: str, said: str) -> None:
    """The message has the line, the option and its value, and nothing is written."""
    with pytest.raises(SpecError) as caught:
        convert_batch_script(f"#!/bin/sh\n{line}\nsrun true\n", "x")
    assert said in str(caught.value)


def test_two_steps_are_left(tmp_path: Path) -> None:
    """A second srun, arrays and variables of Slurm are listed with their lines."""
    text = "#!/bin/sh\n#SBATCH -a 1,5,7\nsrun one $SLURM_PROCID\nsrun two\n"
    _, _, left = convert_batch_script(text, "x")
    said = "\n".join(f"{line}: {what}" for line, what in left)
    assert "2: --array=1,5,7: give --replicas" in said
    assert "3: SLURM_… exists on Slurm only" in said
    assert "4: a second srun is a separate job: srun two" in said
