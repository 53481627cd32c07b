"""A program of a built-in component runs as under ``python``, and its exception is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from transload.components.programs.record import START, recorded
from transload.keeper.failures import error_line, read_error
from transload.runner import get_runner
from transload.runner.failures import error_frames

PROBE = '''"""What a program sees."""
from __future__ import annotations
import json, os, sys
number: int = 3
main = sys.modules["__main__"]
shown = [repr(each).split(" at 0x")[0] for each in (main.__spec__, main.__loader__, sys.excepthook, __builtins__)]
names = {name: value for name, value in globals().items() if isinstance(value, (str, dict))}
seen = [sys.argv, sys.path, shown, sorted(globals()), names["__name__"], __doc__, __package__, names.get("__file__")]
modules = sorted({*sys.modules, "linecache"})  # 3.13 loads it for each -c
print(json.dumps([*seen, modules, str(sys.flags), dict(os.environ)]))
def fail():
    try:
        {}["k"]
    except KeyError as error:
        raise ValueError("no ü") from error
{"die": fail, "exit": lambda: sys.exit(7), "say": lambda: sys.exit("enough")}.get(sys.argv[-1], int)()
'''


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the same program as a file, by a link, in a package, a folder and a zip."""
    folder = tmp_path / "programs"
    (folder / "pack").mkdir(parents=True)
    for name in ("probe.py", "pack/__main__.py", "pack/part.py", "pack/__init__.py"):
        (folder / name).write_text("" if "init" in name else PROBE, encoding="utf-8")
    (folder / "broken.py").write_text("def f(:\n", encoding="utf-8")
    (tmp_path / "link.py").symlink_to(folder / "probe.py")
    with zipfile.ZipFile(folder / "whole.pyz", "w") as file:
        file.writestr("__main__.py", PROBE)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["probe.py"],
        ["./pack/../probe.py"],
        ["../link.py"],
        ["-m", "probe"],
        ["-m", "pack"],
        ["-m", "pack.part"],
        ["pack"],
        ["whole.pyz"],
        ["-c", PROBE],
        ["nothing.py"],
        ["-m", "nothing"],
        ["broken.py"],
    ],
    ids=lambda words: words[-1][:20],
)
def test_a_program_sees_no_difference(programs: Path, words: list[str]) -> None:
    """Arguments, paths, main module, loaded modules, exit code and standard error are those that
    ``python`` gives.
    """
    file = programs / "error.json"
    env = {
        "LC_ALL": "C.UTF-8",
        "TRANSLOAD_ERROR_FILE": str(file),
        "TORCHELASTIC_ERROR_FILE": str(file),
    }

    def run(words: list[str], safe: str) -> tuple[int, str, str]:
        command = [sys.executable, *words]
        more = {**env, "PYTHONSAFEPATH": safe}  # 3.11 and newer
        done = subprocess.run(
            command, cwd=programs, env=more, capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    for ending, safe in (("live", "1"), ("exit", ""), ("say", ""), ("die", "")):
        plain = run([*words, "--x", ending], safe)
        assert not file.exists()
        assert run(recorded([*words, "--x", ending]), safe) == plain
        told = plain[0] == 1 and plain[2].startswith(("Traceback", "  File"))
        assert file.exists() == (told and words not in (["pack"], ["whole.pyz"]))
        if file.exists() and words != ["broken.py"]:
            error = read_error(file.read_bytes())
            assert error_line(error) == "ValueError: no ü"
            assert any(frame.endswith(", in fail") for frame in error_frames(error))
        file.unlink(missing_ok=True)


@pytest.mark.parametrize("before", ["", '{"x": 1}\n', '{"message": "mine"}\n'])
def test_what_a_program_says_by_itself_stays(tmp_path: Path, before: str) -> None:
    """The error comes after results in the same file. The program's own error goes first."""
    file = tmp_path / "error.json"
    program = f"open({str(file)!r}, 'w').write({before!r}); raise KeyError('é' * 99_999)"
    command = [sys.executable, *recorded(["-c", program])]
    subprocess.run(
        command,
        env={"TRANSLOAD_ERROR_FILE": str(file)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    text = file.read_text(encoding="utf-8")
    assert text.startswith(before)
    if "mine" in before:
        assert text == before
    else:
        assert json.loads(text.splitlines()[-1])["message"]["message"].startswith("KeyError: 'éé")
        assert len(text.encode()) < 4096  # of Kubernetes' termination messages, whatever the script


SHADOWS = "open = type = str = int = Exception = OSError = set = 3\n"


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (SHADOWS + "raise KeyError(1)", "KeyError: 1"),
        ("from os import *\nraise KeyError(1)", "KeyError: 1"),
        ("class Panic(BaseException): pass\nraise Panic(1)", "Panic: 1"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError:"),
        ("import os\nos.environ.clear()\nraise KeyError(2)", "KeyError: 2"),
        (
            (
                "import dataclasses as d\n@d.dataclass(frozen=True)\nclass E(Exception):\n  x: "
                "int\nraise E(1)"
            ),
            "E: 1",
        ),
        ("class E(Exception):\n  def __str__(self): return 1 / 0\nraise E", ""),
        (
            "import atexit, sys\natexit.register(lambda: print(sys.last_type))\nraise KeyError(1)",
            "KeyError: 1",
        ),
        ("import sys\nsys.exit = print\nraise KeyError(1)", "KeyError: 1"),
        ("raise KeyError('\\udcff')", r"KeyError: '\udcff'"),
        (
            "import inspect\ndef f(): pass\ntry: print(inspect.getsource(f))\nexcept OSError: pass",
            "",
        ),
        ("def start():\n  [][1]\nstart()", "IndexError: list index out of range"),
    ],
)
@pytest.mark.parametrize("kind", ["-c", "file"])
def test_what_programs_do_to_their_names_and_errors(
    tmp_path: Path, kind: str, program: str, line: str
) -> None:
    """A program may use names as Python does, die of anything, and change `sys`.

    Nothing is added to it.
    """
    file, words = tmp_path / "error.json", ["-c", program]
    if kind == "file":
        words = [str(tmp_path / "program.py")]
        Path(words[0]).write_text(program, encoding="utf-8")
    env = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "TRANSLOAD_ERROR_FILE": str(file),
    }
    env.update(PYTHONWARNDEFAULTENCODING="1", PYTHONWARNINGS="error")

    def run(words: list[str]) -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            [sys.executable, *words], env=env, capture_output=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    plain = run(words)
    assert not file.exists()
    file.write_text("ü\n", encoding="utf-8")  # what it has said before
    assert run(recorded(words)) == plain
    told = file.read_text(encoding="utf-8").splitlines()[1:]
    assert [error_line(each) for each in told] == [line] * bool(line)


def test_an_exception_whose_traceback_nobody_could_read(
    transload_home: Path, tmp_path: Path
) -> None:
    """The job's error is the exception, even if the program writes JSON by its own excepthook."""
    program = "import sys\nsys.excepthook = lambda *_: print('{}', file=sys.stderr)\ndef f():\n  [][1]\nf()"
    with get_runner() as runner:
        handle = runner.run_component("utils.python", ["-c", program], "local")
        status = runner.wait(handle, timeout=60)
        assert status is not None
        assert (
            status.msg
            == "role 'python', replica 0 failed (exit code 1): IndexError: list index out of range"
        )
        lines = [line.split(",", 1)[1] for line in error_frames(status.structured_error_msg)]
        assert lines == [" line 5, in <module>", " line 4, in f"]


def test_it_runs_on_old_interpreters() -> None:
    """What is sent is the Python of 3.8, and says nothing of shells or macros."""
    import ast

    ast.parse(START, feature_version=(3, 8))
    assert "$" not in START
    assert os.linesep == "\n" or "\r" not in START


@pytest.mark.parametrize(
    ("component", "shown"),
    [
        ("utils.python", "python -c '# transload.components.programs.record' train.py"),
        ("dist.ddp", "# transload.components.programs.torchrun\ntorchrun --rdzv_endpoint"),
    ],
)
def test_a_dry_run_names_our_own_programs(component: str, shown: str, transload_home: Path) -> None:
    """Their text is in the request, and is not shown."""
    with get_runner("test") as runner:
        plan = runner.dryrun_component(component, ["--script", "train.py"], "local")
    assert shown in str(plan)
    assert "def start()" not in str(plan)
    assert "def start()" in " ".join(plan.resolved.roles[0].args)
