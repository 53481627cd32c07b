"""Clusters are found by name, in the settings or from an orchestrator."""

from __future__ import annotations

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from transload.errors import ConfigError
from transload.runner import Cluster, Runner, get_runner
from transload.schedulers.folder.home import state_home
from transload.specs import AppState, UnknownSchedulerException
from transload_testing import scripted_app

pytestmark = pytest.mark.unit


def test_a_cluster_is_a_scheduler_with_a_name(plain_folder: str) -> None:
    """`[schedulers.NAME] kind = …` gives a cluster its connection and run options.

    Handles carry its name.
    """
    Path("transload.toml").write_text(
        '[schedulers.first]\nkind = "scripted"\nscripted_dir = "one"\napi_key = "k"\n'
        '[schedulers.second]\nkind = "scripted"\nscripted_dir = "two"\n'
        '[schedulers.scripted]\nscripted_dir = "plain"\nscript = "not inherited"\n'
    )
    app = scripted_app("a")
    with get_runner("test") as runner:
        assert {"first", "second"} <= set(runner.scheduler_backends())
        assert runner.cluster("first") == Cluster("first", "scripted", {"scripted_dir": "one"})
        handles = [runner.run(app, name, app_id="same") for name in ("first", "second")]
        assert handles == ["first://test/same", "second://test/same"]
        assert runner.configured_options("first") == {"api_key": "k"}
        assert runner.configured_options("second") == {}
        for name, folder in (("first", "one"), ("second", "two"), ("scripted", "plain")):
            assert str(runner.scheduler(name).folder.root) == folder  # type: ignore[attr-defined]
        assert [row.app_handle for row in runner.list("second")] == ["second://test/same"]
        with pytest.raises(
            UnknownSchedulerException,
            match=r"'third' is not installed.*must be one of: .*\[schedulers\.NAME\]",
        ):
            runner.status("third://test/same")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[schedulers.x]\nkind = "slurmm"', "'slurmm' is not installed"),
        (
            '[schedulers.x]\nkind = "scripted"\nscripted_dir = 3',
            r"transload\.toml: .*scripted_dir=3: must be",
        ),
        ('[schedulers.x]\nkind = "scripted"\nscript_dir = "y"', "script_dir: unknown option"),
        ('[schedulers.local]\nkind = "scripted"', "is the name of an installed scheduler"),
        ('[schedulers.X]\nkind = "scripted"', "the name of a cluster must be"),
        (
            '[schedulers.a-b]\nkind = "scripted"\n[schedulers.a_b]\nkind = "scripted"',
            "differs from .* only in",
        ),
        ("[schedulers.x]\nkind = 3", "kind=3: must be a str"),
    ],
)
def test_wrong_clusters_are_refused(plain_folder: str, text: str, message: str) -> None:
    """A cluster that cannot be had is told by its table, before anything is started."""
    Path("transload.toml").write_text(text)
    name = "local" if "schedulers.local" in text else "x"
    with Runner("test") as runner, pytest.raises(ConfigError, match=message):
        runner.run(scripted_app("a"), name)


def test_what_is_kept_of_a_cluster_goes_through_json() -> None:
    """Name, kind, connection and the places of secrets survive JSON, and later fields pass."""
    cluster = Cluster(
        "prod", "kubernetes", {"context": "prod-eu"}, {"kubeconfig": "env:PROD_CONFIG"}
    )
    data = json.loads(cluster.to_json())
    assert data == cluster.to_dict()
    assert Cluster.from_dict({**data, "colour": "red"}) == cluster
    assert Cluster("docker").kind == "docker"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("Prod", "slurm"), "'Prod': the name of a cluster must be"),
        (
            ("p", "slurm", {"ssh": "-oProxyCommand=touch /tmp/x"}),
            "ssh='-oProxy.*must not begin with '-'",
        ),
        (("p", "slurm", {"ssh": "a\nb"}), "control characters"),
        (("p", "scripted", {"token": "s3cr3t"}), "token: is a secret: name where it is found"),
        (("p", "scripted", {}, {"token": "s3cr3t"}), "must be a reference such as env:NAME"),
        (("p", "scripted", "x"), "connection='x': must be a mapping"),
        (("p", 3), "kind=3: must be a str"),
    ],
)
def test_a_cluster_that_is_not_valid_is_refused(values: tuple[object, ...], message: str) -> None:
    """One line names the cluster, the setting and the rule, and shows no secret."""
    with pytest.raises(ConfigError, match=message) as caught:
        Cluster(*values)  # type: ignore[arg-type]
    assert "s3cr3t" not in str(caught.value)


def test_a_host_names_clusters_that_no_file_names(plain_folder: str) -> None:
    """A runner takes clusters. Equal ones are one scheduler, but not those of another place."""
    one, other = (
        Cluster("prod", "scripted", {"scripted_dir": folder}) for folder in ("one", "other")
    )
    with get_runner("test", clusters=[one]) as runner:
        assert "prod" in runner.scheduler_backends()
        assert runner.run(scripted_app("a"), "prod", app_id="same") == "prod://test/same"
        assert runner.with_clusters(one) is runner
        elsewhere = runner.with_clusters(other)
        assert runner.status("prod://test/same") is not None
        assert elsewhere.status("prod://test/same") is None
        assert elsewhere.scheduler("local") is runner.scheduler("local")
        assert elsewhere.with_clusters(one).scheduler("prod") is runner.scheduler("prod")
        with pytest.raises(
            ConfigError, match="unknown connection setting 'folder': must be one of: scripted_dir"
        ):
            runner.with_clusters(Cluster("wrong", "scripted", {"folder": "x"})).scheduler("wrong")
        with pytest.raises(ConfigError, match="differ only in"):
            runner.with_clusters(Cluster("a-b", "scripted"), Cluster("a_b", "scripted"))
        with pytest.raises(ConfigError, match="'local' is the name of an installed scheduler"):
            runner.with_clusters(Cluster("local", "docker")).scheduler("local")


def test_a_table_goes_before_what_a_host_says_with_one_warning(
    plain_folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The settings of this machine decide, and whoever is overruled gets one warning."""
    Path("transload.toml").write_text(
        '[schedulers.prod1]\nkind = "scripted"\nscripted_dir = "of the table"\n'
    )
    with caplog.at_level(logging.WARNING, "transload.runner"):
        for _ in range(2):
            with get_runner(
                "test", clusters=[Cluster("prod1", "scripted", {"scripted_dir": "of the host"})]
            ) as runner:
                assert runner.scheduler("prod1").location() == "of the table"
    (record,) = caplog.records
    assert "[schedulers.prod1]" in record.getMessage()


def test_a_variable_names_a_cluster_too(plain_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection setting may stand there, as a run option may, but is no run option."""
    Path("transload.toml").write_text(
        '[schedulers.prod]\nkind = "scripted"\nscripted_dir = "of the table"\n'
    )
    monkeypatch.setenv("TRANSLOAD_SETTINGS", "schedulers.prod.scripted_dir = 'of the variable'")
    with get_runner("test") as runner:
        assert runner.scheduler("prod").location() == "of the variable"
        assert runner.configured_options("prod") == {}


def test_secrets_of_a_cluster_are_resolved_where_it_is_used(
    plain_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table or the orchestrator says where a secret is.

    Its value reaches the scheduler, and nothing that is kept.
    """
    monkeypatch.setenv("MY_TOKEN", "s3cr3t")
    text = (
        '[schedulers.prod]\nkind = "scripted"\n[schedulers.prod.secrets]\ntoken = "env:MY_TOKEN"\n'
    )
    Path("transload.toml").write_text(text)
    of_host = Cluster("mine", "scripted", {}, {"token": "vault:the/path"})
    with Runner(
        "test", clusters=[of_host], secret_sources={"vault": lambda what: f"value of {what}"}
    ) as runner:
        assert runner.scheduler("prod").connected.token == "s3cr3t"  # type: ignore[attr-defined]
        assert runner.scheduler("mine").connected.token == "value of the/path"  # type: ignore[attr-defined]
        assert "s3cr3t" not in runner.cluster("prod").to_json()
    monkeypatch.delenv("MY_TOKEN")
    with (
        Runner("test") as runner,
        pytest.raises(ConfigError, match=r"cluster 'prod'.*MY_TOKEN is not set"),
    ):
        runner.scheduler("prod")


def test_clusters_that_differ_in_a_secret_alone(plain_folder: str) -> None:
    """Whoever brings another secret gets another scheduler. Equal ones share one."""
    asked: list[str] = []
    prod = Cluster("prod", "scripted", {}, {"token": "vault:prod"})

    def of(value: str) -> Runner:
        return runner.with_clusters(
            prod, secret_sources={"vault": lambda what: asked.append(what) or value}
        )  # type: ignore[func-returns-value]

    with Runner("test") as runner:
        first, second, again = of("a"), of("b"), of("a")
        tokens = [each.scheduler("prod").connected.token for each in (first, second, again)]  # type: ignore[attr-defined]
        assert tokens == ["a", "b", "a"]
        assert first.scheduler("prod") is again.scheduler("prod")
        assert first.with_clusters(prod).scheduler("prod") is first.scheduler("prod"), (
            "as from what a handle keeps"
        )
        assert asked == ["prod"] * 3, "once for each of them"


def test_nobody_waits_for_a_secret_but_who_needs_it(plain_folder: str) -> None:
    """The source of a secret may itself need a thread that uses other schedulers, as the event loop
    of a host.
    """
    prod, other = (
        Cluster("prod", "scripted", {}, {"token": "vault:prod"}),
        Cluster("other", "scripted"),
    )

    def source(what: str) -> str:
        threads.submit(runner.scheduler, "other").result(timeout=20)
        return "s3cr3t"

    with ThreadPoolExecutor(1) as threads, Runner("test", clusters=[prod, other]) as given:
        runner = given.with_clusters(prod, secret_sources={"vault": source})
        assert runner.scheduler("prod").connected.token == "s3cr3t"  # type: ignore[attr-defined]


def test_local_by_a_second_name_keeps_its_apps_apart(plain_folder: str, tmp_path: Path) -> None:
    """Each name of the local scheduler has its own state folder, so that equal ids are two jobs."""
    folder = tmp_path / "state"
    clusters = [Cluster("mine", "local"), Cluster("theirs", "local", {"state_folder": str(folder)})]
    with get_runner("test", clusters=clusters) as runner:
        assert runner.scheduler("mine").location() == f"{state_home()}/local-mine"
        handles = [
            runner.run_component("utils.echo", {"msg": name}, name, app_id="same")
            for name in ("local", "mine", "theirs")
        ]
        for handle, name in zip(handles, ("local", "mine", "theirs"), strict=True):
            status = runner.wait(handle, timeout=60)
            assert status is not None and status.state is AppState.SUCCEEDED
            assert list(runner.log_lines(handle, "echo")) == [f"{name}\n"]
            assert [row.app_id for row in runner.list(name)].count("same") == 1
        assert runner.scheduler("theirs").location() == f"{folder}/local"
