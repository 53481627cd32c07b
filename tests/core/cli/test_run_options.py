"""Options of `run` about notices, checkpoints, segments and stalls."""

from __future__ import annotations

from typing import Any

import pytest

from transload.cli.commands.run import _spelled_checkpoints, run
from transload.components import command_app
from transload.specs import AppDef, Role
from transload.specs.settings import SETTINGS, OverrideOptions, read_settings, with_settings


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["--checkpoints", "train.py"], ["--checkpoints=", "train.py"]),
        (["--checkpoints"], ["--checkpoints="]),
        (["--checkpoints", "--", "true"], ["--checkpoints=", "--", "true"]),
        (["--checkpoints", "local://s/a", "x"], ["--checkpoints=local://s/a", "x"]),
        (["-s", "--checkpoints", "x"], ["-s", "--checkpoints", "x"]),
        (["--gpu", "1", "--checkpoints"], ["--gpu", "1", "--checkpoints="]),
        (["x", "--checkpoints", "y"], ["x", "--checkpoints", "y"]),
        (["--", "x", "--checkpoints", "y"], ["--", "x", "--checkpoints", "y"]),
    ],
)
def test_checkpoints_is_a_flag_unless_a_handle_follows(words: list[str], read: list[str]) -> None:
    """A component may stand behind it, and what stands behind that one is the component's."""
    assert _spelled_checkpoints(words, run.params) == read


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--notice", "5m", "--time-limit", "2m"], "must be shorter than the time limit of 120 s"),
        (["--notice", "5"], "must have a unit"),
        (["--notice-signal", "KILL"], "--notice-signal='KILL': must be one of ALRM"),
        (["--on-stall", "kill"], "--on-stall='kill': must be one of: note, dump"),
        (["--on-stall", "dump", "--stall-signal", "9"], "--stall-signal='9': must be one of ALRM"),
        (["--secret", "HF_TOKEN"], "--secret 'HF_TOKEN': must be NAME=SOURCE"),
        (["--secret", "A=env:B", "--secret", "C=hunter2"], "must be a reference"),
        (["--cpu", "500m"], "--cpu='500m': write cores, 0.5"),
        (["--gpu", "a100:2"], "--gpu='a100:2': give 2 here, and the type by -c gpu_type=a100"),
        (["--replicas", "1_0"], "--replicas='1_0': must be a whole number"),
        (["--segment", "1h", "--notice", "1m", "--time-limit", "1h"], "segment=3600"),
        (["--segment", "1h"], "give checkpoints (--checkpoints), a notice"),
        (["--checkpoints=local://t/no-such"], "checkpoints=local://t/no-such: there is no such"),
        (["--checkpoints=no-such"], "must be of the form SCHEDULER://SESSION/APP_ID"),
        (["--max-interruptions", "-1"], "--max-interruptions=-1: must be 0 or more"),
        (["--retries", "-1"], "--retries=-1: must be 0 or more"),
        (["--gpu", "-2"], "--gpu=-2: must be 0 or more"),
        (["--stall-after", "0s"], "--stall-after='0s': must be above 0"),
        (["--notice", "0s"], "--notice='0s': must be above 0"),
        (["--time-limit", "0"], "--time-limit='0': must be above 0"),
        (["--time-limit", "90"], "--time-limit='90': must have a unit"),
        (["--retry-delay", "5"], "--retry-delay='5': must have a unit"),
        (["--segment", "0:00:00"], "--segment='0:00:00': must be above 0"),
    ],
)
def test_wrong_options(invoke: Any, options: list[str], says: str) -> None:
    """A wrong option is one line that says what is allowed, and nothing is started."""
    result = invoke("run", *options, "--", "true")
    assert result.code == 2
    assert says in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert invoke("list", "--json").json["apps"] == []


def test_options_of_jobs_are_the_settings_of_jobs() -> None:
    """Each setting has an option, and none is left out."""
    shown = {flag.lstrip("-").replace("-", "_") for param in run.params for flag in param.opts}
    settings = {name.removesuffix("s") if SETTINGS[name].adds else name for name in SETTINGS}
    assert settings <= shown
    assert set(SETTINGS) == set(OverrideOptions.__annotations__)


def test_options_set_what_keywords_set(invoke: Any) -> None:
    """An option is named like its setting; what is one of several stands in the singular."""
    settings: dict[str, Any] = {
        "image": "j:1",
        "replicas": "2",
        "cpu": "0.5",
        "gpu": "0",
        "mem": "2G",
        "env": {"MODE": "fast", "B": "x=y"},
        "secrets": {"HOME_OF": "env:HOME"},
        "time_limit": "2h",
        "segment": "1h",
        "notice": "5m",
        "max_interruptions": "7",
        "stall_after": "20m",
        "on_stall": "dump",
        "stall_signal": "SIGUSR2",
        "progress_server": True,
        "name": "mine",
        "retries": "3",
        "retry_delay": "5s",
        "checkpoints": True,
    }
    assert set(settings) == set(SETTINGS) - {"role", "mounts"}
    words = []
    for name, value in settings.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, dict):
            words += [f"{flag.removesuffix('s')}={key}={text}" for key, text in value.items()]
        else:
            words.append(flag if value is True else f"{flag}={value}")
    shown = invoke("run", "--dry-run", "--json", *words, "--", "true").json
    wanted = with_settings(command_app(["true"]), read_settings(settings))
    assert AppDef.from_dict(shown["app"]) == wanted


def test_help_says_the_default_of_interruptions(invoke: Any) -> None:
    """The help names how many interruptions are followed by another start, as they are counted."""
    allowed = Role("main", "", entrypoint="true", checkpoints=True).interruptions_allowed
    assert f"default: {allowed} with" in " ".join(invoke("run", "--help").out.split())
