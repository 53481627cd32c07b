"""``transload kfp``, the adapter by its uniform door, and what importing costs."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import apps
import pytest
import yaml
from kfp import dsl

sys.path.insert(0, str(Path(__file__).parents[1]))

from command_line import transload

from transload.cli import main
from transload.errors import ConfigError, UnsupportedFeature
from transload.pipelines import get_adapter
from transload.pipelines.adapter import describe_adapters
from transload.specs import BindMount, Notice

TRAIN = f"{Path(__file__).with_name('apps.py')}:train"


def test_import_is_lazy() -> None:
    """None of these imports KFP, which takes seconds."""
    modules = ("plugin", "cli", "convert", "states", "sigterm", "launcher", "adapter")
    names = ", ".join(f"transload_kfp.{each}" for each in (*modules, "search", "settings"))
    program = f"import sys, {names}; print('kfp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_all_public_names_are_there() -> None:
    """Each public name can be had, and there is no other by mistake."""
    import transload_kfp

    for name in transload_kfp.__all__:
        assert getattr(transload_kfp, name) is not None
    with pytest.raises(AttributeError):
        _ = transload_kfp.nothing  # type: ignore[attr-defined]


def test_compile_a_component(tmp_path: Path, transload_home: Path) -> None:
    """A component function becomes a pipeline, with the named arguments as its only parameters."""
    path = tmp_path / "pipeline.yaml"
    words = [
        TRAIN,
        "-o",
        str(path),
        "--input",
        "lr",
        "--input",
        "note",
        "--result",
        "accuracy",
        "--",
        "--epochs",
        "7",
    ]
    done = transload("kfp", "compile", *words)
    assert (done.returncode, done.stdout) == (0, f"{path}\n"), done.stderr
    spec, *_ = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    assert spec["pipelineInfo"]["name"] == "train"
    parameters = spec["root"]["inputDefinitions"]["parameters"]
    assert set(parameters) == {"lr", "note"}
    assert parameters["lr"]["defaultValue"] == 0.1
    (component,) = spec["components"].values()
    assert (
        component["outputDefinitions"]["parameters"]["accuracy"]["parameterType"] == "NUMBER_DOUBLE"
    )


def test_compile_an_app(tmp_path: Path, transload_home: Path) -> None:
    """An AppDef as JSON becomes a pipeline, with chosen arguments as its parameters."""
    app = tmp_path / "app.json"
    app.write_text(apps.bare(args=["--lr=0.5", "größe"]).to_json(), encoding="utf-8")
    done = transload(
        "kfp", "compile", str(app), "-o", "-", "--name", "Mine", "--input", "lr=args[--lr]"
    )
    assert done.returncode == 0, done.stderr
    (spec,) = yaml.safe_load_all(done.stdout)
    assert spec["pipelineInfo"]["name"] == "mine"
    assert spec["root"]["inputDefinitions"]["parameters"]["lr"]["defaultValue"] == "0.5"
    (executor,) = spec["deploymentSpec"]["executors"].values()
    assert executor["container"]["args"] == ["--lr={{$.inputs.parameters['lr']}}", "größe"]


def test_compile_a_launcher(tmp_path: Path, transload_home: Path) -> None:
    """An app of several roles goes through the launcher, which a refusal names."""
    source = f"{Path(__file__).with_name('launched.py')}:group"
    arguments = ["--image", "/tmp"]
    done = transload("kfp", "compile", source, "-o", str(tmp_path / "p.yaml"), "--", *arguments)
    assert done.returncode != 0
    assert "roles" in done.stderr and "launcher" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "p.yaml").exists()
    more = ["--launcher", "--scheduler", "local", "--image", "launcher:1"]
    more += ["--environment", "none"]
    done = transload(
        "kfp", "compile", source, "-o", str(tmp_path / "p.yaml"), *more, "--", *arguments
    )
    assert done.returncode == 0, done.stderr
    spec, *_ = yaml.safe_load_all((tmp_path / "p.yaml").read_text(encoding="utf-8"))
    assert "replicas" in spec["root"]["inputDefinitions"]["parameters"]
    (executor,) = spec["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == "launcher:1"
    done = transload("kfp", "compile", source, "-o", "x", "--dry-run", *more, "--", *arguments)
    assert done.returncode == 0, done.stderr
    assert "role left: 2 replica" in done.stdout


def test_dry_run_of_a_launcher_is_what_compile_makes(tmp_path: Path, transload_home: Path) -> None:
    """A dry-run takes the inputs and results that compile takes, refuses what it refuses, and needs
    no more.
    """
    source = f"{Path(__file__).with_name('launched.py')}:group"
    words = ["kfp", "compile", source, "-o", str(tmp_path / "p.yaml"), "--launcher", "--dry-run"]
    done = transload(*words, "--input", "image", "--result", "left-1/who:str")
    assert done.returncode == 0, done.stderr
    assert "image must be given" in done.stdout
    assert [
        line for line in done.stdout.splitlines() if line.startswith(("input ", "output "))
    ] == [
        "input image: String (required)",
        "output left_1_who: String",
        "output handle: String",
    ]
    for wrong in (["--input", "nothing"], ["--result", "handle"]):
        done = transload(*words, *wrong, "--", "--image", "/tmp")
        assert done.returncode != 0
        assert wrong[1] in done.stderr and "Traceback" not in done.stderr
    app = tmp_path / "app.json"
    app.write_text(apps.bare(args=["--lr=0.5"]).to_json(), encoding="utf-8")
    done = transload("kfp", "compile", str(app), *words[3:], "--input", "lr=args[--lr]")
    assert "input lr: String\n" in done.stdout, done.stderr
    assert list(tmp_path.glob("p.yaml")) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.here"], "nothing"),
        ([TRAIN, "--result", "x:list"], "--result"),
        ([TRAIN, "--scheduler", "local"], "--launcher"),
        ([TRAIN, "--image", "i"], "or --job-image for the image of the job"),
        ([TRAIN, "--input", "image"], "no argument --image"),
        ([TRAIN, "--input", "lr="], "NAME=PATH"),
        ([TRAIN, "--", "--nothing", "1"], "nothing"),
        ([TRAIN, "--result", "x", "--result", "x:int"], "declared twice"),
        (["nothere.json"], "nothere.json: cannot be read: No such file"),
    ],
)
def test_mistakes(words: list[str], said: str, transload_home: Path, tmp_path: Path) -> None:
    """A user's mistake is one line, and nothing is written."""
    path = tmp_path / "p.yaml"
    at = words.index("--") if "--" in words else len(words)
    done = transload("kfp", "compile", *words[:at], "-o", str(path), *words[at:])
    assert done.returncode != 0
    assert said in done.stderr and "Traceback" not in done.stderr
    assert not path.exists()


def test_the_examples_of_the_help(
    transload_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the help shows can be typed as it stands."""
    monkeypatch.chdir(tmp_path)
    component = (
        "from transload.specs import AppDef, Role\n\n\n"
        "def train(lr: float = 0.1, epochs: int = 1) -> AppDef:\n"
        "    args = ['--lr', str(lr), '--epochs', str(epochs)]\n"
        "    return AppDef('train', [Role('main', 'i', entrypoint='train', args=args)])\n"
    )
    Path("train.py").write_text(component, encoding="utf-8")
    Path("app.json").write_text(apps.bare(args=["--lr=0.5"]).to_json(), encoding="utf-8")
    assert main(["kfp", "compile", "--help"]) == 0
    shown = capsys.readouterr().out.splitlines()
    examples = [line.strip() for line in shown if line.startswith("    transload kfp compile")]
    assert len(examples) == 3
    for example in examples:
        words = shlex.split(example)[1:]
        assert main(words) == 0, capsys.readouterr().err
        assert "name: " in Path("pipeline.yaml").read_text(encoding="utf-8")
        Path("pipeline.yaml").unlink()


def test_a_misspelt_scheduler_is_named(transload_home: Path, tmp_path: Path) -> None:
    """It compiles, since the launcher's image may have a cluster of that name; a note says so."""
    words = ["kfp", "compile", "-o", "-", "--launcher", "--image", "l:1", "-s", "locl"]
    done = transload(*words, "--", "true", cwd=tmp_path)
    assert done.returncode == 0 and "# Name: true" in done.stdout
    assert "'locl' is not installed or configured here: did you mean 'local'?" in done.stderr
    assert "compiled as it is" in done.stderr
    words[-1] = "somewhere"
    assert transload(*words, "--", "true", cwd=tmp_path).stderr == ""


def test_a_file_that_is_no_text(transload_home: Path, tmp_path: Path) -> None:
    """A JSON file that is no UTF-8, or names one input twice, is one line."""
    path = tmp_path / "app.json"
    path.write_bytes(b"\xff\xfe{")
    done = transload("kfp", "compile", str(path), "-o", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"transload: error: {path}: cannot be read: not UTF-8\n"
    path.write_text(apps.bare(args=["a", "b"]).to_json(), encoding="utf-8")
    done = transload(
        "kfp", "compile", str(path), "-o", "-", "--input", "x=args[0]", "--input", "x=args[1]"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "given twice" in done.stderr and done.stderr.count("\n") == 1


def test_what_was_typed_istyped_arguments() -> None:
    """Short spellings count like long ones, unless the program itself gets them."""
    from transload.components import ComponentHelpRequested, as_component, typed_arguments

    script = as_component(TRAIN.replace(":train", ":script"))
    for words in (["-n", "3"], ["-n3"], ["--n", "3"], ["--n=3"]):
        assert typed_arguments(script, (*words, "--", "--epochs", "7")) == {
            "n": 3,
            "rest": ["--epochs", "7"],
        }
    assert typed_arguments(script, ("--mode", "fast", "--epochs=2")) == {
        "mode": "fast",
        "epochs": 2,
    }
    assert typed_arguments(script, ()) == {}
    with pytest.raises(ComponentHelpRequested, match="default: 1"):
        typed_arguments(script, ("--help",))


def test_help_of_a_component(transload_home: Path) -> None:
    """``-- --help`` shows the component's arguments, and is no failure."""
    done = transload("kfp", "compile", TRAIN, "-o", "-", "--", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "step size" in done.stdout


def test_adapter(transload_home: Path) -> None:
    """By its uniform door the adapter converts, launches, shows a dry-run, and refuses."""
    adapter = get_adapter("kfp")
    made = adapter.convert(apps.train, results=["accuracy"], retries=1)
    assert (made.name, made.settings.retries) == ("train", 1)
    launcher = adapter.convert(apps.train, scheduler="local", image="launcher:1")
    assert "replicas" in launcher.component_spec.inputs
    assert yaml.safe_load(adapter.dry_run(apps.train, retries=1))["name"] == "train"
    uniform = adapter.convert("utils.echo", launch={"args": {"msg": "hello"}})
    assert uniform.component_spec.implementation.container.args == ["hello"]
    launch = {"args": {"msg": "hello"}, "scheduler": "scripted"}
    launched = adapter.convert("utils.echo", launch=launch, on_kill="detach", retries=2, image="i")
    assert (launched.settings.retries, "msg" in launched.component_spec.inputs) == (2, False)
    assert "hello" in adapter.dry_run("utils.echo", launch=launch)
    with pytest.raises(ConfigError, match="on_kill"):
        adapter.convert("utils.echo", launch=launch, on_kill="pause")
    for convert in (adapter.convert, adapter.dry_run):
        with pytest.raises(ConfigError, match="retries"):
            convert(apps.train, retry=1)
    secret = apps.bare()
    secret.roles[0].env = {"API_TOKEN": "hidden", "LEVEL": "info"}
    shown = adapter.dry_run(secret)
    assert "hidden" not in shown and "info" in shown
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\].num_replicas"):
        adapter.convert(apps.train, component_args={"replicas": 2})
    (row,) = [each for each in describe_adapters() if each["name"] == "kfp"]
    assert (row["status"], row["states"]["CANCELLED"]) == ("installed", "CANCELED")


# -- the lines around a program


def encoded(argv: list[list[Any]], **more: Any) -> str:
    """Return what the wrapper gets as its first word."""
    spec = {"argv": argv, "env": {}, "outputs": [], "files": [], **more}
    return base64.b64encode(json.dumps(spec).encode()).decode()


def run_inline(
    tmp_path: Path,
    text: str,
    outputs: list[list[Any]],
    values: tuple[str, ...] = (),
    files: tuple[tuple[str, str, str], ...] = (),
) -> Any:
    """Run the wrapper as a container would."""
    from transload_kfp.convert import inline_source

    spec = {
        "argv": [["sh"], ["-c"], [text], ["x"], *([k] for k in range(len(values)))],
        "env": {"A": ["b"]},
    }
    word = encoded(**spec, outputs=outputs, files=files)
    artifacts = {
        name: {"artifacts": [{"name": name}]}
        for name in ("results", "metrics", "executor-logs", *(each[1] for each in files))
    }  # a backend lists its own logs too
    request = {"outputs": {"outputFile": str(tmp_path / "out" / "o.json"), "artifacts": artifacts}}
    paths = [str(tmp_path / "files" / name) for name, *_ in outputs]
    paths += [str(tmp_path / "made" / port) for _, port, _ in files]
    words = [word, json.dumps(request), str(tmp_path / "base"), str(tmp_path / "output"), *paths]
    command = [sys.executable, "-I", "-c", inline_source(), *words]
    return subprocess.run(
        [*command, *values], capture_output=True, text=True, timeout=60, check=False
    )


def say(results: str, key: str = "all") -> str:
    """Return a shell command that reports results."""
    body = f'{{"schema": 1, "key": "{key}", "results": {results}}}'
    return f"""printf '%s' '{body}' > "$TRANSLOAD_TRACKER_BASE/{key}.json";"""


def test_inline_outputs(tmp_path: Path) -> None:
    """Results become files of outputs, numbers become metrics, and NaN and infinities survive."""
    text = say('{"a": 0.5, "n": 3, "t": "größe", "x": NaN}') + say('{"a": 2}', "other")
    outputs = [
        ["a", "all", "Float"],
        ["n", None, "Integer"],
        ["t", None, "String"],
        ["x", None, "Float"],
    ]
    done = run_inline(tmp_path, text, outputs)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "files").iterdir()}
    assert found == {"a": "0.5", "n": "3", "t": "größe", "x": "NaN"}
    output = json.loads((tmp_path / "out" / "o.json").read_text())
    metadata = output["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    assert metadata == {"all.a": 0.5, "other.a": 2, "n": 3, "x": "nan"}
    assert set(output["artifacts"]) == {"results", "metrics"}  # what others make is theirs


def test_inline_texts_that_no_json_has(tmp_path: Path) -> None:
    """A success stays one where texts and names have what no backend takes."""
    text = say(r'{"t": "a\u0000b\ud800c", "n\ud800": 1}')
    done = run_inline(tmp_path, text, [["t", None, "String"]])
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "files" / "t").read_text(encoding="utf-8") == r"a\x00b\ud800c"
    output = json.loads((tmp_path / "out" / "o.json").read_text())
    json.dumps(output, ensure_ascii=False).encode()  # has no half of a pair in it


def test_inline_files(tmp_path: Path) -> None:
    """Files and folders of the job become artifacts, and metrics have what KFP's page shows."""
    curve = {"fpr": [0, 1], "tpr": [0.5, 1], "threshold": [9, 0]}
    table = {
        "confusion_matrix": {"categories": ["a", "b"], "matrix": [[3, 1], [0, 4]]},
        "roc_curve": curve,
    }
    (tmp_path / "table").write_text(json.dumps(table))
    text = f"""
    cd "$TRANSLOAD_OUTPUT_DIR"; mkdir -p a/model; echo weights > a/model/w; echo '<b>hi</b>' > page.html; echo x > other
    printf '{{"loss": 0.5, "bad": NaN}}' > numbers.json; cp {tmp_path}/table table.json
    """
    files = (
        ("a/model", "model", "Model"),
        ("page.html", "page", "HTML"),
        ("numbers.json", "numbers", "Metrics"),
        ("table.json", "table", "ClassificationMetrics"),
    )
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "stale").touch()
    done = run_inline(tmp_path, text, [], files=files)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made" / "model" / "w").read_text() == "weights\n"
    assert (tmp_path / "made" / "page").read_text() == "<b>hi</b>\n"
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == ["a", "other"]
    output = json.loads((tmp_path / "out" / "o.json").read_text())["artifacts"]
    metadata = {name: each["artifacts"][0]["metadata"] for name, each in output.items()}
    assert metadata["numbers"] == {"loss": 0.5, "bad": "nan"}
    artifact = dsl.ClassificationMetrics()
    artifact.log_confusion_matrix(**table["confusion_matrix"])
    artifact.log_roc_curve(**curve)
    assert metadata["table"] == artifact.metadata
    assert metadata["model"] == {}


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("touch other", "Model", "'it' is not in TRANSLOAD_OUTPUT_DIR; there is: other"),
        ("echo '[1]' > it", "Metrics", "'it' is no Metrics"),
        ("echo nonsense > it", "Metrics", "'it' is no Metrics"),
        ("echo '{}' > it", "ClassificationMetrics", "neither confusion_matrix nor roc_curve"),
        ("mkdir it", "Metrics", "'it' is no Metrics"),
        ("mkfifo it", "Model", "'it' is no regular file"),
        ("truncate -s 6G it", "Metrics", "more than 16,777,216 bytes"),
    ],
)
def test_inline_files_that_are_none(tmp_path: Path, text: str, kind: str, said: str) -> None:
    """A declared file that is not there, or not of its class, is one line and exit code 70."""
    done = run_inline(
        tmp_path, f'cd "$TRANSLOAD_OUTPUT_DIR"; {text}', [], files=(("it", "it", kind),)
    )
    assert done.returncode == 70
    assert said in done.stderr and done.stderr.count("\n") == 1


def test_inline_hostile_files(tmp_path: Path) -> None:
    """FIFOs, devices, huge files and long texts among the results are named. The rest comes."""
    text = """cd "$TRANSLOAD_TRACKER_BASE"; mkfifo fifo.json; ln -s /dev/zero zero.json; truncate -s 6G huge.json; """
    text += say(f'{{"long": "{"x" * 2000}", "a": 1}}', "odd")
    done = run_inline(
        tmp_path, text + say('{"n": 3}'), [["n", None, "Integer"], ["a", None, "Integer"]]
    )
    assert done.returncode == 0, done.stderr
    for said in (
        "fifo.json: is no regular file",
        "zero.json: is no regular file",
        "huge.json: more than 16,777,216",
    ):
        assert f"[transload] not read: {tmp_path}/base/{said}" in done.stderr
    assert "odd.json: result 'long': 2000 bytes; at most 1024" in done.stderr


def test_inline_error_file_that_is_none(tmp_path: Path) -> None:
    """A FIFO or a device in the place of the error file costs nothing but the reason."""
    for text in (
        "mkfifo $TRANSLOAD_ERROR_FILE; exit 3",
        "ln -s /dev/zero $TRANSLOAD_ERROR_FILE; exit 3",
    ):
        done = run_inline(tmp_path, text, [])
        assert (done.returncode, done.stderr) == (3, "[transload] the job failed: exit code 3\n")


def test_inline_lets_other_files_be(tmp_path: Path) -> None:
    """Files that are no results, though they are called .json, are the app's own affair, as in
    every host.
    """
    others = {
        "list": "[1]",
        "text": "{",
        "bytes": "\\377",
        "bare": '{"results": {"a": 1}}',
        "odd": '{"schema": 1}',
    }
    text = "".join(
        f"printf '{body}' > $TRANSLOAD_TRACKER_BASE/{name}.json; " for name, body in others.items()
    )
    newer = """echo '{"schema": 9, "results": {"b": 1}}' > $TRANSLOAD_TRACKER_BASE/newer.json; """
    done = run_inline(tmp_path, text + newer + say(f'{{"n": {10**400}}}'), [["n", None, "Integer"]])
    assert done.returncode == 0, done.stderr
    assert "newer.json: schema 9" in done.stderr
    output = json.loads((tmp_path / "out" / "o.json").read_text())
    assert output["artifacts"]["metrics"]["artifacts"][0]["metadata"] == {"n": 10**400}


@pytest.mark.parametrize(
    ("text", "outputs", "code", "said"),
    [
        ("exit 7", [], 7, "exit code 7"),
        (
            """echo '{"message": "no data"}' > "$TRANSLOAD_ERROR_FILE"; exit 1""",
            [],
            1,
            "exit code 1: no data",
        ),
        (
            """echo '{"message": {"message": "odd"}}' > "$TORCHELASTIC_ERROR_FILE"; exit 1""",
            [],
            1,
            "code 1: odd",
        ),
        ("""echo '[]' > "$TRANSLOAD_ERROR_FILE"; exit 1""", [], 1, "exit code 1\n"),
        ("kill -9 $$", [], 137, "exit code 137"),
        ("exit 0", [["a", None, "Float"]], 70, "reported: nothing"),
        (say('{"b": 1}'), [["a", None, "Float"]], 70, "reported: all: b"),
        (say('{"a": 1}') + say('{"a": 2}', "k"), [["a", None, "Float"]], 70, "keys all, k"),
        (say('{"a": "word"}'), [["a", None, "Float"]], 70, "declared as Float"),
        (say('{"a": 1.5}'), [["a", None, "Integer"]], 70, "declared as Integer"),
        (
            "echo nonsense > $TRANSLOAD_TRACKER_BASE/x.json",
            [["a", None, "Float"]],
            70,
            "ended well, but",
        ),
    ],
)
def test_inline_failures(
    tmp_path: Path, text: str, outputs: list[list[Any]], code: int, said: str
) -> None:
    """What went wrong is one line, and the exit code is the program's where it failed itself."""
    done = run_inline(tmp_path, text, outputs)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_inline_signal(tmp_path: Path, eventually: Any) -> None:
    """A signal to the wrapper reaches the program, whose own end it is."""
    from transload_kfp.convert import inline_source

    text = f"trap 'exit 9' TERM; : > {tmp_path}/up; while [ -e {tmp_path}/up ]; do sleep 0.1; done"
    folders = [str(tmp_path / "base"), str(tmp_path / "output")]
    command = [
        sys.executable,
        "-I",
        "-c",
        inline_source(),
        encoded([["sh"], ["-c"], [text]]),
        "{}",
        *folders,
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: (tmp_path / "up").exists(), 60)
        process.terminate()
        assert process.wait(60) == 9
    finally:
        (tmp_path / "up").unlink(missing_ok=True)
        process.wait(60)


def test_inline_values_and_variables(tmp_path: Path) -> None:
    """Values of inputs arrive exactly, variables too."""
    done = run_inline(tmp_path, 'printf "%s|" "$@" "$A"', [], ("a b", "{{$.x}}", "é\n"))
    assert done.stdout == "a b|{{$.x}}|é\n|b|"


def test_inline_of_a_missing_program(tmp_path: Path) -> None:
    """A program that is not there is said, with the shell's exit code."""
    from transload_kfp.convert import inline_source

    folders = [str(tmp_path / "base"), str(tmp_path / "output")]
    command = [sys.executable, "-I", "-c", inline_source(), encoded([["/no/such"]]), "{}", *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "/no/such" in done.stderr) == (127, True)


def test_a_command_in_place_of_a_component(tmp_path: Path) -> None:
    """Behind ``--`` any command stands, with a dry-run that needs no file to write to."""
    words = (
        "--launcher",
        "--scheduler",
        "docker",
        "--cfg",
        "image=my/train:1",
        "--image",
        "my/launcher:1",
    )
    command = ("--", "python", "train.py", "0.3")
    shown = transload("kfp", "compile", "--dry-run", *words, *command, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "train.py" in shown.stdout
    file = tmp_path / "pipeline.yaml"
    done = transload("kfp", "compile", "-o", str(file), *words, *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "# Name: train" in file.read_text()
    lacking = transload("kfp", "compile", *words, *command, cwd=tmp_path)
    assert lacking.returncode == 2
    assert "give -o FILE, or --dry-run" in lacking.stderr


LAUNCHER = ["kfp", "compile", "--launcher", "-s", "local", "--image", "launcher:1"]


def test_settings_of_the_job(
    tmp_path: Path, transload_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options of `run` are settings of a command, a component and a container.

    An input goes first.
    """
    from transload_kfp.launch_spec import LaunchSpec

    needs = [
        "--gpu",
        "2",
        "--mem",
        "8G",
        "--job-image",
        "train:1",
        "--env",
        "A=1",
        "--replicas",
        "3",
    ]
    needs += ["--retries", "2", "--job-name", "fit", "--notice", "5m", "--notice-signal", "USR1"]
    needs += ["--checkpoints", "--time-limit", "2h", "--mount", "type=bind,src=/d,dst=/d"]
    file = tmp_path / "pipeline.yaml"
    words = [*LAUNCHER, *needs, "-o", str(file)]
    assert main([*words, "--input", "n=num_replicas", "--", "python", "train.py"]) == 0
    spec, *_ = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    assert spec["root"]["inputDefinitions"]["parameters"]["n"]["defaultValue"] == 3
    (executor,) = spec["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == "launcher:1"
    launch = LaunchSpec.decode(executor["container"]["command"][3])
    app = launch.launch_with({"n": 4}).build()
    (role,) = app.roles
    assert (app.name, app.timeout, role.image) == ("fit", 7200, "train:1")
    assert (role.resource.gpu, role.resource.memMB, role.num_replicas) == (2, 8192, 4)
    assert (role.env, role.max_retries, role.checkpoints) == ({"A": "1"}, 2, True)
    assert role.notice == Notice(300, "USR1")
    assert role.mounts == [BindMount("/d", "/d")]
    assert main([*words, TRAIN]) == 0
    spec, *_ = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    (executor,) = spec["deploymentSpec"]["executors"].values()
    launch = LaunchSpec.decode(executor["container"]["command"][3])
    (role,) = launch.launch_with({}).build().roles
    assert (role.image, role.resource.gpu, role.notice) == ("train:1", 2, Notice(300, "USR1"))
    own = ["kfp", "compile", "-o", str(file), "--job-image", "train:1", "--mem", "8G", "--gpu", "1"]
    assert main([*own, "--", "python", "train.py"]) == 0
    spec, *_ = yaml.safe_load_all(file.read_text(encoding="utf-8"))
    (executor,) = spec["deploymentSpec"]["executors"].values()
    assert executor["container"]["image"] == "train:1"
    assert executor["container"]["resources"]["accelerator"]["resourceCount"] == "1"
    capsys.readouterr()
    assert main([*LAUNCHER, "--replicas", "3", "--dry-run", "--", "python", "train.py"]) == 0
    assert "role main: 3 replica(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "2"], "No such option '--gpus'. (Did you mean one of: '--cpu', '--gpu'"),
        (["--gpu", "-2"], "--gpu=-2: must be 0 or more"),
        (["--stall-after", "0s"], "--stall-after='0s': must be above 0"),
        (["--mem", "8"], "--mem='8': must have a unit"),
        (["--time-limit", "2"], "must have a unit"),
    ],
)
def test_wrong_settings_of_the_job(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is refused in one line by the option, a component's too, and nothing is written."""
    file = tmp_path / "pipeline.yaml"
    for source in ([TRAIN], ["--", "python", "train.py"]):
        assert main([*LAUNCHER, "-o", str(file), *words, *source]) == 2
        shown = capsys.readouterr()
        assert said in shown.err
        assert (shown.out, shown.err.count("\n"), file.exists()) == ("", 1, False)
