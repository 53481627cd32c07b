"""Tasks submit jobs of several roles and replicas for real, and are killed and restarted."""

# No "from __future__ import annotations": KFP reads the annotations of pipeline functions, and as
# types.

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launched
import pytest
from executor import metadata_of, value_of, words_of
from kfp import compiler, components, dsl, kubernetes, local
from test_convert import compiled

from transload.errors import AppNotFound, ConfigError, SpecError
from transload.pipelines import Launch, host_runner
from transload.runner import Runner
from transload.schedulers.local.scheduler import LocalScheduler
from transload.specs import AppDef, AppState, Role
from transload_kfp import EXIT_CANCELLED, launcher_from_app, search_pipeline
from transload_kfp.__main__ import main
from transload_kfp.step import NODE
from transload_search import Objective, Parameter, Search

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:.*no effect in the current local runner:UserWarning"),
]
IMAGE = "launcher:1"


@pytest.fixture
def subprocess_kfp(local_kfp: Any, transload_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start KFP's subprocess runner, whose tasks find these tests' modules and programs."""
    found = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    folder: Path = local_kfp(local.SubprocessRunner(use_venv=False))
    return folder


@pytest.fixture
def in_process(transload_home: Path) -> Iterator[None]:
    """Close the runner of a launcher in this process after the test."""
    yield
    host_runner("kfp").close()


def run_launcher(made: Any, folder: Path, **inputs: Any) -> str:
    """Run a launcher's task in this process, and return the handle of its job."""
    main(words_of(made, folder, **inputs))
    return value_of(folder, "handle")


# -- through pipelines


def test_two_roles_of_two_locally(subprocess_kfp: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Two roles of two replicas run by the local scheduler, with logs, results and a parent."""
    decide = launcher_from_app(
        launched.group,
        name="decide",
        component_args={"image": "/tmp", "words": ["one"], "replicas": 1},
        results={"size": int},
    )
    made = launcher_from_app(
        launched.group,
        scheduler="local",
        component_args={"image": "/tmp"},
        results={"left-1/who": str, "right-0/size": int},
    )

    @dsl.pipeline(name="p")
    def pipeline(replicas: int = 2) -> str:
        first = decide()
        second = made(replicas=replicas, parent_run_id=first.outputs["handle"])
        return second.outputs["left_1_who"]

    assert pipeline().outputs["Output"] == "left-1"
    shown = capfd.readouterr().out
    for name in ("left", "right"):
        for k in range(2):
            assert f"{name}/{k} I am {name}-{k}" in shown
    (folder,) = subprocess_kfp.iterdir()
    (task,) = folder.glob("*group*")
    assert sorted(path.name for path in (task / "results").glob("*.json")) == [
        "left-0.json",
        "left-1.json",
        "right-0.json",
        "right-1.json",
    ]
    assert (task / "right_0_size").read_text() == "2"


def cores_and_images(engine: Any) -> list[tuple[float, str]]:
    """Return what each container on an engine was given."""
    import docker

    client = docker.APIClient(base_url=engine.url)
    try:
        seen = [client.inspect_container(row["Id"]) for row in client.containers(all=True)]
    finally:
        client.close()
    return [(each["HostConfig"]["NanoCpus"] / 1e9, each["Config"]["Image"]) for each in seen]


def test_two_roles_of_two_by_docker(
    engine: Any, image: str, subprocess_kfp: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same job runs as containers by the scheduler's name.

    Image and cores come from upstream.
    """
    first = launcher_from_app(
        launched.decide,
        scheduler="local",
        component_args={"cpu": 0.25},
        results={"image": str, "cpu": float},
    )
    made = launcher_from_app(
        launched.group,
        scheduler="docker",
        results={"left-1/who": str, "right-0/size": int},
        inherit_env=True,
    )

    @dsl.pipeline(name="p")
    def pipeline(image: str) -> int:
        decided = first(image=image).outputs
        return made(image=decided["image"], cpu=decided["cpu"]).outputs["right_0_size"]

    assert pipeline(image=image).outputs["Output"] == 2
    shown = capfd.readouterr().out
    for role in ("left", "right"):
        for k in range(2):
            assert f"{role}/{k} I am {role}-{k}" in shown
    with Runner("kfp") as runner:
        (row,) = runner.list("docker")
        status = runner.status(row.app_handle)
        assert status is not None and status.state is AppState.SUCCEEDED
        assert sorted((role.role, len(role.replicas)) for role in status.roles) == [
            ("left", 2),
            ("right", 2),
        ]
        assert cores_and_images(engine) == [(0.25, image)] * 4
        runner.delete(row.app_handle)


def test_container_form(docker_kfp: Path, image: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A launcher in a container submits to the local scheduler that is in there."""
    app = launched.group("/tmp", replicas=2)
    made = launcher_from_app(
        app,
        scheduler="local",
        inputs={"replicas": "roles[right].num_replicas", "name": "roles[left].args[3]"},
        results={"right-2/who": str, "left-0/size": int},
        image=image,
    )

    @dsl.pipeline(name="p")
    def pipeline(replicas: int = 3) -> str:
        task = made(replicas=replicas)
        return task.outputs["right_2_who"]

    assert pipeline().outputs["Output"] == "right-2"
    shown = capfd.readouterr().out
    assert "right/2 I am right-2" in shown
    (folder,) = docker_kfp.iterdir()
    assert len(list((folder / "group" / "results").glob("*.json"))) == 5


def test_a_command_with_settings_is_compiled_and_runs(
    docker_kfp: Path, image: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A launcher alone is a pipeline, and runs with a variable, two replicas and a retry."""
    file = tmp_path / "pipeline.yaml"
    script = 'echo "$WORD from $TRANSLOAD_REPLICA_ID"; test "$TRANSLOAD_RETRY" = 1'
    made = launcher_from_app(
        command=["sh", "-c", script],
        scheduler="local",
        image=image,
        name="greet",
        overrides={"env": {"WORD": "hello"}, "replicas": 2, "retries": 1, "retry_delay": "0s"},
    )
    compiler.Compiler().compile(made, str(file))
    components.load_component_from_file(str(file))()
    shown = capfd.readouterr().out
    for k in range(2):
        assert shown.count(f"main/{k} hello from {k}") == 2
    (folder,) = docker_kfp.iterdir()
    assert (folder / "greet").is_dir()


def test_failure_is_said(subprocess_kfp: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A failed job fails the run, and the task's log has replica, exit code and last lines."""
    made = launcher_from_app(launched.failing)

    @dsl.pipeline(name="p")
    def pipeline():
        made(code=5)

    with pytest.raises(RuntimeError, match="FAILURE"):
        pipeline()
    shown = capfd.readouterr().out
    assert "main/0 exit code 5" in shown
    assert "last words" in shown
    assert "Traceback" not in shown


def test_any_names_of_arguments(subprocess_kfp: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An app and its arguments may be called as nothing in Python can be."""
    settled = {"mode": launched.Mode.FAST, "path": Path("/q")}
    made = launcher_from_app(
        launched.odd_names, name="class", scheduler="local", component_args=settled
    )

    @dsl.pipeline(name="p")
    def pipeline():
        made(place="here", given="there")

    pipeline()
    assert "main/0 got here there c quick /q" in capfd.readouterr().out


# -- a launcher's process


EARLY = """
import os, signal, sys
from transload_kfp import sigterm
sigterm.note_from_now_on()
os.kill(os.getpid(), signal.SIGTERM)
from transload_kfp.__main__ import main
main(sys.argv[1:])
"""
"""What the container does, with a SIGTERM just before the launcher is imported."""


def start(
    tmp_path: Path, source: Any, *, early: bool = False, **options: Any
) -> subprocess.Popen[str]:
    """Start the process of a launcher's container, with KFP's executor input."""
    made = launcher_from_app(
        source,
        component_args={"folder": str(tmp_path)},
        scheduler="local",
        image="python:3.11",
        **options,
    )
    container = made.component_spec.implementation.container
    program = ["-c", EARLY] if early else container.command[1:3]
    words = [*program, *words_of(made, tmp_path / "out")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    }
    return subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_outputs_that_no_component_declares(tmp_path: Path, transload_home: Path) -> None:
    """A backend that publishes logs lists an output of its own, which is left alone."""
    (tmp_path / "go").touch()
    process = start(tmp_path, launched.once, results={"done": int})
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert metadata_of(tmp_path / "out", "metrics") == {"done": 1}
    output = json.loads((tmp_path / "out" / "executor_output.json").read_text())
    assert set(output["artifacts"]) == {"results", "metrics"}


def starts(tmp_path: Path) -> int:
    """Return how often the app was started."""
    path = tmp_path / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_sigterm_cancels_and_stays_cancelled(
    tmp_path: Path, transload_home: Path, eventually: Any
) -> None:
    """SIGTERM ends the job, and the launcher exits with 79.

    Started again, it exits with 79 again and submits nothing.
    """
    process = start(tmp_path, launched.waiting)
    eventually(lambda: starts(tmp_path) == 1, 60)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == EXIT_CANCELLED, said
    assert "SIGTERM" in said and "CANCELLED" in said
    again = start(tmp_path, launched.waiting)
    _, said = again.communicate(timeout=60)
    assert again.returncode == EXIT_CANCELLED, said
    assert starts(tmp_path) == 1


def test_sigterm_inside_a_job_leaves_the_app(
    tmp_path: Path, transload_home: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    """Where a job around the launcher can say that nobody asked for its end, SIGTERM leaves the
    app, to be found.
    """
    with Runner("test") as runner:
        outer = runner.run(
            AppDef("outer", [Role("main", "", entrypoint="sleep", args=["600"])]), "local"
        )
        with monkeypatch.context() as inside:
            inside.setenv("TRANSLOAD_JOB_ID", outer)
            process = start(tmp_path, launched.waiting)
            eventually(lambda: starts(tmp_path) == 1, 60)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
            assert process.returncode == 143 and "SIGTERM: detaching" in said, said
            (inner,) = [row.app_handle for row in runner.list("local") if row.app_handle != outer]
            assert str(runner.status(inner).state) == "RUNNING"
            again = start(tmp_path, launched.waiting)
            assert again.stderr is not None
            while "attached to local://" not in (line := again.stderr.readline()):
                assert line, "it ended without a word of what it found"
            runner.cancel(outer)
            eventually(lambda: runner.status(outer).is_terminal(), 30)
            again.send_signal(signal.SIGTERM)
            _, said = again.communicate(timeout=60)
            assert again.returncode == EXIT_CANCELLED, said
        eventually(lambda: runner.status(inner).state is AppState.CANCELLED, 30)
        assert starts(tmp_path) == 1


def test_sigterm_before_the_launcher_is_ready(
    tmp_path: Path, transload_home: Path, eventually: Any
) -> None:
    """A SIGTERM while a launcher that was started again is being imported cancels the app that it
    would find.
    """
    first = start(tmp_path, launched.waiting, early=True)
    _, said = first.communicate(timeout=60)
    assert (first.returncode, starts(tmp_path)) == (143, 0), (
        said
    )  # there is nothing yet, and nothing is submitted
    process = start(tmp_path, launched.waiting)
    eventually(lambda: starts(tmp_path) == 1, 60)
    process.kill()
    process.communicate(timeout=60)
    again = start(tmp_path, launched.waiting, early=True)
    _, said = again.communicate(timeout=60)
    assert again.returncode == 143 and "SIGTERM: cancelling" in said, said
    with Runner("test") as runner:
        (row,) = runner.list("local")
        ended = runner.wait(row.app_handle, timeout=60)
    assert ended is not None and ended.state is AppState.CANCELLED


def test_started_again_is_one_job(tmp_path: Path, transload_home: Path, eventually: Any) -> None:
    """A launcher that is killed finds its one job again."""
    process = start(tmp_path, launched.once, results={"done": int})
    eventually(lambda: starts(tmp_path) == 1, 60)
    process.kill()
    process.communicate(timeout=60)
    again = start(tmp_path, launched.once, results={"done": int})
    assert again.stderr is not None
    while "attached to local://" not in (line := again.stderr.readline()):
        assert line, "it ended without a word of what it found"
    (tmp_path / "go").touch()
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert starts(tmp_path) == 1
    assert value_of(tmp_path / "out", "done") == "1"
    assert metadata_of(tmp_path / "out", "metrics") == {"done": 1}
    handle = value_of(tmp_path / "out", "handle")
    assert metadata_of(tmp_path / "out", "results") == {"transload_handle": handle}
    assert (tmp_path / "out" / "results" / "all.json").exists()


def test_checkpoints_of_another_job(in_process: None, tmp_path: Path) -> None:
    """A launcher carries the handle of the job whose checkpoints its own begins with."""
    launch = Launch(component=launched.failing, checkpoints="local://transload/before")
    made = launcher_from_app(launch, scheduler="local", image=IMAGE)
    with pytest.raises(AppNotFound, match="checkpoints=local://transload/before"):
        made.dry_run(code=2)


@pytest.mark.parametrize("value", ["Infinity", '"3"'])
def test_a_result_of_another_type(
    tmp_path: Path, in_process: None, capfd: pytest.CaptureFixture[str], value: str
) -> None:
    """A result that is no whole number, though declared as one, is a line and exit code 70."""
    made = launcher_from_app(
        reports_n(tmp_path, value), scheduler="local", image=IMAGE, results={"n": int}
    )
    with pytest.raises(SystemExit) as caught:
        run_launcher(made, tmp_path)
    assert caught.value.code == 70
    assert "the job ended well, but result 'n' is" in capfd.readouterr().err


def test_a_result_that_json_has_not(tmp_path: Path, in_process: None) -> None:
    """NaN and infinities are values as others, though a backend's JSON has none."""
    made = launcher_from_app(
        reports_n(tmp_path, "NaN"), scheduler="local", image=IMAGE, results={"n": float}
    )
    run_launcher(made, tmp_path)
    assert value_of(tmp_path, "n") == "NaN"
    assert metadata_of(tmp_path, "metrics") == {"n": "nan"}
    assert "NaN" not in (tmp_path / "executor_output.json").read_text()


def reports_n(folder: Path, value: str) -> AppDef:
    """Return an app that reports the result ``n``."""
    text = f"""printf '%s' '{{"schema": 1, "results": {{"n": {value}}}}}' > "$TRANSLOAD_TRACKER_BASE/all.json\""""
    text = 'mkdir -p "$TRANSLOAD_TRACKER_BASE"; ' + text
    return AppDef("odd", [Role("main", str(folder), entrypoint="sh", args=["-c", text])])


@pytest.mark.parametrize(
    ("value", "said"),
    [('"' + "x" * 2000 + '"', "at most 1024"), ("null", "a value is"), ("[1]", "a value is")],
)
def test_a_result_that_none_can_be(
    tmp_path: Path, transload_home: Path, value: str, said: str
) -> None:
    """A result that the public format cannot have is named.

    If it is declared, the exit code is 70.
    """
    (tmp_path / "report.json").write_text(f'{{"schema": 1, "results": {{"n": {value}}}}}')
    for results, code in ((None, 0), ({"n": str}, 70)):
        folder = tmp_path / str(code)
        folder.mkdir()
        (folder / "report.json").write_text((tmp_path / "report.json").read_text())
        process = start(folder, launched.reporting, results=results)
        _, shown = process.communicate(timeout=60)
        assert process.returncode == code, shown
        assert said in shown and "Traceback" not in shown


def test_a_result_of_any_size(tmp_path: Path, transload_home: Path) -> None:
    """A whole number that no float has is a metric as it is."""
    (tmp_path / "report.json").write_text(f'{{"schema": 1, "results": {{"n": {10**400}}}}}')
    process = start(tmp_path, launched.reporting)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == 0, shown
    assert metadata_of(tmp_path / "out", "metrics") == {"n": 10**400}


@pytest.mark.parametrize("word", ["nonsense", "e30="])
def test_a_spec_of_another_version(word: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What the launcher cannot read is one line, and exit code 2."""
    with pytest.raises(SystemExit) as caught:
        main(["launch", word, "kfp", "{}", "folder"])
    assert caught.value.code == 2
    said = capfd.readouterr().err
    assert said.count("[transload] launcher: not a spec") == said.count("\n") == 1


@pytest.mark.parametrize(
    ("node", "is_lost"),
    [
        ("", False),
        ("files-zbwdn(0).root(0).sh(0).executor(0)", False),
        ("files-zbwdn(0).root(0).sh(0).executor(1)", True),
        ("files-zbwdn(0).root(0).sh(1).executor(0)", True),
        ("files-zbwdn(0).root(0).sh(0).executor(2)", False),
    ],
)
def test_a_try_after_the_first(
    monkeypatch: pytest.MonkeyPatch, in_process: None, tmp_path: Path, node: str, is_lost: bool
) -> None:
    """The first retry that finds nothing reports a loss, since its job may be on another machine.

    A backend that counts tries has seen it, and the next one submits.
    """
    monkeypatch.setenv(NODE, node)
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint="true")])
    made = launcher_from_app(app, scheduler="local", image=IMAGE)
    if is_lost:
        with pytest.raises(SystemExit):
            run_launcher(made, tmp_path)
    else:
        run_launcher(made, tmp_path)
    assert len(host_runner("kfp").list("local")) == (not is_lost)


def test_who_asked_is_kept_with_the_job(
    monkeypatch: pytest.MonkeyPatch, in_process: None, tmp_path: Path
) -> None:
    """A job leads to the run and the node of its task."""
    monkeypatch.setenv(NODE, "files-zbwdn(0).root(0).sh(0).executor(0)")
    made = launcher_from_app(command=["true"], scheduler="local", image=IMAGE)
    run_launcher(made, tmp_path, job_id="1234", job_name="files-zbwdn", task_name="sh")
    runner = host_runner("kfp")
    (row,) = runner.list("local")
    asked = runner.job(row.app_handle).description().asked["kfp"]
    assert asked == {
        "run": "1234",
        "run_name": "files-zbwdn",
        "node": "root.sh.executor",
        "task": "sh",
        "tries": [0, 0, 0, 0],
    }


def test_a_command(in_process: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A program runs as it is, without a component. Its options become inputs by their names."""
    command = ["sh", "-c", 'echo "got $*"', "sh", "--batch-size", "4", "--lr=0.1"]
    asked = {"batch_size": int, "lr": float}
    made = launcher_from_app(command=command, scheduler="local", inputs=asked, image=IMAGE)
    inputs = {
        name: each
        for name, each in made.component_spec.inputs.items()
        if not name.startswith("transload")
    }
    assert {
        name: (each.type, each.default) for name, each in inputs.items() if name != "parent_run_id"
    } == {
        "batch_size": ("Integer", 4),
        "lr": ("Float", 0.1),
    }
    run_launcher(made, tmp_path, batch_size=8.0, lr=0.5)
    assert "main/0 got --batch-size 8 --lr=0.5" in capfd.readouterr().out
    made = launcher_from_app(command=command, scheduler="local", image=IMAGE)
    assert "role main" in made.dry_run()
    needs: dict[str, Any] = {"image": "img", "gpu": 1, "mem": "8G", "retries": 2}
    made = launcher_from_app(
        command=command,
        scheduler="kubernetes",
        cfg={"namespace": "team"},
        overrides=needs,  # type: ignore[arg-type]
        inputs={"gpus": "resource.gpu"},
        image=IMAGE,
    )
    shown = made.dry_run(gpus=3)
    for words in ("image: img", "nvidia.com/gpu: '3'", "memory: 8192M"):
        assert words in shown
    with pytest.raises(ConfigError, match=r"gpu=1: .* overrides=\{'gpu': 1\}"):
        launcher_from_app(command=command, image=IMAGE, gpu=1)  # type: ignore[call-arg]
    for wrong in ({"source": launched.failing, "command": command}, {}, {"command": "sh"}):
        with pytest.raises(SpecError):
            launcher_from_app(**wrong)


FILES = """
import os, pathlib
made = pathlib.Path(os.environ["TRANSLOAD_OUTPUT_DIR"])
made.mkdir(parents=True, exist_ok=True)
(made / "model").mkdir()
(made / "model" / "w").write_text("weights")
(made / "page.html").write_text("<b>hi</b>")
(made / "numbers.json").write_text('{"loss": 0.5}')
"""


def test_files_become_artifacts(subprocess_kfp: Path, tmp_path: Path) -> None:
    """Files of the class that ``results`` declares are artifacts. Others are only noted."""
    kinds = {"model": dsl.Model, "numbers.json": dsl.Metrics}
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint=sys.executable, args=["-c", FILES])])
    made = launcher_from_app(app, scheduler="local", results=kinds)
    assert {
        name: each.type
        for name, each in made.component_spec.outputs.items()
        if name in ("model", "numbers")
    } == {
        "model": "system.Model@0.0.1",
        "numbers": "system.Metrics@0.0.1",
    }

    @dsl.pipeline(name="p")
    def pipeline():
        made()

    pipeline()
    (folder,) = subprocess_kfp.iterdir()
    output = json.loads((folder / "a" / "executor_output.json").read_text())["artifacts"]
    metadata = {name: each["artifacts"][0]["metadata"] for name, each in output.items()}
    assert (folder / "a" / "model" / "w").read_text() == "weights"
    assert metadata["numbers"] == {"loss": 0.5}
    assert sorted(metadata["results"]["transload_files"]) == [
        "model/w",
        "numbers.json",
        "page.html",
    ]


def test_names_and_texts_that_no_json_has(tmp_path: Path, transload_home: Path) -> None:
    """A success stays one where the job's files, lines and results have other bytes than UTF-8."""
    process = start(tmp_path, launched.odd_bytes, results={"text": str})
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    output = json.loads((tmp_path / "out" / "executor_output.json").read_text())
    json.dumps(output, ensure_ascii=False).encode()  # has no half of a pair in it
    files = metadata_of(tmp_path / "out", "results")["transload_files"]
    assert any("xff" in name for name in files)
    assert "\0" not in value_of(tmp_path / "out", "text")


def test_a_file_that_could_not_come_back(
    in_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without a folder for files a declared one is refused before the submit. A value is not."""
    monkeypatch.setattr(LocalScheduler, "results_folder", lambda *_: None)
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint="true")])
    wanted = {"model.pt": dsl.Model}
    words = r"results\['model.pt'\]: a file.*give tracker_base="
    here: dict[str, Any] = {"scheduler": "local", "image": IMAGE}
    with pytest.raises(SpecError, match=words):
        launcher_from_app(app, results=wanted, **here).dry_run()
    made = launcher_from_app(app, results=wanted, tracker_base=str(tmp_path), **here)
    assert "model" in made.dry_run()
    assert "loss" in launcher_from_app(app, results={"loss": float}, **here).dry_run()
    made = launcher_from_app(app, scheduler="local", results=wanted, image=IMAGE)
    with pytest.raises(SystemExit) as caught:
        run_launcher(made, tmp_path / "made")
    assert caught.value.code == 2
    assert "tracker_base" in capfd.readouterr().err
    assert host_runner("kfp").list("local") == []


def test_kfp_runner_for_python_alone(subprocess_kfp: Path) -> None:
    """Where the runner that takes no containers was chosen, a launcher needs no image."""
    app = AppDef("a", [Role("main", "", entrypoint="true")])
    launcher_from_app(app, scheduler="local")()
    assert any("transload_handle" in file.read_text() for file in subprocess_kfp.rglob("*.json"))


def test_a_file_that_was_not_made(
    in_process: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A declared file that the app did not make is exit code 70, and what it made is said."""
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint=sys.executable, args=["-c", FILES])])
    made = launcher_from_app(app, scheduler="local", results={"model.pt": dsl.Model}, image=IMAGE)
    with pytest.raises(SystemExit) as caught:
        run_launcher(made, tmp_path / "made")
    assert caught.value.code == 70
    assert (
        "'model.pt' is not in TRANSLOAD_OUTPUT_DIR; the job made: model/w, numbers.json"
        in capfd.readouterr().err
    )


# -- clusters


def test_a_cluster_travels_with_the_component(
    tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A component carries a cluster that no settings file has. Its pod has the secret."""
    cluster = {"name": "lab", "kind": "local", "secrets": {"state_folder": "k8s:places/lab"}}
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint="true")])
    made = launcher_from_app(app, cluster=cluster, image=IMAGE)

    @dsl.pipeline(name="p")
    def pipeline():
        kubernetes.use_secret_as_env(made(), "s", {"k": "MORE"})

    _, platform = compiled(pipeline, tmp_path / "p.yaml")
    pod = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-a"]
    variables = {
        each["keyToEnv"][0]["envVar"]: each["keyToEnv"][0]["secretKey"]
        for each in pod["secretAsEnv"]
    }
    assert variables == {"MORE": "k", "TRANSLOAD_CLUSTER_STATE_FOLDER": "lab"}
    monkeypatch.setenv("TRANSLOAD_CLUSTER_STATE_FOLDER", str(tmp_path / "state"))
    handle = run_launcher(made, tmp_path)
    assert handle.startswith("lab://kfp/")
    assert (tmp_path / "state" / "local").is_dir()
    assert run_launcher(made, tmp_path) == handle


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cluster": {"name": "Lab", "kind": "local"}}, "Lab"),
        ({"cluster": {"name": "lab", "kind": "local"}, "scheduler": "local"}, "give one of them"),
        (
            {"cluster": {"name": "lab", "kind": "local", "secrets": {"x": "k8s:s"}}},
            "k8s:SECRET/KEY",
        ),
    ],
)
def test_refused_clusters(options: dict[str, Any], words: str) -> None:
    """A wrong cluster is one line when compiling."""
    with pytest.raises(ConfigError, match=words):
        launcher_from_app(launched.failing, **options)


# -- identity


def test_identity(in_process: None, tmp_path: Path) -> None:
    """The job's id follows from run, task, call, arguments and the user's key, for every try."""
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint="true", args=["x"])])
    made = launcher_from_app(app, scheduler="local", inputs={"word": "args[0]"}, image=IMAGE)
    words = {"job_id": "1", "job_name": "n", "task_name": "train", "path": "p/0", "key": ""}
    first = run_launcher(made, tmp_path, word="y", **words)
    assert first == run_launcher(made, tmp_path, word="y", **words)
    others = {run_launcher(made, tmp_path, word="y", **{**words, name: "other"}) for name in words}
    others.add(run_launcher(made, tmp_path, word="z", **words))
    assert len({first, *others}) == 7
    assert "/kfp-train-" in first


def test_calls_and_loops_are_told_apart(tmp_path: Path) -> None:
    """Two calls of one component have different paths, and a key is the user's."""
    made = launcher_from_app(launched.failing, image=IMAGE)

    @dsl.pipeline(name="p")
    def pipeline():
        made(code=1)
        made(code=1)
        with dsl.ParallelFor(["a", "b"]) as item:
            made(code=1, key=item)

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    tasks = spec["root"]["dag"]["tasks"]
    paths = [
        task["inputs"]["parameters"]["transload_path"]["runtimeValue"]["constant"]
        for task in tasks.values()
        if "transload_path" in task.get("inputs", {}).get("parameters", {})
    ]
    assert len(paths) == len(set(paths)) == 2


def test_an_argument_called_key(tmp_path: Path) -> None:
    """An input of the job that has the name of the launcher's own key is the job's."""
    app = AppDef("a", [Role("main", "/tmp", entrypoint="run", args=["--key", "x"])])
    made = launcher_from_app(app, inputs={"key": str}, image=IMAGE)

    @dsl.pipeline(name="p")
    def pipeline():
        made(key="y", transload_key="z")

    spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    (task,) = spec["root"]["dag"]["tasks"].values()
    given = task["inputs"]["parameters"]
    values = {name: given[name]["runtimeValue"]["constant"] for name in ("key", "transload_key")}
    assert values == {"key": "y", "transload_key": "z"}


# -- forms, inputs, dry-run


def test_the_interface(tmp_path: Path) -> None:
    """Arguments are inputs, results are outputs, and KFP's own calls set the task."""
    made = launcher_from_app(launched.group, results={"left/who": str}, image="python:3.11")
    spec = made.component_spec
    assert {name: (each.type, each.optional) for name, each in spec.inputs.items()} == {
        "image": ("String", False),
        "replicas": ("Integer", True),
        "cpu": ("Float", True),
        "words": ("List", True),
        "transload_job_id": ("String", False),
        "transload_job_name": ("String", False),
        "transload_task_name": ("String", False),
        "transload_path": ("String", False),
        "transload_key": ("String", True),
        "parent_run_id": ("String", True),
    }
    assert set(spec.outputs) == {"handle", "left_who", "results", "metrics"}

    @dsl.pipeline(name="p")
    def pipeline(image: str = "x"):
        made(image=image, words=["a"]).set_retry(2)

    compiled_spec, _ = compiled(pipeline, tmp_path / "p.yaml")
    (task,) = compiled_spec["root"]["dag"]["tasks"].values()
    assert task["retryPolicy"]["maxRetryCount"] == 2


def test_arguments_reach_the_app(in_process: None) -> None:
    """Values come as KFP has them, with whole numbers as floats.

    What was not given keeps its default.
    """
    made = launcher_from_app(
        launched.group, component_args={"cpu": 0.5}, scheduler="local", image=IMAGE
    )
    shown = made.dry_run(image="/tmp", replicas=3.0, words=["a", "b"])
    assert "role a: 3 replica" in shown and "role b: 3 replica" in shown


@pytest.mark.parametrize(
    ("path", "value", "got"),
    [
        ("roles[b].num_replicas", 3.0, "role b: 3 replica"),
        ("roles[a].args[--n]", 7, "--n=7 x"),
        ("roles[a].args[1]", "y", "--n=1 y"),
        ("roles[b].env[A]", "z", "z"),
    ],
)
def test_fields(in_process: None, path: str, value: Any, got: str) -> None:
    """An input sets a field of an app by its path."""
    app = AppDef(
        "x",
        [
            Role("a", "/tmp", entrypoint="run", args=["--n=1", "x"]),
            Role("b", "/tmp", entrypoint="run", env={"A": "b"}),
        ],
    )
    made = launcher_from_app(app, scheduler="local", inputs={"it": path}, image=IMAGE)
    assert got in made.dry_run(it=value)


def test_defaults_are_what_stands_in_the_app() -> None:
    """What stands in a field is its input's default, read as the input's type."""
    args = ["--flag", "false", "--sizes", "[1, 2]", "--rate", "0.5"]
    app = AppDef("x", [Role("a", "i", entrypoint="run", args=args, num_replicas=2)])
    kinds = {"flag": bool, "sizes": list, "rate": float, "n": "num_replicas"}
    inputs = launcher_from_app(app, inputs=kinds, image=IMAGE).component_spec.inputs
    assert {name: inputs[name].default for name in kinds} == {
        "flag": False,
        "sizes": [1, 2],
        "rate": 0.5,
        "n": 2,
    }


@pytest.mark.parametrize(
    "path", ["num_replicas", "roles[c].image", "roles[a].args[9]", "roles[a].env[B]", "roles", "x"]
)
def test_refused_fields(path: str) -> None:
    """A path that leads nowhere is refused when converting, by the input's name."""
    app = AppDef("x", [Role("a", "i", entrypoint="run"), Role("b", "i", entrypoint="run")])
    with pytest.raises(SpecError, match="inputs\\['it'\\]"):
        launcher_from_app(app, inputs={"it": path})


@pytest.mark.parametrize(
    ("where", "cfg", "words"),
    [
        ({"scheduler": "kubernetes"}, {"overlay": {"spec": {}}}, "overlay"),
        ({"scheduler": "kubernetes"}, {"namespce": "team"}, "namespace"),
        ({"cluster": {"name": "prod", "kind": "kubernetes"}}, {"queue": 5}, "queue=5"),
        ({"scheduler": "local"}, {"working_dir": 5}, "working_dir=5"),
    ],
)
def test_a_wrong_run_option(where: dict[str, Any], cfg: dict[str, Any], words: str) -> None:
    """What a scheduler whose plugin is here does not take is refused when the launcher is written,
    in a search too.
    """
    with pytest.raises(ConfigError, match=words):
        launcher_from_app(launched.failing, cfg=cfg, image=IMAGE, **where)
    one = [Parameter("code", "int", 0, 1)]
    cluster = {name: value for name, value in where.items() if name == "cluster"}
    wanted = Search(
        launched.failing, one, Objective("x"), scheduler=where.get("scheduler", "prod"), cfg=cfg
    )
    with pytest.raises(ConfigError, match=words):
        search_pipeline(wanted, "s3://b/x", image=IMAGE, **cluster)


def test_a_run_option_of_a_scheduler_that_is_not_here() -> None:
    """Only the launcher's image knows it."""
    made = launcher_from_app(
        launched.failing, scheduler="of_the_image", cfg={"any": "thing"}, image=IMAGE
    )
    assert made.component_spec.implementation.container.image == IMAGE


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("num_replicas", 2.7),
        ("num_replicas", "many"),
        ("resource.gpu", 1.5),
        ("resource.memMB", 2.5),
        ("resource.cpu", "two"),
        ("max_retries", 1e400),
    ],
)
def test_a_value_that_no_field_has(path: str, value: Any) -> None:
    """A number that is none, or not whole, is refused by its field and never cut."""
    app = AppDef("x", [Role("main", "i", entrypoint="run")])
    made = launcher_from_app(app, scheduler="local", inputs={"it": path}, image=IMAGE)
    with pytest.raises(SpecError, match=f"'{path}'.*{value}"):
        made.dry_run(it=value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"on_kill": "pause"}, ConfigError, "on_kill"),
        ({"component_args": {"nothing": 1}}, SpecError, "'nothing'"),
        ({"inputs": []}, SpecError, "missing: image"),
        ({"results": {"handle": str}}, SpecError, "handle"),
        ({"retrys_by": 3}, ConfigError, "retries_by"),
        ({"retries": 3}, ConfigError, r"overrides=\{'retries': 3\}.*task.set_retry"),
        ({"overrides": {"gpus": 2}}, SpecError, "gpus: no setting of a job: did you mean 'gpu'"),
        ({"overrides": {"gpu": -2}}, SpecError, "gpu=-2: must be 0 or more"),
        (
            {"args": {"cpu": 1}},
            ConfigError,
            "unknown setting 'args': did you mean 'component_args'",
        ),
    ],
)
def test_refused_options(options: dict[str, Any], error: type[Exception], words: str) -> None:
    """A wrong option is one line, before anything is compiled."""
    with pytest.raises(error, match=words):
        launcher_from_app(launched.group, **options)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"inputs": {"y": ("args[0]", set)}}, r"inputs\['y'\]: .*class of artifacts"),
        ({"inputs": {"x": "args[0]", "y": "args[0]"}}, "another input sets it already"),
        ({"inputs": {"x": "args[0]", "y": "roles[a].args[0]"}}, "another input sets it already"),
        ({"inputs": {"x": ("args[0]", bool)}}, r"inputs\['x'\]: .*'a'.*true or false"),
        ({"cfg": {"x": object()}}, "must be JSON values"),
        ({"inputs": ["x"]}, r"a mapping: name → .*such as .'rate': .'args"),
        (
            {"inputs": {"x": ("args[0]", dsl.Dataset)}, "scheduler": "kubernetes"},
            r"inputs\['x'\]: a Dataset is a path in the launcher's pod.*give inputs=.'x': str.",
        ),
        (
            {
                "inputs": {"x": ("args[0]", dsl.Model)},
                "cluster": {"name": "prod", "kind": "kubernetes"},
            },
            "a job on scheduler 'prod' does not see",
        ),
    ],
)
def test_refused_of_an_app(more: dict[str, Any], words: str) -> None:
    """What would be ignored, or could not travel, is refused when converting."""
    app = AppDef("x", [Role("a", "i", entrypoint="run", args=["a"])])
    with pytest.raises(SpecError, match=words):
        launcher_from_app(app, **{"inputs": {"x": "args[0]"}, "image": IMAGE, **more})


@pytest.mark.parametrize(
    "where",
    [{}, {"scheduler": "local"}, {"cluster": {"name": "lab", "kind": "local"}}],
)
def test_an_artifact_for_a_job_beside_the_launcher(where: dict[str, Any]) -> None:
    """Such a job sees the launcher's files, so the artifact's path is an input."""
    app = AppDef("x", [Role("a", "i", entrypoint="run", args=["1"])])
    made = launcher_from_app(app, inputs={"x": ("args[0]", dsl.Dataset)}, image=IMAGE, **where)
    assert made.component_spec.inputs["x"].type == "system.Dataset@0.0.1"


def test_refused_of_a_function() -> None:
    """An argument is an input or fixed, and an artifact's path is a text."""
    with pytest.raises(SpecError, match="'image'.*fixed"):
        launcher_from_app(launched.group, component_args={"image": "i"}, inputs=["image"])
    with pytest.raises(SpecError, match="'replicas' is int: must be a str"):
        launcher_from_app(launched.group, inputs={"replicas": dsl.Dataset, "image": str})


def test_the_name_is_the_app_s() -> None:
    """The JSON of an app has its name."""
    app = AppDef("trainer", [Role("a", "i", entrypoint="run")])
    assert {launcher_from_app(source, image=IMAGE).name for source in (app, app.to_json())} == {
        "trainer"
    }


def test_a_function_that_cannot_be_found_again() -> None:
    """A closure is refused, as a launcher imports its component in another process."""

    def inner() -> AppDef:
        """Do nothing."""
        return AppDef("x", [Role("r", "i", entrypoint="run")])

    with pytest.raises(SpecError, match="function of a module.*'jobs.py:FUNCTION'"):
        launcher_from_app(inner)


def test_dry_run(in_process: None) -> None:
    """A dry-run shows what would be submitted, and submits nothing.

    While a required argument is open, it shows what goes in and out.
    """
    made = launcher_from_app(
        launched.group, scheduler="local", results={"left-1/who": str}, image=IMAGE
    )
    shown = made.dry_run(image="/tmp", replicas=3)
    assert "role left: 3 replica" in shown and "right-2" not in shown.splitlines()[0]
    shown = made.dry_run()
    assert "image must be given" in shown
    assert "input image: String (required)" in shown and "output left_1_who: String" in shown
    with Runner("test") as runner:
        assert runner.list("local") == []


@pytest.mark.parametrize("inherit", [False, True])
def test_dry_run_is_of_the_same_runner(
    monkeypatch: pytest.MonkeyPatch, in_process: None, inherit: bool
) -> None:
    """What a dry-run asks is the runner that the launcher would have, with the same environment for
    its jobs.
    """
    seen = []

    def recorded(host: str, **more: Any) -> Runner:
        seen.append((host, more))
        return host_runner(host, **more)

    monkeypatch.setattr("transload_kfp.step.host_runner", recorded)
    made = launcher_from_app(command=["true"], scheduler="local", inherit_env=inherit, image=IMAGE)
    made.dry_run()
    assert seen == [("kfp", {"inherit_env": inherit, "clusters": []})]
    host_runner("kfp", inherit_env=inherit).close()


def test_the_launcher_needs_no_kfp() -> None:
    """A launcher imports no KFP at run time, so that its image need not have it."""
    code = "import sys, transload_kfp.task, transload_kfp.search_steps; print('kfp' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("page", ["https://reports/a.html", None])
def test_results_lead_to_the_page(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    in_process: None,
    capfd: pytest.CaptureFixture[str],
    page: str | None,
) -> None:
    """What a plugin knows as the page about the app is a line of the log, once, and with the handle
    in the results artifact's metadata.
    """
    from transload.plugins import get_plugins

    monkeypatch.setattr(get_plugins(), "app_link", lambda handle: page)
    app = AppDef("a", [Role("main", str(tmp_path), entrypoint="true")])
    made = launcher_from_app(app, scheduler="local", image=IMAGE)
    handle = run_launcher(made, tmp_path, job_id=str(page))
    links = {} if page is None else {"transload_link": page}
    assert metadata_of(tmp_path, "results") == {"transload_handle": handle, **links}
    assert capfd.readouterr().err.count("its page: https://reports/a.html") == len(links)


def test_the_last_word_of_a_pod(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_process: None
) -> None:
    """Why a task failed is left where a cluster looks for a pod's last word, and shows it as the
    task's error.
    """
    (tmp_path / "log").touch()
    monkeypatch.setattr("transload_kfp.inline.TERMINATION_LOG", str(tmp_path / "log"))
    made = launcher_from_app(
        launched.failing, component_args={"code": 5}, scheduler="local", image=IMAGE
    )
    with pytest.raises(SystemExit):
        run_launcher(made, tmp_path)
    said = (tmp_path / "log").read_text()
    assert "main/0 exit code 5" in said and "last words" in said
    assert len(said.encode()) <= 4096


@pytest.mark.parametrize("name", ["scheduler", "workspace", "tracker_base", "environment", "name"])
def test_an_empty_text_is_not_taken_as_left_out(name: str) -> None:
    """What a variable that is not set makes of a keyword is refused before anything is compiled."""
    app = AppDef("a", [Role("r", "img", entrypoint="true")])
    with pytest.raises(SpecError, match=f"{name}='': must not be empty"):
        launcher_from_app(app, **{"image": "my/launcher:1", name: ""})
