"""What a job chooses to call things moves no cursor, sets no title and makes no line of its own on
a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transload.cli.output import CleanStream, clean, paint
from transload.runner import Runner

EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b[31mred\r\x9b2J\u202eback"
SHOWN = "\\x1b]0;pwned\\x07\\x1b[2J"
PROGRAM = [sys.executable, "-m", "transload"]
OURS = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[K")


@pytest.fixture
def evil_app(started: Any, invoke: Any) -> str:
    """A failed app whose error, results and metadata hold control characters."""
    code = f"""
    import json, os, sys
    evil = {EVIL!r}
    base, out = os.environ["TRANSLOAD_TRACKER_BASE"], os.environ["TRANSLOAD_OUTPUT_DIR"]
    os.makedirs(out, exist_ok=True)
    with open(base + "/evil.json", "w") as file:
        json.dump({{"schema": 1, "results": {{evil: evil}}}}, file)
    open(out + "/" + evil, "w").close()
    os.mkfifo(out + "/" + evil + "2")
    with open(os.environ["TRANSLOAD_ERROR_FILE"], "w") as file:
        json.dump({{"message": evil + chr(10) + "transload: SUCCEEDED"}}, file)
    print("\\x1b[32mgreen log\\x1b[0m", flush=True)
    sys.exit(3)
    """
    handle = started(code)
    assert invoke("wait", handle).code == 1
    return str(handle)


def _is_clean(text: str) -> bool:
    return not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", OURS.sub("", text))


def test_no_command_writes_control_characters(evil_app: str, invoke: Any, tmp_path: Path) -> None:
    """Errors and names of results and files are escaped everywhere, in text and in JSON."""
    commands = [
        ("status", evil_app),
        ("describe", evil_app),
        ("list", "--arguments"),
        ("results", evil_app),
        ("wait", evil_app),
        ("get", evil_app, "-o", str(tmp_path)),
        ("results", evil_app, "--value", EVIL),
        ("results", evil_app, "--value", "no" + EVIL),
        ("get", evil_app, EVIL + "?"),
        ("log", "local://transload/" + EVIL),
        ("cancel", EVIL),
        (EVIL,),
        ("run", EVIL),
    ]
    for command in commands:
        result = invoke(*command)
        assert _is_clean(result.out) and _is_clean(result.err), command
        assert "\x1b" not in result.out.replace("\x1b[32mgreen log\x1b[0m", "")
    assert SHOWN in invoke("status", evil_app).out and SHOWN in invoke("results", evil_app).out
    for command in commands[:6]:
        if command[0] != "get":
            raw = invoke(*command, "--json").out
            assert _is_clean(raw)
    assert invoke("results", evil_app, "--json").json["results"]["evil"] == {EVIL: EVIL}


def test_no_text_makes_a_line_of_its_own(evil_app: str, invoke: Any) -> None:
    """A text of several lines stays in its field, and no line can pass for one of the command's."""
    for command in (
        ("status", evil_app),
        ("describe", evil_app),
        ("results", evil_app),
        ("wait", evil_app),
    ):
        result = invoke(*command)
        for line in [*result.lines, *result.err.splitlines()]:
            assert not line.startswith("transload: SUCCEEDED"), line


def test_log_lines_pass_untouched(evil_app: str, invoke: Any) -> None:
    """What the job itself prints is shown as it is, colours and all."""
    assert invoke("log", "--no-prefix", evil_app).out == "\x1b[32mgreen log\x1b[0m\n"
    assert "    \x1b[32mgreen log\x1b[0m\n" in invoke("wait", evil_app).err


def test_metadata_arguments_and_variables(invoke: Any, plain_folder: str) -> None:
    """What a spec holds is shown escaped, in ``describe`` and a dry-run."""
    role = {
        "name": "r",
        "image": "",
        "entrypoint": "true",
        "args": [EVIL],
        "env": {"A": EVIL},
        "metadata": {"m": EVIL},
    }
    app = {"schema": 1, "name": "evil", "roles": [role], "metadata": {EVIL: EVIL}}
    for command in (
        ["run", "--stdin"],
        ["run", "--stdin", "--dry-run"],
        ["run", "--stdin", "--dry-run", "--json"],
    ):
        done = subprocess.run(
            [*PROGRAM, *command], input=json.dumps(app), capture_output=True, text=True, check=False
        )
        assert _is_clean(done.stdout) and _is_clean(done.stderr), command
    handle = invoke("list").out.split("\t")[0]
    result = invoke("describe", handle)
    assert _is_clean(result.out) and result.out.count(SHOWN) >= 3
    with Runner() as runner:
        runner.wait(handle)


def test_descriptions_of_components(invoke: Any, plain_folder: str) -> None:
    """A component's own words are cleaned in lists and help."""
    Path("evil.py").write_text(
        "from transload.specs import AppDef\n\n"
        f'def job(a: str = {EVIL!r}) -> AppDef:\n    """Do {EVIL}.\n\n    Args:\n        a: '
        f'{EVIL}\n    """\n'
        '    return AppDef("x")\n',
        encoding="utf-8",
    )
    for command in (
        ("components", "evil.py"),
        ("run", "evil.py:job", "--help"),
        ("run", "evil.py:job", "--" + EVIL),
    ):
        result = invoke(*command)
        assert _is_clean(result.out) and _is_clean(result.err), command


def test_on_a_terminal_only_our_colours_are_left(evil_app: str) -> None:
    """On a real terminal with colours, nothing but colours reaches it."""
    for command in ("status", "results", "wait"):
        main, side = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "400"}
        process = subprocess.Popen(
            [*PROGRAM, command, evil_app], stdin=side, stdout=side, stderr=side, env=env
        )
        os.close(side)
        text = b""
        try:
            while piece := os.read(main, 65536):
                text += piece
        except OSError:
            pass  # its end
        process.wait(timeout=30)
        os.close(main)
        shown = text.decode()
        assert "\x1b[" in shown and _is_clean(shown.replace("\r\n", "\n")), command
        assert "\x1b]0" not in shown and "\x1b[2J" not in shown


def test_clean_leaves_what_people_write() -> None:
    """Letters of all scripts, tabs, ends of lines and our own colours stay. All else is escaped."""
    text = "größe\tнорма\n日本\u3000語 😀\xa0x\n"
    assert clean(text) == text
    assert clean("a\rb\x00\x85\u2028\udc80") == "a\\rb\\x00\\x85\\u2028\\udc80"
    styled = "\x1b[31;1mred\x1b[0m"
    assert clean(styled, coloured=True) == styled and clean(styled) == "\\x1b[31;1mred\\x1b[0m"
    assert clean("\x1b[8mhidden\x1b[5m\x1b", coloured=True) == "\\x1b[8mhidden\\x1b[5m\\x1b"


def test_paint_makes_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each style that the command line uses passes."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    for styles in (("red",), ("bold",), ("dim",), ("red", "bold"), ("cyan",), ("magenta",)):
        painted = paint("x", *styles)
        assert "\x1b" in painted and clean(painted, coloured=True) == painted


def test_clean_stream_is_a_stream(capsys: pytest.CaptureFixture[str]) -> None:
    """Several lines, and what is not ours to change, go through."""
    stream = CleanStream(sys.stdout)
    stream.writelines(["a\x1b\n", "b\n"])
    stream.write_raw("\x1b[0m")
    stream.flush()
    assert capsys.readouterr().out == "a\\x1b\nb\n\x1b[0m"
