"""A training that is interrupted several times, and ends as if it had not been."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "examples" / "preempted" / "README.md"


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_it_ends_as_an_undisturbed_training(transload_home: Path) -> None:
    """An interrupted job does no epoch twice, and ends with an undisturbed one's weights.

    The commands are the page's two, with another segment and fewer epochs.
    """
    block = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    commands = [shlex.split(line.removeprefix("$ ")) for line in block[1].splitlines()]
    assert [words[:2] for words in commands] == [["transload", "run"]] * 2
    # a notice after a second and a half, and much time to heed it: a busy machine is slow
    short = {"31s": "61500ms", "25s": "60s", "python": sys.executable}

    def run(words: list[str]) -> tuple[str, str]:
        words = [short.get(word, word) for word in words[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "transload", *words, "--epochs", "14"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=280,
            check=True,
        )
        return done.stdout, done.stderr

    printed, said = run(commands[0])
    assert "was interrupted (segment) at step " in said
    saved = re.findall(r"saved epoch (\d+)", printed)
    assert re.findall(r"goes on after epoch (\d+)", printed) == saved != []
    undisturbed, _ = run(commands[1])
    weights = [re.findall(r"accuracy .*", each) for each in (printed, undisturbed)]
    assert len(weights[0]) == 1
    assert weights[0] == weights[1]
