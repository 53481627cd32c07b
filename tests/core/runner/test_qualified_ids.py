"""Schedulers whose ids carry more than a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner
from transload.schedulers.local.scheduler import create_local
from transload.specs import AppDef, Role

pytestmark = pytest.mark.unit


def test_the_scheduler_completes_the_id(transload_home: Path) -> None:
    """What ``qualified_id`` returns is the id, in the handle and in ``${app_id}``."""

    def factory(session: str, **params: Any) -> Any:
        made = create_local(session, **params)
        made.qualified_id = lambda app_id, cfg: app_id if ":" in app_id else f"team:{app_id}"  # type: ignore[attr-defined]
        return made

    with Runner("s", {"local": factory}) as runner:
        app = AppDef("a", [Role("r", "/tmp", entrypoint="echo", args=["${app_id}"])])
        assert runner.dryrun(app, "local", app_id="mine").app_id == "team:mine"
        assert runner.dryrun(app, "local", app_id="team:mine").app_id == "team:mine"
        assert str(runner.dryrun(app, "local").app_id).startswith("team:a-")
