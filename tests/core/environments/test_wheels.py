"""Wheels that are fetched here for a Python elsewhere."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from transload.errors import SubmitError
from transload.schedulers import environments
from transload.schedulers.environments import Recipe, WheelTarget
from transload.specs import Environment
from transload_testing.packages import PackageIndex

ELSEWHERE = WheelTarget("3.9", "aarch64", "2.28")
WANTED = Environment("requirements.txt", "r.txt", "0123456789abcdef" * 4)


def _recipe(text: str, **fields: str) -> Recipe:
    return Recipe(WANTED, {"r.txt": text}, requirements="r.txt", **fields)  # type: ignore[arg-type]


def test_wheels_of_another_python_and_platform(index: PackageIndex, tmp_path: Path) -> None:
    """The best that fit that Python and C library are fetched, with what they need."""
    for tag in (
        "cp39-cp39-manylinux_2_17_aarch64",
        "cp39-cp39-manylinux_2_34_aarch64",
        "cp39-cp39-musllinux_1_2_aarch64",
        "cp39-cp39-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_17_aarch64",
    ):
        index.add("fast", tag=tag, requires=("tiny",))
    fetched = environments.fetch_wheels(_recipe("fast\n"), ELSEWHERE, {}, str(tmp_path / "work"))
    assert sorted(os.listdir(fetched)) == [
        "fast-1.0-cp39-cp39-manylinux_2_17_aarch64.whl",
        "tiny-1.0-py3-none-any.whl",
    ]


def test_packages_that_cannot_be_fetched(index: PackageIndex, tmp_path: Path) -> None:
    """The message names that Python and platform, and ends with what pip said."""
    index.add("fast", tag="cp39-cp39-manylinux_2_17_x86_64")
    wanted = r"(?s)r\.txt sha256:.*Python 3\.9 on manylinux_2_28_aarch64 cannot be fetched.*fast"
    with pytest.raises(SubmitError, match=wanted) as caught:
        environments.fetch_wheels(_recipe("fast\n"), ELSEWHERE, {}, str(tmp_path / "work"))
    assert not caught.value.transient


def test_an_index_that_is_away(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same may succeed later, and the error says so."""
    monkeypatch.setenv("PIP_RETRIES", "1")
    recipe = _recipe("--index-url http://127.0.0.1:9/simple\ntiny\n")
    with pytest.raises(SubmitError, match="cannot be fetched here") as caught:
        environments.fetch_wheels(recipe, ELSEWHERE, {}, str(tmp_path / "work"))
    assert caught.value.transient


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (_recipe("tiny @ https://packages.example/tiny-1.0-py3-none-any.whl\n"), "its address"),
        (_recipe("git+https://example.org/tiny\n"), "its address"),
        (_recipe("-e git+https://example.org/tiny#egg=tiny\n"), "its address"),
        (_recipe("tiny\n", needs_uv="[tool.uv] of r.py"), r"\[tool.uv\] of r.py needs uv"),
        (_recipe("tiny\n", requires_python=">=3.10"), r"wants Python >=3\.10; there is 3\.9"),
    ],
)
def test_what_does_not_travel(recipe: Recipe, message: str, tmp_path: Path) -> None:
    """It is refused before anything is fetched."""
    with pytest.raises(SubmitError, match=message):
        environments.fetch_wheels(recipe, ELSEWHERE, {}, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to install it."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    recipe = _recipe("# http://example.org\n--index-url https://example.org\ntiny\n")
    with pytest.raises(SubmitError, match="-m ensurepip, or uv pip install pip"):
        environments.fetch_wheels(recipe, ELSEWHERE, {}, str(tmp_path))


@pytest.mark.parametrize(
    ("platform", "best"),
    [
        ("manylinux_2_17_x86_64", ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]),
        ("musllinux_1_2_aarch64", ["musllinux_1_2_aarch64", "musllinux_1_1_aarch64"]),
    ],
)
def test_platforms(platform: str, best: list[str]) -> None:
    """A machine can use wheels for older C libraries than its own, too."""
    target = WheelTarget.of_platform("3.11", platform)
    assert target is not None
    assert target.platforms[:2] == best


@pytest.mark.parametrize(
    "platform", ["", "linux", "win_amd64", "manylinux2014_x86_64", "musllinux"]
)
def test_platforms_of_another_form(platform: str) -> None:
    """They are none that wheels are fetched for."""
    assert WheelTarget.of_platform("3.11", platform) is None
