"""The adapter by its uniform door, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import apps
import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))


from transload.errors import ConfigError, UnsupportedFeature
from transload.pipelines import get_adapter
from transload.pipelines.adapter import describe_adapters


def test_import_is_lazy() -> None:
    """None of these imports KFP, which takes seconds."""
    modules = ("plugin", "convert", "states", "sigterm", "launcher", "adapter")
    names = ", ".join(f"transload_kfp.{each}" for each in (*modules, "search", "pod"))
    program = f"import sys, {names}; print('kfp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "False\n"


def test_all_public_names_are_there() -> None:
    """Each public name can be had, and there is no other by mistake."""
    import transload_kfp

    for name in transload_kfp.__all__:
        assert getattr(transload_kfp, name) is not None
    with pytest.raises(AttributeError):
        _ = transload_kfp.nothing  # type: ignore[attr-defined]


def test_adapter(transload_home: Path) -> None:
    """By its uniform door the adapter converts, launches, shows a dry-run, and refuses."""
    adapter = get_adapter("kfp")
    assert adapter.convert(apps.train, results=["accuracy"]).name == "train"
    launcher = adapter.convert(apps.train, scheduler="local", image="launcher:1")
    assert "replicas" in launcher.component_spec.inputs
    assert yaml.safe_load(adapter.dry_run(apps.train))["name"] == "train"
    uniform = adapter.convert("utils.echo", launch={"args": {"msg": "hello"}})
    assert uniform.component_spec.implementation.container.args == ["hello"]
    launch = {"args": {"msg": "hello"}, "scheduler": "scripted"}
    launched = adapter.convert("utils.echo", launch=launch, on_kill="detach", image="i")
    assert "msg" not in launched.component_spec.inputs
    assert "hello" in adapter.dry_run("utils.echo", launch=launch)
    with pytest.raises(ConfigError, match="on_kill"):
        adapter.convert("utils.echo", launch=launch, on_kill="pause")
    for convert in (adapter.convert, adapter.dry_run):
        with pytest.raises(ConfigError, match="retries_by"):
            convert(apps.train, launcher=True, retrys_by="host")
    secret = apps.bare()
    secret.roles[0].env = {"API_TOKEN": "hidden", "LEVEL": "info"}
    shown = adapter.dry_run(secret)
    assert "hidden" not in shown and "info" in shown
    with pytest.raises(UnsupportedFeature, match=r"roles\[0\].num_replicas"):
        adapter.convert(apps.train, component_args={"replicas": 2})
    (row,) = [each for each in describe_adapters() if each["name"] == "kfp"]
    assert (row["status"], row["states"]["CANCELLED"]) == ("installed", "CANCELED")
