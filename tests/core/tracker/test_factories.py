"""Trackers by name and configuration, where an app is submitted and in the job."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transload.errors import ConfigError
from transload.plugins import get_plugins, hookimpl
from transload.tracker import (
    FsspecTracker,
    TrackerBase,
    build_trackers,
    check_trackers,
    injected_environment,
    tracker_config_env_var_name,
    trackers_from_environ,
    trackers_in_environ,
)

MODULE = """
from transload.tracker import FsspecTracker
seen = []
class Inner:
    @staticmethod
    def factory(config):
        seen.append(config)
        return FsspecTracker(None, config)
def fails(config):
    raise RuntimeError("no luck")
def none(config):
    return None
text = "not a factory"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's own with tracker factories."""
    (tmp_path / "house_trackers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "house_trackers"
    sys.modules.pop("house_trackers", None)


class Plugin:
    """A plugin with a tracker, one that cannot be imported, and one that fails."""

    @hookimpl
    def transload_trackers(self, register: object) -> None:
        """Register."""
        assert callable(register)
        register("house", lambda config: FsspecTracker(None, config))
        register("gone", "no_such_module:factory")


@pytest.fixture
def plugin() -> Iterator[None]:
    """The plugin, for the time of a test."""
    get_plugins().register(Plugin(), "house")
    yield
    get_plugins().unregister("house")


def test_built_in_plugin_and_module(module: str, plugin: None, tmp_path: Path) -> None:
    """A tracker may be built in, a plugin's, or anything importable, and the order is kept."""
    names = ["house", f"{module}:Inner.factory", "fsspec"]
    built = build_trackers({name: str(tmp_path / str(index)) for index, name in enumerate(names)})
    assert [repr(tracker) for tracker in built] == [
        f"<FsspecTracker: root_path={tmp_path}/{i}>" for i in range(3)
    ]
    assert all(isinstance(tracker, TrackerBase) for tracker in built)


def test_core_registers_its_trackers_as_plugins_do(tmp_path: Path) -> None:
    """The built-in tracker is found through the hook too."""
    assert "fsspec" in get_plugins().names("trackers")
    assert get_plugins().get("trackers", "fsspec")(str(tmp_path)).run_ids() == []


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        (
            "fspec",
            "/x",
            (
                r"tracker 'fspec': no such tracker: did you mean 'fsspec'\? \(known: "
                r".*module:factory\)"
            ),
        ),
        ("zzz", "/x", r"tracker 'zzz': no such tracker: must be one of: fsspec"),
        ("fsspec", None, "tracker 'fsspec': nothing is configured"),
        ("fsspec", "nosuch://x", "tracker 'fsspec'.*nosuch"),
        (
            "no_such_module:factory",
            None,
            "cannot be imported: ModuleNotFoundError: .*no_such_module",
        ),
        ("house_trackers:nothing", None, "cannot be imported: AttributeError"),
        ("house_trackers:fails", "secret-token", "cannot be made: RuntimeError: no luck"),
        ("house_trackers:none", None, "returned NoneType, not a TrackerBase"),
        ("house_trackers:text", None, "str is not a factory"),
        ("gone", None, "tracker 'gone'.*no_such_module"),
        ("a,b", None, "no comma"),
        (" fsspec", "/x", "no blank"),
        ("", None, "tracker ''"),
    ],
)
def test_wrong_tracker_is_found_at_submit(
    module: str, plugin: None, name: str, config: str | None, message: str
) -> None:
    """What would fail in the job fails where it is submitted, with name and reason, and shows no
    configuration.
    """
    with pytest.raises(ConfigError, match=message) as caught:
        check_trackers({name: config})
    assert "secret-token" not in str(caught.value)


def test_check_writes_nothing(tmp_path: Path) -> None:
    """Checking a good configuration leaves no trace."""
    check_trackers({"fsspec": str(tmp_path / "runs")})
    check_trackers({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("mlflow", "TRANSLOAD_TRACKER_MLFLOW_CONFIG"),
        ("my_tracker", "TRANSLOAD_TRACKER_MY_TRACKER_CONFIG"),
        ("my-tracker", "TRANSLOAD_TRACKER_MY_TRACKER_CONFIG"),
        ("my.module:factory", "TRANSLOAD_TRACKER_MY_MODULE_FACTORY_CONFIG"),
    ],
)
def test_variable_names(name: str, variable: str) -> None:
    """Any tracker's variable is one that every shell and container can carry."""
    assert tracker_config_env_var_name(name) == variable


def test_environment_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is injected at submit is what the job reads."""
    trackers = {
        "fsspec": str(tmp_path),
        "house:make": None,
        "third": 'multi\nline "config", with = and ,',
    }
    environment = injected_environment(trackers)
    assert environment == {
        "TRANSLOAD_TRACKERS": "fsspec,house:make,third",
        "TRANSLOAD_TRACKER_FSSPEC_CONFIG": str(tmp_path),
        "TRANSLOAD_TRACKER_THIRD_CONFIG": 'multi\nline "config", with = and ,',
    }
    assert trackers_in_environ(environment) == trackers
    assert injected_environment({}) == {}
    monkeypatch.delenv("TRANSLOAD_TRACKERS", raising=False)
    assert trackers_from_environ() == []
    monkeypatch.setenv("TRANSLOAD_TRACKERS", " fsspec , ")
    monkeypatch.setenv("TRANSLOAD_TRACKER_FSSPEC_CONFIG", str(tmp_path))
    assert len(trackers_from_environ()) == 1


def test_names_that_share_a_variable_are_refused() -> None:
    """Two trackers whose configurations would land in one variable are refused."""
    with pytest.raises(ConfigError, match="'my-t' and 'my_t' would share the variable"):
        injected_environment({"my-t": "a", "my_t": "b"})
