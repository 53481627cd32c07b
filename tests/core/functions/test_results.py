"""What a function returns is unpickled only from where nobody else can write."""

from __future__ import annotations

import json
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import AppFailed, SpecError
from transload.runtime.tracking import TrackingError

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.usefixtures("plain_folder", "transload_home")
RESULT = "function.result"


class Hostile:
    """What makes a folder when it is unpickled."""

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


def fail(text: str) -> None:
    """Raise."""
    raise KeyError(text)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder for results that others may write to, in one that they can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="tl-shared-") as outer:
        os.chmod(outer, 0o755)
        folder = Path(outer, "shared")
        folder.mkdir()
        folder.chmod(0o777)
        yield folder
    assert not (tmp_path / "caller").exists(), "somebody else's code ran here"


def result_file(shared: Path, job: transload.Job) -> Path:
    """Return the file that the value comes back in."""
    return next(shared.glob(f".apps/{job.app_id}/{RESULT}"))


def put(shared: Path, job: transload.Job, hostile: Path, **head: Any) -> None:
    """Put what runs code in the place of a job's result."""
    line = json.dumps({"attempt": 0, **head}).encode()
    result_file(shared, job).write_bytes(line + b"\n" + pickle.dumps(Hostile(hostile)))


def test_nothing_is_unpickled_where_others_can_write(shared: Path, tmp_path: Path) -> None:
    """There only JSON is read, and of an exception its text. With ``trust`` all is."""
    jobs = [transload.submit(fn, 1, tracker_base=str(shared)) for fn in (plain, pair, fail)]
    for job in jobs:
        job.wait(timeout=60)
    assert jobs[0].result() == plain(1)
    with pytest.raises(SpecError, match=rf"not JSON: others can write to {shared}.* trust=True"):
        jobs[1].result()
    assert jobs[1].result(trust=True) == (1, 1)
    with pytest.raises(AppFailed, match="KeyError: 1"):
        jobs[2].result()
    with pytest.raises(KeyError):
        jobs[2].result(trust=True)
    put(shared, jobs[0], tmp_path / "caller", json=plain(2))
    put(shared, jobs[1], tmp_path / "caller")
    put(shared, jobs[2], tmp_path / "caller", raised="KeyError: 2")
    assert jobs[0].result() == plain(2)
    with pytest.raises(SpecError, match="not JSON"):
        jobs[1].result()
    with pytest.raises(AppFailed, match="KeyError: 2"):
        jobs[2].result()


@pytest.mark.parametrize(
    ("outer", "inner", "is_safe"),
    [
        (0o755, 0o755, True),
        (0o1777, 0o755, True),  # as /tmp: what lies there is its owner's
        (0o755, 0o1777, True),
        (0o700, 0o777, True),  # nobody else can get there
        (0o777, 0o755, False),  # somebody can put another folder there
        (0o775, 0o755, False),
        (0o755, 0o775, False),
    ],
)
def test_every_folder_on_the_way_counts(
    shared: Path, outer: int, inner: int, is_safe: bool
) -> None:
    """Whoever can write to a folder above the result can put another one there."""
    base = shared / "outer" / "inner"
    shared.chmod(0o755)
    base.mkdir(parents=True)
    base.parent.chmod(outer)
    base.chmod(inner)
    job = transload.submit(pair, 1, tracker_base=str(base))
    job.wait(timeout=60)
    if is_safe:
        assert job.result() == (1, 1)
        return
    with pytest.raises(SpecError, match="others can write to"):
        job.result()


def test_a_link_leads_to_the_folder_that_counts(shared: Path) -> None:
    """What is read is what was looked at: the folder itself, whoever may turn the link to it."""
    real = shared.parent / "real"
    real.mkdir(mode=0o755)
    (shared / "link").symlink_to(real)
    job = transload.submit(pair, 1, tracker_base=str(shared / "link"))
    assert job.result(timeout=60) == (1, 1)
    (shared / "link").unlink()
    (shared / "link").symlink_to(shared)
    with pytest.raises((SpecError, AppFailed)):
        job.result()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else(shared: Path) -> None:
    """A folder that belongs to another user is not ours alone."""
    shared.chmod(0o755)
    job = transload.submit(pair, 1, tracker_base=str(shared))
    job.wait(timeout=60)
    os.chown(shared, 12345, -1)
    with pytest.raises(SpecError, match="belongs to user 12345"):
        job.result()


def test_whoever_attaches_gets_the_value() -> None:
    """Another process of the user finds it by the handle, in the folder that is the user's."""
    job = transload.submit(pair, 3)
    assert transload.attach(job.handle).result(timeout=60) == (3, 3)


def test_only_the_last_attempt_speaks() -> None:
    """What the first attempt raised is not taken for the end of a killed second one."""

    def fail_twice() -> None:
        if os.environ["TRANSLOAD_RETRY"] == "0":
            raise KeyError("the first attempt")
        os._exit(7)

    job = transload.submit(fail_twice, retries=1, retry_delay=0)
    with pytest.raises(AppFailed, match="exit code 7"):
        job.result(timeout=60)

    def pass_then() -> int:
        if os.environ["TRANSLOAD_RETRY"] == "0":
            raise KeyError("the first attempt")
        return 5

    assert transload.submit(pass_then, retries=1, retry_delay=0).result(timeout=60) == 5


def test_what_is_no_function() -> None:
    """A job that reports results has no value, and the error says so."""
    job = transload.run(command=["true"])
    with pytest.raises(SpecError, match=r"is no function that transload\.submit has submitted"):
        job.result(timeout=60)


@pytest.mark.parametrize(
    ("value", "is_json"),
    [
        *[(each, True) for each in (None, -(10**3000), float("inf"), {"a": [1, {"b": None}]})],
        *[(each, False) for each in ((1,), {1: 2}, {1}, b"", 10**5000, [b""])],
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_what_counts_as_json(shared: Path, value: Any, is_json: bool) -> None:
    """What is the same after writing and reading, and nothing else."""
    job = transload.submit(lambda: value, tracker_base=str(shared))
    job.wait(timeout=60)
    assert job.result(trust=True) == value
    if is_json:
        assert job.result() == value
        return
    with pytest.raises(SpecError, match="not JSON"):
        job.result()


@pytest.mark.parametrize("kind", ["a FIFO", "a link that leads out of its folder"])
def test_result_that_is_no_file(shared: Path, kind: str) -> None:
    """A FIFO or a link in the place of the result hangs nobody, and leads nowhere."""
    job = transload.submit(plain, 1, tracker_base=str(shared))
    job.wait(timeout=60)
    file = result_file(shared, job)
    file.unlink()
    if kind == "a FIFO":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    for trust in (False, True):
        with pytest.raises(TrackingError, match=f"its result cannot be read: .*{kind}"):
            job.result(trust=trust)


@pytest.mark.parametrize("content", [b"", b"[]\n", b"\x80\n", b"{" * 100_000])
def test_result_that_no_function_wrote(shared: Path, content: bytes) -> None:
    """Damage is named, whoever is trusted."""
    job = transload.submit(plain, 1, tracker_base=str(shared))
    job.wait(timeout=60)
    result_file(shared, job).write_bytes(content)
    with pytest.raises(TrackingError, match="is not one that a job wrote"):
        job.result(trust=True)
