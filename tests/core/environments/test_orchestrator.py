"""A script with a header is an orchestrator's step, which is found again."""

from __future__ import annotations

from pathlib import Path

from transload.pipelines import ExecutionOptions, Identity, Launch
from transload.runner import Runner
from transload_testing.packages import PackageIndex
from transload_testing.steps import PlainStep


def test_the_scheduler_of_the_header_is_the_one_that_is_asked(
    index: PackageIndex, scripts: Path, transload_home: Path
) -> None:
    """The step is submitted to the header's cluster.

    Run again, it meets its job, and makes nothing.
    """
    (scripts / "transload.toml").write_text("[schedulers.hpc]\nkind = 'local'\n")
    (scripts / "train.py").write_text(
        "# /// script\n# dependencies = ['tiny']\n# [tool.transload]\n# scheduler = 'hpc'\n# ///\n"
        "import tiny; print('tiny', tiny.VERSION)\n"
    )
    lines: list[str] = []
    handles = []
    with Runner("host", inherit_env=False) as runner:
        for _ in range(2):
            step = PlainStep(
                runner,
                Launch(command=["python", "train.py"], folder=str(scripts)),
                Identity("host", ("here",), ("step",)),
                ExecutionOptions(),
                said=lines.append,
            )
            step.run()
            handles.append(str(step.handle))
        found = runner.list("hpc")
    assert handles[0] == handles[1]
    assert handles[0].startswith("hpc://")
    assert len(found) == 1
    assert any("/0 tiny 1.0" in line for line in lines)
    assert index.requests.count("/simple/tiny/") == 1
