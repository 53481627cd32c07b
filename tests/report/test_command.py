"""``transload report`` is a process with hooks for kept pages, links and automatic pages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from report_samples import EXPERIMENT, Page, python, shell

import transload_report

sys.path.insert(0, str(Path(__file__).parents[1]))

from command_line import transload

from transload.errors import ConfigError
from transload.plugins import get_plugins
from transload.runner import Runner, load_settings
from transload.specs import AppDef
from transload.tracker import FsspecTracker
from transload_report import plugin
from transload_report.place import own_settings, page_link, page_path

Parse = Callable[[str], Page]
SVG = "{http://www.w3.org/2000/svg}"
WAIT = 120.0


@pytest.fixture
def handle(runner: Runner) -> str:
    """An app that has ended well."""
    made = runner.run(AppDef("hello", [shell("echo hello")]), "local")
    runner.wait(made, timeout=WAIT)
    return made


CURVES = """
from transload.runtime import report

curves = {
    "subnormal": [5e-324, 1e-323, 2e-323],
    "two subnormals": [0.0, 5e-324],
    "tiny": [1e-300, 2e-300, 4e-200],
    "the whole range": [1e308, -1e308, 5.0],
    "large": [1e308, 1.7e308],
    "nearly equal": [1.0, 1.0000000000000002],
    "whole numbers": [10**300, 10**301],
    "no numbers": [float("nan")] * 3,
    "half of it": [float("nan"), float("-inf"), 1.0],
    "equal": [1e308] * 3,
    "small and large": [5e-324, 1e149],
}
for name, values in curves.items():
    for step, value in enumerate(values):
        report(step=step, key=name, v=value)
steps = {
    "far apart": [-1e308, 1e308],
    "far": [1e308, 1.5e308],
    "one is far": [0, 1, 2, 1e308],
    "next to each other": [0, 5e-324],
    "tiny": [5e-324, 1e-323, 2e-323],
    "large": [10**18, 10**18 + 1],
    "huge": [2**70, 2**70 + 2**20],
}
for name, places in steps.items():
    for place in places:
        report(step=place, key=f"{name} steps", v=1.0)
"""


def test_curves_of_odd_numbers_are_a_page(runner: Runner, tmp_path: Path, parse: Parse) -> None:
    """Numbers and steps at the ends of what a float can be have a place in a picture, or none."""
    made = runner.run(AppDef("odd", [python(CURVES)]), "local")
    status = runner.wait(made, timeout=WAIT)
    assert status is not None and status.state.name == "SUCCEEDED"
    done = transload("report", made, "-o", "odd.html", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    page = parse((tmp_path / "odd.html").read_text())
    titles = page.lines(f".//section[@id='results']//{SVG}svg/{SVG}title")
    assert {"v of subnormal by step", "v of one is far steps by step", "v of tiny by step"} <= {
        *titles
    }
    assert "v of no numbers by step" not in titles
    for number in ("nan", "inf"):
        assert not [each for each in page.root.iter() if number in (each.get("d") or "")]


TRAINING = """
import sys
from transload.runtime import report

rate, width = float(sys.argv[2]), int(sys.argv[4])
report(loss=rate * width, lr=rate, width=width * 2)
"""


def test_results_against_arguments(tmp_path: Path, parse: Parse, transload_home: Path) -> None:
    """What a job was given and reported is one column, and results are drawn against arguments."""
    (tmp_path / "train.py").write_text(TRAINING)
    for k, (rate, width) in enumerate([("0.0001", 1), ("0.001", 2), ("0.1", 2)]):
        words = ["python3", "train.py", "--lr", rate, "--width", str(width)]
        done = transload("run", "--app-id", f"run-{k}", "--", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    done = transload("report", "run-0", "run-1", "run-2", "-o", "runs.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = parse((tmp_path / "runs.html").read_text())
    heads = page.lines(".//section[@id='runs']//thead//th")
    assert heads.count("lr") == 1, "it is what was given"
    assert heads.count("width") == 2, "what was reported is another number"
    titles = page.lines(f".//section[@id='results']//{SVG}svg/{SVG}title")
    assert "lr of each run" not in titles and "lr against lr" not in titles
    assert {"loss against lr", "loss against width", "width against lr"} <= {*titles}
    texts = page.lines(f".//section[@id='results']//{SVG}text")
    assert "lr, logarithmic" in texts and "1e-04" not in texts


def test_writes_a_page(handle: str, tmp_path: Path, parse: Parse) -> None:
    """The command writes a page to a file, which it names, or to stdout, for one or more jobs."""
    done = transload("report", handle, "-o", "report.html", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "report.html\n", "")
    page = parse((tmp_path / "report.html").read_text())
    assert "hello" in page.text(".//pre")
    shown = transload("report", handle, "-o", "-", cwd=tmp_path)
    assert shown.returncode == 0 and parse(shown.stdout).text(".//h1") == page.text(".//h1")
    assert (
        transload(
            "report", handle, handle, "--title", "Both & more", "-o", "two.html", cwd=tmp_path
        ).returncode
        == 0
    )
    assert parse((tmp_path / "two.html").read_text()).text(".//h1") == "Both & more"
    assert transload("report", "--all", cwd=tmp_path).stdout == "report.html\n"
    assert "All jobs of local" in parse((tmp_path / "report.html").read_text()).text(".//h1")
    assert (
        transload(
            "report", "--search", str(EXPERIMENT), "-o", "search.html", cwd=tmp_path
        ).returncode
        == 0
    )
    assert [file.name for file in tmp_path.iterdir() if "tmp" in file.name] == []


def test_the_page_is_where_hosts_look_for_it(
    handle: str, tmp_path: Path, transload_home: Path
) -> None:
    """Without -o the page goes to the reports folder, and ``describe`` shows the link."""
    assert "reports" not in transload("describe", handle, cwd=tmp_path).stdout
    done = transload("report", handle, cwd=tmp_path)
    path = done.stdout.strip()
    assert done.returncode == 0 and Path(path).parent == transload_home / "reports"
    assert f"page\t{path}\n" in transload("describe", handle, cwd=tmp_path).stdout
    elsewhere = tmp_path / "pages"
    env = {
        "TRANSLOAD_REPORTS": str(elsewhere),
        "TRANSLOAD_REPORTS_URL": "https://pages.example/jobs/",
    }
    path = transload("report", handle, cwd=tmp_path, **env).stdout.strip()
    assert Path(path).parent == elsewhere
    link = f"https://pages.example/jobs/{Path(path).name}"
    assert f"page\t{link}\n" in transload("describe", handle, cwd=tmp_path, **env).stdout


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["local://transload/nothing"], "no such job: local://transload/nothing"),
        (["nothing", "more"], "no such job: local://transload/nothing"),
        (["://"], "://"),
        ([], "give one or more handles"),
        (["x", "--all"], "give one or more handles, or one of"),
        (["x", "-s", "local"], "--scheduler only goes with --all"),
        (["--all", "-s", "lokal"], "did you mean 'local'"),
        (["--search", "nothing"], "no search 'nothing'"),
        (["--lineage", "run"], "no tracker is configured"),
        (["x", "--lines", "-1"], "--lines"),
        (["x", "--title", "T"], "--title only goes with --all, or with several handles"),
        (["--all", "--lines", "5"], "--lines only goes with one handle"),
        (["--search", "x", "--lines", "5"], "--lines only goes with one handle"),
        (["--search", str(EXPERIMENT), "-o", "/no/such/folder/x.html"], "/no/such/folder/x.html': cannot be written"),
        (["--search", str(EXPERIMENT), "-o", "/"], "'/': cannot be written"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_line(
    args: list[str], says: str, tmp_path: Path, transload_home: Path
) -> None:
    """Exit code 2, one line that says what was wrong, and no file."""
    done = transload("report", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr and len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_lineage_that_is_not_known(tmp_path: Path, transload_home: Path) -> None:
    """With a tracker, a run that it knows nothing of."""
    env = {
        "TRANSLOAD_TRACKERS": "fsspec",
        "TRANSLOAD_TRACKER_FSSPEC_CONFIG": str(tmp_path / "runs"),
    }
    done = transload("report", "--lineage", "nothing", cwd=tmp_path, **env)
    assert done.returncode == 2 and "run 'nothing' has no lineage" in done.stderr
    assert "AppRun.run_from_env()" in done.stderr


def test_a_lineage_as_a_picture(tmp_path: Path, transload_home: Path) -> None:
    """With a file name that ends in .svg only the picture is written, passwords masked as on a
    page.
    """
    tracker = FsspecTracker(None, tmp_path / "runs")
    tracker.add_source("train", "prep", "data")
    tracker.add_artifact("prep", "data", "s3://me:hunter2@bucket/data")
    env = {
        "TRANSLOAD_TRACKERS": "fsspec",
        "TRANSLOAD_TRACKER_FSSPEC_CONFIG": str(tmp_path / "runs"),
    }
    done = transload("report", "--lineage", "train", "-o", "lineage.svg", cwd=tmp_path, **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "lineage.svg\n", "")
    drawn = (tmp_path / "lineage.svg").read_text()
    assert (
        drawn.startswith("<svg")
        and "prep" in drawn
        and "bucket/data" in drawn
        and "hunter2" not in drawn
    )


def test_pages_write_themselves(transload_home: Path, tmp_path: Path, parse: Parse) -> None:
    """With ``auto`` the page is there once an app is submitted, and again when it has ended."""
    (tmp_path / "transload.toml").write_text(
        f'[plugins.report]\nauto = true\ndir = "{tmp_path}/pages"\n'
    )
    done = transload("run", "utils.sh", "sleep", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "pages").iterdir()
    assert "✓ SUCCEEDED" in parse(file.read_text()).text(".//header")
    (tmp_path / "transload.toml").write_text(f'[plugins.report]\ndir = "{tmp_path}/none"\n')
    assert transload("run", "utils.sh", "true", cwd=tmp_path).returncode == 0
    assert not (tmp_path / "none").exists()


def test_a_page_that_cannot_be_written_harms_no_app(
    transload_home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What goes wrong while a page writes itself is logged, and the job ends as it would."""
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "transload.toml").write_text(
        f'[plugins.report]\nauto = true\ndir = "{tmp_path}/file"\n'
    )
    done = transload("run", "utils.sh", "true", cwd=tmp_path)
    assert done.returncode == 0
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[plugins.report]\nauot = true\n",
            "plugins.report.auot: unknown key: did you mean 'auto'",
        ),
        ('[plugins.report]\nauto = "yes"\n', "plugins.report.auto='yes': must be a bool"),
        ("[plugins.report]\ndir = 3\n", "plugins.report.dir=3: must be a str"),
    ],
)
def test_wrong_settings_are_refused(
    text: str, says: str, tmp_path: Path, transload_home: Path
) -> None:
    """A wrong key or type names the file and what is allowed."""
    (tmp_path / "transload.toml").write_text(text)
    with pytest.raises(ConfigError, match="transload.toml") as caught:
        own_settings(load_settings(str(tmp_path)))
    assert says in str(caught.value)
    done = transload("report", "x", cwd=tmp_path)
    assert done.returncode == 2 and says in done.stderr


def test_names_of_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job has a file of its own in the folder, whatever its id.

    Sessions make no difference.
    """
    monkeypatch.setenv("TRANSLOAD_REPORTS", str(tmp_path))
    settings = load_settings(str(tmp_path))
    ids = ["a", "A", "default:app", "default-app", "..%2F..%2Fetc", "x" * 200, "x" * 201, "%C3%BC"]
    paths = [page_path(f"local://transload/{each}", settings) for each in ids]
    assert len(set(paths)) == len(ids)
    assert {path.parent for path in paths} == {tmp_path}
    assert all(len(path.name.encode()) < 200 for path in paths)
    assert (
        page_path("local://other/a", settings)
        == paths[0]
        != page_path("slurm://transload/a", settings)
    )
    assert page_link("local://transload/a", settings) is None


def test_the_plugin_is_installed() -> None:
    """The command and the hooks are found through the entry point."""
    plugins = get_plugins()
    assert "report" in plugins.names("cli_commands")
    info = next(each for each in plugins.infos() if each.name == "report")
    assert (info.status, info.value, info.dist) == ("loaded", plugin.__name__, "transload-report")


def test_the_plugin_costs_next_to_nothing() -> None:
    """Every command loads the plugin, which loads no templates.

    Public names are loaded when used.
    """
    code = (
        "import sys, transload_report.plugin, transload_report as package\n"
        "heavy = [name for name in ('jinja2', 'fsspec', 'transload.runner') if name in "
        "sys.modules]\n"
        "print(heavy, all(getattr(package, name) is not None for name in package.__all__))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[] True\n"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        transload_report.nothing  # noqa: B018
