"""The tables of docs/reference name every setting, every variable and every module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from transload.runner import Runner, Settings, load_settings
from transload.runner.config import KEYS
from transload.specs import Options

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
CONFIGURATION = (REFERENCE / "configuration.md").read_text()
PARTS = {"TRANSLOAD_", "TRANSLOAD_DOCKER_", "TRANSLOAD_TRACKER_"}
"""What stands in the sources as the beginning of names."""
OF_AX = {"TRANSLOAD_APP_HANDLE"}
"""A name in Python."""


def _section(page: str, title: str) -> str:
    """Return what stands below a heading, up to the next one of its kind."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _variables_of_the_code() -> set[str]:
    """Return the names of variables in texts of the sources, and those given as keywords."""
    found: set[str] = set()
    folders = [ROOT / "core", *ROOT.glob("plugins/[!_]*")]
    for path in (file for folder in folders for file in folder.glob("src/**/*.py")):
        text = path.read_text()
        if "TRANSLOAD_" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
                found |= set(re.findall(r"\b_?TRANSLOAD_[A-Z0-9_]*", str(node.value)))
            elif isinstance(node, ast.keyword) and str(node.arg).startswith("TRANSLOAD_"):
                found.add(str(node.arg))
    return {name for name in found if not re.fullmatch(r"TRANSLOAD_TRACKER_\w+_CONFIG", name)}


def test_every_variable_is_on_the_page() -> None:
    """The page's tables and its list of internal variables have just those that the code uses."""
    text = _section(CONFIGURATION, "Environment")
    text += _section(CONFIGURATION, "Variables that a job finds")
    named = set(re.findall(r"`(_?TRANSLOAD_(?!CFG_)[A-Z0-9_]*)`", text))
    internal = tuple(re.findall(r"`(TRANSLOAD_[A-Z]+_?)…`", text))
    used = _variables_of_the_code() - PARTS - OF_AX
    assert {name for name in used - named if not f"{name}_".startswith(internal)} == set()
    assert named - used == set()
    assert all(any(f"{name}_".startswith(beginning) for name in used) for beginning in internal)


def test_every_setting_is_on_the_page() -> None:
    """The keys of the table begin with those of the code, and none is left out."""
    rows = re.findall(r"^\| `(\w+)", _section(CONFIGURATION, "Every setting"), re.MULTILINE)
    assert set(rows) == set(KEYS)


@pytest.mark.parametrize("kind", ["local", "docker", "kubernetes", "slurm"])
def test_every_option_of_a_scheduler_is_on_the_page_of_options(kind: str) -> None:
    """Those that say how jobs run, and those that say which cluster it is."""
    page = _section((REFERENCE / "schedulers.md").read_text(), f"Options of {kind}")
    with Runner("pages", settings=Settings({}, {})) as runner:
        scheduler = runner.scheduler(kind)
    options = scheduler.options.table().keys() - Options.table().keys()
    wanted = options | scheduler.connection.table().keys()
    assert wanted and {name for name in wanted if f"`{name}`" not in page} == set()


def test_every_settings_file_of_the_pages_is_read(tmp_path: Path) -> None:
    """Each ``transload.toml`` that is shown, with the options of the schedulers in it."""
    shown = []
    for page in [ROOT / "README.md", *ROOT.glob("docs/*/*.md")]:
        blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        shown += [block for block in blocks if "[schedulers." in block and "[tool." not in block]
    assert shown
    for block in shown:
        (tmp_path / "transload.toml").write_text(block)
        settings = load_settings(str(tmp_path), {})
        with Runner("pages", settings=settings) as runner:
            for name in settings.scheduler_tables():
                assert runner.configured_options(name) is not None, block


def test_every_module_of_the_api_is_on_the_page() -> None:
    """All modules that have a page on the site, and every plugin's."""
    made = (ROOT / "docs" / "make_pages.py").read_text().partition("MODULES = {")[2]
    wanted = set(re.findall(r'^    "(transload[\w.]*)":', made.partition("\n}\n")[0], re.MULTILINE))
    wanted |= {
        f"transload_{path.parent.name}" for path in ROOT.glob("plugins/[!_]*/pyproject.toml")
    }
    rows = re.findall(r"^\| (`.*?) \|", (REFERENCE / "api.md").read_text(), re.MULTILINE)
    assert set(re.findall(r"`([\w.]+)`", " ".join(rows))) == wanted | {"transload"}
