"""The page about scale says what the simulation gives with today's constants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    """``benchmarks/scale.py``."""
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


def test_the_table_is_what_the_simulation_gives(scale: ModuleType) -> None:
    """Each row but the slow first one and the constants are those of ``benchmarks/scale.py``."""
    page = (ROOT / "benchmarks" / "scale.md").read_text(encoding="utf-8")
    world = scale.World()
    for looks_at in (world.apps, world.apps // world.users, world.apps // world.clients):
        load = scale.simulate(world, "batched", looks_at)
        seen = f"{_seconds(load.seen_after_s)}, {_seconds(load.seen_after_95_s)}"
        assert (
            f"| {load.per_second:.0f} | {load.busy:.0%}".replace("%", " %") + f" | {seen} |" in page
        )
    told = scale.simulate(world, "told", world.apps // world.clients, pushed=True)
    assert (
        f"told of changes; asks for all every {scale.RECHECK:.0f} s | {told.per_second:.0f} |"
        in page
    )
    assert (
        f"`poll_interval` {scale.INTERVAL:g} s, first pause {scale.FIRST_PAUSE:g} s, growth "
        f"{scale.GROWTH:g}" in page
    )
