"""With relative paths a job is the same wherever the flow's process was started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLOW = """
import sys
from prefect import flow
from transload_prefect import app_task, run_app

show = app_task("parts/show.py:show")

@flow
def work():
    passed = run_app("parts/show.py:show", pass_env=["HF_*"])
    return [show(), passed, run_app(command=["sh", "-c", "test -e parts/show.py"])]

if __name__ == "__main__":
    print([each.handle for each in work()])
"""

SHOW = """
from transload.specs import AppDef, Role

def show() -> AppDef:
    words = "echo from $(basename $PWD), HF_X=$HF_X; test -e data.txt"
    return AppDef("show", [Role("main", "", entrypoint="sh", args=["-c", words])])
"""


def test_relative_to_the_flows_file(
    host: Any, script: Callable[[str], Any], tmp_path: Path
) -> None:
    """Components and files are found beside the flow, from any directory.

    Variables pass as asked.
    """
    made = script(FLOW)
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "show.py").write_text(SHOW)
    (tmp_path / "data.txt").write_text("data")
    process = made.start(sys.executable, "-c", f"import os, runpy; os.chdir('/'); runpy.run_path({str(made.path)!r}, run_name='__main__')", HF_X="1")  # fmt: skip # noqa: E501
    process.wait(timeout=200)
    text = made.log.read_text()
    assert process.returncode == 0, text[-3000:]
    folder = os.path.basename(tmp_path)
    assert f"main/0 from {folder}, HF_X=\n" in text
    assert f"main/0 from {folder}, HF_X=1\n" in text
