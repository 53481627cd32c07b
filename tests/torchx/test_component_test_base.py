"""The base for unit tests of components."""

from __future__ import annotations

import unittest
from pathlib import Path

import pytest

from transload.components import utils
from transload.components.finder import load_file
from transload.specs import AppState
from transload_torchx import named_resources_aws
from transload_torchx.component_test_base import ComponentTestCase

pytestmark = pytest.mark.unit

BAD = "from transload.specs import AppDef\n\n\ndef bad(x) -> AppDef:\n    return AppDef('x', [])\n"


def _outcome(case: ComponentTestCase) -> unittest.TestResult:
    result = unittest.TestResult()
    case.run(result)
    return result


def test_what_torchx_users_write_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transload_home: Path
) -> None:
    """`validate` takes a good component and fails for a bad one.

    `run_component` returns the end.
    """
    monkeypatch.chdir(tmp_path)
    Path("jobs.py").write_text(BAD)
    module = load_file(str(Path("jobs.py").absolute()), "jobs.py")

    class Case(ComponentTestCase):
        def test_good(self) -> None:
            self.validate(utils, "echo")

        def test_bad(self) -> None:
            self.validate(module, "bad")

        def test_run(self) -> None:
            status = self.run_component(utils.echo, {"msg": "hi"})
            assert (
                status is not None
                and status.state is AppState.SUCCEEDED
                and Path(self.test_dir).is_dir()
            )

    assert _outcome(Case("test_good")).wasSuccessful()
    assert _outcome(Case("test_run")).wasSuccessful()
    bad = _outcome(Case("test_bad"))
    (text,) = [text for _, text in [*bad.failures, *bad.errors]]
    assert "jobs.py" in text and "x" in text


def test_sizes_of_aws_have_functions() -> None:
    """The module of TorchX's name has its functions, and others are no attribute of it."""
    assert (
        named_resources_aws.aws_p4d_24xlarge()
        == named_resources_aws.NAMED_RESOURCES["aws_p4d.24xlarge"]()
    )
    with pytest.raises(AttributeError, match="aws_p9"):
        _ = named_resources_aws.aws_p9
