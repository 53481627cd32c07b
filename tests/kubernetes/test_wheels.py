"""Wheels for pods that reach no index are fetched by the submitter, and travel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from transload.errors import ConfigError, SubmitError
from transload.runner import Job, Launch, Runner
from transload.specs import AppDef, AppState, CfgVal, Environment, Role
from transload_kubernetes import environments
from transload_kubernetes.convert import format_request
from transload_kubernetes.installing import why_unfit
from transload_kubernetes.options import Options
from transload_testing.packages import PackageIndex, package_index

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
IMAGE = f"registry.example/python:{HERE}-slim"
PRINT = "import fast, tiny; print(fast.VERSION, tiny.VERSION)"
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index that only the process which submits knows."""
    minor = HERE.replace(".", "")
    with package_index(tmp_path / "index") as served:
        served.add("tiny", "1.0")
        for machine in ("x86_64", "aarch64"):
            tag = f"cp{minor}-cp{minor}-manylinux_2_17_{machine}"
            served.add("fast", "2.0+cpu", tag=tag, requires=("tiny",))
        served.be_the_only_one(monkeypatch)
        yield served


def _submitted(
    runner: Runner,
    folder: Path,
    image: str = IMAGE,
    roles: int = 1,
    app_id: str = "packages",
    **cfg: CfgVal,
) -> Job:
    """Submit a program that imports two packages, in roles that are all alike."""
    file = folder / "requirements.txt"
    file.write_text("fast\n")
    app = AppDef("packages", [])
    for number in range(roles):
        app.roles.append(Role(f"r{number}", image, entrypoint="python", args=["-c", PRINT]))
    launch = Launch(
        app=app,
        scheduler="kubernetes",
        cfg={"jobset": "never", "offline": True, **_native(), **cfg},
        environment=str(file),
    )
    return launch.plan(runner, app_id=app_id).submit()


def _native() -> dict[str, CfgVal]:
    """Return the option that has wheels for this machine fetched."""
    import platform

    return {"offline_platform": f"manylinux_2_28_{platform.machine()}"}


def _made(fake: Any) -> list[dict[str, Any]]:
    """Return the init containers of the first Job."""
    found: list[dict[str, Any]] = fake.cluster.items("jobs")[0]["spec"]["template"]["spec"][
        "initContainers"
    ]
    return found


def test_small_wheels_travel_in_a_config_map(
    fake: Any, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """Two roles install them from the same one, no pod asks the index, and it goes with the job."""
    job = _submitted(runner, tmp_path, roles=2)
    asked = list(index.requests)
    status = job.wait(timeout=100)
    assert status.state is AppState.SUCCEEDED, status
    assert "2.0+cpu 1.0" in "".join(map(str, job.logs("r1")))
    assert index.requests == asked
    kept = {each["metadata"]["name"]: each for each in fake.cluster.items("configmaps")}
    wheels = kept["packages.wheels"]
    assert len(wheels["binaryData"]) == 2
    assert wheels["metadata"]["ownerReferences"][0]["name"] == "packages"
    assert _made(fake)[0]["env"] == []
    job.delete()
    left = [each["metadata"]["name"] for each in fake.cluster.items("configmaps")]
    assert "packages.wheels" not in left


def test_a_request_shows_no_wheel(tmp_path: Path) -> None:
    """Their names and places are shown, and their content is not. In a dry-run they are not there
    yet.
    """
    from transload.schedulers.environments import WheelTarget
    from transload_kubernetes.convert import convert

    wanted = Environment("requirements.txt", "r.txt", "0123456789abcdef" * 4)
    wheels = environments.Wheels(
        WheelTarget("3.11", "x86_64", "2.28"),
        environments.WHEELS,
        files={"a-1-b.whl": "Y29udGVudA=="},
    )
    role = Role("main", IMAGE, entrypoint="true", environment=wanted)
    role.metadata = {environments.KEY: {"packed": "x", "wheels": asdict(wheels)}}
    text = format_request(convert(AppDef("a", [role]), {"offline": True}, "kubernetes", "a"))
    assert "name: a.wheels" in text
    assert "path: a-1-b.whl" in text
    assert "<a wheel>" in text
    assert "Y29udGVudA" not in text
    role.metadata = {}
    text = format_request(convert(AppDef("a", [role]), {"offline": True}, "kubernetes", "a"))
    assert "<folder of wheels>" in text


def test_wheels_travel_through_a_storage(
    fake: Any, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """Wheels are uploaded once for their content. An init container fetches and checks them."""
    store = tmp_path / "store"
    job = _submitted(runner, tmp_path, workspace_url=f"file://{store}", workspace_image="fetcher:1")
    status = job.wait(timeout=100)
    assert status.state is AppState.SUCCEEDED, status
    fetch, make = _made(fake)
    assert (fetch["image"], make["image"]) == ("fetcher:1", IMAGE)
    assert len(list(store.iterdir())) == 1
    assert len(fake.cluster.items("configmaps")) == 1


@pytest.fixture
def registry(needs_registry: None, tmp_path: Path, eventually: Any) -> Iterator[Any]:
    """A registry."""
    from loopback_registry import Registry  # type: ignore[import-not-found]

    (tmp_path / "registry").mkdir()
    made = Registry(tmp_path / "registry")
    made.wait(eventually)
    yield made
    made.close()


def test_wheels_travel_as_a_layer_of_an_image(
    fake: Any, runner: Runner, index: PackageIndex, registry: Any, tmp_path: Path
) -> None:
    """The init container has an image of the role with the wheels, which equal packages use again.

    That asks the index nothing. The image is one for the chosen machines alone.
    """
    base = registry.image("python", architectures=("amd64", "arm64"))
    cfg: dict[str, CfgVal] = {
        "image_repo": f"{registry.name}/team/code",
        "node_selector": {"kubernetes.io/arch": "arm64"},
        "offline_platform": "",
        "offline_python": HERE,
    }
    _submitted(runner, tmp_path, base, **cfg)
    (make,) = _made(fake)
    config, layers = registry.found(make["image"])
    minor = HERE.replace(".", "")
    wheel = f"transload/wheels/fast-2.0+cpu-cp{minor}-cp{minor}-manylinux_2_17_aarch64.whl"
    assert {*layers[1]} == {wheel, "transload/wheels/tiny-1.0-py3-none-any.whl"}
    assert config["history"][-1] == {"created_by": "transload: wheels"}
    main = fake.cluster.items("jobs")[0]["spec"]["template"]["spec"]["containers"][0]
    assert main["image"] == base
    asked = list(index.requests)
    _submitted(runner, tmp_path, base, app_id="again", **cfg)
    assert index.requests == asked
    cfg["offline_platform"] = "manylinux_2_28_x86_64"
    del cfg["node_selector"]
    single = registry.image("single")
    _submitted(runner, tmp_path, single, app_id="single", **cfg)
    cfg["offline_platform"] = "manylinux_2_28_aarch64"
    with pytest.raises(ConfigError, match=r"offline_platform=.*aarch64.*is one for x86_64"):
        _submitted(runner, tmp_path, single, **cfg)


def test_wheels_for_another_python(
    fake: Any, runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """The job fails with both versions, and what to set."""
    (tmp_path / "requirements.txt").write_text("tiny\n")
    launch = Launch(
        app=AppDef("packages", [Role("main", IMAGE, entrypoint="python", max_retries=2)]),
        scheduler="kubernetes",
        cfg={"offline": True, "offline_python": "3.7"},
        environment=str(tmp_path / "requirements.txt"),
    )
    status = launch.plan(runner).submit().wait(timeout=60)
    assert status.state is AppState.FAILED
    assert "its wheels are for Python 3.7 on " in status.msg
    assert f"the image has Python {HERE} on " in status.msg
    assert "set run options offline_python and offline_platform" in status.msg
    assert status.num_restarts == 0


def test_wheels_that_are_too_large(
    runner: Runner, index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and limit are named, and the other ways, and nothing was submitted."""
    monkeypatch.setattr(environments, "_MOST_BYTES", 100)
    with pytest.raises(SubmitError, match=r"at most 100: set run option image_repo.*workspace_url"):
        _submitted(runner, tmp_path)
    assert runner.list("kubernetes") == []


def test_an_image_whose_python_is_not_known(
    runner: Runner, index: PackageIndex, tmp_path: Path
) -> None:
    """What must be given is named, before anything is fetched."""
    with pytest.raises(ConfigError, match=r"offline_python: must be given: image 'train:1'"):
        _submitted(runner, tmp_path, "train:1")
    assert index.requests == []


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"offline_python": "3.11"}, r"offline_python='3\.11'.*set run option offline, too"),
        ({"offline": True, "offline_python": "python3"}, "must be a version of Python"),
        ({"offline": True, "offline_platform": "linux"}, "must be manylinux_2_N_MACHINE or"),
        (
            {
                "offline": True,
                "offline_platform": "manylinux_2_28_x86_64",
                "node_selector": {"kubernetes.io/arch": "arm64"},
            },
            "node_selector chooses nodes of aarch64",
        ),
    ],
)
def test_options_that_do_not_fit(cfg: dict[str, CfgVal], message: str) -> None:
    """They are refused by name before anything starts."""
    with pytest.raises(ConfigError, match=message):
        Options.of(cfg)


@pytest.mark.parametrize(
    ("machine", "glibc", "wheel", "fits"),
    [
        ("x86_64", "2.28", "a-1-cp311-cp311-manylinux_2_17_x86_64.whl", True),
        ("aarch64", "2.28", "a-1-cp311-cp311-manylinux_2_17_x86_64.whl", False),
        ("x86_64", "2.17", "a-1-cp311-cp311-manylinux_2_28_x86_64.whl", False),
        ("x86_64", "", "a-1-cp311-cp311-manylinux_2_17_x86_64.whl", False),
        ("aarch64", "", "a-1-py3-none-any.whl", True),
    ],
)
def test_machines_that_wheels_fit(
    machine: str, glibc: str, wheel: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheels for any platform fit all of them. Another machine or an older C library is refused."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc" if glibc else "", glibc))
    target = {"version": HERE, "machine": "x86_64", "glibc": "2.28"}
    assert (why_unfit(target, [wheel]) == "") == fits
