"""What one job has made is read by the next one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import SpecError
from transload.specs import AppDef, BindMount, JobMount, Role, parse_mounts

Invoke = Callable[..., Any]
MADE = 'echo 42 > "$TRANSLOAD_OUTPUT_DIR/model.pt"'


@pytest.fixture
def made(transload_home: Path) -> str:
    """The handle of a job that has made a file."""
    app = transload.run(command=["sh", "-c", MADE])
    app.check(timeout=60)
    return app.handle


def test_the_language_of_mounts() -> None:
    """A mount of a job is read in every form, comes back as JSON, and changes the digest."""
    short = parse_mounts(
        ["job=local://transload/a-1:outputs", "dst=/in", "type=bind", "src=/a", "dst=/b"]
    )
    assert short == [JobMount("local://transload/a-1", "/in"), BindMount("/a", "/b")]
    assert (
        parse_mounts(["type=job", "src=local://transload/a-1:outputs", "dst=/in", "readonly"])
        == short[:1]
    )
    app = AppDef("a", [Role("main", "", entrypoint="true", mounts=short)])
    assert AppDef.from_json(app.to_json()) == app
    assert (
        app.digest()
        != AppDef("a", [Role("main", "", entrypoint="true", mounts=short[1:])]).digest()
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("job=local://transload/a:logs,dst=/in", "must end with :outputs"),
        (
            "job=a:outputs,dst=/in",
            "job='a': must be a handle, such as local://transload/train-x1y2",
        ),
        ("job=local://transload/a:outputs,dst=in", "dst_path='in': must be an absolute path"),
        ("job=local://transload/a:outputs,dst=/", "dst_path='/': must be an absolute path"),
        ("job=local://transload/a:outputs", "dst is missing"),
        ("dst=/in", "job=HANDLE:outputs"),
    ],
)
def test_wrong_mounts(text: str, says: str) -> None:
    """What is no handle, no folder of a job or no place is refused, with what is allowed."""
    with pytest.raises(SpecError, match=says.replace("(", r"\(")):
        parse_mounts(text.split(","))


@pytest.mark.parametrize(
    "command",
    [
        ["cat", "/in/model.pt"],
        ["sh", "-c", "cd /in; cat model.pt; ls /input 2>&1 | grep -c nothing; true"],
    ],
)
def test_the_next_job_reads_it(made: str, command: list[str]) -> None:
    """Where nothing is mounted, arguments that are the whole path name the true folder."""
    app = transload.run(command=command, mounts=[f"job={made}:outputs,dst=/in"])
    app.check(timeout=60)
    assert next(iter(app.logs())).endswith("42\n")
    described = app.describe()
    assert described is not None and described.roles[0].args == command[1:]


def test_variables_name_it_too(made: str) -> None:
    """Variables name a job as arguments do, and those of transload itself stay as they are."""
    text = 'test -d "$TRANSLOAD_OUTPUT_DIR" && cat "$DATA/model.pt"'
    place = os.path.dirname(os.environ["TRANSLOAD_HOME"])
    app = transload.run(
        command=["sh", "-c", text], env={"DATA": place}, mounts=[f"job={made}:outputs,dst={place}"]
    )
    app.check(timeout=60)
    assert next(iter(app.logs())).endswith("42\n")


def test_components_take_it(made: str) -> None:
    """As an argument of a component, which is how orchestrators pass it on."""
    args = ["--mounts", f"job={made}:outputs,dst=/in", "cat", "/in/model.pt"]
    transload.run("utils.sh", args).check(timeout=60)


def test_refusals_say_what_to_do(invoke: Invoke, made: str, tmp_path: Path) -> None:
    """A wrong job, scheduler or place, or a job without files, is refused before a start."""

    def refused(mount: str, *more: str) -> str:
        result = invoke("run", *more, "--mount", mount, "--", "true")
        assert result.code == 2, result
        text: str = result.err
        return text

    mount = f"job={made}:outputs,dst=/in"
    assert "name /in in the arguments or variables" in refused(mount)
    assert "there is no job local://transload/nope" in refused(
        "job=local://transload/nope:outputs,dst=/in"
    )
    said = refused(mount, "-s", "scripted")
    assert "roles[0].mounts[0]" in said and "'scripted'" in said and f"transload get {made}" in said
    assert "is on scheduler 'scripted'" in refused("job=scripted://transload/a:outputs,dst=/in")
    outputs = next(Path(os.environ["TRANSLOAD_HOME"]).rglob("outputs"))
    (outputs / "model.pt").unlink()
    outputs.rmdir()
    outputs.symlink_to("/etc")
    assert "has made no files" in refused(mount)
