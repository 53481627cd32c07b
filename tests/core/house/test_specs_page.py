"""The page about specs names every field, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_the_spec_of_the_page_is_one() -> None:
    """The example of specs.md makes an app that survives its JSON."""
    code = re.findall(
        r"^```python\n(.*?)^```",
        (DOCS / "reference" / "specs.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )[0]
    exec(code, {})


def test_every_field_is_on_the_page() -> None:
    """specs.md names each field of an app, a role and a resource."""
    from transload import specs

    text = (DOCS / "reference" / "specs.md").read_text()
    for kind in (specs.AppDef, specs.Role, specs.Resource):
        assert [name for name in kind.__dataclass_fields__ if f"`{name}`" not in text] == []
