"""Launches are jobs that are known in full only when the orchestrator runs them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from transload.errors import ConfigError, SpecError
from transload.pipelines import ExecutionOptions, Launch, split_options
from transload.specs import AppDef, BindMount, Notice, Resource, Role, VolumeMount

pytestmark = pytest.mark.unit


def train(
    lr: float, replicas: int = 1, gpus: int = 0, tracker_base: str = "", *, trial_idx: int = -1
) -> AppDef:
    """Train something.

    Args:
        lr: learning rate
        replicas: how many
        gpus: per replica
        tracker_base: where results go
        trial_idx: number of the trial
    """
    args = [str(lr), tracker_base, str(trial_idx)]
    role = Role(
        "main",
        "img",
        entrypoint="train",
        args=args,
        num_replicas=replicas,
        resource=Resource(1, gpus, 10),
    )
    return AppDef("train", [role])


APP = AppDef("a", [Role("main", "i", entrypoint="e")])


@pytest.mark.parametrize("source", [APP, APP.to_json(), json.loads(APP.to_json()), lambda: APP])
def test_apps_in_every_form(source: object) -> None:
    """An app may be given as it is, as JSON text or values, or by a callable."""
    assert Launch(app=source).build() == APP  # type: ignore[arg-type]


SETTINGS: dict[str, Any] = {
    "image": "j",
    "gpu": "2",
    "cpu": 0.5,
    "mem": "8G",
    "mounts": ["type=bind,src=/data,dst=/data", VolumeMount("claim", "/claim")],
    "env": {"A": "1"},
    "secrets": {"TOKEN": "env:TOKEN"},
    "time_limit": "2h",
    "notice": Notice(60.0, "USR1"),
    "on_stall": "dump",
    "stall_signal": "SIGUSR2",
    "stall_after": "20m",
    "retries": 3,
    "checkpoints": True,
}


def test_overrides_reach_the_job_and_survive_json() -> None:
    """What is set over a job is, in every form of it, also after a trip through JSON."""
    launch = Launch(command=["python", "train.py"], overrides=SETTINGS)  # type: ignore[typeddict-item]
    again = Launch.from_dict(json.loads(json.dumps(launch.to_dict())))
    app = again.build()
    assert app == launch.build() and app.timeout == 7200.0
    role = app.roles[0]
    assert (role.image, role.resource, role.env) == ("j", Resource(0.5, 2, 8192), {"A": "1"})
    assert role.mounts == [VolumeMount("claim", "/claim"), BindMount("/data", "/data")]
    assert (role.secrets, role.notice) == ({"TOKEN": "env:TOKEN"}, Notice(60.0, "USR1"))
    assert (role.stall_after, role.on_stall, role.stall_signal) == (1200.0, "dump", "USR2")
    assert (role.max_retries, role.checkpoints) == (3, True)
    assert Launch(app=APP, overrides={"image": "j"}).build().roles[0].image == "j"
    assert launch.with_overrides({"gpu": 1}).overrides == {**SETTINGS, "gpu": 1}
    assert "overrides" not in Launch(app=APP).to_dict()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"gpus": 1}, "gpus: no setting of a job: did you mean 'gpu'"),
        ("gpu=1", "overrides='gpu=1': must be setting → value"),
        ({"gpu": "one"}, "gpu='one': must be a whole number"),
        ({"cpu": "one"}, "cpu='one': must be a number"),
        ({"mem": 8}, "mem=8: is a number of bytes: write it with a unit, such as '8M' or '8G'"),
        ({"mem": True}, "mem=True: must be a size"),
        ({"notice": "soon"}, "notice='soon': must be a duration"),
        ({"on_stall": "stop"}, "on_stall='stop': must be one of: note, dump"),
        ({"stall_signal": "HUGE"}, "stall_signal='HUGE': must be one of"),
        ({"mounts": 3}, "mounts=3: must be a list of mounts"),
        ({"mounts": [3]}, r"mounts\[0\]=3: must be a mount, or a text of one"),
        ({"env": "A=1"}, "env='A=1': must be name → value"),
        ({"checkpoints": "perhaps"}, "checkpoints='perhaps': must be true or false"),
    ],
)
def test_wrong_overrides_are_refused(settings: Any, words: str) -> None:
    """The error names the setting, its value, and what is allowed or the nearest name."""
    with pytest.raises(SpecError, match=words):
        Launch(app=APP, overrides=settings).build()


def test_the_options_of_an_adapter_are_divided() -> None:
    """A job's settings by their own names go before those in the mapping.

    All other options are about how it is run.
    """
    given = {"gpu": 1, "mem": None, "overrides": {"gpu": 2, "retries": 4}, "patience": 5.0}
    overrides, options = split_options(given)
    assert overrides == {"gpu": 1, "retries": 4}
    assert options == ExecutionOptions(patience=5.0)
    with pytest.raises(ConfigError, match="gpuu=1: no option of an adapter: did you mean 'gpu'"):
        split_options({"gpuu": 1})
    with pytest.raises(SpecError, match="retrys: no setting of a job: did you mean 'retries'"):
        split_options({"overrides": {"retrys": 1}})


def test_a_command_stands_beside_app_and_component() -> None:
    """A command is a job, also after JSON. Exactly one of app, component and command is given."""
    launch = Launch(command=["python", "train.py", "--lr", 0.1])  # type: ignore[list-item]
    app = Launch.from_dict(json.loads(json.dumps(launch.to_dict()))).build()
    assert (launch.name, app.name, app.roles[0].args) == (
        "train",
        "train",
        ["train.py", "--lr", "0.1"],
    )
    more = {"app": APP, "component": "utils.echo"}
    for wrong in ({}, more, {**more, "command": ["true"]}, {"app": APP, "command": ["true"]}):
        with pytest.raises(SpecError, match="exactly one of app, component and command"):
            Launch(**wrong)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="only a component takes arguments"):
        Launch(command=["true"], args=["x"])


def test_texts_become_launch_parameters() -> None:
    """What an upstream job returned as text sets replicas and resources."""
    app = Launch(component=train, args={"lr": "1e-3", "replicas": "4", "gpus": "2"}).build()
    assert (app.roles[0].num_replicas, app.roles[0].resource.gpu) == (4, 2)
    assert app.roles[0].args[0] == "0.001"
    assert (
        Launch(component=train, args=["--lr", "0.5", "--replicas", "3"])
        .build()
        .roles[0]
        .num_replicas
        == 3
    )


def test_component_by_name() -> None:
    """A built-in component is found by name, and its arguments are checked."""
    app = Launch(component="utils.echo", args={"msg": "hello"}).build()
    assert "hello" in app.roles[0].args
    with pytest.raises(SpecError, match="mgs"):
        Launch(component="utils.echo", args={"mgs": "hello"}).build()


def test_what_the_host_knows_is_passed_where_it_is_declared() -> None:
    """Known values reach declared arguments, keyword-only ones too, but not those the user gave."""
    known = {"tracker_base": "/base", "trial_idx": 7, "experiment_name": "x"}
    launch = Launch(component=train, args={"lr": 1})
    assert launch.build(known).roles[0].args == ["1.0", "/base", "7"]
    assert (
        launch.build(known, {"tracker_base": "/setting", "replicas": "2"}).roles[0].args[1]
        == "/base"
    )
    own = Launch(component=train, args={"lr": 1, "tracker_base": "/mine"})
    assert own.build(known).roles[0].args[1] == "/mine"
    argv = Launch(component=train, args=["--lr", "1", "--tracker_base=/mine"])
    assert argv.build(known).roles[0].args == ["1.0", "/mine", "7"]
    assert launch.declares("tracker_base")
    assert not launch.declares("experiment_name")


def test_wrong_launches_are_refused() -> None:
    """Neither or both of app and component, arguments without a component or in one text, a
    callable without an app.
    """
    for values in ({}, {"app": APP, "component": train}, {"app": APP, "args": {"lr": 1}}):
        with pytest.raises(SpecError, match="launch"):
            Launch(**values)  # type: ignore[arg-type]
    for args in ("--lr 1", b"x", 7):
        for ask in (Launch.build, Launch.to_dict):
            with pytest.raises(SpecError, match="args=.*list of texts"):
                ask(Launch(component="utils.echo", args=args))  # type: ignore[arg-type, operator]
    with pytest.raises(SpecError, match="AppDef"):
        Launch(app=lambda: "no app").build()  # type: ignore[arg-type, return-value]
    with pytest.raises(SpecError, match=r"app=5: must be an AppDef"):
        Launch(app=5).build()  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="must be an AppDef"):
        Launch.of(7)


def test_whatever_convert_is_given() -> None:
    """An AppDef, its JSON, a function or a name becomes a launch, and a launch stays one."""
    assert Launch.of(APP).app is APP
    assert Launch.of(APP.to_json()).build() == APP
    assert Launch.of("utils.echo", args={"msg": "x"}).component == "utils.echo"
    assert Launch.of(train, args={"lr": 1}).name == "train"
    assert Launch.of(Launch(app=APP), scheduler="slurm").scheduler == "slurm"
    assert [Launch.of(each).name for each in (APP, "utils.echo", train)] == [
        "a",
        "utils.echo",
        "train",
    ]


def test_round_trip() -> None:
    """A launch survives JSON where its function can be found again."""
    launch = Launch(
        component="utils.echo",
        args={"msg": "x"},
        scheduler="local",
        cfg={"a": "b"},
        tracker_base="/t",
    )
    again = Launch.from_dict(json.loads(json.dumps(launch.to_dict())))
    assert again == launch
    assert Launch.from_dict(Launch(app=APP).to_dict()).build() == APP
    with pytest.raises(SpecError, match="function of a module"):
        Launch(component=lambda: APP).to_dict()
    with pytest.raises(SpecError, match="newer"):
        Launch.from_dict({"schema": 99})
    with pytest.raises(SpecError, match="not the JSON form of one: .*nonsense"):
        Launch.from_dict({"schema": 1, "nonsense": 1})


def test_what_a_call_leaves_open() -> None:
    """A component gets args, then what is known, then settings, then defaults."""
    launch = Launch(component=train, args={"lr": "0.5", "replicas": "many"})
    found = launch.left_open({"trial_idx": 3, "step": 1}, {"gpus": "2", "tracker_base": "/t"})
    assert found == {"lr": 0.5, "gpus": 2, "tracker_base": "/t", "trial_idx": 3}, (
        "what is wrong is left out"
    )
    assert Launch(component=train).left_open() == {
        "replicas": 1,
        "gpus": 0,
        "tracker_base": "",
        "trial_idx": -1,
    }
    assert Launch(component="utils.sh", args=["--cpu", "2", "echo"]).left_open()["cpu"] == 2
    assert "args" not in Launch(component="utils.sh", args=["echo"]).left_open()
    assert Launch(component="utils.sh", args=["--wrong"]).left_open() == {}
    assert Launch(app=APP).left_open() == {}
