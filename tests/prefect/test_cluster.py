"""Flows run jobs on clusters that are blocks with secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect import flow

from transload.errors import ConfigError


def _saved(folder: Path, **more: Any) -> Any:
    """Return a saved block of another local scheduler."""
    from transload_prefect import TransloadCluster

    name = f"here-{uuid4().hex[:6]}"
    block = TransloadCluster(
        name=name, kind="local", connection={"state_folder": str(folder)}, **more
    )
    block.save(name)
    return block


def test_a_flow_runs_its_apps_there(host: Any, tmp_path: Path) -> None:
    """A flow runs jobs in the folder of a cluster, given by name or as block."""
    from jobs import job

    from transload_prefect import run_app

    block = _saved(tmp_path / "cluster")

    @flow
    def work() -> list[str]:
        found = [run_app(job, cluster=block.name).handle, run_app(job, cluster=block).handle]
        return [*found, run_app(command=["true"], cluster=block).handle]

    handles = work()
    assert len(set(handles)) == 3
    assert all(each.startswith(f"{block.name}://prefect/") for each in handles)
    assert (tmp_path / "cluster").is_dir()


def test_the_block_type_is_registered() -> None:
    """Prefect finds the block type by the entry point."""
    from prefect.plugins import load_prefect_collections

    assert load_prefect_collections()["transload_prefect"].__name__ == "transload_prefect.cluster"


def test_secrets_are_found_by_the_block(host: Any) -> None:
    """What is kept with a handle says where a secret is. The value comes from the block."""
    from transload_prefect import TransloadCluster, cluster

    name = f"prod-{uuid4().hex[:6]}"
    block = TransloadCluster(name=name, kind="kubernetes", secrets={"kubeconfig": "hunter2"})
    block.save(name)
    made = block.to_cluster()
    assert made.to_dict()["secrets"] == {"kubeconfig": f"prefect:{name}/kubeconfig"}
    assert "hunter2" not in f"{made!r}{json.dumps(made.to_dict())}{block!r}"
    assert cluster.secret_of(f"{name}/kubeconfig") == "hunter2"
    with pytest.raises(ConfigError, match="has no secret 'token'"):
        cluster.secret_of(f"{name}/token")
    with pytest.raises(ConfigError, match="there is no block transload-cluster/absent"):
        cluster.secret_of("absent/token")


def test_blocks_of_one_name_have_their_own_secrets(host: Any) -> None:
    """Flow runs with blocks of one name each get their own secrets, also after a change."""
    from transload_prefect import TransloadCluster
    from transload_prefect.step import runner_of

    name = f"prod-{uuid4().hex[:6]}"
    blocks = [
        TransloadCluster(name=name, kind="scripted", secrets={"token": each}) for each in "abca"
    ]
    blocks[0].save(name)
    runners = [runner_of(each) for each in blocks]
    assert [each.scheduler(name).connected.token for each in runners] == [*"abca"]  # type: ignore[attr-defined]
    assert runners[0].scheduler(name) is runners[3].scheduler(name)
    for token in "ab":
        TransloadCluster(name=name, kind="scripted", secrets={"token": token}).save(
            name, overwrite=True
        )
        kept = runner_of().with_clusters(blocks[0].to_cluster())  # as a handle's record names it
        assert kept.scheduler(name).connected.token == token  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "Prod", "kind": "kubernetes"}, "must be a letter a-z"),
        (
            {"name": "prod", "kind": "kubernetes", "connection": {"token": "x"}},
            "token: is a secret",
        ),
        (
            {"name": "prod", "kind": "slurm", "connection": {"ssh": "-oProxyCommand=x"}},
            "must not begin with '-'",
        ),
    ],
)
def test_wrong_blocks(values: dict[str, Any], words: str) -> None:
    """They are refused when they are made."""
    from transload_prefect import TransloadCluster

    with pytest.raises(ValueError, match=words):
        TransloadCluster(**values)


def test_a_cluster_beside_a_scheduler(host: Any) -> None:
    """One of the two says where an app goes."""
    from transload_prefect import app_task

    with pytest.raises(
        ConfigError, match="cluster='prod': cannot be given beside scheduler='local'"
    ):
        app_task("utils.echo", scheduler="local", cluster="prod")


def test_a_dry_run_and_a_call(host: Any, tmp_path: Path) -> None:
    """A dry run shows the cluster's request.

    Where a call names another place, the job goes there.
    """
    from jobs import job
    from prefect import flow

    from transload.pipelines import get_adapter
    from transload_prefect import app_task

    block = _saved(tmp_path / "cluster")
    for cluster in (block, block.name):
        shown = get_adapter("prefect").dry_run(job, cluster=cluster)
        assert f"{block.name}://" in shown
    task = app_task(job, cluster=block)

    @flow
    def work() -> list[str]:
        return [task().handle, task(launch={"scheduler": "local"}).handle]

    assert [handle.partition(":")[0] for handle in work()] == [block.name, "local"]
