"""The pages about names: every public name is there, and the example of the spec runs."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

DOCS = Path(__file__).parents[3] / "docs"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_reference() -> None:
    """Run ``docs/make_reference.py`` where this fails."""
    generator = _generator()
    sections = re.split(r"^## `([\w.]+)`$", (DOCS / "reference.md").read_text(), flags=re.MULTILINE)[1:]
    written = {
        name: set(re.findall(r"^\| `(\w+)", body, re.MULTILINE))
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }
    wanted = {name: set(generator.public_names(importlib.import_module(name))) for name in generator.MODULES}
    assert written == wanted


def test_the_spec_of_the_page_is_one() -> None:
    """The example of specs.md makes an app that survives its JSON."""
    code = re.findall(r"^```python\n(.*?)^```", (DOCS / "specs.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    exec(code, {})


def test_every_field_is_on_the_page() -> None:
    """specs.md names each field of an app, a role, a resource and a status, and each state."""
    from transload import specs

    text = (DOCS / "specs.md").read_text()
    for kind in (specs.AppDef, specs.Role, specs.Resource):
        assert [name for name in kind.__dataclass_fields__ if f"`{name}`" not in text] == []
    assert [state.name for state in specs.AppState if f"| {state.name} |" not in text] == []
