"""The commonest mistakes with all plugins installed, as somebody has them who tried everything."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

NAMES = runpy.run_path(str(Path(__file__).parents[1] / "mistakes.py"))
MISTAKES = [*NAMES["MISTAKES"], *NAMES["WITH_ALL_PLUGINS"]]

# all in one process, which has nothing disabled
RUN_ALL = """
import contextlib, io, json, sys
from transload.cli import main
found = []
for words in json.load(sys.stdin):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    found.append([code, err.getvalue()])
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """The exit code and the messages of each mistake."""
    folder = tmp_path_factory.mktemp("mistakes")
    NAMES["write_files"](folder)
    environment = {**os.environ, "TRANSLOAD_HOME": str(folder / "home"), "HOME": str(folder)}
    environment.pop("TRANSLOAD_DISABLE_PLUGINS", None)
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps([typed for typed, _ in MISTAKES]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert list((folder / "home").glob("local/apps/*")) == [], "something was started"
    return [(code, err) for code, err in json.loads(done.stdout)]


@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_the_message_says_what_to_type(number: int, answers: list[tuple[int, str]]) -> None:
    """The exit code is 2, the last line holds the remedy, no traceback is shown."""
    typed, said = MISTAKES[number]
    code, err = answers[number]
    assert code == 2, (typed, err)
    assert said in err.splitlines()[-1], (typed, err)
    assert "Traceback" not in err
