"""Environments of local jobs are made once, by one of many, and later removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.errors import ConfigError, SubmitError
from transload.runner import Job, Launch, Runner
from transload.schedulers import environments
from transload.schedulers.environments import program
from transload.specs import AppDef, Environment, Role
from transload_testing.packages import PackageIndex, package_index

PRINT = "import sys, tiny; print(tiny.VERSION, sys.prefix)\n"
HEADER = f'# /// script\n# dependencies = ["tiny"]\n# ///\n{PRINT}'


@pytest.fixture
def root(transload_home: Path) -> Path:
    """Where the environments of this test are made."""
    return transload_home / "local" / "environments"


def submit(runner: Runner, environment: str | None = None, **role: Any) -> Job:
    """Submit ``python train.py``."""
    made = Role("main", "", entrypoint="python", args=["train.py"], **role)
    launch = Launch(app=AppDef("train", [made]), environment=environment)
    return launch.plan(runner).submit()


def output_of(job: Job) -> list[str]:
    """Wait until a job has succeeded, and return its log."""
    status = job.wait(60)
    lines = [line.rstrip() for line in job.logs("main", 0)]
    assert status.state.name == "SUCCEEDED", lines
    return lines


def times_resolved(index: PackageIndex) -> int:
    """Return how often an installer asked which versions of ``tiny`` there are."""
    return index.requests.count("/simple/tiny/")


def leftovers(root: Path) -> list[str]:
    """Return what lies there beside finished environments and their locks."""
    links = [each for each in root.iterdir() if each.is_symlink()]
    kept = {each.name for each in links}
    kept |= {os.readlink(each) for each in links}
    kept |= {f"{each.name}.lock" for each in links}
    return sorted({each.name for each in root.iterdir()} - kept)


def test_made_once_and_used_by_the_next(index: PackageIndex, scripts: Path, root: Path) -> None:
    """The script finds its package. The next job fetches nothing, and runs in the same folder."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        first = output_of(submit(runner))
        fetched = list(index.requests)
        began = time.monotonic()
        plan = Launch(command=["python", "train.py"]).plan(runner)
        assert "environment: train.py sha256:" in str(plan)
        assert output_of(plan.submit()) == first
        assert time.monotonic() - began < 20
    assert index.requests == fetched
    version, prefix = first[0].split()
    assert version == "1.0"
    assert Path(prefix).parent.parent == root
    assert leftovers(root) == []


@pytest.mark.parametrize("count", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_many_at_once_make_one(count: int, index: PackageIndex, scripts: Path, root: Path) -> None:
    """Many submits of one process, and two of others, make one environment and run in it."""
    (scripts / "train.py").write_text(HEADER)
    code = (
        "from transload.runner import Launch, Runner\n"
        "with Runner('t') as runner:\n"
        "    job = Launch(command=['python', 'train.py']).plan(runner).submit()\n"
        "    assert job.wait(100).state.name == 'SUCCEEDED'\n"
    )
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    with Runner("t") as runner, ThreadPoolExecutor(count) as pool:
        jobs = list(pool.map(lambda _: submit(runner), range(count)))
        outputs = {output_of(job)[0] for job in jobs}
    assert [each.wait(100) for each in others] == [0, 0]
    assert len(outputs) == 1
    assert times_resolved(index) == 1
    assert len([each for each in root.iterdir() if each.is_symlink()]) == 1
    assert leftovers(root) == []


STALLS = {
    "before anything is written": ("os", "mkdir"),
    "before Python is chosen": ("Installer", "choose_python"),
    "before the packages": ("Installer", "_what"),
    "before its record": ("json", "dumps"),
    "before it counts": ("os", "rename"),
}
QUICK_STALLS = ("before the packages", "before it counts")
"""The stalls that quick tests look at, half made, and made but not yet in place."""
STALLING = """\
import importlib.util, json, sys, time
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = importlib.util.module_from_spec(spec)
sys.modules["program"] = program
spec.loader.exec_module(program)
owner, name = sys.argv[2:]
owner = getattr(program, owner)
before = getattr(owner, name)
def stall(*args, **more):
    if name == "dumps" and "installer" not in args[0]:
        return before(*args, **more)
    sys.stderr.write("stalled\\n")
    sys.stderr.flush()
    time.sleep(1000)
setattr(owner, name, stall)
sys.exit(program.main())
"""


def order_for(index: PackageIndex, root: Path) -> dict[str, Any]:
    """Return the order to make an environment with ``tiny``."""
    recipe = {
        "kind": "requirements.txt",
        "name": "r.txt",
        "sha256": "5" * 64,
        "files": {"r.txt": "tiny\n"},
        "requirements": "r.txt",
    }
    return environments.order_to_make(str(root), recipe, variables={"UV_DEFAULT_INDEX": index.url})


def make(order: dict[str, Any]) -> dict[str, Any]:
    """Run the program with an order, and return its last word."""
    done = subprocess.run(
        [sys.executable, "-I", program.__file__],
        input=json.dumps({**order, "watch": False}) + "\n",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(moment, marks=() if moment in QUICK_STALLS else pytest.mark.slow)
        for moment in STALLS
    ],
)
def test_a_killed_maker_leaves_nothing_that_is_trusted(
    moment: str, index: PackageIndex, tmp_path: Path
) -> None:
    """A maker killed at any moment leaves no environment that is found, and its lock free.

    The next one makes it anew and clears up.
    """
    root = tmp_path / "root"
    order = order_for(index, root)
    owner, name = STALLS[moment]
    maker = subprocess.Popen(
        [sys.executable, "-c", STALLING, program.__file__, owner, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert maker.stdin is not None and maker.stderr is not None
    maker.stdin.write(json.dumps(order).encode() + b"\n")
    maker.stdin.flush()
    assert maker.stderr.readline() == b"stalled\n"
    maker.kill()
    maker.wait()
    maker.stdin.close()
    maker.stderr.close()
    key = program.key_of(order["recipe"])
    assert program.find(str(root), key) is None
    assert program.listed(str(root)) == []
    made = make(order)
    assert made.get("made") is True, made
    assert leftovers(root) == []
    assert make(order)["made"] is False


def test_a_maker_ends_with_whoever_asked(
    index: PackageIndex, scripts: Path, root: Path, eventually: Callable[..., Any]
) -> None:
    """Killing the submit ends what it started, and leaves nothing that is trusted."""
    (scripts / "train.py").write_text(HEADER)
    index.answers.clear()
    code = (
        "from transload.runner import Launch, Runner\n"
        "Launch(command=['python', 'train.py']).plan(Runner('t')).submit()\n"
    )
    submitter = subprocess.Popen([sys.executable, "-c", code])
    eventually(lambda: index.requests, 60)
    assert makers_of(root)
    submitter.kill()
    submitter.wait()
    eventually(lambda: not makers_of(root), 30)
    index.answers.set()
    assert program.listed(str(root)) == []
    with Runner("t") as runner:
        output_of(submit(runner))
    assert leftovers(root) == []


def test_ctrl_c_while_it_is_made(
    index: PackageIndex, scripts: Path, root: Path, eventually: Callable[..., Any]
) -> None:
    """The command ends at once, with one line that says why, and nothing was submitted."""
    (scripts / "train.py").write_text(HEADER)
    index.answers.clear()
    command = subprocess.Popen(
        [sys.executable, "-m", "transload", "run", "train.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    eventually(lambda: index.requests, 60)
    os.killpg(command.pid, signal.SIGINT)
    output, said = command.communicate(timeout=60)
    assert command.returncode == 3, said
    assert output == ""
    assert said.splitlines()[-1].endswith("cannot be made: it was interrupted")
    assert makers_of(root) == []
    with Runner("t") as runner:
        assert runner.list("local") == []


def makers_of(root: Path) -> list[str]:
    """Return the processes whose command line or working directory is about a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            place = os.readlink(each / "cwd")
        except OSError:
            continue
        if str(root) in words or place.startswith(str(root)):
            found.append(words)
    return found


def test_an_orchestrator_sees_it_in_its_log(
    index: PackageIndex, scripts: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has what is made and how long it took, once. Nothing is said where it is there."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner, caplog.at_level("INFO", "transload"):
        output_of(submit(runner))
        output_of(submit(runner))
    said = [each.getMessage() for each in caplog.records if "environment" in each.getMessage()]
    assert len(said) == 1, said
    assert re.fullmatch(r"environment train\.py sha256:\w{16}: made in \d+\.\d s", said[0])


def test_the_path_of_a_role_stays_behind_the_environment(
    index: PackageIndex, scripts: Path, root: Path
) -> None:
    """Programs of a role's own PATH are found, but Python is the environment's."""
    (scripts / "bin").mkdir()
    (scripts / "bin" / "mine").write_text("#!/bin/sh\necho mine\n")
    (scripts / "bin" / "mine").chmod(0o755)
    (scripts / "train.py").write_text(
        HEADER + "import subprocess; subprocess.run(['mine'], check=True)\n"
    )
    path = f"{scripts / 'bin'}:/usr/bin:/bin"
    with Runner("t") as runner:
        assert "mine" in output_of(submit(runner, env={"PATH": path}))


def test_a_lock_of_uv(index: PackageIndex, scripts: Path, root: Path) -> None:
    """What is locked is installed, the group that is named too, and nothing newer."""
    index.add("extra")
    index.add("dev")
    (scripts / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\n'
        'dependencies = ["tiny"]\n[dependency-groups]\ntrain = ["extra"]\ndev = ["dev"]\n'
    )
    subprocess.run(["uv", "lock", "-q"], check=True, timeout=60)
    index.add("tiny", "2.0")
    (scripts / "train.py").write_text(
        "import importlib.util as u, tiny\n"
        "print(tiny.VERSION, *[bool(u.find_spec(n)) for n in ('extra', 'dev', 'mine')])\n"
    )
    with Runner("t") as runner:
        assert output_of(submit(runner, "uv.lock")) == ["1.0 False False False"]
        assert output_of(submit(runner, "uv.lock --group train")) == ["1.0 True False False"]
    assert len(program.listed(str(root))) == 2


@pytest.mark.slow
def test_hashes_are_checked(index: PackageIndex, scripts: Path, root: Path) -> None:
    """With the right hash it runs. With another, or where one has none, nothing is submitted."""
    digest = index.add("hashed")
    (scripts / "train.py").write_text("import hashed; print(hashed.VERSION)\n")
    wanted = scripts / "requirements.txt"
    wanted.write_text(f"hashed==1.0 --hash=sha256:{digest}\n")
    with Runner("t") as runner:
        assert output_of(submit(runner, "requirements.txt")) == ["1.0"]
        for text in (
            f"hashed==1.0 --hash=sha256:{'0' * 64}\n",
            f"hashed==1.0 --hash=sha256:{digest}\ntiny\n",
        ):
            wanted.write_text(text)
            with pytest.raises(SubmitError, match=r"(?is)requirements\.txt.*hash"):
                submit(runner, "requirements.txt")
        assert len(runner.list("local")) == 1


@pytest.mark.parametrize(
    ("wanted", "message", "transient"),
    [
        ("absent", r"absent was not found", False),
        ("onlywindows", r"onlywindows.*no wheels|no.*wheels.*onlywindows", False),
        ("tiny==3", r"no version of tiny==3", False),
    ],
)
def test_what_cannot_be_installed_is_a_submit_that_failed(
    wanted: str, message: str, transient: bool, index: PackageIndex, scripts: Path, root: Path
) -> None:
    """The installer's last lines are in the message, and nothing was submitted."""
    index.add("onlywindows", tag="cp311-cp311-win_amd64")
    (scripts / "train.py").write_text(HEADER.replace('"tiny"', f'"{wanted}"'))
    with Runner("t") as runner:
        with pytest.raises(
            SubmitError, match=f"(?is)train\\.py.*cannot be made.*{message}"
        ) as raised:
            submit(runner)
        assert raised.value.transient is transient
        assert raised.value.lines
        assert runner.list("local") == []
    assert list(root.iterdir()) == []


def test_several_that_wait_for_one_that_cannot_be_made(index: PackageIndex, tmp_path: Path) -> None:
    """Each tries it in its turn, though the lock that it waits for is removed. Then it is made."""
    root = tmp_path / "root"
    order = order_for(index, root)
    order["recipe"]["files"]["r.txt"] = "later\n"
    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(make, [order] * 3))
    assert all("later was not found" in " ".join(end["lines"]) for end in ends), ends
    assert list(root.iterdir()) == []
    index.add("later")
    with ThreadPoolExecutor(3) as pool:
        ends = list(pool.map(make, [order] * 3))
    assert sorted(end["made"] for end in ends) == [False, False, True]
    assert leftovers(root) == []


def test_an_index_that_is_away(
    scripts: Path, root: Path, index: PackageIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same submit may succeed later."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        with pytest.raises(SubmitError, match=r"(?s)cannot be made.*127\.0\.0\.1:9") as raised:
            submit(runner)
        assert raised.value.transient


@pytest.mark.slow
def test_another_python_than_wanted_is_refused_with_both(
    index: PackageIndex, scripts: Path, root: Path, tmp_path: Path
) -> None:
    """The message has the Python wanted and the interpreter named, and nothing is submitted."""
    here = "{}.{}.{}".format(*sys.version_info[:3])
    (scripts / "train.py").write_text(
        HEADER.replace("# dependencies", '# requires-python = ">=3.99"\n# dependencies')
    )
    with Runner("t") as runner:
        with pytest.raises(SubmitError, match=r"wants Python >=3\.99; here is .*3\.\d+\.\d+ \(/"):
            submit(runner)
        launch = Launch(command=["python", "train.py"], cfg={"python": sys.executable})
        with pytest.raises(
            SubmitError,
            match=rf"wants Python >=3\.99; here is {here} \(/.*; name another: -c python=",
        ):
            launch.plan(runner).submit()
        launch = Launch(command=["python", "train.py"], cfg={"python": "/no/python"})
        with pytest.raises(SubmitError, match=r"here is no /no/python"):
            launch.plan(runner).submit()
        assert runner.list("local") == []


def test_an_index_without_transload(index: PackageIndex, scripts: Path, root: Path) -> None:
    """Where a header names transload itself, the message says how to do without it."""
    (scripts / "train.py").write_text(HEADER.replace("tiny", "transload"))
    with Runner("t") as runner, pytest.raises(SubmitError, match="the index has no transload; .*"):
        submit(runner)


@pytest.mark.slow
def test_a_disk_without_room(index: PackageIndex, scripts: Path, transload_home: Path) -> None:
    """It is named, the submit may succeed later, and nothing half made is left."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", str(transload_home)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of one's own can be mounted here")
    try:
        index.add("large", code=f"DATA = {'x' * 300_000!r}\n")
        (scripts / "train.py").write_text(HEADER.replace('"tiny"', '"large"'))
        with Runner("t") as runner:
            with pytest.raises(SubmitError, match=r"(?is)cannot be made.*no space left") as raised:
                submit(runner)
            assert raised.value.transient
        root = transload_home / "local" / "environments"
        assert list(root.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(transload_home)], check=True)


def test_a_disk_that_is_read_only(
    index: PackageIndex, scripts: Path, root: Path, tmp_path: Path
) -> None:
    """Its folder is named, in one line."""
    root.parent.mkdir(mode=0o700)
    root.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,mode=700", "tmpfs", str(root)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("not run: no file system of one's own can be mounted here")
    try:
        (scripts / "train.py").write_text(HEADER)
        with (
            Runner("t") as runner,
            pytest.raises(SubmitError, match=r"cannot write .*environments.*: Read-only") as raised,
        ):
            submit(runner)
        assert "\n" not in str(raised.value)
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


@pytest.mark.slow
def test_an_index_with_a_password(
    scripts: Path, root: Path, tmp_path: Path, index: PackageIndex, transload_home: Path
) -> None:
    """An index's password goes by reference to the installer, and into no file or message."""
    (scripts / "train.py").write_text("import private; print(private.VERSION)\n")
    with package_index(tmp_path / "private", "me", "hunter2") as closed:
        closed.add("private")
        address = closed.url.replace("//", "//${WHO}:${WORD}@")
        (scripts / "requirements.txt").write_text(f"--extra-index-url {address}\nprivate\n")
        secrets = {"WORD": "env:THE_WORD"}
        more: dict[str, Any] = {"env": {"WHO": "me"}, "secrets": secrets}
        with Runner("t") as runner:
            wrong = runner.with_environ({**os.environ, "THE_WORD": "hunter3"})
            with pytest.raises(SubmitError, match=r"(?is)cannot be made") as raised:
                submit(wrong, "requirements.txt", **more)
            assert "hunter3" not in str(raised.value)
            right = runner.with_environ({**os.environ, "THE_WORD": "hunter2"})
            assert output_of(submit(right, "requirements.txt", **more)) == ["1.0"]
    texts = [each.read_bytes() for each in transload_home.rglob("*") if each.is_file()]
    assert not any(b"hunter2" in text for text in texts)


def test_what_a_job_uses_stays(
    index: PackageIndex, scripts: Path, root: Path, eventually: Callable[..., Any]
) -> None:
    """An environment stays while a job uses it, whatever its age.

    Later it goes, and is made anew.
    """
    (scripts / "train.py").write_text(
        HEADER + "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
    )
    with Runner("t") as runner:
        backend = runner.scheduler("local")
        job = submit(runner)
        found = backend.environments()
        assert [(each.name, each.in_use) for each in found] == [("train.py", True)]
        assert found[0].size and found[0].files
        assert list(backend.delete_environments()) == []
        (scripts / "go").touch()
        output_of(job)
        assert [each.in_use for each in backend.environments()] == [False]
        assert list(backend.delete_environments(3600)) == []
        assert [each.name for each in backend.delete_environments(dry_run=True)] == ["train.py"]
        assert [each.name for each in backend.delete_environments()] == ["train.py"]
        assert list(root.iterdir()) == []
        output_of(submit(runner))
        job.delete()


def test_a_job_that_cannot_be_read_may_use_any(
    index: PackageIndex, scripts: Path, root: Path, eventually: Callable[..., Any]
) -> None:
    """As long as it has not ended, no environment is removed."""
    (scripts / "train.py").write_text(
        HEADER + "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
    )
    with Runner("t") as runner, Runner("other") as other:
        job = submit(runner)
        record = root.parent / "apps" / job.app_id / "record.json"
        kept = record.read_bytes()
        record.write_bytes(b"{")
        assert list(other.scheduler("local").delete_environments()) == []
        record.write_bytes(kept)
        (scripts / "go").touch()
        output_of(job)
        assert len(other.scheduler("local").delete_environments()) == 1


def test_one_that_is_about_to_be_used_stays(
    index: PackageIndex, scripts: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and the job's record nobody can remove it."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner, Runner("other") as other:
        backend = runner.scheduler("local")
        submit_job = backend.submit
        seen = []

        def submit_later(*args: Any) -> bool:
            seen.append(list(other.scheduler("local").delete_environments()))
            return submit_job(*args)

        monkeypatch.setattr(backend, "submit", submit_later)
        output_of(submit(runner))
    assert seen == [[]]


@pytest.mark.slow
def test_one_whose_python_is_gone_is_made_anew(
    index: PackageIndex, scripts: Path, root: Path
) -> None:
    """An environment that lost its interpreter counts as none."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        before = output_of(submit(runner))
        shutil.rmtree(Path(before[0].split()[1]) / "bin")
        after = output_of(submit(runner))
    assert before != after
    assert leftovers(root) == []


def test_a_request_that_was_changed_is_refused(
    index: PackageIndex, scripts: Path, root: Path
) -> None:
    """A changed request would be made anew, so nothing is installed for it."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        plan = Launch(command=["python", "train.py"]).plan(runner)
        plan.request = plan.request._replace(name="other")
        with pytest.raises(ConfigError, match="environment"):
            plan.submit()
    assert not root.exists()


@pytest.mark.slow
def test_pip_where_there_is_no_uv(index: PackageIndex, tmp_path: Path) -> None:
    """Python's own venv and pip make it as well. What only uv can read is refused by name."""
    root = tmp_path / "root"
    order = order_for(index, root)
    made = make({**order, "uv": "", "variables": {"PIP_INDEX_URL": index.url}})
    assert made.get("made") is True, made
    python = Path(made["path"]) / "venv" / "bin" / "python"
    code = "import tiny; print(tiny.VERSION)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"
    recipe = {**order["recipe"], "sha256": "6" * 64, "needs_uv": "uv.lock"}
    failed = make({**order, "uv": "", "recipe": recipe})
    assert "uv.lock needs uv, which is not on PATH" in failed["error"]


@pytest.mark.slow
def test_a_lock_of_uv_is_read_by_pip_too(
    index: PackageIndex, scripts: Path, tmp_path: Path
) -> None:
    """Whoever submits turns uv's lock into requirements with hashes, with the same digest."""
    index.add("extra")
    (scripts / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\n'
        'dependencies = ["tiny"]\n[dependency-groups]\ntrain = ["extra"]\n'
    )
    subprocess.run(["uv", "lock", "-q"], check=True, timeout=60)
    wanted = Environment.from_str("uv.lock --group train")
    found = environments.read_environment(wanted, str(scripts), "environment")
    recipe = environments.as_requirements(environments.recipe_of(found))
    assert recipe.environment == found
    assert recipe.needs_uv == ""
    assert index.url in recipe.files["requirements.txt"]
    order = environments.order_to_make(str(tmp_path / "root"), recipe.to_dict(), uv="")
    made = make(order)
    assert made.get("made") is True, made
    python = Path(made["path"]) / "venv" / "bin" / "python"
    subprocess.run([python, "-c", "import tiny, extra"], check=True, timeout=60)


def test_a_function_of_a_script(index: PackageIndex, scripts: Path, root: Path) -> None:
    """It runs with the packages of its script's header, which this process has not got."""
    (scripts / "calls.py").write_text(
        HEADER.replace(PRINT, "") + "import transload\n"
        "def version(suffix):\n"
        "    import sys, tiny\n"
        "    return [tiny.VERSION + suffix, sys.prefix]\n"
        "if __name__ == '__main__':\n"
        "    print(*transload.submit(version, '!').result(60))\n"
    )
    done = subprocess.run(
        [sys.executable, "calls.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    version, prefix = done.stdout.split()
    assert version == "1.0!"
    assert Path(prefix).parent.parent == root


def test_a_function_wants_the_python_of_its_submitter(
    index: PackageIndex, scripts: Path, root: Path
) -> None:
    """Both versions are in the refusal, and nothing is submitted."""
    here = "{}.{}".format(*sys.version_info[:2])
    other = scripts / "python-old"
    other.write_text("#!/bin/sh\necho 3.7.1\n")
    other.chmod(0o755)
    (scripts / "requirements.txt").write_text("tiny\n")
    with (
        Runner("t") as runner,
        pytest.raises(
            SubmitError, match=rf"wants Python {here} \(the submitter's\); here is 3\.7\.1"
        ),
    ):
        transload.submit(
            os.getpid,
            runner=runner,
            scheduler="local",
            environment="requirements.txt",
            cfg={"python": str(other)},
        )
