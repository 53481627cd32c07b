"""The check explains what is wrong with a component, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from transload.components import ComponentNotFound, Finding, check, get_components
from transload.components.checks import near_misses

pytestmark = pytest.mark.unit

HEAD = "from transload.specs import AppDef, Role, macros\n"


def found(tmp_path: Path, text: str, name: str = "train") -> list[tuple[int, str, str]]:
    """Return line, level and message of each finding in a file."""
    path = tmp_path / "x.py"
    path.write_text(text)
    findings = check(f"{path}:{name}" if name else str(path))
    assert all(item.path == str(path) for item in findings)
    return [(item.line, item.level, item.message) for item in findings]


def test_builtins_are_clean() -> None:
    """Nothing is wrong with the built-in components."""
    assert {name: check(name) for name in get_components()} == {
        name: [] for name in get_components()
    }
    assert check("transload.components.utils:sh") == []


def test_clean_file(tmp_path: Path) -> None:
    """Nothing is found in a clean file. A file alone has all its components checked."""
    text = (
        HEAD + "def train(n: int = 1, *args: str) -> AppDef:\n    '''Do.\n\n"
        "    Args:\n        n: n\n        args: a\n    '''\n"
    )
    text += "    args = [macros.app_id, '${replica_id}', '$HOME', '$(pwd)', '${PATH}']\n"
    text += "    return AppDef('a', [Role('r', 'i', args=args)])\n"
    assert found(tmp_path, text) == []
    assert found(tmp_path, text, "") == []


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    """Missing and unsupported annotations, **kwargs and the return annotation are told at once,
    each by line.
    """
    text = (
        HEAD
        + "def train(\n    a,\n    b: set[int],\n    *args,\n    c=1,\n    **more: str,\n):\n    return AppDef('a')\n"
    )
    lines = found(tmp_path, text)
    assert [line for line, _, _ in lines] == [2, 3, 4, 5, 6, 7]
    assert "must be annotated to return an AppDef" in lines[0][2]
    assert "parameter 'a': must have a type annotation" in lines[1][2]
    assert "type 'set' is not supported; use one of" in lines[2][2]
    assert "parameter 'args'" in lines[3][2]
    assert "parameter 'c'" in lines[4][2]
    assert "'**more': **kwargs is not supported" in lines[5][2]
    assert {level for _, level, _ in lines} == {"error"}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("x = 1\ndef train(:\n", 2, "syntax error"),
        (HEAD + "\nimport no_such_thing\ndef train() -> AppDef: ...\n", 3, "ModuleNotFoundError"),
        (HEAD + "async def train() -> AppDef: ...\n", 2, "not async"),
        (
            HEAD + "def train(x: list[bytes]) -> AppDef: ...\n",
            2,
            "parameter 'x': type 'bytes' is not supported",
        ),
        (HEAD + "def train(x: 'Foo') -> AppDef: ...\n", 2, "cannot be resolved"),
        (HEAD + "def train() -> list[AppDef]: ...\n", 2, "must be annotated to return an AppDef"),
        (HEAD + "def train() -> str: ...\n", 2, "must be annotated to return an AppDef"),
    ],
)
def test_single_mistakes(tmp_path: Path, text: str, line: int, says: str) -> None:
    """One mistake is one finding."""
    findings = found(tmp_path, text)
    assert len(findings) == 1
    assert findings[0][0] == line
    assert says in findings[0][2]


def test_file_without_components(tmp_path: Path) -> None:
    """A file without a component says which functions it has and what makes one."""
    assert "its functions: train" in found(tmp_path, "def train(): ...\n", "")[0][2]


def test_docstring_is_compared(tmp_path: Path) -> None:
    """A described parameter that does not exist, and one that is not described, are warnings by
    line.
    """
    text = HEAD + (
        "def train(epochs: int, rate: float) -> AppDef:\n    '''Train.\n\n    Args:\n        "
        "epoch: how many\n"
        "        rate: how fast\n    '''\n    return AppDef('a')\n"
    )
    assert found(tmp_path, text) == [
        (3, "warning", "train: the docstring does not describe parameter 'epochs'"),
        (
            6,
            "warning",
            "train: the docstring describes 'epoch', which is not a parameter; did you mean 'epochs'?",
        ),
    ]


@pytest.mark.parametrize(
    ("text", "macro"),
    [
        ("$app_id", "app_id"),
        ("x-${appid}-y", "app_id"),
        ("${APP_ID}", "app_id"),
        ("${ replica_id }", "replica_id"),
        ("$(img_root)/bin", "img_root"),
        ("${macros.rank0_env}", "rank0_env"),
        ("${rank_0_env}", "rank0_env"),
        ("${replica_ids}", "replica_id"),
        ("$${app_id}", "app_id"),
    ],
)
def test_near_misses(text: str, macro: str) -> None:
    """What looks like a macro and is none is told, with the macro that may be meant."""
    messages = near_misses(text)
    assert len(messages) == 1
    assert f"${{{macro}}}" in messages[0]


@pytest.mark.parametrize(
    "text", ["${app_id}", "a$b", "$HOME", "${HOME:-x}", "$1", "$$", "${img_root}/x", "$(date)", ""]
)
def test_no_false_alarm(text: str) -> None:
    """Macros themselves and the user's own dollars are left in peace."""
    assert near_misses(text) == []


def test_near_misses_in_a_file(tmp_path: Path) -> None:
    """Macros are checked in the strings of the function, f-strings included, not in its
    docstring.
    """
    text = HEAD + (
        "def train() -> AppDef:\n    '''Uses $app_id.'''\n    a = '$app_id'\n    b = "
        "f'$${{{macros.rank0_env}}}'\n"
        "    c = f'${macros.app_id}'\n    d = f'${{{macros.rank0_env}:=x}}'\n    return AppDef('a' "
        "+ a + b + c + d)\n"
    )
    lines = found(tmp_path, text)
    assert [(line, level) for line, level, _ in lines] == [
        (4, "warning"),
        (5, "warning"),
        (6, "warning"),
    ]
    assert "'$$' is not an escape" in lines[1][2]
    assert "contains its '$' already" in lines[2][2]


def test_missing_reference(tmp_path: Path) -> None:
    """What does not exist is no finding but an error."""
    (tmp_path / "x.py").write_text(HEAD + "def train() -> AppDef: ...\n")
    for name in (f"{tmp_path}/y.py", f"{tmp_path}/x.py:trian", "utils.ecko"):
        with pytest.raises(ComponentNotFound):
            check(name)


def test_finding_as_text() -> None:
    """A finding prints as compilers do."""
    assert str(Finding("a.py", 3, "wrong")) == "a.py:3: error: wrong"
