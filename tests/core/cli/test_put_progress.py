"""``transload put --progress``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from transload.keeper.signs import read_report


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("40%", {"fraction": 0.4}),
        ("40.5 %", {"fraction": 0.405}),
        ("400/1000", {"step": 400, "total": 1000, "fraction": 0.4}),
        ("100%", {"fraction": 1}),
    ],
)
def test_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Any, text: str, found: dict[str, Any]
) -> None:
    """A shell says it with ``transload put --progress``."""
    file = tmp_path / "progress.json"
    monkeypatch.setenv("TRANSLOAD_PROGRESS_FILE", str(file))
    assert invoke("put", "--progress", text).code == 0
    assert read_report(file.read_bytes(), 0.0) == {**found, "at": 0.0}


@pytest.mark.parametrize("text", ["140%", "-3%", "nan%", "5/0", "half", "0.4", "inf/3"])
def test_wrong_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Any, text: str
) -> None:
    """What is no part of a whole is a mistake, and nothing is written."""
    file = tmp_path / "progress.json"
    monkeypatch.setenv("TRANSLOAD_PROGRESS_FILE", str(file))
    result = invoke("put", "--progress", text)
    assert result.code == 2
    assert "must be 0% to 100%, or STEP/TOTAL" in " ".join(result.err.split())
    assert not file.exists()


def test_put_outside_of_a_job(monkeypatch: pytest.MonkeyPatch, invoke: Any) -> None:
    """It says that nothing was reported, and so does a call without anything to report."""
    monkeypatch.delenv("TRANSLOAD_PROGRESS_FILE", raising=False)
    result = invoke("put", "--progress", "5%")
    assert (result.code, "no progress was reported" in result.err) == (0, True)
    assert invoke("put").code == 2
