"""The import paths and names that people know from TorchX, and that stay whatever moves inside."""

from __future__ import annotations

import importlib

import pytest

PATHS = {
    "transload.specs": "ALL AppDef AppDryRunInfo AppHandle AppState AppStatus AppStatusError CfgVal "
    "Resource Resources RetryPolicy Role UnknownAppException "
    "macros materialize_appdef parse_app_handle resource runopts",
    "transload.runner": "Runner get_runner",
    "transload.schedulers": "SchedulerBase",
    "transload.schedulers.api": "ListAppResponse SchedulerBase Stream",
    "transload.components": "ComponentNotFoundException ComponentValidationException get_component "
    "get_components",
    "transload.components.builtin.dist": "ddp spmd",
    "transload.components.builtin.utils": "binary booth copy echo python sh touch",
    "transload.components.structured_arg": "StructuredNameArgument",
    "transload.components.component_test_base": "ComponentTestCase",
    "transload.workspace": "copy_workspace ignore_rules",
    "transload.cli": "main",
    "transload.pipelines": "get_adapter",
    "transload.runtime": "checkpoint progress report tracking",
    "transload.runtime.tracking": "FsspecResultTracker ResultTracker",
    "transload.tracker": "AppRun app_run_from_env FsspecTracker TrackerBase",
    "transload.tracker.api": "AppRun AppRunTrackableSource ENV_TRANSLOAD_JOB_ID ENV_TRANSLOAD_PARENT_RUN_ID "
    "ENV_TRANSLOAD_TRACKERS Lineage TrackerArtifact TrackerBase TrackerSource app_run_from_env "
    "build_trackers "
    "tracker_config_env_var_name trackers_from_environ",
    "transload.tracker.fsspec": "FsspecTracker",
    "transload.errors": "AppFailed TransloadError",
}
"""Module → its names that users import, separated by blanks."""


@pytest.mark.parametrize("path", PATHS)
def test_a_path_and_its_names_can_be_imported(path: str) -> None:
    """``import PATH`` and ``from PATH import NAME`` work, as the documents that users start from
    write them.
    """
    module = importlib.import_module(path)
    for name in PATHS[path].split():
        assert hasattr(module, name) or importlib.import_module(f"{path}.{name}"), f"{path}.{name}"


def test_names_for_the_schedulers_objects_are_the_same_everywhere() -> None:
    """A name that has two paths is one object."""
    specs = importlib.import_module("transload.specs")
    assert (
        specs.materialize_appdef
        is importlib.import_module("transload.components").materialize_appdef
    )
    for name in ("dist", "utils"):
        old = importlib.import_module(f"transload.components.{name}")
        new = importlib.import_module(f"transload.components.builtin.{name}")
        assert {each: vars(old)[each] for each in new.__all__} == {
            each: vars(new)[each] for each in new.__all__
        }


def test_what_is_kept_for_those_who_come_from_torchx_has_one_home() -> None:
    """Each such name is defined in one module, and is the same object where TorchX has it."""
    torchx = importlib.import_module("transload.compat.torchx")
    found = {
        name: [
            vars(torchx)[name] is getattr(importlib.import_module(path), name)
            for path, names in PATHS.items()
            if name in names.split()
        ]
        for name in torchx.__all__
    }
    assert all(places and all(places) for places in found.values()), found
