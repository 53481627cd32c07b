"""A secret that somebody typed where it does not belong is shown nowhere, and kept in no record."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.runner import Runner

ROLE = {
    "name": "r",
    "image": "",
    "entrypoint": "true",
    "args": [
        "--password",
        "hunter2-a",
        "--url=postgresql://me:hunter2-b@h/db",
        "--result-key",
        "final",
    ],
    "env": {"DATABASE_URL": "postgresql://me:hunter2-c@h/db", "API_KEY": "hunter2-d"},
    "metadata": {"password": "hunter2-e"},
}
APP = {"schema": 1, "name": "a", "roles": [ROLE], "metadata": {"password": "hunter2-f"}}


def _stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_secrets_are_shown_and_kept_nowhere(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, transload_home: Path
) -> None:
    """Dry-runs, descriptions, lists, failure reports and records mask secrets, and nothing else."""
    for options in (["--dry-run"], ["--dry-run", "--json"], ["--app-id", "secretive"]):
        _stdin(monkeypatch, json.dumps(APP))
        result = invoke("run", "--stdin", *options)
        assert result.code == 0, result.err
        assert "hunter2" not in result.out + result.err, options
    for command in (
        ["describe", "secretive"],
        ["describe", "secretive", "--json"],
        ["list", "--arguments"],
    ):
        result = invoke(*command)
        assert result.code == 0 and "hunter2" not in result.out + result.err, command
    assert (
        "--password '******' '--url=postgresql://******@h/db' --result-key final"
        in invoke("describe", "secretive").out
    )
    files = [path for path in transload_home.rglob("*") if path.is_file()]
    assert any(path.name == "record.json" for path in files)
    assert not [path for path in files if b"hunter2" in path.read_bytes()]


def test_what_was_masked_is_not_run(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A description is no app with a password of six stars."""
    for part, changes in (("args", {"env": {}}), ("env", {"args": []})):
        app = {**APP, "roles": [{**ROLE, **changes}]}
        _stdin(monkeypatch, json.dumps(app))
        shown = invoke("run", "--stdin", "--dry-run", "--json").json["app"]
        _stdin(monkeypatch, json.dumps(shown))
        result = invoke("run", "--stdin")
        assert (
            result.code == 2
            and f"roles[0].{part}[" in result.err
            and "in place of a secret" in result.err
        )


def test_arguments_of_a_component(
    invoke: Any, monkeypatch: pytest.MonkeyPatch, plain_folder: str
) -> None:
    """A secret argument is masked also among the words of the command. A result's key is not."""
    Path("jobs.py").write_text(
        "from transload.specs import AppDef, Role\n\n"
        "def job(password: str, result_key: str, max_tokens: str, url: str) -> AppDef:\n"
        '    """Run."""\n'
        "    words = ['--password', password, '--key-of-result', result_key, '--max-tokens', "
        "max_tokens, url]\n"
        "    return AppDef('job', [Role('r', '', entrypoint='true', args=words)])\n"
    )
    given = [
        "--password",
        "hunter2",
        "--result_key",
        "final",
        "--max_tokens",
        "512",
        "--url",
        "s3://k:hunter2@b/x",
    ]
    result = invoke("run", "jobs.py:job", *given)
    assert result.code == 0, result.err
    listed = invoke("list", "--arguments").out
    assert "password=****** result_key=final max_tokens=512 url=s3://******@b/x" in listed
    shown = invoke("describe", listed.split("\t")[0]).out
    assert "hunter2" not in shown and "--key-of-result final --max-tokens 512" in shown
    with Runner() as runner:
        described = runner.describe(listed.split("\t")[0])
    assert described is not None and described.arguments["max_tokens"] == "512"


def test_get_replaces_nothing_unasked(started: Any, invoke: Any, tmp_path: Path) -> None:
    """A file that is there is kept, and no other one is copied, unless ``--force`` replaces it."""
    code = "import os; out = os.environ['TRANSLOAD_OUTPUT_DIR']; [open(f'{out}/{n}', 'w').write('new') for n in 'abc']"
    handle = started(code)
    invoke("wait", handle)
    (tmp_path / "b").write_text("mine")
    refused = invoke("get", handle, "-o", str(tmp_path))
    assert (refused.code, refused.out) == (2, "")
    assert f"{tmp_path}/b: there already; --force replaces files" in refused.err
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("b", "mine")]
    (tmp_path / "link").symlink_to("nowhere")
    assert invoke("get", handle, "a", "-o", str(tmp_path)).code == 0
    assert invoke("get", handle, "--force", "-o", str(tmp_path)).code == 0
    assert sorted(path.read_text() for path in tmp_path.iterdir() if path.is_file()) == ["new"] * 3
