"""The documentation says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import transload.pipelines
import transload_testing
from transload.pipelines import ExecutionOptions
from transload.schedulers.api import SchedulerBase

DOCS = Path(__file__).parents[3] / "docs"


def test_every_option_of_a_host_is_documented() -> None:
    """Names and defaults in the table are those of the code."""
    text = (DOCS / "reference" / "adapters.md").read_text()
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


def test_every_method_of_a_scheduler_is_documented() -> None:
    """The page for authors of schedulers names the whole contract."""
    text = (DOCS / "extend" / "writing-a-scheduler.md").read_text()
    methods = [
        name
        for name in vars(SchedulerBase)
        if not name.startswith("_") and callable(getattr(SchedulerBase, name))
    ]
    missing = [name for name in methods if f"`{name}(" not in text]
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
    # what is written from the hosts' own sources has names of theirs
    text = re.sub(
        r"^## The same words inside$.*?^## ", "## ", (DOCS / page).read_text(), flags=re.M | re.S
    )
    found = set(re.findall(r"`([A-Z][a-z]+[A-Za-z]*)\b", text))
    assert found <= known, found - known
