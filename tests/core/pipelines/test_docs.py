"""The documentation says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import transload.pipelines
import transload_testing
from transload.pipelines import JOB_SETTINGS, ExecutionOptions, OverrideOptions
from transload.schedulers.api import SchedulerBase

DOCS = Path(__file__).parents[3] / "docs"


def test_every_option_of_a_host_is_documented() -> None:
    """Names and defaults in the table are those of the code."""
    _, _, text = (DOCS / "reference" / "adapters.md").read_text().partition("## Options that")
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| `?([^|`]+)`? \|", text, re.MULTILINE))
    options = ExecutionOptions()
    fields = set(ExecutionOptions.__dataclass_fields__) - {"resubmit_on"}
    assert set(rows) == fields
    for name, shown in rows.items():
        value = getattr(options, name)
        spelled = (
            {None: "none", True: "true", False: "false"}.get(value)
            if not isinstance(value, float)
            else f"{value:g}"
        )
        assert shown.strip() == (spelled or str(getattr(value, "value", value))), name


def test_every_setting_of_a_job_is_documented() -> None:
    """The page names all that can be set over a job, those that adapters take by name first."""
    _, _, text = (
        (DOCS / "reference" / "adapters.md").read_text().partition("## Settings of the job")
    )
    table, _, _ = text.partition("`overrides={")
    *by_name, only_in_mapping = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(by_name))) == set(JOB_SETTINGS)
    more = set(OverrideOptions.__annotations__) - set(JOB_SETTINGS)
    assert set(re.findall(r"`(\w+)`", only_in_mapping)) == more


def test_every_method_of_a_scheduler_is_documented() -> None:
    """The page for authors of schedulers names the whole contract."""
    text = (DOCS / "extend" / "writing-a-scheduler.md").read_text()
    methods = [
        name
        for name in vars(SchedulerBase)
        if not name.startswith("_") and inspect.isfunction(getattr(SchedulerBase, name))
    ]
    missing = [name for name in methods if not re.search(rf"`{name}[`(]", text)]
    assert not missing


@pytest.mark.parametrize("module", [transload.pipelines, transload_testing])
def test_public_names_exist_and_are_documented(module: object) -> None:
    """Everything in ``__all__`` is there, and says what it is."""
    for name in module.__all__:  # type: ignore[attr-defined]
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize(
    "page",
    ["reference/adapters.md", "extend/writing-an-adapter.md", "extend/writing-a-scheduler.md"],
)
def test_names_in_the_pages_exist(page: str) -> None:
    """Each capitalised name in code style is a public name of ours (or of the template)."""
    import transload.errors
    import transload.runner
    import transload.schedulers
    import transload.schedulers.environments
    import transload.specs

    known = {"TinyflowAdapter", "TestTinyflow", "Watch", "Identity", "Role", "SubmitError"}
    for module in (
        transload.pipelines,
        transload_testing,
        transload.errors,
        transload.specs,
        transload.schedulers,
        transload.schedulers.environments,
    ):
        known |= set(module.__all__)
    known |= set(transload.runner.__all__) | {"Exception"}
    # what the adapters' own pages explain
    known |= {"TransloadOperator", "TransloadRunner"}
    # what is written from the hosts' own sources has names of theirs
    text = re.sub(
        r"^## The same words inside$.*?^## ", "## ", (DOCS / page).read_text(), flags=re.M | re.S
    )
    found = set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)\b", text))
    assert found <= known, found - known
