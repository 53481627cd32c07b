"""An AppDef becomes request bodies, for which no engine is needed."""

from __future__ import annotations

from typing import Any

import pytest

from transload import IMAGE
from transload.errors import ConfigError, SpecError, UnsupportedFeature
from transload.schedulers.api import Submission
from transload.specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Environment,
    Notice,
    Resource,
    Role,
    VolumeMount,
    Workspace,
    macros,
)
from transload_docker import names
from transload_docker.convert import DockerRequest, bind, convert, format_request
from transload_docker.options import DockerOptions


def request(
    app: AppDef | Role, app_id: str = "app-1", reach: Any = "host", **cfg: Any
) -> DockerRequest:
    """Convert an app, or a role as one."""
    app = AppDef("test", [app]) if isinstance(app, Role) else app
    return convert(app, DockerOptions.read(cfg), "docker", reach, app_id)


def role(**fields: Any) -> Role:
    """Return a role with what every role must have."""
    return Role(**({"name": "main", "image": "img:1", "entrypoint": "python"} | fields))


def body(app: AppDef | Role, **cfg: Any) -> dict[str, Any]:
    """Return the body of the first container."""
    return request(app, **cfg).containers[0].body


def env(found: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a body."""
    return dict(item.split("=", 1) for item in found["Env"])


def test_program_and_limits() -> None:
    """Entrypoint, arguments, cpu and memory, an init process, no swap beyond the limit."""
    found = body(role(args=["-c", "pass"], resource=Resource(cpu=1.5, gpu=0, memMB=512)))
    assert (found["Entrypoint"], found["Cmd"], found["Image"]) == (
        ["python"],
        ["-c", "pass"],
        "img:1",
    )
    host = found["HostConfig"]
    assert host["NanoCpus"] == 1_500_000_000
    assert host["Memory"] == host["MemorySwap"] == 512 << 20
    assert host["Init"] is True
    assert "DeviceRequests" not in host and "Privileged" not in host


def test_unset_resources_set_nothing() -> None:
    """−1 is unset."""
    assert not {"NanoCpus", "Memory", "DeviceRequests"} & set(body(role())["HostConfig"])


def test_gpus_are_disjoint_within_an_app() -> None:
    """No GPU is handed out twice, named ones are used in order, and too few are refused."""
    app = AppDef("test", [role(num_replicas=2, resource=Resource(cpu=-1, gpu=2, memMB=-1))])
    ids = [c.body["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] for c in request(app).containers]
    assert ids == [["0", "1"], ["2", "3"]]
    ids = [
        c.body["HostConfig"]["DeviceRequests"][0]["DeviceIDs"]
        for c in request(app, gpu_ids=list("abcd")).containers
    ]
    assert ids == [["a", "b"], ["c", "d"]]
    with pytest.raises(SpecError, match=r"roles\[0\].resource.gpu=2"):
        request(app, gpu_ids=["a"])


def test_a_gpu_that_is_named_twice_is_one() -> None:
    """No GPU goes to two replicas, however often its id is given."""
    app = AppDef("test", [role(num_replicas=2, resource=Resource(cpu=-1, gpu=1, memMB=-1))])
    with pytest.raises(SpecError, match=r"roles\[0\].resource.gpu=1"):
        request(app, gpu_ids=["a", "a"])


def test_mounts() -> None:
    """Bind mounts and volumes become mounts, devices devices."""
    mounts = [
        BindMount("/data", "/in", True),
        VolumeMount("scratch", "/out"),
        DeviceMount("/dev/kvm", "/dev/kvm", "r"),
    ]
    host = body(role(mounts=mounts))["HostConfig"]
    assert host["Mounts"] == [
        {"Type": "bind", "Source": "/data", "Target": "/in", "ReadOnly": True},
        {"Type": "volume", "Source": "scratch", "Target": "/out", "ReadOnly": False},
    ]
    assert host["Devices"] == [
        {"PathOnHost": "/dev/kvm", "PathInContainer": "/dev/kvm", "CgroupPermissions": "r"}
    ]


def test_ports() -> None:
    """A single replica's ports are published under their numbers, several replicas' only if asked
    for.
    """
    single = body(role(port_map={"http": 8080}))
    assert single["ExposedPorts"] == {"8080/tcp": {}}
    assert single["HostConfig"]["PortBindings"] == {
        "8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8080"}]
    }
    many = role(port_map={"http": 8080}, num_replicas=2)
    assert "PortBindings" not in body(many)["HostConfig"]
    assert (
        body(many, publish="random")["HostConfig"]["PortBindings"]["8080/tcp"][0]["HostPort"] == ""
    )
    assert "PortBindings" not in body(role(port_map={"http": 8080}), publish="none")["HostConfig"]


def test_names_and_network() -> None:
    """Replicas find rank 0 by name in the network of all jobs. A single replica needs none."""
    app = AppDef("test", [role(name="a_b", num_replicas=2), role(name="a.b")])
    made = request(app)
    assert made.network == "transload"
    assert [c.name for c in made.containers] == ["app-1.a_b.0.0", "app-1.a_b.1.0", "app-1.a.b.0.0"]
    hosts = [c.body["Hostname"] for c in made.containers]
    start = names.short_hash("app-1", 10)
    assert hosts[:2] == [f"{start}-a-b-0", f"{start}-a-b-1"] and len(set(hosts)) == 3
    for container in made.containers:
        endpoint = container.body["NetworkingConfig"]["EndpointsConfig"]["transload"]
        assert endpoint["Aliases"] == [container.body["Hostname"]]
        assert env(container.body)["TRANSLOAD_RANK0_HOST"] == hosts[0]
    assert request(role()).network == ""


def test_given_network() -> None:
    """On a shared network host names contain the job. On the host's network there are none."""
    made = request(role(num_replicas=2), network="shared")
    assert made.network == ""
    host = made.containers[0].body["Hostname"]
    assert names.short_hash("app-1", 10) in host
    assert made.containers[0].body["NetworkingConfig"]["EndpointsConfig"] == {
        "shared": {"Aliases": [host]}
    }
    found = body(role(num_replicas=2), network="host")
    assert found["HostConfig"]["NetworkMode"] == "host" and "Hostname" not in found
    assert env(found)["TRANSLOAD_RANK0_HOST"] == "localhost"


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """copy_env, env and the role's env count in this order, without other variables."""
    monkeypatch.setenv("FOO_A", "copied")
    monkeypatch.setenv("FOO_B", "copied")
    monkeypatch.setenv("BAR", "stays")
    mine = role(
        env={"FOO_B": "role", "R": macros.replica_id, "N": macros.rank0_env}, num_replicas=2
    )
    found = env(request(mine, copy_env=["FOO_*"], env={"OPT": "x"}).containers[1].body)
    assert (found["FOO_A"], found["FOO_B"], found["OPT"]) == ("copied", "role", "x")
    assert "BAR" not in found
    assert (found["R"], found["N"]) == ("1", "TRANSLOAD_RANK0_HOST")
    assert (
        found["TRANSLOAD_REPLICA_ID"],
        found["TRANSLOAD_NUM_REPLICAS"],
        found["TRANSLOAD_RETRY"],
    ) == ("1", "2", "0")


def test_dry_run_masks_secrets() -> None:
    """The text for a person masks what looks secret, and shows a placeholder for a workspace."""
    text = format_request(request(role(env={"API_KEY": "abcdef"}, workspace=Workspace({".": ""}))))
    assert "abcdef" not in text and "transload-workspace:<content hash>" in text


def test_image_that_is_a_folder() -> None:
    """A role written for the local scheduler runs in a given image, its folder mounted at the same
    path.
    """
    with pytest.raises(SpecError, match=r"roles\[0\].image='/code'"):
        request(role(image="/code"))
    found = body(role(image="/code", args=[f"{macros.img_root}/train.py"]), image="img:2")
    assert (found["Image"], found["WorkingDir"], found["Cmd"]) == (
        "img:2",
        "/code",
        ["/code/train.py"],
    )
    assert {"Type": "bind", "Source": "/code", "Target": "/code", "ReadOnly": True} in found[
        "HostConfig"
    ]["Mounts"]
    assert body(role(args=[f"{macros.img_root}/x"]))["Cmd"] == ["/x"]


def test_options() -> None:
    """User, rights, the image's own entrypoint."""
    found = body(role(args=["x"]), user="1000:1000", privileged=True, image_entrypoint=True)
    assert found["User"] == "1000:1000" and found["HostConfig"]["Privileged"] is True
    assert found["Cmd"] == ["python", "x"] and "Entrypoint" not in found


@pytest.mark.parametrize(
    "cfg",
    [{"pull": "often"}, {"publish": "yes"}],
)
def test_wrong_options(cfg: dict[str, Any]) -> None:
    """A value that is not allowed is refused with those that are."""
    with pytest.raises(ConfigError, match=next(iter(cfg))):
        request(role(), **cfg)


def test_notice() -> None:
    """A role with a notice has it as the engine's own way to stop it, so that others give it."""
    found = body(role(notice=Notice(90.5, "USR1")))
    assert (found["StopSignal"], found["StopTimeout"]) == ("SIGUSR1", 91)
    assert "StopSignal" not in body(role())
    (kept,) = request(role(notice=Notice(90.5, "USR1"))).roles
    assert (kept["notice"], kept["notice_signal"], kept["max_interruptions"]) == (90.5, 10, 20)


def test_overlay() -> None:
    """What the spec has no field for can be said in the engine's own words, macros included."""
    overlay = {
        "HostConfig": {"Ulimits": [{"Name": "nofile", "Soft": 1, "Hard": 1}]},
        "Env": [f"X={macros.replica_id}"],
    }
    found = body(role(metadata={"docker.container": overlay}))
    assert (
        found["HostConfig"]["Ulimits"][0]["Name"] == "nofile"
        and found["HostConfig"]["Init"] is True
    )
    assert "X=0" in found["Env"] and "TRANSLOAD_ROLE=main" in found["Env"]
    with pytest.raises(SpecError, match="docker.container"):
        request(role(metadata={"docker.container": "text"}))


@pytest.mark.parametrize(
    ("overlay", "says"),
    [
        ({"Labels": {"transload.app-id": "x"}}, "jobs are found by it"),
        ({"HostConfig": {"RestartPolicy": {"Name": "always"}}}, "use the role's max_retries"),
        ({"HostConfig": {"AutoRemove": True}}, "transload delete"),
        ({"Image": "other"}, "use the role's image"),
        ({"User": "root"}, "the run option user"),
        ({"Env": ["TRANSLOAD_APP_ID=x"]}, "TRANSLOAD_APP_ID"),
    ],
)
def test_an_overlay_does_not_replace_what_jobs_are_known_by(
    overlay: dict[str, Any], says: str
) -> None:
    """What the plugin writes itself is refused by name and with a remedy.

    Other labels are taken.
    """
    with pytest.raises(SpecError, match=says) as caught:
        request(role(metadata={"docker.container": overlay}))
    assert "roles[0].metadata['docker.container']" in str(caught.value)
    assert (
        body(role(metadata={"docker.container": {"Labels": {"team": "a"}}}))["Labels"]["team"]
        == "a"
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"resource": Resource(1, 0, 1, devices={"efa": 1})}, "roles[0].resource.devices['efa']"),
    ],
)
def test_refused_by_field(fields: dict[str, Any], field: str) -> None:
    """What an engine cannot express is refused, and the field is named."""
    with pytest.raises(UnsupportedFeature) as caught:
        request(role(**fields))
    assert caught.value.field == field and field in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"image": ""}, r"roles\[0\].image"),
        ({"port_map": {"any": 0}}, r"roles\[0\].port_map\['any'\]=0"),
        ({"mounts": [BindMount("data", "/in")]}, r"roles\[0\].mounts\[0\].src_path='data'"),
        ({"mounts": [BindMount("/data", "in")]}, r"roles\[0\].mounts\[0\].dst_path='in'"),
    ],
)
def test_wrong_values(fields: dict[str, Any], path: str) -> None:
    """A value that no engine takes is refused with its path."""
    with pytest.raises(SpecError, match=path):
        request(role(**fields))


def test_results_are_mounted_at_their_own_path() -> None:
    """A folder of this machine for results is mounted, unless a mount has it already or the engine
    is elsewhere.
    """
    base = {"TRANSLOAD_TRACKER_BASE": "/results/app"}
    mount = {"Type": "bind", "Source": "/results/app", "Target": "/results/app", "ReadOnly": False}
    made = request(role(env=base))
    assert made.folders == ["/results/app", "/results/app/outputs"]
    assert mount in made.containers[0].body["HostConfig"]["Mounts"]
    assert request(role(env=base, mounts=[BindMount("/nas", "/results")])).folders == []
    assert request(role(env=base), reach="network").folders == []
    assert request(role(env={"TRANSLOAD_TRACKER_BASE": "s3://bucket/x"})).folders == []


def test_bind_to_the_real_id() -> None:
    """A request made without knowing the id gets it at submit, the caller's changes kept."""
    app = AppDef("test", [role(num_replicas=2)])
    made = request(app, app_id="guess")
    made.containers[0].body["User"] = "changed"
    bound = bind(made, "real:1", Submission(app, "d", "s", tracker_base="file:///r/1"), "host")
    base = names.base_name("real:1")
    assert [c.name for c in bound.containers] == [f"{base}.main.0.0", f"{base}.main.1.0"]
    assert bound.network == "transload" and bound.folders == ["/r/1", "/r/1/outputs"]
    start = names.short_hash("real:1", 10)
    for container in bound.containers:
        host = container.body["Hostname"]
        assert host == f"{start}-main-{container.replica}"
        endpoint = container.body["NetworkingConfig"]["EndpointsConfig"]["transload"]
        assert endpoint["Aliases"] == [container.body["Labels"][names.LABEL_HOST]] == [host]
        assert env(container.body)["TRANSLOAD_RANK0_HOST"] == f"{start}-main-0"
        assert (
            container.body["Labels"][names.LABEL_APP]
            == env(container.body)["TRANSLOAD_APP_ID"]
            == "real:1"
        )
    assert bound.containers[0].body["User"] == "changed"
    assert made.app_id == "guess"


def test_the_image_of_a_role_whose_packages_are_installed() -> None:
    """Without any image the role gets a public Python, unless an option names another image.

    A role without an environment is refused.
    """
    environment = Environment("script", "train.py", sha256="5" * 64)
    wants = role(image="", environment=environment)
    (container,) = request(wants).containers
    assert container.body["Image"] == IMAGE
    (container,) = request(wants, image="own:1").containers
    assert container.body["Image"] == "own:1"
    with pytest.raises(SpecError, match="there is no image"):
        request(role(image=""))
