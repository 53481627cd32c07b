"""An AppDef becomes a batch script, with no cluster, or is refused by name."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.errors import ConfigError, UnsupportedFeature
from transload.specs import AppDef, BindMount, CfgVal, Resource, Role, macros
from transload_slurm import convert
from transload_slurm.options import SlurmOptions, role_options


def role(name: str = "main", **fields: Any) -> Role:
    """Return a role that runs `true`."""
    return Role(name, "/tmp", entrypoint="true", **fields)


def script(
    *roles: Role, cfg: Mapping[str, CfgVal] | None = None, timeout: float | None = None
) -> str:
    """Return the batch script of an app."""
    request = convert.convert(
        AppDef("app", list(roles), timeout=timeout), SlurmOptions.read(cfg or {})
    )
    return convert.script(request, "app-1", "/shared/app-1", "token")


def test_one_role() -> None:
    """A role becomes tasks, and its resources are per task."""
    text = script(
        role(num_replicas=3, resource=Resource(cpu=4, gpu=2, memMB=1000)), cfg={"gpu_type": "a100"}
    )
    for line in (
        "--ntasks=3",
        "--cpus-per-task=4",
        "--mem-per-cpu=250M",
        "--gpus-per-task=a100:2",
        "--no-requeue",
    ):
        assert f"#SBATCH {line}\n" in text
    assert "hetjob" not in text


def test_a_step_leaves_memory_to_steps_of_programs() -> None:
    """The step of a role has the job's memory, and takes none of it from other steps."""
    app = AppDef("app", [role(resource=Resource(cpu=4, gpu=-1, memMB=1000))])
    options = convert.convert(app, SlurmOptions.read({})).roles[0].srun
    assert [each for each in options if each.startswith("--mem")] == ["--mem=0"]


def test_several_roles_are_components() -> None:
    """Each role has its own part of the script, in the order of the app, and its own group of
    srun.
    """
    app = AppDef("app", [role("a", metadata={"slurm.partition": "gpu"}), role("b", num_replicas=2)])
    request = convert.convert(app, SlurmOptions.read({"partition": "cpu"}))
    text = convert.script(request, "x", "/f", "t")
    first, second = text.split("#SBATCH hetjob\n")
    assert "--partition=gpu" in first
    assert "--partition=cpu" in second
    assert [part.srun[0] for part in request.roles] == ["--het-group=0", "--het-group=1"]


def test_every_option_becomes_a_flag() -> None:
    """Account, QOS, constraint and all others reach the script, each under its flag, once."""
    texts = ["partition", "account", "qos", "constraint", "reservation", "nodelist", "exclude"]
    texts += ["dependency", "begin", "mail_user", "mail_type"]
    numbers = {"nodes": 2, "ntasks_per_node": 2, "nice": 2}
    cfg: dict[str, CfgVal] = {**dict.fromkeys(texts, "some-thing"), **numbers, "time": "2:00:00"}
    text = script(role(), cfg={**cfg, "exclusive": True})
    for name, value in cfg.items():
        flag = f"--{name.replace('_', '-')}"
        assert text.count(f"#SBATCH {flag}={value}\n") == 1, name
    assert text.count("#SBATCH --exclusive\n") == 1


def test_unset_and_zero_resources_are_left_to_slurm() -> None:
    """Zero means "all" to Slurm, so it is never said."""
    for resource in (Resource(-1, -1, -1), Resource(0, 0, 0)):
        text = script(role(resource=resource))
        assert "--mem" not in text
        assert "--gpus" not in text
        assert "--cpus-per-task=1\n" in text


def test_retries_mean_requeue() -> None:
    """Slurm may start the job again where a role has retries, or where it is told to."""
    assert "--requeue\n" in script(role(max_retries=1))
    assert "--no-requeue\n" in script(role(max_retries=1), cfg={"requeue": False})
    assert "--requeue\n" in script(role(), cfg={"requeue": True})


def test_timeout_is_backed_by_a_limit_of_time() -> None:
    """The keeper ends the job at its timeout, to the second.

    Slurm's limit lies beyond it, unless given.
    """
    assert "--time=2\n" in script(role(), timeout=90)
    assert "--time=720\n" in script(role(), timeout=12 * 3600)
    assert "--time=10\n" in script(role(), timeout=90, cfg={"time": "10"})


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"mounts": [BindMount("/a", "/b")]}, "roles[0].mounts[0]"),
        ({"resource": Resource(cpu=0.5, gpu=0, memMB=1)}, "roles[0].resource.cpu"),
        (
            {"resource": Resource(cpu=1, gpu=0, memMB=1, devices={"nic": 1})},
            "roles[0].resource.devices",
        ),
    ],
)
def test_refused_by_field(fields: dict[str, Any], path: str) -> None:
    """What Slurm cannot express is refused by its path."""
    with pytest.raises(UnsupportedFeature) as caught:
        script(role(**fields))
    assert caught.value.field == path


@pytest.mark.parametrize(
    "cfg",
    [
        {"time": "soon"},
        {"nodes": 0},
        {"partition": "a\nb"},
        {"comment": "a\n#SBATCH --uid=0"},
        {"sbatch_args": ["hello"]},
        {"srun_args": ["--x=\ny"]},
        {"keep_days": 0},
    ],
)
def test_bad_options(cfg: dict[str, CfgVal]) -> None:
    """A value that could not be meant, or could smuggle a line into the script, is refused by the
    option's name.
    """
    with pytest.raises(ConfigError, match=f"run option ({'|'.join(cfg)})"):
        script(role(), cfg=cfg)


def test_a_node_without_the_python() -> None:
    """The script ends with which one is missing, where, and what to type."""
    text = script(role(), cfg={"python": "/no where/python3"})
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "no /no where/python3 on " in done.stderr
    assert done.stderr.endswith("; name another: -c python=PATH\n")


def test_macros_that_only_the_replica_knows_are_left_to_it() -> None:
    """The root of the image and rank 0 are put in. The number of the replica is not known yet."""
    app = AppDef(
        "app", [role(args=[macros.img_root, macros.rank0_env, macros.replica_id, "$$ ${x}"])]
    )
    request = convert.convert(app, SlurmOptions.read({}))
    assert request.roles[0].args == ["/tmp", "TRANSLOAD_RANK0_HOST", "${replica_id}", "$$ ${x}"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=60))
def test_arguments_cannot_leave_their_comment(text: str) -> None:
    """Whatever an argument holds, the script stays one that only runs the wrapper."""
    made = script(Role("main", "/tmp", entrypoint="echo", args=[text]))
    # sh and sbatch know one end of a line
    code = [line for line in made.split("\n") if line and not line.startswith("#")]
    assert [line.split()[0] for line in code] == ["command", "cd", "exec"]
    head = [line for line in made.split("\n") if line.startswith("#SBATCH")]
    assert len(head) == len(set(head)) == 8


def test_folder_with_a_pattern_of_slurms() -> None:
    """A ``%`` of the folder is none of the patterns that Slurm replaces in names of files."""
    request = convert.convert(AppDef("app", [role()]), SlurmOptions.read({}))
    text = convert.script(request, "app", "/shared/100%job", "t")
    assert '#SBATCH --output="/shared/100\\\\%job/batch.log"\n' in text


def test_folder_with_odd_characters(tmp_path: Path) -> None:
    """The script is good shell for any folder."""
    request = convert.convert(AppDef("app", [role()]), SlurmOptions.read({}))
    folder = str(tmp_path / "it's $HOME `x`")
    text = convert.script(request, "app", folder, "t")
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert shlex.quote(folder) in text


def test_arguments_of_one_role() -> None:
    """A role's own options of sbatch and srun come after those for all, and no other role gets
    them.
    """
    app = AppDef(
        "app",
        [
            role(
                "a", metadata={"slurm.srun_args": ["--mpi=pmix"], "slurm.sbatch_args": ["--hint=x"]}
            ),
            role("b"),
        ],
    )
    request = convert.convert(
        app,
        SlurmOptions.read({"srun_args": ["--cpu-bind=cores"], "sbatch_args": ["--contiguous"]}),
    )
    first, second = convert.script(request, "x", "/f", "t").split("#SBATCH hetjob\n")
    assert first.index("#SBATCH --contiguous\n") < first.index("#SBATCH --hint=x\n")
    assert "#SBATCH --contiguous\n" in second and "--hint" not in second
    assert [part.srun[-2:] for part in request.roles] == [
        ["--cpu-bind=cores", "--mpi=pmix"],
        ["--job-name=b", "--cpu-bind=cores"],
    ]
    with pytest.raises(ConfigError, match="must be an option"):
        convert.convert(
            AppDef("app", [role(metadata={"slurm.srun_args": ["word"]})]), SlurmOptions.read({})
        )


def test_prologue() -> None:
    """Its lines stand before the wrapper's command, and after all that is for sbatch."""
    text = script(role(), cfg={"prologue": "\nmodule load python\r\nexport A='x y'\n"})
    head, _, rest = text.partition("\nmodule load python\nexport A='x y'\n")
    assert "#SBATCH" in head and "#SBATCH" not in rest
    assert head.endswith("\nset -e\ncd /tmp\n# prologue") and rest.endswith("\ntransload_start\n")
    with pytest.raises(ConfigError, match="prologue"):
        script(role(), cfg={"prologue": "a\x00b"})


@pytest.mark.parametrize(
    ("name", "word", "advice"),
    [
        ("sbatch_args", "--comment=acct", "run option comment"),
        ("sbatch_args", "--job-name mine", "run option comment"),
        ("sbatch_args", "--error=x", "transload log"),
        ("sbatch_args", "--export=NONE", "run --env"),
        ("sbatch_args", "--ntasks=4", "run --replicas"),
        ("sbatch_args", "--no-requeue", "requeue=false"),
        ("sbatch_args", "--wrap=true", "program of the role"),
        ("srun_args", "--output=x", "transload log"),
        ("srun_args", "--multi-prog", "roles of the job"),
        ("srun_args", "--kill-on-bad-exit=1", "min_replicas"),
    ],
)
def test_options_that_the_plugin_writes_itself_are_refused(
    name: str, word: str, advice: str
) -> None:
    """Their whole names are refused, for the job and for one of its roles, with what to use."""
    with pytest.raises(ConfigError, match=f"{name}: .* is set by transload itself: ") as caught:
        script(role(), cfg={name: ["--hint=nomultithread", word]})
    assert advice in str(caught.value)
    with pytest.raises(ConfigError, match="is set by transload itself"):
        script(role(metadata={f"slurm.{name}": [word]}))


@pytest.mark.parametrize(
    "word",
    [
        *("--signal=USR1@90", "--hint=nomultithread", "--gres=gpu:1", "--mem=0", "--gpus=2"),
        *("--nodes=2-4", "--exclusive=user", "-k", "-D /tmp", "--nice", "-J mine"),
    ],
)
def test_other_options_are_taken(word: str) -> None:
    """Options that the plugin does not know by their whole name are the user's."""
    assert f"#SBATCH {word}\n" in script(role(), cfg={"sbatch_args": [word]})


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("mem", "use run --mem"),
        ("job-name", "use run --name"),
        ("mail-user", "did you mean 'mail_user'?"),
    ],
)
def test_options_of_sbatch_that_are_none_of_ours(option: str, said: str) -> None:
    """The message names the nearest option, of the scheduler or of `run`."""
    with pytest.raises(ConfigError) as caught:
        SlurmOptions.read_texts([f"{option}=1"])
    assert said in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        role_options(role(metadata={f"slurm.{option}": "1"}), 0, {})
    expected = said
    if option == "mail-user":  # is for the whole job
        expected = "unknown run option 'mail-user'"
    assert expected in str(caught.value)
