"""What a job needs installed is declared in some places, and refused in others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from transload.errors import SpecError, UnsupportedFeature
from transload.runner import Launch, Runner
from transload.runner.environments import script_in, script_of, with_open_settings
from transload.schedulers.environments import read_header
from transload.specs import AppDef, Environment, Notice, Role, Workspace
from transload_testing.scripted import ScriptedControl

pytestmark = pytest.mark.unit

HEADER = """\
# /// script
# requires-python = ">=3.8"
# dependencies = ["tiny"]
#
# [tool.transload]
# gpu = 2
# mem = "2G"
# time-limit = "1h"
# name = "trainer"
# replicas = 3
# image = "registry/img:1"
# env = { MODE = "fast" }
# secrets = { HF_TOKEN = "env:HF_TOKEN" }
# ///
print("trained")
"""


@pytest.fixture
def script(scripts: Path) -> Path:
    """A script with a header."""
    path = scripts / "train.py"
    path.write_text(HEADER)
    return path


def planned(runner: Runner, **launch: object) -> AppDef:
    """Return the definition that a launch leads to on this machine."""
    return Launch(**launch).plan(runner).app  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("python3.11 -u -W error -X dev jobs/train.py", "jobs/train.py"),
        ("/usr/bin/python3 train.py", "train.py"),
        ("./train.py", "./train.py"),
        ("python -m train", None),
        ("python -c train.py", None),
        ("uv run train.py", None),
        ("bash train.sh", None),
        ("pythonic train.py", None),
        ("python", None),
    ],
)
def test_the_script_of_a_command(words: str, script: str | None) -> None:
    """The script is what Python itself would run."""
    assert script_in(words.split()) == script


def test_the_script_of_a_component(script: Path) -> None:
    """What runs a script and records its end, as `utils.python` does, counts as Python itself."""
    with Runner("t") as runner:
        found = planned(runner, component="utils.python", args={"script": "train.py"}).roles[0]
    assert found.environment is not None
    assert found.environment.name == "train.py"


@pytest.mark.parametrize("name", ["dist.ddp", "dist.spmd"])
def test_the_script_that_torchrun_starts(script: Path, name: str) -> None:
    """A training with several processes has the packages of its script. A module has none."""
    with Runner("t") as runner:
        found = planned(runner, component=name, args={"script": "train.py"}).roles[0]
        module = planned(runner, component=name, args={"m": "train"}).roles[0]
    assert found.environment is not None
    assert found.environment.name == "train.py"
    assert found.env["MODE"] == "fast"
    assert module.environment is None


def test_a_script_with_a_header_as_a_component(script: Path) -> None:
    """A script with a header is run itself, by its name in another folder too.

    By name it takes no arguments.
    """
    with Runner("t") as runner:
        found = planned(runner, component="train.py", args=["--lr", "1"])
        below = planned(runner, component=script.name, folder=str(script.parent))
        by_of = Launch.of("train.py").plan(runner).app
        with pytest.raises(
            SpecError, match="train.py is a script with a header, which takes a list"
        ):
            planned(runner, component="train.py", args={"lr": 1})
    role = found.roles[0]
    assert (role.entrypoint, role.args) == ("python", ["train.py", "--lr", "1"])
    assert found.name == "trainer"
    assert role.environment is not None
    assert below.roles[0].environment == by_of.roles[0].environment == role.environment


def test_a_header_counts_without_a_word(script: Path) -> None:
    """A header gives packages and settings of the job, and the digest is that of the packages."""
    with Runner("t") as runner:
        app = planned(runner, command=["python", "train.py"])
        role = app.roles[0]
        assert (role.environment and role.environment.kind) == "script"
        assert role.environment == Environment(
            "script", "train.py", role.environment.sha256, source=str(script)
        )
        assert (app.name, app.timeout, role.num_replicas) == ("trainer", 3600, 3)
        assert (role.resource.gpu, role.resource.memMB, role.resource.cpu) == (2, 2048, -1)
        assert (role.image, role.env, role.secrets) == (
            "registry/img:1",
            {"MODE": "fast"},
            {"HF_TOKEN": "env:HF_TOKEN"},
        )
        script.write_text(HEADER.replace("gpu = 2", "gpu = 4") + "print('more code')\n")
        again = planned(runner, command=["python", "train.py"]).roles[0]
        assert again.environment == role.environment
        script.write_text(HEADER.replace('"tiny"', '"tiny==1.0"'))
        other = planned(runner, command=["python", "train.py"]).roles[0]
        assert other.environment != role.environment


def test_what_goes_before_what(scripts: Path, script: Path) -> None:
    """The launch before the role, the role before the settings, these before the header."""
    for name in ("of-launch.txt", "of-role.txt", "of-settings.txt"):
        (scripts / name).write_text("tiny\n")
    (scripts / "transload.toml").write_text('[schedulers.local]\nenvironment = "of-settings.txt"\n')
    command = ["python", "train.py"]
    role = Role("main", "", entrypoint="python", args=["train.py"], environment="of-role.txt")
    with Runner("t") as runner:

        def name_of(**launch: object) -> str | None:
            found = planned(runner, **launch).roles[0].environment
            return None if found is None else found.name

        assert name_of(command=command) == "of-settings.txt"
        assert name_of(app=AppDef("a", [role])) == "of-role.txt"
        assert name_of(app=AppDef("a", [role]), environment="of-launch.txt") == "of-launch.txt"
        assert name_of(command=command, environment="none") is None
        assert name_of(command=command, cfg={"environment": "train.py"}) == "train.py"
    (scripts / "transload.toml").write_text('[schedulers.local]\nenvironment = "none"\n')
    with Runner("t") as runner:
        assert planned(runner, command=command).roles[0].environment is None


def test_a_component_whose_entrypoint_is_a_script(script: Path) -> None:
    """Its packages count, and what the component sets itself goes before the header."""
    role = Role("main", "other:2", entrypoint="train.py", num_replicas=2, env={"MODE": "slow"})
    with Runner("t") as runner:
        app = planned(runner, app=AppDef("mine", [role], timeout=60))
    found = app.roles[0]
    assert found.environment is not None
    assert (app.name, app.timeout, found.image) == ("mine", 60, "other:2")
    assert (found.num_replicas, found.env, found.resource.gpu) == (2, {"MODE": "slow"}, 2)


def test_the_scheduler_of_a_header(scripts: Path) -> None:
    """The header's scheduler counts where the script runs, after the launch's, before settings."""
    (scripts / "train.py").write_text(
        "# /// script\n# [tool.transload]\n# scheduler = 'hpc'\n# ///\n"
    )
    (scripts / "transload.toml").write_text(
        "scheduler = 'other'\n[schedulers.hpc]\nkind = 'local'\n[schedulers.other]\nkind = 'local'\n"
    )
    role = Role("main", "", entrypoint="python", args=["train.py"])
    with Runner("t") as runner:
        found = [
            Launch(**launch).plan(runner).scheduler  # type: ignore[arg-type]
            for launch in (
                {"command": ["python", "train.py"]},
                {"command": ["python", "train.py"], "scheduler": "local"},
                {"app": AppDef("a", [role])},
            )
        ]
    assert found == ["hpc", "local", "other"]


def test_a_header_may_ask_for_a_notice(scripts: Path) -> None:
    """A header gives a notice with a unit. The role's own goes first."""
    for text in ("'120s'", "'2m'"):
        (scripts / "train.py").write_text(
            f"# /// script\n# [tool.transload]\n# notice = {text}\n# ///\n"
        )
        header = read_header("train.py")
        assert header is not None
        app = AppDef("a", [Role("open", ""), Role("own", "", notice=Notice(5))])
        found = with_open_settings(app, {"open": header, "own": header})
        assert [role.notice for role in found.roles] == [Notice(120), Notice(5)]


@pytest.mark.parametrize(
    ("first", "counts"),
    [("#!/usr/bin/env -S uv run --script", False), ("#!/usr/bin/env python3", True)],
)
def test_a_script_that_uv_runs(scripts: Path, first: str, counts: bool) -> None:
    """What a script needs is left to uv, and what its header says of the job counts."""
    (scripts / "train.py").write_text(f"{first}\n{HEADER}")
    with Runner("t") as runner:
        app = planned(runner, command=["./train.py"])
    assert (app.roles[0].environment is not None) is counts
    assert app.name == "trainer"


@pytest.mark.parametrize(
    ("word", "workspace", "found"),
    [
        ("train.py", None, "train.py"),
        ("${img_root}/train.py", None, "train.py"),
        ("code/train.py", {"there": "code"}, "there/train.py"),
        ("train.py", {"there": "code"}, None),
        ("train.py", {"there": ""}, "there/train.py"),
        ("absent.py", None, None),
    ],
)
def test_where_a_script_lies(
    scripts: Path, word: str, workspace: dict[str, str] | None, found: str | None
) -> None:
    """A script lies in the folder that travels, at its path there, or where it runs."""
    (scripts / "there").mkdir()
    for path in ("train.py", "there/train.py"):
        (scripts / path).write_text("")
    role = Role("main", "", entrypoint="python", args=[word])
    if workspace is not None:
        role.workspace = Workspace(workspace)
    script = script_of(role, [str(scripts)])
    assert (script and os.path.abspath(script)) == (found and str(scripts / found))


def test_a_header_gives_no_replicas_to_a_component(scripts: Path, script: Path) -> None:
    """A component says how many replicas there are, be it one, and a command leaves it open."""
    (scripts / "comp.py").write_text(
        "from transload.specs import AppDef, Role\n"
        "def c(n: int = 1) -> AppDef:\n"
        "    role = Role('m', '', entrypoint='python3', args=['train.py'], num_replicas=n)\n"
        "    return AppDef('c', [role])\n"
    )
    with Runner("t") as runner:
        counts = [
            planned(runner, **launch).roles[0].num_replicas
            for launch in (
                {"component": "comp.py", "args": {"n": 1}},
                {"component": "comp.py", "args": ["--n", "2"]},
                {"component": "utils.python", "args": {"script": "train.py"}},
                {"component": "dist.ddp", "args": {"script": "train.py", "j": "1x2"}},
                {"component": "train.py"},
                {"command": ["python", "train.py"]},
                {"command": ["python", "train.py"], "overrides": {"replicas": 1}},
            )
        ]
    assert counts == [1, 2, 1, 1, 3, 3, 1]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_a_byte_order_mark_hides_no_header(scripts: Path, mark: bytes) -> None:
    """A header on the first line counts where an editor has put a byte order mark before it."""
    (scripts / "train.py").write_bytes(mark + HEADER.encode())
    with Runner("t") as runner:
        found = [
            planned(runner, command=["python", "train.py"]),
            planned(runner, component="train.py"),
            planned(runner, command=["true"], environment="train.py"),
        ]
    assert all(each.roles[0].environment is not None for each in found)
    assert [each.name for each in found] == ["trainer", "trainer", "true"]


def test_a_header_with_a_python_alone(scripts: Path) -> None:
    """A header that names a Python and no packages is an environment with that Python."""
    digests = set()
    for version in (">=3.8", ">=3.99"):
        (scripts / "train.py").write_text(f"# /// script\n# requires-python = '{version}'\n# ///\n")
        with Runner("t") as runner:
            found = planned(runner, command=["python", "train.py"]).roles[0].environment
        assert found is not None and found.kind == "script"
        digests.add(found.sha256)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("mem = 8", "must have a unit|with a unit"),
        ("mem = '8'", "must have a unit, such as 8M"),
        ("time-limit = 10", "time-limit=10: must have a unit, such as '10s', '10m' or '10h'"),
        ("time-limit = '10'", "time-limit='10': must have a unit"),
        ("notice = 120", "notice=120: must have a unit"),
        ("notice = 1.5", "notice=1.5: must have a unit"),
        ("time-limit = -1", "time-limit=-1: must be above 0"),
        ("replicas = true", "replicas=True: must be an int"),
        ("cpu = '1_0'", "cpu='1_0': must be a number"),
        ("scheduler = 5", "scheduler=5: must be a str"),
        ("scheduler = ''", "scheduler='': must not be empty"),
        ("memory = '8G'", "memory: unknown key"),
    ],
)
def test_a_number_of_a_header_has_a_unit(scripts: Path, line: str, says: str) -> None:
    """A number without its unit is refused with file and line, as everywhere."""
    (scripts / "train.py").write_text(f"# /// script\n# [tool.transload]\n# {line}\n# ///\n")
    with Runner("t") as runner, pytest.raises(SpecError, match=says) as raised:
        planned(runner, command=["python", "train.py"])
    assert "train.py:3: [tool.transload]" in str(raised.value)


def test_a_job_without_any_of_this_is_as_it_was(scripts: Path) -> None:
    """Without a header or a setting, the definition and its digest are as given."""
    (scripts / "plain.py").write_text("print(1)\n")
    app = AppDef("a", [Role("main", "", entrypoint="python", args=["plain.py"])])
    with Runner("t") as runner:
        assert planned(runner, app=app) is app
    assert "environment" not in app.to_json()


def test_a_scheduler_that_installs_nothing_refuses_it(
    script: Path, control: ScriptedControl
) -> None:
    """A scheduler that installs nothing refuses it by the field's path.

    ``none`` switches it off.
    """
    command = ["python", "train.py"]
    with Runner("t") as runner:
        with pytest.raises(UnsupportedFeature, match=r"roles\[0\]\.environment") as raised:
            planned(runner, command=command, scheduler="scripted")
        assert raised.value.field == "roles[0].environment"
        assert "--environment none" in str(raised.value)
        planned(runner, command=command, scheduler="scripted", environment="none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# /// script\n# dependencies = [\n# ///\n", r"train\.py:2: the header is not TOML"),
        ("x = 1\n# /// script\n# a = = 1\n# ///\n", r"train\.py:3: the header is not TOML"),
        ("# /// script\n# dependencies = []\n\n", r"train\.py:1: the header .* does not end"),
        (
            "# /// script\n# dependencies = []\n# ///\n\n# /// script\n# dependencies = []\n# ///\n",
            r"train\.py:5: a second header",
        ),
        (
            "# /// script\n# dependancies = []\n# ///\n",
            r"train\.py:2: dependancies: unknown key.*'dependencies'",
        ),
        ("# /// script\n# dependencies = 'x'\n# ///\n", r"train\.py:2: dependencies"),
        (
            "# /// script\n# [tool.transload]\n# gpus = 1\n# ///\n",
            r"train\.py:3: \[tool\.transload\] gpus: unknown key: did you mean 'gpu'",
        ),
        (
            "# /// script\n# [tool.transload]\n# gpu = 'one'\n# ///\n",
            r"train\.py:3: .*gpu='one': must be a whole number",
        ),
        (
            "# /// script\n# [tool.transload]\n# env = { HF_TOKEN = 'hf_abc' }\n# ///\n",
            r"train\.py:3: .*HF_TOKEN in env: looks like a secret.*env:HF_TOKEN",
        ),
        (
            "# /// script\n# [tool.transload]\n# secrets = { HF_TOKEN = 'hf_abc' }\n# ///\n",
            r"train\.py:3: .*HF_TOKEN in secrets=.*must be a reference",
        ),
        (
            "# /// script\n# [tool.transload]\n# mem = '2 lumps'\n# ///\n",
            r"train\.py:3: \[tool\.transload\] mem=",
        ),
        (
            "# /// script\n# dependencies = ['tiny @ file:///opt/tiny']\n# ///\n",
            r"train\.py:2: .*is a local path, which does not travel",
        ),
        (
            "# /// script\n# dependencies = ['tiny @ https://me:hunter2@host/t.whl']\n# ///\n",
            r"train\.py:2: .*a password must not be written here",
        ),
    ],
)
def test_a_wrong_header_is_one_line(scripts: Path, text: str, message: str) -> None:
    """The line has file, line, what is wrong and what is allowed, and shows no secret."""
    (scripts / "train.py").write_text(text)
    with Runner("t") as runner, pytest.raises(SpecError, match=message) as raised:
        planned(runner, command=["python", "train.py"])
    assert "\n" not in str(raised.value)
    assert "hf_abc" not in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("poetry.lock", "", r"is a file of Poetry, which is not read"),
        ("pylock.toml", "", r"is a file of pip lock"),
        ("pyproject.toml", "", r"give the uv\.lock beside it"),
        ("packages.yaml", "", r"must be a script with an inline header"),
        ("uv.lock", "a = 1\n", r"uv\.lock: is no lock of uv"),
        ("uv.lock", "a = = 1\n", r"uv\.lock: is not TOML"),
        ("requirements.txt", "tiny\n-e .\n", r"requirements\.txt:2: -e \.: is a local path"),
        ("requirements.txt", "./wheels/tiny.whl\n", r"requirements\.txt:1: .*local path"),
        ("requirements.txt", "tiny @ file:///x\n", r"requirements\.txt:1: .*local path"),
        ("requirements.txt", "--find-links wheels\ntiny\n", r":1: --find-links wheels: .*local"),
        ("requirements.txt", "-r ../other.txt\n", r":1: -r \.\./other\.txt: is a local path"),
        ("requirements.txt", "-c limits.txt\n", r":1: -c limits\.txt: constraints do not travel"),
        ("requirements.txt", "-i https://${WORD}@host/simple\n", r":1: .*UV_INDEX_NAME_PASSWORD"),
        ("requirements.txt", "-r missing.txt\n", r"missing\.txt: cannot be read: No such file"),
        ("requirements.txt", "-i https://me:hunter2@host/simple\ntiny\n", r":1: .*a password"),
        ("job.py", "print(1)\n", r"job\.py: has no header"),
    ],
)
def test_a_wrong_file_is_one_line(scripts: Path, name: str, text: str, message: str) -> None:
    """What is wrong with it, and with which line."""
    (scripts / name).write_text(text)
    (scripts / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "0"\n')
    with Runner("t") as runner, pytest.raises(SpecError, match=message) as raised:
        planned(runner, command=["true"], environment=name)
    assert "\n" not in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_password_by_a_variable_is_allowed(scripts: Path) -> None:
    """``${NAME}`` stands for a secret of the job, and comments and markers are no paths."""
    (scripts / "requirements.txt").write_text(
        "# see ./notes\n--index-url https://host/simple\n"
        "tiny ; python_version > '3'  # fine\nother[extra]>=1 \\\n  --hash=sha256:aa\n"
        "third @ git+https://host/x.git\nlast @ https://${WHO}:${WORD}@host/last.whl\n"
    )
    with Runner("t") as runner:
        found = planned(runner, command=["true"], environment="requirements.txt").roles[0]
    assert found.environment is not None


def test_files_that_are_included_count(scripts: Path) -> None:
    """A changed included file is another environment. The name of the first file is no matter."""
    (scripts / "sub").mkdir()
    (scripts / "requirements.txt").write_text("-r sub/base.txt\n")
    (scripts / "other.txt").write_text("-r sub/base.txt\n")
    (scripts / "sub" / "base.txt").write_text("tiny\n")

    def digest(file: str) -> str:
        with Runner("t") as runner:
            found = planned(runner, command=["true"], environment=file).roles[0].environment
        assert found is not None
        return found.sha256

    first = digest("requirements.txt")
    assert digest("other.txt") == first
    (scripts / "sub" / "base.txt").write_text("tiny<3\n")
    assert digest("requirements.txt") != first


def test_the_digest_of_a_definition_knows_no_folder(scripts: Path) -> None:
    """Equal packages make equal definitions, wherever the file lies."""
    one = Environment("requirements.txt", "r.txt", "a" * 64, source="/one/r.txt")
    other = Environment("requirements.txt", "r.txt", "a" * 64, source="/other/r.txt")
    apps = [AppDef("a", [Role("r", "", entrypoint="x", environment=each)]) for each in (one, other)]
    assert apps[0].digest() == apps[1].digest()
    assert AppDef.from_json(apps[0].to_json()) == apps[0]


def test_a_file_that_changed_since_is_refused(scripts: Path) -> None:
    """A definition with a digest runs with that content, or not at all."""
    (scripts / "requirements.txt").write_text("tiny\n")
    with Runner("t") as runner:
        app = planned(runner, command=["true"], environment="requirements.txt")
        (scripts / "requirements.txt").write_text("tiny==2\n")
        with pytest.raises(SpecError, match=r"roles\[0\]\.environment=.*has changed"):
            planned(runner, app=app)


def test_a_launch_travels_as_json(scripts: Path) -> None:
    """A launch travels with its environment. One without is written as earlier versions read it."""
    launch = Launch(command=["true"], environment=Environment("script", "a.py", source="/a.py"))
    assert Launch.from_dict(launch.to_dict()) == launch
    assert "environment" not in Launch(command=["true"]).to_dict()


def test_line_endings_of_windows(scripts: Path) -> None:
    """A header with them is read as one without."""
    (scripts / "train.py").write_bytes(HEADER.replace("\n", "\r\n").encode())
    header = read_header(str(scripts / "train.py"))
    assert header is not None
    assert header.dependencies == ["tiny"]
