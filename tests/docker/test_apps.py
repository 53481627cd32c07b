"""The fields of a spec have their effect on a real engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transload import Job
from transload.errors import AppFailed, SpecError
from transload.runner import Runner
from transload.specs import (
    AppDef,
    AppState,
    BindMount,
    DeviceMount,
    JobMount,
    Resource,
    Role,
    VolumeMount,
    macros,
    parse_app_handle,
)


def lines(runner: Runner, handle: str, role: str = "main", k: int = 0) -> list[str]:
    """Return the log of a replica."""
    return list(runner.log_lines(handle, role, k))


def ends(runner: Runner, handle: str, state: AppState = AppState.SUCCEEDED) -> Any:
    """Wait for the end of a job, which must be in that state, and return its status."""
    status = runner.wait(handle, timeout=60)
    assert status is not None and status.state is state, (
        status,
        lines(runner, handle, status.roles[0].role),
    )
    return status


@pytest.mark.parametrize("scheduler", ["docker", "local_docker"])
def test_both_names(runner: Runner, shell: Any, scheduler: str) -> None:
    """An app runs under either name of the scheduler, and its handle says which."""
    handle = runner.run(shell("echo hello; echo oops >&2"), scheduler)
    assert parse_app_handle(handle).scheduler_backend == scheduler
    ends(runner, handle)
    assert sorted(lines(runner, handle)) == ["hello\n", "oops\n"]


@pytest.mark.parametrize("left", ["ln -s /etc/shadow", "mkfifo"])
def test_error_file_that_is_none(runner: Runner, shell: Any, left: str) -> None:
    """A link, a FIFO or a folder in the place of the error file costs the app its reason, and its
    end nothing.
    """
    place = '"$TRANSLOAD_ERROR_FILE"'
    handle = runner.run(shell(f"rm -f {place}; {left} {place}; exit 3"), "docker")
    status = ends(runner, handle, AppState.FAILED)
    assert status.roles[0].replicas[0].exit_code == 3 and "root:" not in str(status)


def test_hostile_files_in_the_mount(runner: Runner, shell: Any, tmp_path: Path) -> None:
    """What a container, which is root, leaves in its mounted folder leads nowhere on this
    machine.
    """
    body = '{"schema": 1, "key": "good", "results": {"loss": 0.5}}'
    text = (
        f"cd $TRANSLOAD_TRACKER_BASE; echo '{body}' > good.json; mkfifo 0.json; ln -s /dev/zero "
        "1.json; "
        "mknod 2.json c 1 5; mkdir -p outputs; cd outputs; echo w > model; ln -s /etc/shadow "
        "shadow; ln -s . a; "
        "mknod null c 1 3"
    )
    handle = runner.run(shell(text), "docker")
    ends(runner, handle)
    results = runner.results(handle)
    assert results.results == {"good": {"loss": 0.5}} and list(results.artifacts) == ["model"]
    assert {"0.json", "1.json", "outputs/a", "outputs/shadow"} <= set(results.refused)
    assert runner.job(handle).fetch(folder=str(tmp_path)) == [str(tmp_path / "model")]
    assert os.listdir(tmp_path) == ["model"]


def test_replicas_find_rank_0_by_name(runner: Runner, shell: Any, engine: Any) -> None:
    """On the network of all jobs the host that rank0_env names answers to the others."""
    lead = 'echo "$TRANSLOAD_RANK0_HOST"; until [ -e "$TRANSLOAD_TRACKER_BASE/.met" ]; do sleep 0.1; done'
    name = f'eval "host=\\${macros.rank0_env}"'
    work = (
        f'{name}; until ping -c 1 "$host"; do sleep 0.1; done; touch "$TRANSLOAD_TRACKER_BASE/.met"'
    )
    handle = runner.run(shell({"lead": lead, "work": work}), "docker")
    ends(runner, handle)
    (host,) = lines(runner, handle, "lead")
    assert host.endswith("-lead-0\n")
    assert lines(runner, handle, "work")[0].startswith(f"PING {host.strip()} ")


def test_jobs_share_a_network(runner: Runner, shell: Any, engine: Any) -> None:
    """An engine has few networks, so jobs share one, in which hosts have names of their own."""
    show = 'echo "$TRANSLOAD_RANK0_HOST"'
    handles = [runner.run(shell(show, replicas=2), "docker") for _ in range(2)]
    for handle in handles:
        ends(runner, handle)
    assert lines(runner, handles[0]) != lines(runner, handles[1])
    names = [row["Name"] for row in engine.client.networks()]
    (shared,) = set(names) - {"bridge", "host", "none"}
    assert shared.startswith("transload-")


def test_cpu_limit_reaches_the_engine(runner: Runner, shell: Any, engine: Any) -> None:
    """The engine has the limits of a replica."""
    runner.run(shell("sleep 60", resource=Resource(cpu=0.5, gpu=-1, memMB=64)), "docker")
    (row,) = engine.client.containers(all=True)
    host = engine.client.inspect_container(row["Id"])["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"]) == (
        500_000_000,
        64 << 20,
        64 << 20,
    )


@pytest.mark.parametrize(
    ("want", "field", "words"),
    [
        (Resource(cpu=4096, gpu=-1, memMB=-1), "cpu", r"cpu=4096: .* has \d+ in all"),
        (Resource(cpu=-1, gpu=-1, memMB=1 << 40), "memMB", r"memMB=1099511627776: .* has \d+ in"),
    ],
)
def test_what_never_fits_is_refused(
    runner: Runner, shell: Any, engine: Any, want: Resource, field: str, words: str
) -> None:
    """More than the machine has is refused by the field's name and what is there.

    Nothing is left.
    """
    from transload.errors import UnsupportedFeature

    app = shell({"other": "true", "main": "true"})
    app.roles[1].resource = want
    with pytest.raises(UnsupportedFeature, match=words) as caught:
        runner.run(app, "docker")
    assert caught.value.field == f"roles[1].resource.{field}"
    assert engine.client.containers(all=True) == []


def test_mounts(runner: Runner, shell: Any, engine: Any, tmp_path: Path) -> None:
    """Bind mounts (read-only and not), a volume that outlives the app, a device."""
    (tmp_path / "in").write_text("given\n")
    mounts = [
        BindMount(str(tmp_path), "/out"),
        BindMount(str(tmp_path), "/in", read_only=True),
        VolumeMount("tl-test-data", "/data"),
        DeviceMount("/dev/null", "/dev/nothing"),
    ]
    command = (
        "cat /in/in > /out/copy; touch /in/no 2>/dev/null || echo read-only; "
        "echo v >> /data/v; echo > /dev/nothing"
    )
    for expected in (1, 2):
        handle = runner.run(shell(f"{command}; wc -l < /data/v", mounts=mounts), "docker")
        ends(runner, handle)
        assert lines(runner, handle) == ["read-only\n", f"{expected}\n"]
        runner.delete(handle)
    assert (tmp_path / "copy").read_text() == "given\n"
    engine.client.remove_volume("tl-test-data")


def test_mount_that_is_not_there(runner: Runner, shell: Any) -> None:
    """A bind mount of a path that does not exist is refused, and nothing is left."""
    from transload.errors import SubmitError

    with pytest.raises(SubmitError, match="/no/such/place"):
        runner.run(shell("true", mounts=[BindMount("/no/such/place", "/x")]), "docker")


def test_ports(runner: Runner, shell: Any, engine: Any, free_port: int, eventually: Any) -> None:
    """A single replica's port answers. A second job on that port is refused, and leaves nothing."""
    from transload.errors import SubmitError

    serve = f"while true; do echo hello | nc -l -p {free_port}; done"
    handle = runner.run(shell(serve, port_map={"http": free_port}), "docker")
    ask = f"import socket; print(socket.create_connection(('127.0.0.1', {free_port}), 5).recv(9).decode())"

    def answer() -> bool:
        done = subprocess.run(
            engine.enter("python3", "-c", ask),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return "hello" in done.stdout

    eventually(answer, timeout=20)
    with pytest.raises(SubmitError, match="already allocated"):
        runner.run(shell("sleep 60", port_map={"http": free_port}), "docker", app_id="second")
    assert len(engine.client.containers(all=True)) == 1
    assert not runner.scheduler("docker").existed("second")
    runner.delete(handle)


def test_gpu_without_gpus(runner: Runner, shell: Any, engine: Any) -> None:
    """A GPU that the engine cannot give is refused by the engine, and nothing is left."""
    from transload.errors import SubmitError

    with pytest.raises(SubmitError, match="gpu.*no GPUs to give") as caught:
        runner.run(shell("true", resource=Resource(cpu=-1, gpu=1, memMB=-1)), "docker")
    assert not caught.value.transient
    assert engine.client.containers(all=True) == []


@pytest.fixture
def gpus(engine: Any, tmp_path: Path) -> Iterator[None]:
    """Return an engine that believes in GPUs, by a stub of NVIDIA's toolkit."""
    hook = tmp_path / "nvidia-container-runtime-hook"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    engine.stop()
    engine.start(tmp_path)
    yield
    engine.stop()
    engine.start()


@pytest.mark.usefixtures("gpus")
def test_gpus_are_disjoint_between_apps(
    runner: Runner, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unfinished jobs share no GPU. A job that wants more than are free is refused as busy."""
    from transload.errors import SubmitError, UnsupportedFeature

    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "3")
    wants = [Resource(cpu=-1, gpu=count, memMB=-1) for count in range(5)]
    show = 'echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 100'

    def given(handle: str) -> str:
        return str(eventually(lambda: lines(runner, handle))[0].strip())

    first, second = (runner.run(shell(show, resource=wants[n]), "docker") for n in (1, 2))
    assert (given(first), given(second)) == ("0", "1,2")
    with pytest.raises(
        SubmitError, match=r"0 of 3 are free; .* held by test-\w+, test-\w+$"
    ) as caught:
        runner.run(shell(show, resource=wants[1]), "docker")
    assert caught.value.transient
    with pytest.raises(
        UnsupportedFeature,
        match=r"roles\[0\]\.resource\.gpu.*wants 4 GPUs in all, this machine has 3",
    ):
        runner.run(shell(show, resource=wants[4]), "docker")
    runner.cancel(second)
    message = ends(runner, second, AppState.CANCELLED).msg
    assert message.startswith("cancelled on request of ")
    assert given(runner.run(shell(show, replicas=2, resource=wants[1]), "docker")) == "1"
    with pytest.raises(SubmitError, match="wants 1 GPUs, and 0 of 1 are free"):
        runner.run(shell(show, resource=wants[1]), "docker", {"gpu_ids": ["0"]})


@pytest.mark.usefixtures("gpus")
def test_gpus_are_shared_with_local_jobs(
    engine: Any, shell: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU is a local job's or a container's, and passes from one to the other at an end."""
    from transload.errors import SubmitError

    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "2")
    want = Resource(cpu=-1, gpu=1, memMB=-1)
    role = Role("main", "", entrypoint="sleep", args=["100"], resource=want)
    with Runner("tests") as both:
        try:
            local = both.run(AppDef("mine", [role]), "local")
            eventually(lambda: both.status(local).state is AppState.RUNNING)
            show = shell('echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 100', resource=want)
            boxed = both.run(show, "docker")
            assert eventually(lambda: lines(both, boxed))[0].strip() == "1"
            with pytest.raises(SubmitError, match="0 of 2 are free") as caught:
                both.run(shell("true", resource=want), "docker")
            assert parse_app_handle(local).app_id in str(caught.value)
            waiting = both.run(AppDef("waits", [role]), "local")
            name = parse_app_handle(boxed).app_id
            eventually(lambda: f"{name} has 1" in both.status(waiting).msg)
            both.cancel(boxed)
            eventually(lambda: both.status(waiting).state is AppState.RUNNING, 30)
            both.cancel(local)
            both.wait(local, timeout=30)
            last = both.run(show, "docker")
            assert eventually(lambda: lines(both, last))[0].strip() == "0"
        finally:
            for scheduler in ("local", "docker"):
                for row in both.list(scheduler):
                    both.delete(row.app_handle)


_SUBMITS = """
import os, sys, time
from transload.errors import SubmitError
from transload.runner import Runner
from transload.specs import AppDef, Resource, Role
from transload_docker.scheduler import create_docker
busybox, start = sys.argv[1:]
role = Role("main", busybox, entrypoint="sleep", args=["100"], resource=Resource(cpu=-1, gpu=1, memMB=-1))
with Runner("tests", {"docker": create_docker}) as runner:
    runner.list("docker")
    print("ready", flush=True)
    while not os.path.exists(start):
        time.sleep(0.001)
    try:
        runner.run(AppDef("test", [role]), "docker")
    except SubmitError as exc:
        assert exc.transient and "0 of 4 are free" in str(exc), exc
        print("busy")
"""


@pytest.mark.usefixtures("gpus")
def test_submits_at_once_get_different_gpus(
    runner: Runner, engine: Any, busybox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six processes that ask for one of four GPUs at once, by two names, four get one each."""
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "4")
    start = tmp_path / "start"
    (tmp_path / "other").symlink_to(engine.url.removeprefix("unix://"))
    urls = (engine.url, f"unix://{tmp_path}/other")
    submits = [
        subprocess.Popen(
            [sys.executable, "-c", _SUBMITS, busybox, str(start)],
            env={**os.environ, "DOCKER_HOST": urls[number % 2]},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(6)
    ]
    assert [submit.stdout and submit.stdout.readline() for submit in submits] == ["ready\n"] * 6
    start.touch()
    said = [submit.communicate(timeout=60)[0] for submit in submits]
    assert [submit.returncode for submit in submits] == [0] * 6
    assert sorted(said) == [""] * 4 + ["busy\n"] * 2
    rows = engine.client.containers(all=True)
    assert sorted(row["Labels"]["transload.gpus"] for row in rows) == ["0", "1", "2", "3"]


@pytest.mark.usefixtures("gpus")
def test_a_gpu_is_kept_between_two_tries(
    runner: Runner, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app that is started again has the GPU that it had."""
    monkeypatch.setenv("TRANSLOAD_LOCAL_GPUS", "2")
    want = Resource(cpu=-1, gpu=1, memMB=-1)
    other = runner.run(shell("sleep 100", resource=want), "docker")
    twice = 'echo "$NVIDIA_VISIBLE_DEVICES"; exit "$((1 - TRANSLOAD_RETRY))"'
    handle = runner.run(shell(twice, resource=want, max_retries=1), "docker")
    ends(runner, handle)
    assert list(runner.log_lines(handle, "main")) == ["1\n", "1\n"]
    runner.delete(other)


@pytest.mark.parametrize(
    ("fields", "cfg", "words"),
    [
        ({"mounts": [DeviceMount("/dev/no-such-device", "/dev/x")]}, {}, "/dev/no-such-device"),
        ({}, {"user": "nobody-here"}, "nobody-here"),
    ],
)
def test_what_the_engine_does_not_have(
    runner: Runner, shell: Any, engine: Any, fields: dict[str, Any], cfg: dict[str, Any], words: str
) -> None:
    """What an engine does not have is refused for good, though it reports a passing fault."""
    from transload.errors import SubmitError

    with pytest.raises(SubmitError, match=words) as caught:
        runner.run(shell("true", **fields), "docker", cfg)
    assert not caught.value.transient
    assert engine.client.containers(all=True) == []


@pytest.mark.parametrize("network", ["none", "bridge", "host"])
def test_networks_that_every_engine_has(
    runner: Runner, shell: Any, engine: Any, network: str
) -> None:
    """A single replica may have the engine's own networks, or none."""
    handle = runner.run(shell("true"), "docker", {"network": network})
    ends(runner, handle)
    found = engine.client.inspect_container(f"{parse_app_handle(handle).app_id}.main.0.0")
    assert found["HostConfig"]["NetworkMode"] == network


def test_user(runner: Runner, shell: Any) -> None:
    """The replicas run as the user that was asked for, and can still write results."""
    command = 'touch "$TRANSLOAD_TRACKER_BASE/.x.tmp" && ls -ln "$TRANSLOAD_TRACKER_BASE/.x.tmp"'
    handle = runner.run(shell(command), "docker", {"user": "1234:1234"})
    ends(runner, handle)
    assert "1234" in lines(runner, handle)[0]


def test_given_tracker_base_is_mounted(runner: Runner, shell: Any, tmp_path: Path) -> None:
    """A folder of this machine given for results is visible in the job, and kept when the app is
    deleted.
    """
    base = tmp_path / "mine"
    handle = runner.run(
        shell("echo '{}' > $TRANSLOAD_TRACKER_BASE/x.txt"), "docker", tracker_base=str(base)
    )
    ends(runner, handle)
    runner.delete(handle)
    assert (base / ".apps" / parse_app_handle(handle).app_id / "x.txt").exists()


def test_secrets_and_labels(
    runner: Runner, shell: Any, engine: Any, transload_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret is in the replica's environment and in no label, volume or file of the state
    folder. Labels say who asked.
    """
    monkeypatch.setenv("SOURCE", "hunter2-value")
    app = shell(
        "test ${#PASSWORD} = 13",
        secrets={"PASSWORD": "env:SOURCE"},
        env={"API_KEY": "plain-secret"},
    )
    handle = runner.run(app, "docker", {"env": {"DB_PASSWORD": "third-secret"}})
    ends(runner, handle)
    (row,) = engine.client.containers(all=True)
    assert row["Labels"]["transload.asked.machine"] == os.uname().nodename
    assert row["Labels"]["transload.asked.folder"] == os.getcwd()
    told = json.dumps([row["Labels"], engine.client.volumes()]) + repr(
        runner.job(handle).description()
    )
    for secret in ("hunter2-value", "plain-secret", "third-secret"):
        assert secret not in told
        assert not any(
            secret in p.read_text(errors="replace")
            for p in transload_home.rglob("*")
            if p.is_file()
        )


def test_paused_is_running(runner: Runner, shell: Any, engine: Any, eventually: Any) -> None:
    """A paused container has not ended, and a cancel ends it all the same."""
    handle = runner.run(shell("sleep 60"), "docker")
    (row,) = engine.client.containers()
    engine.client.pause(row["Id"])
    eventually(lambda: runner.status(handle).state is AppState.RUNNING)  # type: ignore[union-attr]
    runner.cancel(handle)
    assert ends(runner, handle, AppState.CANCELLED).cancel_requested


def test_a_failure_names_one_replica_with_its_last_lines(runner: Runner, shell: Any) -> None:
    """The message is about one of two failed replicas, with last lines of both streams."""
    write = 'for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "out $n"; echo "err $n" >&2; done; exit 5'
    handle = runner.run(shell(write, replicas=2), "docker")
    with pytest.raises(AppFailed) as caught:
        Job(handle, runner).check()
    first, how, last, *shown = str(caught.value).splitlines()
    status = caught.value.status
    replica = status.first_failure()
    assert replica is not None
    assert status.failed == (replica.role, replica.id)
    assert first == f"{handle} FAILED: {status.msg}"
    assert how == f"main/{replica.id} exit code 5 on {replica.hostname}"
    assert last == f"last lines of main/{replica.id}:"
    assert (
        len(shown) == 20
    )  # an engine takes the two streams side by side: how they mix is not known
    for stream in ("out", "err"):
        numbers = [int(line.split()[1]) for line in shown if line.split()[0] == stream]
        assert numbers and numbers == list(range(13 - len(numbers), 13))


def test_existing_network(runner: Runner, shell: Any, engine: Any) -> None:
    """A job can join a network that is there, and leaves it. A missing network is a clear error."""
    from transload.errors import SubmitError

    made = engine.client.create_network("tl-shared")
    handle = runner.run(
        shell({"a": "sleep 2", "b": 'ping -c 1 "$TRANSLOAD_RANK0_HOST"'}),
        "docker",
        {"network": "tl-shared"},
    )
    ends(runner, handle)
    runner.delete(handle)
    engine.client.remove_network(made["Id"])
    with pytest.raises(SubmitError, match="no-such-net"):
        runner.run(shell("true"), "docker", {"network": "no-such-net"})


def test_prune(runner: Runner, shell: Any) -> None:
    """Jobs that have ended are deleted by age, running ones and without a limit never."""
    ended = runner.run(shell("true"), "docker")
    running = runner.run(shell("sleep 60"), "docker")
    ends(runner, ended)
    scheduler: Any = runner.scheduler("docker")
    assert scheduler.prune(older_than=3600.0) == []
    assert scheduler.prune() == []
    assert scheduler.prune(older_than=0.0, dry_run=True) == [parse_app_handle(ended).app_id]
    assert scheduler.prune(older_than=0.0) == [parse_app_handle(ended).app_id]
    assert runner.status(ended) is None and runner.status(running) is not None


def test_prune_by_size(runner: Runner, shell: Any) -> None:
    """The oldest ended jobs are deleted until the others fit the limit.

    What is small enough stays.
    """
    handles = []
    for megabytes in (3, 1, 2):
        handles.append(
            runner.run(shell(f"head -c {megabytes}000000 /dev/zero > /tmp/x; echo x"), "docker")
        )
        ends(runner, handles[-1])
    ids = [parse_app_handle(handle).app_id for handle in handles]
    scheduler: Any = runner.scheduler("docker")
    assert scheduler.prune(max_size=7_000_000) == []
    assert scheduler.prune(max_size=3_500_000, dry_run=True) == ids[:1]
    assert scheduler.prune(older_than=3600.0, max_size=2_500_000) == ids[:2]
    assert runner.status(handles[2]) is not None


def test_the_next_job_reads_what_one_has_made(runner: Runner, shell: Any, engine: Any) -> None:
    """A container gets the files of another job at the place that is asked for, and cannot change
    them.
    """
    first = runner.run(shell('echo 42 > "$TRANSLOAD_OUTPUT_DIR/model.pt"'), "docker")
    status = runner.wait(first, timeout=60)
    assert status is not None and status.state is AppState.SUCCEEDED
    path = runner.results(first).artifacts["model.pt"]
    mount = JobMount(first, "/in")
    second = runner.run(
        shell("cat /in/model.pt; echo x > /in/new || exit 4", mounts=[mount]), "docker"
    )
    status = runner.wait(second, timeout=60)
    assert status is not None and status.roles[0].replicas[0].exit_code == 4
    assert "42\n" in runner.log_lines(second, "main")
    with pytest.raises(SpecError, match=f"--mount job={first}:outputs,dst=/in"):
        runner.dryrun(shell(f"cat {path}"), "docker")


def test_its_containers_are_named(engine: Any, runner: Runner, shell: Any, eventually: Any) -> None:
    """The status has the names under which ``docker logs`` finds a job, also after its end."""
    handle = runner.run(shell("echo x", replicas=2), "docker")
    ends(runner, handle)
    found = {
        name.removeprefix("/")
        for row in engine.client.containers(all=True)
        for name in row["Names"]
        if parse_app_handle(handle).app_id in name
    }
    status = runner.status(handle)
    assert status is not None
    assert len(found) == 2 and set(status.engine["containers"].split(", ")) == found
