"""An empty text, as a variable that is not set makes it, is a mistake and never taken as left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import TransloadError
from transload.runner import Launch, Runner, get_runner
from transload.specs import AppDef, Role

_OPTIONS = [
    "--app-id",
    "--scheduler",
    "--workspace",
    "--environment",
    "--checkpoints",
    "--parent-run-id",
    "--tracker-base",
    "--name",
    "--image",
    "--role",
    "--mem",
    "--time-limit",
    "--notice",
    "--notice-signal",
    "--segment",
    "--stall-after",
    "--on-stall",
    "--retry-delay",
    "--mount",
    "--env",
    "--env-file",
    "--pass-env",
    "--cpu",
    "--gpu",
    "--replicas",
    "--retries",
    "--timeout",
    "--patience",
    "--cfg",
]


@pytest.fixture(autouse=True)
def _nothing_started(invoke: Any) -> Any:
    """No job may be left by any of these."""
    yield
    assert invoke("list", "--json").json["apps"] == []


@pytest.mark.parametrize("option", _OPTIONS)
@pytest.mark.parametrize("words", [("{}=",), ("{}", "")], ids=["=", "apart"])
def test_an_option_of_run(invoke: Any, option: str, words: tuple[str, ...]) -> None:
    """``--option "$VARIABLE"`` of a variable that is not set names the option and starts nothing."""
    refused = invoke("run", *(word.format(option) for word in words), "--", "true")
    assert refused.code == 2, refused
    assert option in refused.err
    assert "Traceback" not in refused.err


def test_a_run_option(invoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run option of ``-c``, of Python and of a settings file."""
    refused = invoke("run", "-c", "log_dir=", "--", "true")
    assert refused.code == 2 and "log_dir" in refused.err
    with pytest.raises(TransloadError, match="log_dir"):
        transload.run(command=["true"], scheduler="local", cfg={"log_dir": ""})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "transload.toml").write_text('[schedulers.local]\nlog_dir = ""\n')
    refused = invoke("run", "--", "true")
    assert refused.code == 2 and "log_dir" in refused.err
    (tmp_path / "transload.toml").unlink()  # it would be in the way of `_nothing_started`


@pytest.mark.parametrize(
    "name", ["SCHEDULER", "WORKSPACE", "CONFIG", "TRACKERS", "CFG_LOCAL_LOG_DIR", "LOCAL_GPUS"]
)
def test_a_variable_counts_as_not_set(
    invoke: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty variable says nothing, and a settings file then counts."""
    monkeypatch.chdir(tmp_path)
    tracker = '[tracker.fsspec]\nconfig = "runs"\n'
    (tmp_path / "transload.toml").write_text(f'workspace = "."\n{tracker}')
    command = ("run", "--dryrun", "--gpu", "0", "--", "true")
    shown = [invoke(*words).out for words in (("config",), command)]
    monkeypatch.setenv(f"TRANSLOAD_{name}", "")
    again = [invoke(*words).out for words in (("config",), command)]
    assert again[0] == shown[0] != ""
    assert again[1].count("\n") == shown[1].count("\n")


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--name", ""),
        ("list", "-s", ""),
        ("list", "--state", ""),
        ("log", "local://transload/x", "--regex", ""),
        ("log", "local://transload/x", "--replica", ""),
        ("get", "local://transload/x", "-o", ""),
        ("results", "local://transload/x", "--value", ""),
        ("delete", "--older-than", ""),
        ("status", ""),
        ("log", ""),
        ("cancel", ""),
        ("delete", ""),
        ("get", "local://transload/x", ""),
        ("run", ""),
        ("run", "--", ""),
        ("tracker", "artifacts", ""),
        ("tracker", "list", "jobs", "--tracker", ""),
        ("info", ""),
        ("components", "show", ""),
    ],
)
def test_other_commands(invoke: Any, words: tuple[str, ...]) -> None:
    """Likewise for options and arguments of other commands, whatever is there."""
    refused = invoke(*words)
    assert refused.code == 2, refused
    assert "Traceback" not in refused.err


@pytest.mark.parametrize(
    "name",
    [
        "app_id",
        "scheduler",
        "workspace",
        "parent_run_id",
        "tracker_base",
        "environment",
        "name",
        "image",
        "role",
    ],
)
def test_keywords_of_transload_run(name: str) -> None:
    """A keyword that may be left out may not be empty."""
    with pytest.raises(TransloadError, match=name):
        transload.run(command=["true"], **{name: ""})
    with get_runner() as runner, pytest.raises(TransloadError, match=name):
        transload.run(command=["true"], runner=runner, **{name: " "})


@pytest.mark.parametrize(
    "name", ["scheduler", "workspace", "tracker_base", "environment", "name", "image"]
)
def test_keywords_of_transload_submit(name: str) -> None:
    """Likewise for a function."""
    with pytest.raises(TransloadError, match=name):
        transload.submit(print, **{name: ""})


@pytest.mark.parametrize(
    "name",
    [
        "scheduler",
        "workspace",
        "parent_run_id",
        "tracker_base",
        "environment",
        "checkpoints",
        "folder",
        "command_name",
    ],
)
def test_arguments_of_a_launch(name: str) -> None:
    """A launch, of which every adapter makes one, refuses them when it is made."""
    with pytest.raises(TransloadError, match=name):
        Launch(command=["true"], **{name: ""})
    given = {"schema": 1, "command": ["true"], name: ""}
    with pytest.raises(TransloadError, match=name):
        Launch.from_dict(given).plan(Runner("t"))


@pytest.mark.parametrize("call", ["run", "dryrun", "run_component"])
@pytest.mark.parametrize("name", ["scheduler", "workspace", "parent_run_id", "app_id"])
def test_methods_of_a_runner(name: str, call: str) -> None:
    """Likewise for the methods of a runner."""
    what: Any = (
        "utils.echo" if call == "run_component" else AppDef("a", [Role("r", "", entrypoint="true")])
    )
    with Runner("t") as runner:
        method: Callable[..., Any] = getattr(runner, call)
        with pytest.raises(TransloadError, match=name):
            method(what, **{name: ""})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("scheduler = ''", "scheduler=''"),
        ("workspace = ' '", "workspace=' '"),
        ("tracker_base = ''", "tracker_base=''"),
        ("[schedulers.local]\nenvironment = ''", "schedulers.local.environment=''"),
        ("[schedulers.local]\ntracker_base = ''", "schedulers.local.tracker_base=''"),
        ("[schedulers.hpc]\nkind = ''", "schedulers.hpc.kind=''"),
    ],
)
def test_settings(invoke: Any, text: str, key: str) -> None:
    """A key of transload.toml that is empty is named with its file."""
    Path("transload.toml").write_text(f"{text}\n")
    refused = invoke("run", "--", "true")
    Path("transload.toml").unlink()
    assert refused.code == 2
    assert "transload.toml" in refused.err and key in refused.err
