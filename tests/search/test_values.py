"""Values are searched as given, by the type of the component's argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transload.errors import SpecError
from transload_search import Objective, Parameter, Search
from transload_search.cli import command


def searched(*words: str) -> dict[str, Any]:
    """Run a search by the command line, in this process, and return its JSON."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        command.main(
            ["run", *words, "--minimize", "loss", "-s", "local", "--json"], standalone_mode=False
        )
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@pytest.fixture
def typed(tmp_path: Path) -> str:
    """Return a component that reports the types of its arguments."""
    file = tmp_path / "typed.py"
    file.write_text(
        f"""
from __future__ import annotations
from transload.specs import AppDef, Role

def types(n: int | str, hidden: list[int], word: str = "") -> AppDef:
    \"\"\"Report the arguments.\"\"\"
    script = "import sys; from transload.runtime import report; report(key='final', loss=0.5, seen=sys.argv[1])"
    args = ["-c", script, repr((n, hidden, word))]
    return AppDef("types", [Role("main", "", entrypoint={sys.executable!r}, args=args)])
"""
    )
    return f"{file}:types"


def test_texts_of_the_command_line_are_read_once(
    typed: str, transload_home: Path, tmp_path: Path
) -> None:
    """Choices and constants have the type that the argument has. A choice may be a list."""
    base = tmp_path / "base"
    params = [
        "--param",
        "hidden:choice:[[32, 16]]",
        "--param",
        'word:choice:["a,b"]',
        "--const",
        "n=5",
    ]
    found = searched("--component", typed, *params, "--trials", "1", "--tracker-base", str(base))
    assert found["search"]["constants"] == {"n": 5}
    assert found["trials"][0]["parameters"] == {"hidden": "[32, 16]", "word": "a,b"}
    reported = json.loads(next((base / "trials" / "0").rglob("final.json")).read_text())
    assert reported["results"]["seen"] == "(5, [32, 16], 'a,b')"


@pytest.mark.parametrize(
    "text", ["x:choice:1,2", 'x:choice:["a,b", "c"]', "x:choice:[[1, 2], [3]]", "x:choice:[a,b"]
)
def test_a_parameter_is_written_as_it_is_read(text: str) -> None:
    """The text of a parameter gives the same parameter again."""
    found = Parameter.parse(text)
    assert Parameter.parse(str(found)) == found


def test_lists_and_commas_are_choices() -> None:
    """A JSON list holds what a list between commas cannot."""
    assert Parameter.parse('x:choice:["a,b", 2, true]').values == ("a,b", 2, True)
    assert Parameter("x", "choice", values=([32, 16], [64])).values == ("[32, 16]", "[64]")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="choice .* must be a number, a text, a bool, or a list"):
        Parameter("x", "choice", values=(object(),))  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    """Bounds, choices and constants of numpy become Python's own, and survive the JSON form."""
    parameters = [
        Parameter("a", "int", np.int64(1), np.int32(4)),  # type: ignore[arg-type]
        Parameter("b", "float", np.float32(0.5), np.float64(2)),  # type: ignore[arg-type]
        Parameter(
            "c", "choice", values=(np.int64(3), np.float32(0.5), np.str_("x"), np.bool_(True))
        ),  # type: ignore[arg-type]
    ]
    search = Search(
        "utils.booth",
        parameters,
        Objective("loss"),
        constants={"d": np.float32(0.25), "e": np.int8(7)},
    )
    again = Search.from_dict(json.loads(json.dumps(search.to_dict())))
    assert again.parameters == search.parameters
    assert again.constants == {"d": 0.25, "e": 7}
    assert [type(value) for value in search.parameters[2].values] == [int, float, str, bool]
