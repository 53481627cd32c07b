"""A base for unit tests of components, under TorchX's name."""

from __future__ import annotations

import os
import tempfile
import unittest
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from transload.components import check, get_component
from transload.runner import get_runner
from transload.specs import AppDef, AppStatus


class ComponentTestCase(unittest.TestCase):
    """A test case with its own folder (``test_dir``) and two helper methods."""

    def setUp(self) -> None:
        """Make the folder, and restore the working directory afterwards."""
        folder = tempfile.TemporaryDirectory(prefix="transload-component-test-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.test_dir = folder.name

    def validate(self, module: ModuleType, function_name: str) -> None:
        """Fail unless the command line can run a function of a module as a component."""
        name = f"{os.path.abspath(str(module.__file__))}:{function_name}"
        get_component(name)
        found = [str(finding) for finding in check(name) if finding.level == "error"]
        if found:
            self.fail(f"{name} is not a valid component:\n" + "\n".join(found))

    def run_component(
        self,
        component: Callable[..., AppDef],
        args: Mapping[str, Any] | None = None,
        scheduler: str = "local_cwd",
        interval: float = 0.1,
        timeout: float = 60,
    ) -> AppStatus | None:
        """Run a component with ``args``, wait for its end, and return the final status.

        It is None if the job is gone. ``timeout`` is in seconds. ``interval`` is ignored, since
        changes drive the wait.

        Raises:
            TransloadTimeout: if ``timeout`` seconds have passed.
        """
        with get_runner() as runner:
            handle = runner.run(component(**(args or {})), scheduler)
            return runner.wait(handle, timeout=timeout)
