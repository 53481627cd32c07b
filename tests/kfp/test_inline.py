"""The lines of Python that run a job's program in its container, and collect its results."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl


def encoded(argv: list[str], **more: Any) -> str:
    """Return what the wrapper gets as its first word."""
    spec = {"argv": argv, "env": {}, "artifacts": ["results", "files"], "values": []}
    spec |= {"results": [], "files": [], **more}
    return base64.b64encode(json.dumps(spec).encode()).decode()


def run_inline(
    tmp_path: Path,
    text: str,
    results: list[list[Any]],
    values: tuple[str, ...] = (),
    files: tuple[tuple[str, str, str], ...] = (),
) -> Any:
    """Run the wrapper as a container would.

    A result is its name, its key and its type. Its output has its name.
    """
    from transload_kfp.convert import inline_source, mark

    names = [str(number) for number in range(len(values))]
    paths = {"results": "base", "files": "output", **{port: f"made/{port}" for _, port, _ in files}}
    word = encoded(
        ["sh", "-c", text, "x", *map(mark, names)],
        env={"A": "b"},
        artifacts=list(paths),
        values=names,
        results=[[name, name, kind, key] for name, key, kind in results],
        files=files,
    )
    artifacts = {
        name: {"artifacts": [{"name": name}]}
        for name in ("results", "metrics", "executor-logs", *(each[1] for each in files))
    }  # a backend lists its own logs too
    parameters = {name: {"outputFile": str(tmp_path / "values" / name)} for name, _, _ in results}
    outputs = {"outputFile": str(tmp_path / "out" / "o.json")}
    request = {"outputs": {**outputs, "parameters": parameters, "artifacts": artifacts}}
    words = [word, json.dumps(request), *(str(tmp_path / path) for path in paths.values())]
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
    found = {
        path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "values").iterdir()
    }
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
    assert (tmp_path / "values" / "t").read_text(encoding="utf-8") == r"a\x00b\ud800c"
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
        ("touch other", "Model", "'it' is not in TRANSLOAD_OUTPUT_DIR; the job made: other"),
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
        encoded(["sh", "-c", text]),
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
    command = [sys.executable, "-I", "-c", inline_source(), encoded(["/no/such"]), "{}", *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "/no/such" in done.stderr) == (127, True)
