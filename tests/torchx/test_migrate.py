"""``transload migrate`` converts TorchX sources and settings, and lists what is left."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.cli import main
from transload.components import get_component
from transload.plugins import install_command
from transload.runner import Runner, load_settings
from transload.specs import Options, option
from transload_torchx import convert_settings, convert_source, named_resources_aws

JOB = """\
import os
import torchx.specs as specs
from torchx.specs.api import (
    AppDef,
    Role as R,
)
import torchx.specs
from torchx import components
from torchx.components import utils, dist
from torchx.specs.named_resources_aws import aws_p4d_24xlarge
from torchx.runtime.tracking import FsspecResultTracker  # é torchx


def job(text: str, image: str = "img") -> specs.AppDef:
    \"\"\"A job.

    Args:
        text: what to say
        image: where
    \"\"\"
    run = os.environ.get("TORCHX_JOB_ID"), "é", torchx.specs.macros.app_id
    size = torchx.specs.named_resources["aws_p4d.24xlarge"]
    return AppDef("job", [R("main", image=image, entrypoint="echo", args=[text], resource=size)])
"""


def test_a_component_file_runs_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every form of import and name is renamed, and other texts stay.

    The result is our component.
    """
    monkeypatch.chdir(tmp_path)
    text, left = convert_source(JOB)
    assert left == []
    assert "torchx" not in text.replace("# é torchx", "").replace("transload_torchx", "")
    assert (
        "# é torchx" in text
        and '"TRANSLOAD_JOB_ID"' in text
        and "from transload import components" in text
    )
    Path("job.py").write_text(text, encoding="utf-8")
    app = get_component("job.py:job").fn("hello")
    assert app.roles[0].resource.gpu == 8 == named_resources_aws.aws_p4d_24xlarge().gpu
    assert convert_source(text) == (text, [])


IMAGES = """\
import torchx
import torchx.version
from torchx.version import TORCHX_IMAGE, __version__
from torchx.version import TORCHX_IMAGE as IMG

found = [TORCHX_IMAGE, IMG, torchx.version.TORCHX_IMAGE, torchx.IMAGE]
versions = [__version__, torchx.version.__version__]
"""


def test_the_version_and_the_image_are_ours() -> None:
    """However version and image are spelled, the result can be executed."""
    text, left = convert_source(IMAGES)
    assert left == []
    names: dict[str, Any] = {}
    exec(text, names)
    assert names["found"] == [transload.IMAGE] * 4
    assert names["versions"] == [transload.__version__] * 2


AX = """\
import ax.runners.torchx
from ax.metrics.torchx import TorchXMetric
from ax.runners.torchx import (
    TORCHX_TRACKER_BASE as BASE,
    TorchXRunner,
)

runner = TorchXRunner(tracker_base="/tmp", component="train.py:trainer")
"""


def test_the_runner_of_ax_is_that_of_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ax has for TorchX is imported from transload-ax, which is asked for where it is missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    text, ((line, what),) = convert_source(AX)
    assert line == 1 and what == f"this file needs transload-ax: {install_command('ax')}"
    assert text.splitlines()[:5] == [
        "import transload_ax",
        "from transload_ax import TransloadMetric as TorchXMetric",
        "from transload_ax import (",
        "    TRANSLOAD_TRACKER_BASE as BASE,",
        "    TransloadRunner as TorchXRunner,",
    ]
    assert text.splitlines()[5:] == AX.splitlines()[5:]


def test_a_metric_that_ax_would_not_keep_is_listed() -> None:
    """Ax takes no more than the name from an objective, so the experiment needs the metric too."""
    lines = ["from ax.core import Objective", "goal = Objective(metric=TorchXMetric('loss'))"]
    _, left = convert_source("\n".join([*AX.splitlines(), *lines, ""]))
    assert [what for line, what in left if line == 10] == [
        "Objective(metric=…): Ax 1.3 keeps its name alone; give the Experiment metrics=[…] too"
    ]
    assert convert_source("\n".join([*lines, ""]))[1] == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("from torchx import version", "write transload.IMAGE"),
        (
            "from torchx.pipelines.kfp.adapter import component_from_app",
            "from transload_kfp import",
        ),
        ("from torchx.components.serve import torchserve", "a component of your own"),
        (
            "from torchx.schedulers.kubernetes_scheduler import KubernetesScheduler",
            "KubernetesScheduler",
        ),
        ("import torchx.specs.builders", "torchx.specs.builders"),
        ("from torchx.specs import AppDef, no_such_name", "torchx.specs.no_such_name"),
        ("x = 'the variable TORCHX_JOB_ID'", "TORCHX_JOB_ID"),
        ("from torchx.tracker import no_such_name", "torchx.tracker.no_such_name"),
    ],
)
def test_what_has_no_counterpart_is_left_with_its_line(line: str, named: str) -> None:
    """It is listed, and nothing is made up for it."""
    text, ((number, what),) = convert_source(f"a = 1\n{line}\n")
    assert number == 2 and named in what
    assert text.splitlines()[1].replace("transload", "torchx") == line


CONFIG = """\
[cli:run]
scheduler = local_docker
component = utils.echo

[slurm]
partition = gpu
nice = 3
no_such = 1

[local_cwd]
log_dir = /tmp/logs
prepend_cwd = True

[component:dist.ddp]
j = 2x8

[torchx:tracker]
fsspec =

[tracker:fsspec]
config = file:///shared/runs
"""


@dataclass(frozen=True, kw_only=True)
class _Queued(Options):
    """As Kubernetes has them, which is not installed with these tests."""

    queue: str | None = option("a queue")
    namespace: str | None = option("a namespace")


@dataclass(frozen=True, kw_only=True)
class _Mailed(Options):
    """As Slurm has them, which is not installed with these tests."""

    mail_user: str | None = option("whom Slurm writes mail")


def test_settings_become_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options have their types. What has no place is listed by its section's line."""
    monkeypatch.chdir(tmp_path)
    with Runner("test") as runner:
        text, left = convert_settings(CONFIG, runner)
        Path("transload.toml").write_text(text)
        settings = load_settings()
        assert settings.scheduler == "docker"
        assert settings.component_defaults(get_component("dist.ddp")) == {"j": "2x8"}
        assert settings.trackers() == {"fsspec": "file:///shared/runs"}
        assert settings.cfg("local_cwd", runner.scheduler_run_opts("local_cwd")) == {
            "log_dir": "/tmp/logs",
            "prepend_cwd": True,
        }
    assert (1, "[cli:run] component = utils.echo: name it on the command line") in left
    assert '# component = "utils.echo"' in text
    assert all(line in (1, 5) for line, _ in left)
    if importlib.util.find_spec("transload_slurm"):
        assert settings.get("schedulers.slurm.nice") == 3
        assert any("no_such" in what for _, what in left)


def test_an_option_that_means_something_else_is_not_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue of Volcano would have Kueue, which may not be there, suspend each app for ever."""
    with Runner("test") as runner:
        monkeypatch.setattr(runner, "scheduler_run_opts", lambda name: _Queued)
        text, ((line, why),) = convert_settings(
            "[kubernetes]\nqueue = default\nnamespace = team\n", runner
        )
    assert text == '[schedulers.kubernetes]\n# queue = "default"\nnamespace = "team"\n'
    assert line == 1 and "queue = default: named a queue of Volcano" in why


OTHERS = """\
[slurm]
mail-user = me@example.com
nomem = true

[nowhere]
x = y

[torchx:tracker]
ours =
fsspec =

[tracker:ours]
config = /runs
"""


def test_no_table_is_written_that_would_stop_each_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracker or scheduler that is not here becomes a comment. Options may have dashes."""
    monkeypatch.chdir(tmp_path)
    with Runner("test") as runner:
        known = {"slurm": _Mailed}
        refused = runner.scheduler_run_opts
        monkeypatch.setattr(
            runner, "scheduler_run_opts", lambda name: known.get(name) or refused(name)
        )
        text, left = convert_settings(OTHERS, runner)
    assert '''mail_user = "me@example.com"\n# nomem = "true"''' in text
    assert '''# [schedulers.nowhere]\n# x = "y"''' in text
    assert '''# [tracker.ours]\n# config = "/runs"''' in text
    Path("transload.toml").write_text(text)
    assert load_settings().trackers() == {}
    said = dict(left)
    assert "a role with memMB=-1" in said[1] and "'nowhere' is not installed" in said[5]
    assert "'ours': no such tracker" in said[12] and "nothing is configured" in said[8]


def _migrate(capsys: pytest.CaptureFixture[str], *args: Any) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["migrate", *map(str, args)])
    return (code, *capsys.readouterr())


def test_the_command_shows_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without ``--write`` nothing is touched.

    With it files change, and settings get a file once.
    """
    (tmp_path / "jobs").mkdir()
    job, other = tmp_path / "jobs" / "job.py", tmp_path / "other.py"
    job.write_text(JOB, encoding="utf-8")
    job.chmod(0o750)
    other.write_text("import os\n")
    (tmp_path / ".torchxconfig").write_text("[local_cwd]\nprepend_cwd = True\n")
    (tmp_path / ".torchxignore").write_text("*.bin\n")
    code, out, err = _migrate(capsys, tmp_path)
    assert (
        code == 0
        and "-import torchx.specs as specs" in out
        and "+import transload.specs as specs" in out
    )
    assert "3 file(s) to change, 0 line(s) left" in err and job.read_text(encoding="utf-8") == JOB
    code, out, err = _migrate(capsys, tmp_path, "--write")
    assert code == 0 and "3 file(s) written" in err
    assert (
        job.read_text(encoding="utf-8") == convert_source(JOB)[0]
        and job.stat().st_mode & 0o777 == 0o750
    )
    assert (
        tmp_path / "transload.toml"
    ).read_text() == "[schedulers.local_cwd]\nprepend_cwd = true\n"
    assert (tmp_path / ".transloadignore").read_text() == "*.bin\n"
    assert other.read_text() == "import os\n" and (tmp_path / ".torchxconfig").exists()
    assert _migrate(capsys, tmp_path)[2] == "0 file(s) to change, 0 line(s) left to do by hand\n"
    (tmp_path / "transload.toml").write_text("scheduler = 'local'\n")
    code, _, err = _migrate(capsys, tmp_path, "--write")
    assert code == 1 and "transload.toml is there already" in err
    assert (tmp_path / "transload.toml").read_text() == "scheduler = 'local'\n"


def test_commands_and_packages_are_listed_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands and packages of TorchX are listed by line, and nothing is changed."""
    script = "torchx run -s slurm dist.ddp -j 2x4\n# torchx run\ncd torchx\n  torchx status x\n"
    (tmp_path / "launch.sh").write_text(script)
    project = (
        '[project]\ndependencies = ["torchx>=0.7"]\n[project.entry-points."torchx.components"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "requirements-dev.txt").write_text("my-torchx\ntorchx[dev]==0.7\n")
    code, out, err = _migrate(capsys, tmp_path, "--write")
    assert (code, out) == (1, "")
    lines = [line.removeprefix(f"{tmp_path}/") for line in err.splitlines()]
    assert [line.partition(": left: ")[0] for line in lines[:-1]] == [
        "launch.sh:1",
        "launch.sh:4",
        "pyproject.toml:2",
        "pyproject.toml:3",
        "requirements-dev.txt:2",
    ]
    assert "--detach makes it return" in lines[0] and "write transload status" in lines[1]
    assert "write transload, and its plugins" in lines[2]
    assert "a module with the hook transload_components" in lines[3]
    assert (tmp_path / "launch.sh").read_text() == script


def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is no Python, and a path that is not there."""
    (tmp_path / "x.py").write_text("import torchx\ndef (:\n")
    code, _, err = _migrate(capsys, tmp_path)
    assert code == 2 and "x.py:2: syntax error" in err and err.count("\n") == 1
    assert _migrate(capsys, tmp_path / "none")[0] == 2
