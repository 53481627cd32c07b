"""What a function returns is unpickled only if its own job has signed it."""

from __future__ import annotations

import json
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import transload
from transload import cli
from transload.components.programs import call_main
from transload.errors import AppFailed, ConfigError, SpecError, SubmitError
from transload.runner import Runner
from transload.runner import function_keys as _function_keys
from transload.runner import functions as _functions
from transload.runtime.tracking import TrackingError
from transload.schedulers import Submission
from transload.schedulers.local import LocalScheduler

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")


class Hostile:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def pair(n: int) -> tuple[int, int]:
    """Return what is no JSON."""
    return n, n


def plain(n: int) -> dict[str, Any]:
    """Return what is JSON."""
    return {"n": [n, None, True, 1.5, "é"]}


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder for results that others may write to."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    for name in ("caller", "safe", "old"):
        assert not (tmp_path / name).exists(), "somebody else's code ran here"


def result_file(shared: Path, app: transload.Job) -> Path:
    """Return the file that the value comes back in."""
    return next(shared.glob(f".apps/{app.handle.rpartition('/')[2]}/{call_main.RESULT}"))


def forged(app: transload.Job, body: bytes, /, **head: Any) -> bytes:
    """Return a result file without the right signature."""
    said = {"app": app.handle.rpartition("/")[2], "attempt": 0, "value": True, **head}
    data = json.dumps(said).encode() + b"\n" + body
    return call_main.signature("00" * 32, data).encode() + b"\n" + data


def test_nothing_is_unpickled_that_another_wrote(shared: Path, tmp_path: Path) -> None:
    """A value that somebody else put into the folder of results is refused, and nothing runs."""
    app = transload.submit(pair, 1, tracker_base=str(shared))
    assert app.result(timeout=60) == (1, 1)
    file = result_file(shared, app)
    hostile = pickle.dumps(Hostile(tmp_path / "caller"))
    old = json.dumps({"value": True}).encode() + b"\n" + hostile
    for content in (
        old,
        forged(app, hostile),
        b"\n" + forged(app, hostile).partition(b"\n")[2],
        b"",
        hostile,
    ):
        file.write_bytes(content)
        for safe in (False, True):
            with pytest.raises(
                TrackingError, match=r"function\.result.* is not signed with the key of this job"
            ):
                app.result(safe=safe)


def test_a_result_is_not_replayed(shared: Path) -> None:
    """What was signed for another job does not pass for this one's, nor what an earlier attempt
    signed.
    """
    first, second = (transload.submit(pair, n, tracker_base=str(shared)) for n in (1, 2))
    assert (first.result(timeout=60), second.result(timeout=60)) == ((1, 1), (2, 2))
    result_file(shared, second).write_bytes(result_file(shared, first).read_bytes())
    with pytest.raises(TrackingError, match="not signed with the key of this job"):
        second.result()
    file = result_file(shared, first)
    key = _function_keys.find_key(first.handle)
    assert key is not None
    for head in ({"app": "other"}, {"attempt": 1}):
        said = forged(first, pickle.dumps(3), **head).partition(b"\n")[2]
        file.write_bytes(call_main.signature(key, said).encode() + b"\n" + said)
        with pytest.raises(
            TrackingError if "app" in head else AppFailed,
            match="not one that this job|is not there",
        ):
            first.result()


def test_only_the_last_attempt_speaks(shared: Path) -> None:
    """What the first attempt raised is not taken for the end of a killed second one."""

    def fail_twice() -> None:
        if os.environ["TRANSLOAD_RETRY"] == "0":
            raise KeyError("the first attempt")
        os._exit(7)

    app = transload.submit(fail_twice, retries=1, retry_delay=0, tracker_base=str(shared))
    with pytest.raises(AppFailed, match="exit code 7"):
        app.result(timeout=60)

    def pass_then() -> int:
        if os.environ["TRANSLOAD_RETRY"] == "0":
            raise KeyError("the first attempt")
        return 5

    assert transload.submit(pass_then, retries=1, retry_delay=0).result(timeout=60) == 5


def test_the_function_does_not_find_the_key(shared: Path) -> None:
    """It is neither in its environment nor in that of what it starts, nor below the results, nor in
    the record.
    """

    def look() -> tuple[list[str], str]:
        names = [name for name in os.environ if "KEY" in name]
        return names, subprocess.run(["env"], capture_output=True, text=True, check=True).stdout

    app = transload.submit(look, tracker_base=str(shared))
    names, child = app.result(timeout=60)
    assert names == [] and call_main.KEY not in child
    path = Path(_function_keys.key_path(app.handle))
    key = path.read_text()
    assert (
        stat.S_IMODE(path.stat().st_mode) == 0o600
        and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    )
    home = path.parent.parent
    for folder in (shared, home):
        for each in folder.rglob("*"):
            if each.is_file() and each != path:
                assert key.encode() not in each.read_bytes(), each
    assert key not in str(app.describe())


def test_without_the_key(shared: Path, tmp_path: Path) -> None:
    """Another user who attaches is refused with a remedy. Only JSON is read, on demand."""
    apps = [transload.submit(fn, 1, tracker_base=str(shared)) for fn in (plain, pair)]
    value = apps[0].result(timeout=60)
    assert value == plain(1) and apps[1].result(timeout=60) == (1, 1)
    for app in apps:
        assert transload.attach(app.handle).result() is not None  # who submitted it has the key
        os.unlink(_function_keys.key_path(app.handle))
        with pytest.raises(
            ConfigError, match=r"the key of this function's result is not here .*safe=True"
        ):
            transload.attach(app.handle).result()
    assert transload.attach(apps[0].handle).result(safe=True) == plain(1)
    with pytest.raises(SpecError, match="returned what is not JSON"):
        transload.attach(apps[1].handle).result(safe=True)
    result_file(shared, apps[1]).write_bytes(
        forged(apps[1], pickle.dumps(Hostile(tmp_path / "safe")))
    )
    with pytest.raises(SpecError, match="returned what is not JSON"):
        apps[1].result(safe=True)
    raised = {"raised": "KeyError: 1", "type": "KeyError"}
    result_file(shared, apps[1]).write_bytes(
        forged(apps[1], pickle.dumps(Hostile(tmp_path / "safe")), **raised)
    )
    with pytest.raises(AppFailed, match="KeyError: 1"):
        apps[1].result(safe=True)


def test_a_function_without_a_key(shared: Path) -> None:
    """With ``safe=True`` no secret is made, and only JSON and errors as text come back."""

    def fail() -> None:
        raise KeyError("what")

    app = transload.submit(plain, 2, safe=True, tracker_base=str(shared))
    assert app.result(timeout=60) == plain(2) == transload.attach(app.handle).result()
    assert not os.path.exists(_function_keys.key_path(app.handle))
    assert b"pickle" not in result_file(shared, app).read_bytes()
    described = app.describe()
    assert described is not None and described.roles[0].secrets == {}
    with pytest.raises(AppFailed, match="KeyError: 'what'"):
        transload.submit(fail, safe=True).result(timeout=60)
    with pytest.raises(SpecError, match="returned a tuple, which is not JSON"):
        transload.submit(pair, 1, safe=True).result(timeout=60)


def test_a_key_goes_with_its_job() -> None:
    """No key is left of a job that was deleted by hand, by rule, or by the scheduler."""
    apps = [transload.submit(plain, n) for n in range(3)]
    for app in apps:
        app.wait(timeout=60)
    paths = [Path(_function_keys.key_path(app.handle)) for app in apps]
    assert all(path.exists() for path in paths)
    apps[0].delete()
    assert [path.exists() for path in paths] == [False, True, True]
    runner = _functions.default_runner()
    runner.scheduler("local").delete(apps[1].handle.rpartition("/")[2])  # not through us
    os.utime(paths[1], (0, 0))
    assert cli.main(["delete", "--older-than", "0s", "--scheduler", "local"]) == 0
    assert [path.exists() for path in paths] == [False, False, False]


def test_a_key_is_not_kept_where_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state folder that others may write to, or none, is refused before the submit."""
    home = tmp_path / "open"
    home.mkdir()
    home.chmod(0o777)
    monkeypatch.setenv("TRANSLOAD_HOME", str(home))
    with pytest.raises(ConfigError, match="others may write there"):
        _function_keys.keep_key("local://transload/x", "00" * 32)
    home.chmod(0o755)
    (home / _function_keys.FOLDER).rmdir()
    (home / _function_keys.FOLDER).write_text("")
    with pytest.raises(ConfigError, match=r"cannot be kept: .*safe=True"):
        _function_keys.keep_key("local://transload/x", "00" * 32)


@pytest.mark.parametrize("secrets", [True, False])
def test_a_scheduler_that_keeps_no_secrets(
    monkeypatch: pytest.MonkeyPatch, transload_home: Path, secrets: bool
) -> None:
    """A refusal of the secret says what to do without one. Another refusal does not.

    The key is forgotten.
    """

    class Refusing(LocalScheduler):
        def submit(self, request: Any, app_id: str, submission: Submission) -> bool:
            raise SubmitError("no secret is kept here", secrets=secrets)

    factories = {"local": lambda session: Refusing(session)}
    with (
        Runner("refusing", factories) as runner,
        pytest.raises(SubmitError) as caught,
    ):
        transload.submit(plain, 1, runner=runner)
    notes = getattr(caught.value, "__notes__", [])
    assert any("safe=True" in note for note in notes) == secrets
    assert list((transload_home / _function_keys.FOLDER).iterdir()) == []


def test_what_is_no_function() -> None:
    """A job that reports results has no value, and the error says so."""
    app = transload.run(command=["true"])
    with pytest.raises(SpecError, match=r"is no function that transload\.submit has submitted"):
        app.result(timeout=60)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[
            (each, True)
            for each in (
                None,
                1,
                -(10**3000),
                1.5,
                float("inf"),
                "é",
                [],
                {"a": [1, {"b": None}]},
                True,
            )
        ],
        *[
            (each, False)
            for each in ((1,), {1: 2}, {1}, b"", 10**4000, "\ud800", {"\ud800": 1}, [b""], object())
        ],
    ],
    ids=lambda value: str(value)[:20].encode("unicode_escape").decode(),
)
def test_what_counts_as_json(value: Any, expected: bool) -> None:
    """What is the same after writing and reading, and nothing else."""
    assert call_main.is_json(value, set()) is expected
    if expected:
        assert json.loads(json.dumps(value)) == value


def test_json_that_would_change() -> None:
    """A list that is there twice or in itself, a subclass or deep nesting is no JSON."""
    twice: list[Any] = [1]
    own: list[Any] = []
    own.append(own)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for value in ([twice, twice], own, deep, [type("Number", (int,), {})(3)]):
        assert not call_main.is_json(value, set())
    assert sys.getrecursionlimit() > call_main.MOST_DEPTH


@pytest.mark.parametrize("kind", ["a FIFO", "a link that leads out of its folder"])
def test_result_that_is_no_file(shared: Path, kind: str) -> None:
    """A FIFO or a link in the place of the result hangs nobody, and leads nowhere."""
    app = transload.submit(plain, 1, tracker_base=str(shared))
    assert app.wait(timeout=60) is not None
    file = result_file(shared, app)
    file.unlink()
    if kind == "a FIFO":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    for options in ({}, {"safe": True}):
        with pytest.raises(TrackingError, match=f"its result cannot be read: .*{kind}"):
            app.result(timeout=60, **options)
