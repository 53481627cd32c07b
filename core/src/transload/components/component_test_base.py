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
    """A test case with a folder of its own (``test_dir``) and two helpers."""

    def setUp(self) -> None:
        """Make the folder, and leave the working directory as it is afterwards."""
        folder = tempfile.TemporaryDirectory(prefix="transload-component-test-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.test_dir = folder.name

    def validate(self, module: ModuleType, function_name: str) -> None:
        """Fail unless a function is a component that the command line can run.

        Args:
            module: where it is.
            function_name: its name.
        """
        name = f"{os.path.abspath(str(module.__file__))}:{function_name}"
        get_component(name)
        found = [str(finding) for finding in check(name) if finding.level == "error"]
        if found:
            self.fail(f"{name} is no valid component:\n" + "\n".join(found))

    def run_component(
        self,
        component: Callable[..., AppDef],
        args: Mapping[str, Any] | None = None,
        scheduler_params: Mapping[str, Any] | None = None,
        scheduler: str = "local_cwd",
        interval: float = 0.1,
        timeout: float = 60,
    ) -> AppStatus | None:
        """Run a component and wait for its end.

        Args:
            component: the function.
            args: its arguments.
            scheduler_params: for the schedulers' factories, see `transload.runner.get_runner`.
            scheduler: where to run it.
            interval: ignored: waiting is driven by changes.
            timeout: seconds to wait at most.

        Returns:
            The final status; None if the app is gone.

        Raises:
            TransloadTimeout: when the time ran out.
        """
        with get_runner(**(scheduler_params or {})) as runner:
            handle = runner.run(component(**(args or {})), scheduler)
            return runner.wait(handle, timeout=timeout)
