"""What travels with an app, what its paths are relative to, which variables are passed on."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import ConfigError, SpecError
from transload.pipelines import Identity, Launch
from transload.runner import Runner, job_env, travel
from transload.specs import AppDef, Role, Workspace
from transload_testing.scripted import ScriptedScheduler
from transload_testing.steps import PlainStep

JOB = """
from transload.specs import AppDef, Role

def job(image: str = "img") -> AppDef:
    return AppDef("job", [Role("main", image, entrypoint="python", args=["train.py"])])
"""


def _app(image: str = "", **more: Any) -> AppDef:
    return AppDef("a", [Role("main", image, entrypoint="true", **more)])


@pytest.fixture
def far(plain_folder: str) -> Callable[..., Role]:
    """Return the role as a scheduler without this machine's files gets it, by ``far(app)``."""

    def make(session: str) -> ScriptedScheduler:
        scheduler = ScriptedScheduler(session)
        scheduler.shares_disk = False
        return scheduler

    def convert(source: Any, **more: Any) -> Role:
        with Runner("test", {"far": make}) as runner:
            role: Role = runner.dryrun(Launch.of(source, **more), "far").request.app.roles[0]
        return role

    return convert


def test_the_folder_of_a_component_file_travels(far: Callable[..., Role], tmp_path: Path) -> None:
    """A component file's folder travels where jobs do not see it. Own workspaces go first."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    file = f"{folder}/job.py:job"
    assert far(file).workspace == Workspace({str(folder): ""})
    assert far(file, args={"image": str(tmp_path)}).workspace is None
    assert far(file, workspace=".").workspace == Workspace({".": ""})
    assert far("utils.echo").workspace is None
    with Runner("test") as runner:
        assert (
            runner.dryrun_component(file, scheduler="scripted").request.app.roles[0].workspace
            is None
        )


def test_an_app_without_an_image_takes_the_working_folder(
    far: Callable[..., Role], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A job without an image gets the folder over the default image, but never a whole home."""
    assert far(_app()).workspace == Workspace({os.getcwd(): ""})
    assert far(_app("img")).workspace is None
    monkeypatch.setenv("HOME", os.getcwd())
    assert far(_app()).workspace is None
    assert far(_app(), folder="/").workspace is None
    assert far(_app(), folder=str(tmp_path)).workspace == Workspace({str(tmp_path): ""})


BUILT_IN = [
    # a built-in component, its arguments, whether the folder travels with it
    ("dist.ddp", ["--script", "train.py"], True),
    ("dist.ddp", ["-m", "models.train"], True),
    ("dist.spmd", ["--script", "train.py", "--", "--lr", "0.1"], True),
    ("dist.ddp", ["--script", "nothere.py"], False),
    ("dist.ddp", ["--script", "train.py", "--image", "mine:1"], False),
    ("utils.python", ["--script", "train.py"], True),
    ("utils.python", ["-m", "train"], True),
    ("utils.python", ["-m", "json.tool"], False),
    ("utils.python", ["-c", "print(1)"], False),
    ("utils.sh", ["bash", "run.sh"], True),
    ("utils.sh", ["echo", "a b"], False),
    ("utils.echo", ["--msg", "hello"], False),
]


@pytest.mark.parametrize(("component", "args", "travels"), BUILT_IN)
def test_built_in_components_take_along_what_they_run(
    component: str, args: list[str], travels: bool, far: Callable[..., Role]
) -> None:
    """The script or module of the working folder, if the image is none of the user's own."""
    Path("train.py").write_text("print(1)\n")
    Path("run.sh").write_text("true\n")
    Path("models").mkdir()
    Path("models/train.py").write_text("print(1)\n")
    expected = Workspace({os.getcwd(): ""}) if travels else None
    assert far(component, args=args).workspace == expected


def test_code_that_does_not_travel_is_named(
    plain_folder: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no folder can be taken along, as on Kubernetes without a place for it."""

    def make(session: str) -> ScriptedScheduler:
        scheduler = ScriptedScheduler(session)
        scheduler.shares_disk = False
        monkeypatch.setattr(scheduler, "takes_workspace", lambda cfg: False)
        return scheduler

    Path("train.py").write_text("print(1)\n")
    with Runner("test", {"far": make}) as runner:
        for args in (["-c", "1"], ["--script", "train.py", "--image", "mine:1"]):
            runner.dryrun_component("utils.python", args, "far")
        assert not caplog.messages
        runner.dryrun_component("utils.python", ["--script", "train.py"], "far")
    (said,) = caplog.messages
    assert said.startswith(f"role python: train.py lies in {plain_folder}, which does not travel")


def test_an_image_that_is_set_over_an_app_takes_the_folder_too(plain_folder: str) -> None:
    """``--image X`` means what the scheduler's option ``image`` does. A folder is itself."""

    def make(session: str) -> ScriptedScheduler:
        scheduler = ScriptedScheduler(session)
        scheduler.shares_disk = False
        return scheduler

    with Runner("test", {"far": make}) as runner:

        def role(launch: Launch, image: str) -> Role:
            found: Role = runner.dryrun(
                launch, "far", overrides={"image": image}
            ).request.app.roles[0]
            return found

        command = Launch(command=["python", "train.py"])
        assert role(command, "X").workspace == Workspace({os.getcwd(): ""})
        assert role(command, "/code").workspace is None
        assert role(Launch(app=_app("img")), "X").workspace is None


def test_an_image_that_is_not_used_is_named(
    transload_home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An image that a local job cannot use is named, since an image is a folder here."""
    with Runner("test") as runner:
        command = Launch(command=["true"])
        runner.dryrun(command, "local", overrides={"image": str(tmp_path)})
        runner.dryrun_component("utils.echo", ["--image", "alpine:3"], "local")
        assert not caplog.messages
        for scheduler in ("local", "local_cwd"):
            runner.dryrun(command, scheduler, overrides={"image": "alpine:3"})
    said = "image alpine:3 is not used: scheduler {} runs programs of the machine itself, where no folder has that name"
    assert caplog.messages == [said.format("local"), said.format("local_cwd")]


def test_a_large_folder_does_not_travel_unasked(
    far: Callable[..., Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says where, how much, and what to do, without counting what is left out."""
    monkeypatch.setattr(travel, "LARGEST", 3 << 20)
    Path("model.bin").write_bytes(b"\0" * (4 << 20))
    with pytest.raises(
        SpecError, match=r"roles\[0\]\.workspace=.*more than 3 MiB.*\.transloadignore"
    ):
        far(_app())
    Path(".transloadignore").write_text("*.bin\n")
    assert far(_app()).workspace is not None


def test_what_travels_is_said_if_it_is_much(
    plain_folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line of each folder says how much, and what is left out. A small folder has no line."""
    monkeypatch.setattr(travel, "LARGE", 3 << 20)

    def make(session: str) -> ScriptedScheduler:
        scheduler = ScriptedScheduler(session)
        scheduler.shares_disk = False
        return scheduler

    Path("train.py").write_text("")
    Path(".transloadignore").write_text("data/\n")
    for name in ("data", ".git"):
        Path(name).mkdir()
    roles = [Role(name, "", entrypoint="true") for name in ("a", "b")]
    with Runner("test", {"far": make}) as runner, caplog.at_level(logging.INFO, "transload"):
        runner.run(AppDef("small", roles), "far")
        assert not caplog.messages
        Path("model.bin").write_bytes(b"\0" * (4 << 20))
        runner.run(AppDef("large", roles), "far")
    (said,) = caplog.messages
    assert said.startswith(
        f"{os.getcwd()} travels to far: 4.0 MiB in 3 files; left out: .git/, data/;"
    )


def test_paths_are_relative_to_the_file_that_defines_a_unit(
    plain_folder: str, tmp_path: Path
) -> None:
    """Component file, workspace, image folder, secrets and the working directory, wherever the
    worker works.
    """
    (tmp_path / "src").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "key").write_text("s3cr3t\n")
    launch = Launch(component="job.py:job", folder=str(tmp_path))
    assert launch.build().name == "job"
    assert launch.resolve_component().folder == str(tmp_path)
    with Runner("test") as runner:
        source = _app(
            "src", workspace=Workspace({"src": "x", "~/y": ""}), secrets={"S": "file:key"}
        )
        info = runner.dryrun(Launch(app=source, folder=str(tmp_path)), "scripted")
        (role,) = info.request.app.roles
        assert role.workspace == Workspace({f"{tmp_path}/src": "x", "~/y": ""})
        assert (role.image, role.secrets) == (f"{tmp_path}/src", {"S": f"file:{tmp_path}/key"})
        assert info.app.roles[0].workspace == Workspace({"src": "x", "~/y": ""})
        app = AppDef(
            "a",
            [
                Role(
                    "main",
                    "",
                    entrypoint="sh",
                    args=["-c", "pwd; echo $S"],
                    secrets={"S": "file:key"},
                )
            ],
        )
        handle = runner.run(Launch(app=app, folder=str(tmp_path)), "local")
        runner.wait(handle, timeout=60)
        assert list(runner.log_lines(handle, "main")) == [f"{tmp_path}\n", "s3cr3t\n"]
        app.roles[0].secrets = {}
        own = runner.run(app, "local", {"working_dir": str(tmp_path)})
        runner.wait(own, timeout=60)
        assert next(runner.log_lines(own, "main")) == f"{tmp_path}\n"


@pytest.mark.parametrize("by", ["argument", "table", "launch"])
def test_variables_are_passed_by_pattern(
    plain_folder: str, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """Those that match reach the app, secret-looking ones by reference, and none that it sets
    itself.
    """
    for name, value in {
        "HF_HOME": "/hf",
        "HF_TOKEN": "s3cr3t",
        "HF_OWN": "ours",
        "OTHER": "x",
    }.items():
        monkeypatch.setenv(name, value)
    if by == "table":
        Path("transload.toml").write_text('[schedulers.scripted]\npass_env = ["HF_*"]\n')
    cfg: dict[str, Any] = {"pass_env": ["HF_*"]} if by == "argument" else {}
    app = _app(env={"HF_OWN": "theirs"}, metadata={"scripted": {"steps": [{"state": "SUCCEEDED"}]}})
    with Runner("test", inherit_env=False) as runner:
        if by == "launch":
            said: list[str] = []
            launch = Launch(app=app, scheduler="scripted", pass_env=["HF_*"])
            monkeypatch.setenv("WANDB_MODE", "offline")
            PlainStep(runner, launch, Identity("test", ("n",), ("k",)), said=said.append).run()
            (line,) = [line for line in said if "not passed" in line]
            assert "WANDB_MODE" in line and "HF_HOME" not in line and "OTHER" not in line
            return
        info = runner.dryrun(app, "scripted", cfg)
        (role,) = info.request.app.roles
        assert {
            name: role.env.get(name) for name in ("HF_HOME", "HF_OWN", "HF_TOKEN", "OTHER")
        } == {
            "HF_HOME": "/hf",
            "HF_OWN": "theirs",
            "HF_TOKEN": None,
            "OTHER": None,
        }
        assert role.secrets == {"HF_TOKEN": "env:HF_TOKEN"}
        assert "s3cr3t" not in str(info) and info.app == app
        with pytest.raises(ConfigError, match="pass_env=5"):
            runner.dryrun(app, "scripted", {"pass_env": 5})


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Launch(command=["env"], pass_env="HF_*"),
        lambda: transload.run(command=["env"], pass_env="HF_*"),
        lambda: transload.submit(print, pass_env="HF_*"),
    ],
)
def test_one_pattern_that_is_no_list(ask: Callable[[], object]) -> None:
    """A text in place of a list is refused, since its letters would pass all variables on."""
    with pytest.raises(SpecError, match="pass_env='HF_"):
        ask()


def test_python_is_found_as_python3(plain_folder: str, tmp_path: Path) -> None:
    """Where only `python3` is there, `python` means it. Any other name is still an error."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text("#!/bin/sh\necho python3 $1\n")
    (folder / "python3").chmod(0o700)
    with Runner("test") as runner:
        app = AppDef(
            "a", [Role("m", "", entrypoint="python", args=["x"], env={"PATH": str(folder)})]
        )
        handle = runner.run(app, "local")
        runner.wait(handle, timeout=60)
        assert list(runner.log_lines(handle, "m")) == ["python3 x\n"]
        app.roles[0].entrypoint = "perl"
        with pytest.raises(SpecError, match="no such program"):
            runner.run(app, "local")


@pytest.mark.parametrize(("scheduler", "named"), [("local", False), ("scripted", True)])
def test_the_command_line_names_what_is_not_passed(
    scheduler: str, named: bool, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is set here and reaches no job is named once. Jobs on this machine inherit it."""
    for name in [name for name in os.environ if job_env.not_passed(None, {name: ""}, False)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_TOKEN", "hidden-value")

    def run(*words: str) -> str:
        command = [
            sys.executable,
            "-m",
            "transload",
            "run",
            "-s",
            scheduler,
            "--detach",
            *words,
            "--",
            "true",
        ]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=60
        ).stderr

    said = run()
    wanted = "set here, and not passed to jobs: HF_TOKEN (if a job needs it, type --pass-env"
    assert (wanted in said) is named
    assert "hidden-value" not in said
    assert "not passed" not in run()
    monkeypatch.setenv("WANDB_API_KEY", "hidden-value")
    assert "not passed" not in run("--pass-env", "HF_*", "--pass-env", "WANDB_*")
    said = run()
    assert ("not passed to jobs: WANDB_API_KEY" in said) is named
    assert "HF_TOKEN" not in said
