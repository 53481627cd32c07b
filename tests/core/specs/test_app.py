"""AppDef, Role and Resource take right values, and refuse wrong ones clearly."""

from __future__ import annotations

import math
from typing import Any

import pytest

from transload.keeper.rules import needed_replicas
from transload.specs import (
    MISSING,
    NULL_RESOURCE,
    AppDef,
    BindMount,
    DeviceMount,
    Notice,
    Resource,
    RetryPolicy,
    Role,
    SpecError,
    VolumeMount,
    Workspace,
    get_named_resources,
    looks_secret,
    masked_env,
    named_resources,
    parse_bool,
    parse_mounts,
    resolve_secret,
    resource,
    split_source,
)

pytestmark = pytest.mark.unit


def role(**values: Any) -> Role:
    """Return a role with some fields given."""
    return Role(**{"name": "r", "image": "i", **values})


def test_how_many_replicas_must_end_well() -> None:
    """All replicas must end well, or ``min_replicas``, which may be 0, as a record says too."""
    for least, needed in ((None, 3), (2, 2), (0, 0)):
        made = role(num_replicas=3, min_replicas=least)
        assert made.needed_replicas == needed
        assert needed_replicas({"num_replicas": 3, "min_replicas": least}) == needed


def _endless() -> list[object]:
    """Return a list that holds itself."""
    found: list[object] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": 5}, "Role.name=5: must be a str"),
        ({"name": ""}, "must not be empty"),
        ({"name": "a/b"}, "Role.name='a/b': must be 1 to 128"),
        ({"name": ".."}, "Role.name='..'"),
        ({"name": "-a"}, "Role.name='-a'"),
        ({"name": "a b"}, "Role.name='a b'"),
        ({"name": "a\n"}, "Role.name="),
        ({"name": "a" * 129}, "must be 1 to 128"),
        ({"name": "é" * 128}, "must be at most 255 bytes in UTF-8"),
        ({"image": None}, "Role.image=None: must be a str"),
        ({"min_replicas": "python"}, "Role.min_replicas='python': must be an int"),
        ({"min_replicas": 2}, "Role.min_replicas=2: must be 1 or less"),
        ({"min_replicas": -1}, "must be 0 or more"),
        ({"entrypoint": ""}, "Role.entrypoint='': must not be empty"),
        ({"entrypoint": "a\0b"}, "must not contain NUL"),
        ({"args": "abc"}, "Role.args='abc': must be a list"),
        ({"args": [1]}, "Role.args[0]=1: must be a str"),
        ({"args": ["\0"]}, "Role.args[0]="),
        ({"env": [("A", "1")]}, "Role.env="),
        ({"env": {"A": 1}}, "Role.env['A']=1: must be a str"),
        ({"env": {1: "A"}}, "Role.env key=1: must be a str"),
        ({"env": {"A=B": "1"}}, "Role.env name='A=B'"),
        ({"env": {"": "1"}}, "Role.env name=''"),
        ({"num_replicas": 0}, "Role.num_replicas=0: must be 1 or more"),
        ({"num_replicas": -3}, "must be 1 or more"),
        ({"num_replicas": True}, "Role.num_replicas=True: must be an int"),
        ({"num_replicas": "2"}, "Role.num_replicas='2': must be an int"),
        ({"num_replicas": 2.0}, "Role.num_replicas=2.0: must be an int"),
        ({"max_retries": -1}, "Role.max_retries=-1"),
        ({"retry_policy": "SOMETIMES"}, "Role.retry_policy='SOMETIMES': must be one of"),
        ({"resource": {"cpu": 1}}, "Role.resource="),
        ({"port_map": {"a": 70000}}, "Role.port_map['a']=70000: must be 65535 or less"),
        ({"port_map": {"a": "80"}}, "must be an int"),
        ({"metadata": {"a": object()}}, "Role.metadata['a']="),
        ({"metadata": {"a": {1: 2}}}, "Role.metadata['a'] key=1"),
        ({"metadata": {"a": [{1, 2}]}}, "Role.metadata['a'][0]="),
        ({"metadata": {"a": _endless()}}, "more than 100 deep"),
        ({"mounts": ["type=bind"]}, "Role.mounts[0]='type=bind': must be a BindMount"),
        ({"workspace": "."}, "Role.workspace='.': must be a Workspace or None"),
        ({"secrets": {"A": "hunter2"}}, "Role.secrets['A']='…': must be a reference"),
        ({"secrets": {"A": "env:X"}, "env": {"A": "1"}}, "is also in env"),
    ],
)
def test_wrong_roles(values: dict[str, Any], says: str) -> None:
    """Each wrong field of a role is one line with path, value, and what is allowed."""
    with pytest.raises(SpecError) as caught:
        role(**values)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": ""}, "name='': must not be empty"),
        ({"name": "a/b"}, "name='a/b'"),
        ({"name": ".."}, "name='..'"),
        ({"name": "a\nb"}, "name="),
        ({"name": None}, "name=None: must be a str"),
        ({"roles": "ab"}, "roles='ab': must be a list"),
        ({"roles": [5]}, "roles[0]=5: must be a Role"),
        (
            {"roles": [Role("a", "i"), Role("b", "i"), Role("a", "i")]},
            "roles[2].name='a': is taken by roles[0]",
        ),
        ({"metadata": {"a": object()}}, "metadata['a']="),
        ({"timeout": 0}, "timeout=0: must be above 0"),
        ({"timeout": -1}, "timeout=-1"),
        ({"timeout": math.inf}, "timeout=inf: must be finite"),
        ({"timeout": "60"}, "timeout='60': must be a number"),
        ({"timeout": True}, "timeout=True: must be a number"),
    ],
)
def test_wrong_apps(values: dict[str, Any], says: str) -> None:
    """Each wrong field of a job is one line with path, value, and what is allowed."""
    with pytest.raises(SpecError) as caught:
        AppDef(**{"name": "a", **values})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("values", "app_values", "says"),
    [
        ({"notice": 5}, {}, "roles[0].notice=5: must be a Notice or None"),
        ({"notice": Notice(60)}, {"timeout": 60}, "roles[0].notice.seconds=60: must be shorter"),
        ({"notice": Notice(60)}, {"segment": 50}, "segment=50: must be longer than the notice of"),
        ({"notice": Notice(6)}, {"segment": 60, "timeout": 60}, "segment=60: must be shorter"),
        ({"notice": Notice(6)}, {"segment": 0}, "segment=0: must be above 0"),
        ({}, {"segment": 60}, "roles[0].max_interruptions=0: must be above 0"),
        ({"checkpoints": 1}, {}, "roles[0].checkpoints=1: must be True or False"),
        ({"max_interruptions": -1}, {}, "roles[0].max_interruptions=-1: must be 0 or more"),
        ({"stall_after": math.nan}, {}, "roles[0].stall_after=nan: must be finite"),
        ({"on_stall": "kill"}, {}, "roles[0].on_stall='kill': must be one of"),
        ({"stall_signal": "KILL"}, {}, "roles[0].stall_signal='KILL': must be one of"),
        ({"notice": Notice(9, "USR1"), "on_stall": "dump"}, {}, "must be another signal"),
    ],
)
def test_wrong_ends(values: dict[str, Any], app_values: dict[str, Any], says: str) -> None:
    """What cannot be of notices, segments, interruptions and stalls is one line, with its path."""
    given = role()
    for name, value in values.items():
        setattr(given, name, value)
    with pytest.raises(SpecError) as caught:
        AppDef("a", [given], **app_values)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_notices() -> None:
    """A signal has its usual name, with or without SIG. One that cannot be handled is refused."""
    assert Notice(5, "sigusr1") == Notice(5, "USR1")
    assert (Notice().seconds, Notice().signal) == (120, "TERM")
    for name in ("KILL", "SIGSTOP", "9", "", 15):
        with pytest.raises(SpecError, match=r"Notice.signal=.*with or without SIG"):
            Notice(5, name)  # type: ignore[arg-type]
    for seconds in (0, -1, math.inf, math.nan, True, "60"):
        with pytest.raises(SpecError, match=r"Notice.seconds="):
            Notice(seconds)  # type: ignore[arg-type]


def test_interruptions_allowed() -> None:
    """A hundred interruptions are allowed where there is a notice or a folder for checkpoints."""
    assert role().interruptions_allowed == 0
    assert role(notice=Notice()).interruptions_allowed == 20
    assert role(checkpoints=True).interruptions_allowed == 20
    assert role(checkpoints=True, max_interruptions=0).interruptions_allowed == 0
    assert role(max_interruptions=3).interruptions_allowed == 3


def test_wrong_type_in_third_place_is_refused() -> None:
    """An entrypoint given by position lands in min_replicas, and is refused there."""
    with pytest.raises(SpecError, match="min_replicas='python'"):
        Role("n", "img", "python")  # type: ignore[arg-type]


def test_changed_afterwards_is_refused_where_used() -> None:
    """The classes stay mutable. Later mistakes are refused by to_json, digest, check_runnable."""
    app = AppDef("a", [role(entrypoint="e")])
    app.roles[0].num_replicas = 0
    for use in (app.to_json, app.digest, app.check_runnable, app.check):
        with pytest.raises(SpecError, match=r"roles\[0\]\.num_replicas=0: must be 1 or more"):
            use()


def test_runnable() -> None:
    """No roles, or no entrypoint, is refused only when the app is to run."""
    with pytest.raises(SpecError, match="at least one Role"):
        AppDef("a").check_runnable()
    with pytest.raises(SpecError, match=r"roles\[0\]\.entrypoint='<MISSING>': must be given"):
        AppDef("a", [role()]).check_runnable()
    AppDef("a", [role(entrypoint="e")]).check_runnable()
    assert role().entrypoint == MISSING


def test_tuples_become_lists() -> None:
    """A tuple given for a list becomes a list."""
    app = AppDef("a", (role(args=("x",), mounts=(BindMount("/a", "/b"),)),))  # type: ignore[arg-type]
    assert isinstance(app.roles, list)
    assert app.roles[0].args == ["x"]
    assert isinstance(app.roles[0].mounts, list)


def test_no_shared_defaults() -> None:
    """Two roles share no dict, list or resource."""
    one, two = role(), role()
    one.env["A"] = "1"
    one.args.append("x")
    one.resource.cpu = 5
    assert two == role()
    assert Resource(-1, -1, -1) == NULL_RESOURCE


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((-2, 0, 1), "Resource.cpu=-2"),
        ((-0.5, 0, 1), "Resource.cpu=-0.5"),
        ((1, -2, 1), "Resource.gpu=-2"),
        ((1, 0, -5), "Resource.memMB=-5: must be 0 or more, or -1 for unset"),
        ((math.nan, 0, 1), "Resource.cpu=nan: must be finite"),
        ((math.inf, 0, 1), "must be finite"),
        (("1", 0, 1), "Resource.cpu='1': must be a number"),
        ((1, 0.5, 1), "Resource.gpu=0.5: must be an int"),
        ((1, 0, 1.5), "Resource.memMB=1.5: must be an int"),
        ((True, 0, 1), "Resource.cpu=True"),
        ((1, 0, 1, {"a": object()}), "Resource.capabilities['a']="),
        ((1, 0, 1, {}, {"gpu": -1}), "Resource.devices['gpu']=-1"),
        ((1, 0, 1, {}, {"gpu": "1"}), "Resource.devices['gpu']='1'"),
    ],
)
def test_wrong_resources(values: tuple[Any, ...], says: str) -> None:
    """A resource below −1, not finite, or of another type is refused. −1 is unset."""
    with pytest.raises(SpecError) as caught:
        Resource(*values)
    assert says in str(caught.value)


def test_resources() -> None:
    """Names, numbers, copies."""
    assert resource() == Resource(2, 0, 1024)
    assert resource(cpu=3, gpu=1, memMB=5) == Resource(3, 1, 5)
    assert resource(cpu=0, memMB=0) == Resource(0, 0, 0)
    assert resource(cpu=3, h="cpu.small") == Resource(1, 0, 2048)
    assert "gpu.small" in named_resources
    assert "nope" not in named_resources
    assert "cpu.small" in list(named_resources)
    assert named_resources["gpu.xlarge"].gpu == 8
    assert named_resources["cpu.small"] is not named_resources["cpu.small"]
    assert Resource.copy(Resource(1, 0, 2, {"a": 1}), a=2, b=3) == Resource(
        1, 0, 2, {"a": 2, "b": 3}
    )
    with pytest.raises(
        SpecError, match=r"no named resource 'cpu\.smal': did you mean 'cpu\.small'"
    ):
        get_named_resources("cpu.smal")
    with pytest.raises(KeyError):
        named_resources["nope"]


def test_mounts() -> None:
    """All kinds and spellings."""
    opts = ["type=bind", "src=/a", "dst=/b", "readonly", "type=volume", "source=v", "target=/c"]
    opts += [
        "type=device",
        "src=/dev/x",
        "perm=rw",
        "type=device",
        "src=/dev/y",
        "destination=/dev/z",
    ]
    assert parse_mounts(opts) == [
        BindMount("/a", "/b", True),
        VolumeMount("v", "/c"),
        DeviceMount("/dev/x", "/dev/x", "rw"),
        DeviceMount("/dev/y", "/dev/z"),
    ]
    assert parse_mounts([]) == []


def test_mount_expands_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` in the source of a bind mount is the user's home."""
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_mounts(["type=bind", "src=~/x", "dst=/b"]) == [BindMount("/home/me/x", "/b")]


@pytest.mark.parametrize(
    ("opts", "says"),
    [
        (["src=/a"], "the type must come first"),
        (["type=bnd", "src=/a"], "type='bnd': must be one of bind, device, job, volume"),
        (["type=bind", "dst=/a"], "src is missing"),
        (["type=bind", "src=/a"], "dst is missing"),
        (["type=volume", "scr=/a"], "unknown option 'scr': did you mean 'src'"),
        (["type=device", "src=/a", "perm=x"], "DeviceMount.permissions='x'"),
        ("type=bind", "must be a list of options"),
    ],
)
def test_wrong_mounts(opts: Any, says: str) -> None:
    """Each mistake is named."""
    with pytest.raises(SpecError) as caught:
        parse_mounts(opts)
    assert says in str(caught.value)


def test_wrong_mount_objects() -> None:
    """The classes check themselves."""
    for make in (
        lambda: BindMount("", "/b"),
        lambda: VolumeMount("v", 5),
        lambda: BindMount("/a", "/b", 1),
    ):  # type: ignore[arg-type]
        with pytest.raises(SpecError):
            make()


def test_workspace() -> None:
    """Text form and refusals."""
    workspace = Workspace.from_str("file:///a=x,/b")
    assert workspace.projects == {"/a": "x", "/b": ""}
    assert Workspace.from_str(str(workspace)) == workspace
    assert not Workspace.from_str(None)
    assert workspace
    for target in ("/abs", "../up", "a/../../b"):
        with pytest.raises(SpecError, match="relative folder"):
            Workspace({"/a": target})


@pytest.mark.parametrize(
    "name",
    ["API_KEY", "DB_PASSWORD", "GITHUB_TOKEN", "aws_secret_access_key", "PGPASSWORD", "MY_PAT"],
)
def test_secret_names(name: str) -> None:
    """Values of secret-looking names are masked where displayed, and kept exactly in the job."""
    assert looks_secret(name)
    assert masked_env({name: "hunter2", "PATH": "/bin"}) == {name: "******", "PATH": "/bin"}
    app = AppDef("a", [role(env={name: "hunter2"})])
    assert AppDef.from_json(app.to_json()).roles[0].env == {name: "hunter2"}


@pytest.mark.parametrize(
    "name", ["PATH", "TOKENIZERS_PARALLELISM", "MONKEY", "KEYBOARD", "AUTHOR", "COMPAT", "PATTERN"]
)
def test_harmless_names(name: str) -> None:
    """Ordinary names are shown."""
    assert not looks_secret(name)


def test_secret_value_of_wrong_type_is_not_shown() -> None:
    """Not even an error shows the value of a secret-looking variable."""
    with pytest.raises(SpecError) as caught:
        role(env={"API_TOKEN": ["hunter2"]})
    assert "hunter2" not in str(caught.value)
    assert "API_TOKEN" in str(caught.value)


def test_resolving_secrets(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets from env: and file: are resolved. A missing one is named with its path."""
    (tmp_path / "s").write_text("two\nlines\n")
    monkeypatch.setenv("MY_SECRET", "v")
    assert resolve_secret("env:MY_SECRET", "p") == "v"
    assert resolve_secret(f"file:{tmp_path}/s", "p") == "two\nlines"
    assert split_source("k8s:NAME/KEY") == ("k8s", "NAME/KEY")
    for source, says in (
        ("env:NOT_THERE", "roles\\[0\\]=.*NOT_THERE is not set"),
        ("file:/no/such", "cannot read the file"),
        ("k8s:a/b", "cannot resolve 'k8s'"),
    ):
        with pytest.raises(SpecError, match=says):
            resolve_secret(source, "roles[0]")


@pytest.mark.parametrize(
    ("text", "value"), [("TRUE", True), (" yes ", True), ("1", True), ("f", False), ("Off", False)]
)
def test_bools(text: str, value: bool) -> None:
    """Any usual spelling."""
    assert parse_bool(text) is value


@pytest.mark.parametrize("text", ["", "2", "maybe", "ja", "none"])
def test_wrong_bools(text: str) -> None:
    """Anything else is an error, never silently false."""
    with pytest.raises(SpecError, match="must be true or false"):
        parse_bool(text, "debug")


def test_retry_policy_by_name() -> None:
    """A policy may be given by its name."""
    assert role(retry_policy="REPLICA").retry_policy is RetryPolicy.REPLICA
