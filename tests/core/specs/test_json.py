"""AppDef and AppStatus as JSON, and the digest."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transload.specs import (
    AppDef,
    AppState,
    AppStatus,
    BindMount,
    DeviceMount,
    Environment,
    Notice,
    Progress,
    ReplicaAttempt,
    ReplicaStatus,
    Resource,
    RetryPolicy,
    Role,
    RoleStatus,
    SpecError,
    VolumeMount,
    Workspace,
)

pytestmark = pytest.mark.unit

text = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=10)
some_text = text.filter(bool)
names = st.from_regex(r"[A-Za-z0-9_][\w.-]{0,10}", fullmatch=True).map(
    lambda name: name.rstrip("\n")
)
env_names = some_text.filter(lambda name: "=" not in name)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
metadata = st.dictionaries(text, json_values, max_size=3)
counts = st.integers(-1, 10**6)
resources = st.builds(
    Resource,
    st.one_of(st.just(-1), st.integers(0, 100), st.floats(0, 100)),
    counts,
    counts,
    metadata,
    st.dictionaries(text, st.integers(0, 9), max_size=2),
    metadata,
)
mounts = st.one_of(
    st.builds(BindMount, some_text, some_text, st.booleans()),
    st.builds(VolumeMount, some_text, some_text, st.booleans()),
    st.builds(DeviceMount, some_text, some_text, st.sampled_from(["r", "rw", "rwm"])),
)
targets = st.sampled_from(["", "a", "a/b"])


@st.composite
def roles(draw: st.DrawFn) -> Role:
    """Draw a role with any valid fields."""
    replicas = draw(st.integers(1, 500))
    env = draw(st.dictionaries(env_names, text, max_size=3))
    secrets = draw(
        st.dictionaries(env_names, some_text.map(lambda name: f"env:{name}"), max_size=2)
    )
    return Role(
        draw(names),
        draw(text),
        draw(st.none() | st.integers(0, replicas)),
        draw(some_text),
        draw(st.lists(text, max_size=3)),
        env,
        replicas,
        draw(st.integers(0, 9)),
        draw(st.sampled_from(list(RetryPolicy))),
        draw(resources),
        draw(st.dictionaries(text, st.integers(0, 65535), max_size=2)),
        draw(metadata),
        draw(st.lists(mounts, max_size=2)),
        draw(st.none() | st.builds(Workspace, st.dictionaries(some_text, targets, max_size=2))),
        {name: source for name, source in secrets.items() if name not in env},
    )


apps = st.builds(
    AppDef,
    names,
    st.lists(roles(), max_size=3, unique_by=lambda role: role.name),
    st.dictionaries(text, text, max_size=2),
    timeout=st.none() | st.floats(0.001, 1e9) | st.integers(1, 10**6),
)
slow_draws = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@slow_draws
@given(apps)
def test_app_round_trip(app: AppDef) -> None:
    """A job and its digest are equal after JSON, which is one object with a schema."""
    encoded = app.to_json()
    again = AppDef.from_json(encoded)
    assert again == app
    assert again.digest() == app.digest()
    assert AppDef.from_json(app.to_json(indent=2).encode()) == app
    assert json.loads(encoded)["schema"] == 1


@slow_draws
@given(apps)
def test_digest_knows_no_order_and_no_alias(app: AppDef) -> None:
    """The digest does not depend on the order of keys, nor on 1 or 1.0, nor on which copy it is
    of.
    """
    data = json.loads(app.to_json())

    def reversed_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reversed_keys(value[key]) for key in reversed(value)}
        return [reversed_keys(item) for item in value] if isinstance(value, list) else value

    assert AppDef.from_json(json.dumps(reversed_keys(data))).digest() == app.digest()
    assert copy.deepcopy(app).digest() == app.digest()
    other = copy.deepcopy(app)
    for role in other.roles:
        role.resource.cpu = float(role.resource.cpu)
    assert other.digest() == app.digest()


def full_app() -> AppDef:
    """Return an app with every field set to something of its own."""
    return AppDef(
        "app",
        [
            Role(
                "r", "i", 1, "e", ["a", "${app_id}"], {"A": "1"}, 2, 3, RetryPolicy.ROLE, Resource(1, 2, 3, {"c": 1}),
                {"p": 80}, {"k": {"n": [1]}}, [BindMount("/a", "/b")], Workspace({"/w": "x"}), {"S": "env:S"},
            )
        ],
        {"m": "v"},
        timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Role)])
def test_every_field_of_a_role_counts(name: str) -> None:
    """A change of any field changes the digest, and survives JSON."""
    app, changed = full_app(), full_app()
    other = {
        "name": "q", "image": "j", "min_replicas": 2, "entrypoint": "f", "args": [], "env": {}, "num_replicas": 9,
        "max_retries": 0, "retry_policy": RetryPolicy.REPLICA, "resource": Resource(1, 2, 3), "port_map": {},
        "metadata": {}, "mounts": [VolumeMount("/a", "/b")], "workspace": None, "secrets": {}, "retry_delay": 5,
        "notice": Notice(30, "USR2"), "checkpoints": True, "max_interruptions": 7, "stall_after": 60,
        "on_stall": "dump", "stall_signal": "QUIT",
        "environment": Environment("uv.lock", "uv.lock", "a" * 64, ["train"]),
        "progress_server": True,
    }  # fmt: skip
    setattr(changed.roles[0], name, other[name])
    assert changed.digest() != app.digest()
    assert AppDef.from_json(changed.to_json()) == changed


def test_digest_is_the_same_everywhere() -> None:
    """The digest is a known text, also with other hash seeds, and must never change."""
    app = AppDef(
        "echo", [Role("echo", "img", entrypoint="echo", args=["é", "x"], env={"B": "2", "A": "1"})]
    )
    code = (
        "from transload.specs import *;"
        "print(AppDef('echo', [Role('echo', 'img', entrypoint='echo', args=['\\xe9', 'x'],"
        " env={'A': '1', 'B': '2'})]).digest())"
    )
    for seed in ("1", "2"):
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        out = subprocess.run(
            [sys.executable, "-c", code],
            env=env,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert out.stdout.strip() == app.digest()
    assert app.digest() == "sha256:f608fb5ca83dea081cb806a47e6f94606752a9fdbc879de8292aa17e764e1a97"


def test_secrets_stay_references() -> None:
    """JSON holds where a secret is, never what it is."""
    app = AppDef("a", [Role("r", "i", secrets={"TOKEN": "env:HOME"})])
    assert json.loads(app.to_json())["roles"][0]["secrets"] == {"TOKEN": "env:HOME"}


def test_bytes_of_file_names() -> None:
    """An argument that is no valid UTF-8 survives, and its JSON can be written to a file."""
    app = AppDef("a", [Role("r", "i", args=["\udc80", "é"])])
    assert AppDef.from_json(app.to_json().encode()) == app
    app.digest()


ROLE = '{"name": "a", "roles": [{"name": "r", "image": "i", '


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[" * 100000, "not valid JSON"),
        ("[]", "must be a JSON object"),
        ('"x"', "must be a JSON object"),
        ('{"schema": 2, "name": "a"}', "newer than this version of transload reads"),
        ('{"schema": "1", "name": "a"}', "AppDef.schema='1'"),
        ('{"schema": 0, "name": "a"}', "must be a positive int"),
        ("{}", "the field 'name' is missing"),
        ('{"nmae": "a"}', "unknown field 'nmae': did you mean 'name'"),
        ('{"name": "a", "roles": {}}', "roles={}: must be a list"),
        ('{"name": "a", "roles": [3]}', "roles[0]=3: must be a JSON object"),
        ('{"name": "a", "roles": [{"name": "r"}]}', "roles[0]: the field 'image' is missing"),
        ('{"name": "a", "roles": [{"name": "r", "image": "i", "num_replicas": 0}]}', "roles[0].num_replicas=0"),
        (ROLE + '"resource": {"cpu": 1}}]}', "roles[0].resource: the field"),
        (ROLE + '"resource": {"cpu": -3, "gpu": 0, "memMB": 1}}]}', "[0].resource.cpu=-3"),
        (ROLE + '"mounts": [{"src": "a"}]}]}', "roles[0].mounts[0].type=None"),
        ('{"name": "a", "roles": [{"name": "r", "image": "i", "mounts": [5]}]}', "roles[0].mounts[0]=5"),
        (ROLE + '"workspace": {"projects": {"a": "/x"}}}]}', "roles[0].workspace.projects"),
        ('{"name": "a", "timeout": NaN}', "timeout=nan: must be finite"),
    ],
)  # fmt: skip
def test_wrong_documents(document: str, says: str) -> None:
    """What is not an app's JSON is refused with the path inside the document."""
    with pytest.raises(SpecError) as caught:
        AppDef.from_json(document)
    assert says in str(caught.value)


@slow_draws
@given(json_values)
def test_any_json_is_an_app_or_refused(value: Any) -> None:
    """No JSON value makes anything but an app or a SpecError."""
    for document in (
        value,
        {"name": "a", "roles": value},
        {"name": "a", "roles": [value]},
        {"name": value},
    ):
        try:
            AppDef.from_json(json.dumps(document))
        except SpecError:
            pass


moments = st.none() | st.floats(0, 1e10)
attempts = st.builds(
    ReplicaAttempt,
    st.sampled_from(list(AppState)),
    st.none() | st.integers(-64, 255),
    moments,
    moments,
    st.sampled_from([None, "preempted", "segment"]),
    st.none() | st.integers(0, 99),
)
progresses = st.builds(
    Progress,
    st.none() | st.floats(0, 1),
    st.none() | st.integers(0, 99),
    st.integers(1, 99),
    moments,
    moments,
    st.none() | text,
)
replica_statuses = st.builds(
    ReplicaStatus,
    st.integers(0, 99),
    st.sampled_from(list(AppState)),
    names,
    text,
    text,
    st.none() | st.integers(-64, 255),
    moments,
    moments,
    st.integers(0, 9),
    st.lists(attempts, max_size=2),
    interruptions=st.integers(0, 3),
)
statuses = st.builds(
    AppStatus,
    st.sampled_from(list(AppState)),
    st.integers(0, 9),
    text,
    text,
    st.none() | text,
    st.lists(st.builds(RoleStatus, names, st.lists(replica_statuses, max_size=2)), max_size=2),
    st.booleans(),
    st.none() | progresses,
)


@slow_draws
@given(statuses)
def test_status_round_trip(status: AppStatus) -> None:
    """A status is equal after JSON, which has the names of states."""
    encoded = status.to_json()
    assert AppStatus.from_json(encoded) == status
    assert json.loads(encoded)["state"] == status.state.name
    assert status.summary().startswith(str(status.state))


def test_an_older_version_reads_what_does_not_use_new_fields() -> None:
    """JSON holds notices, checkpoints, progress and so on only where they say something."""
    app = AppDef("a", [Role("r", "i", entrypoint="true")])
    assert not {"segment", "arguments "} & app.to_dict().keys()
    new = {"notice", "checkpoints", "max_interruptions", "stall_after", "on_stall", "stall_signal"}
    new.add("progress_server")
    assert not new & app.to_dict()["roles"][0].keys()
    app = AppDef("a", [Role("r", "i", notice=Notice(), stall_after=9)], segment=600)
    assert app.to_dict()["segment"] == 600
    assert new & app.to_dict()["roles"][0].keys() == {"notice", "stall_after"}

    attempt = ReplicaAttempt(AppState.FAILED)
    replica = ReplicaStatus(0, AppState.RUNNING, "r", "h", earlier=[attempt])
    status = AppStatus(AppState.RUNNING, roles=[RoleStatus("r", [replica])])
    written = status.to_json()
    assert not [name for name in ("progress", "interruptions", "cause", "step") if name in written]
    attempt.cause = "preempted"
    replica.interruptions = 1
    status.progress = Progress(step=3)
    written = status.to_json()
    assert '"progress": {"step": 3}' in written
    assert '"interruptions": 1' in written
    assert '"cause": "preempted"' in written


@pytest.mark.parametrize(
    "value", [5, [], {}, {"fraction": "half"}, {"step": True, "text": 3}, {"at": 7.0}, None]
)
def test_progress_that_says_nothing_is_none(value: Any) -> None:
    """What cannot be read of a progress is left out, and the status is read all the same."""
    text = json.dumps({"state": "RUNNING", "progress": value})
    assert AppStatus.from_json(text).progress is None


def test_status_of_a_later_version() -> None:
    """Unknown fields and states of later versions are read, and a newer schema is refused."""
    data = {"state": "HIBERNATING", "mood": 1, "roles": [{"role": "r", "replicas": [
        {"id": 0, "state": "RUNNING", "role": "r", "hostname": "h", "gpu": 1}]}]}  # fmt: skip
    status = AppStatus.from_json(json.dumps(data))
    assert status.state is AppState.UNKNOWN
    assert status.roles[0].replicas[0].state is AppState.RUNNING
    with pytest.raises(SpecError, match="newer"):
        AppStatus.from_json('{"schema": 2, "state": "RUNNING"}')


@slow_draws
@given(json_values)
def test_any_json_is_a_status_or_refused(value: Any) -> None:
    """No JSON value makes anything but a status or a SpecError."""
    replica = {"role": "r", "replicas": [value]}
    earlier = {"role": "r", "replicas": [{"id": 0, "role": "r", "hostname": "h", "earlier": value}]}
    for document in (
        value, {"roles": value}, {"state": value}, {"roles": [value]}, {"roles": [replica]}, {"roles": [earlier]}
    ):  # fmt: skip
        try:
            AppStatus.from_json(json.dumps(document))
        except SpecError:
            pass
