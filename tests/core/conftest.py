"""Fixtures of the core's suite."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest


@pytest.fixture
def plain_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty current directory, so that no settings file of this repository is in force."""
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    return str(folder)


@pytest.fixture(scope="session")
def torchx() -> Callable[[str], Any]:
    """``torchx(module)``: a module of TorchX 0.7.0; where that is not installed, the test is not run."""
    try:
        if version("torchx") != "0.7.0":
            pytest.skip("not run: torchx: another version than 0.7.0 is installed")
    except PackageNotFoundError:
        pytest.skip("not run: torchx: not installed")

    def load(module: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)

    return load
