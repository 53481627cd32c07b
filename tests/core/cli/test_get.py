"""`get` copies the files that are asked for, by name or by a pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.runner import get_runner

_NAMES = ("model[1].pt", "model1.pt", "lr=[1, 2].json", "a?b", "aab", "[best].ckpt", "b.ckpt")
_WRITE = f"""
import os
outputs = os.environ["TRANSLOAD_OUTPUT_DIR"]
folder = os.environ.get("TRANSLOAD_CHECKPOINT_DIR", outputs)
for name in {_NAMES!r}:
    open(os.path.join(folder, name), "w").close()
"""


def _job_with_files(invoke: Any, app_id: str, *options: str) -> str:
    ran = invoke("run", "--app-id", app_id, *options, "--", "python3", "-c", _WRITE)
    assert ran.code == 0, ran.err
    return f"local://transload/{app_id}"


@pytest.mark.parametrize("name", _NAMES)
@pytest.mark.parametrize("options", [(), ("--checkpoints",)])
def test_a_name_that_a_file_has_is_that_file(
    invoke: Any, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    """A name is no pattern where a file has it, though it has brackets or a question mark."""
    handle = _job_with_files(invoke, "job", *options)
    copied = invoke("get", handle, name, *options, "-o", str(tmp_path / "copies"))
    assert copied.lines == [str(tmp_path / "copies" / name)], copied.err


def test_what_no_file_is_called_is_a_pattern(invoke: Any, tmp_path: Path) -> None:
    """Brackets, stars and question marks select files where no file has such a name."""
    handle = _job_with_files(invoke, "job")
    with get_runner() as runner:
        assert runner.job(handle).fetch("model[[]1].pt", str(tmp_path)) == [
            f"{tmp_path}/model[1].pt"
        ]
        found = runner.job(handle).fetch("?[ab]b", str(tmp_path))
        assert found == [f"{tmp_path}/aab"]
        assert runner.job(handle).fetch("model[1].pt", str(tmp_path)) == [f"{tmp_path}/model[1].pt"]
        assert len(runner.job(handle).fetch("*.ckpt", str(tmp_path))) == 2


def test_list_finds_a_job_by_a_name_with_brackets(invoke: Any) -> None:
    """A job whose name has brackets is listed by that name, and others by a pattern."""
    for name in ("train[1]", "train1"):
        assert invoke("run", "--name", name, "--", "true").code == 0
    names = [each["name"] for each in invoke("list", "--name", "train[1]", "--json").json["apps"]]
    assert names == ["train[1]"]
    assert len(invoke("list", "--name", "train*", "--json").json["apps"]) == 2
    assert len(invoke("list", "--name", "train[[]1]", "--json").json["apps"]) == 1
