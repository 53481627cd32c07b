"""Jobs of this machine get their packages from uv, and end as their programs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import transload
from transload.cli import main
from transload.errors import ConfigError
from transload.runner import Job, Launch, Runner
from transload.specs import AppDef, AppState, AppStatus, Notice, Role
from transload_testing.packages import PackageIndex, package_index

PRINT = "import sys, tiny; print(tiny.VERSION)\n"
HEADER = f'# /// script\n# dependencies = ["tiny"]\n# ///\n{PRINT}'
WAITS = HEADER + (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('asked to end', flush=True), time.sleep(0.5)))\n"
    "signal.signal(signal.SIGUSR1, lambda *_: (print('noticed', flush=True), sys.exit(75)))\n"
    "print('pids', os.getpid(), os.getppid(), flush=True)\n"
    "while True: time.sleep(0.05)\n"
)
Eventually = Callable[..., Any]


def submit(runner: Runner, environment: str | None = None, **role: Any) -> Job:
    """Submit ``python train.py``."""
    fields: dict[str, Any] = {"entrypoint": "python", "args": ["train.py"], **role}
    launch = Launch(app=AppDef("train", [Role("main", "", **fields)]), environment=environment)
    return launch.plan(runner).submit()


def lines_of(job: Job, k: int = 0) -> list[str]:
    """Return the log of a replica, without what uv says of its installing."""
    lines = [line.rstrip() for line in job.logs("main", k, follow=False)]
    return [line for line in lines if not line.startswith("Installed ")]


def output_of(job: Job) -> list[str]:
    """Wait until a job has succeeded, and return its log."""
    status = job.wait(60)
    lines = lines_of(job)
    assert status.state is AppState.SUCCEEDED, (status, lines)
    return lines


def exit_code_of(status: AppStatus) -> int | None:
    """Return the exit code of the first replica."""
    return status.roles[0].replicas[0].exit_code


def files_of(cache: Path) -> set[Path]:
    """Return the files below a folder."""
    return {path for path in cache.rglob("*") if path.is_file()}


@pytest.fixture
def cache(index: PackageIndex) -> Path:
    """The folder of uv's cache."""
    return Path(index.variables()["UV_CACHE_DIR"])


@pytest.fixture
def running(
    index: PackageIndex, scripts: Path, eventually: Eventually
) -> Callable[..., tuple[Job, int, int]]:
    """``running(runner, **role)`` → a job that waits, the pid of its program, and that of uv."""
    (scripts / "train.py").write_text(WAITS)

    def start(runner: Runner, **role: Any) -> tuple[Job, int, int]:
        job = submit(runner, **role)

        def pids() -> list[str]:
            return next((line.split() for line in lines_of(job) if line.startswith("pids")), [])

        _, program, parent = eventually(pids, 60)
        return job, int(program), int(parent)

    return start


def test_many_jobs_of_one_file_share_what_uv_keeps(
    index: PackageIndex, scripts: Path, cache: Path
) -> None:
    """The script finds its package. Ten more jobs fetch nothing, and add no file to uv's cache."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        assert output_of(submit(runner)) == ["1.0"]
        wheels = [path for path in index.requests if path.endswith(".whl")]
        kept = files_of(cache)
        jobs = [submit(runner) for _ in range(10)]
        assert [output_of(job) for job in jobs] == [["1.0"]] * 10
    assert [path for path in index.requests if path.endswith(".whl")] == wheels
    assert files_of(cache) == kept


def test_replicas_that_start_at_once_make_one_environment(
    index: PackageIndex, scripts: Path
) -> None:
    """Ten replicas have their package, which one of them installs."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        job = submit(runner, num_replicas=10)
        assert job.wait(100).state is AppState.SUCCEEDED, list(job.logs())
        assert {line for k in range(10) for line in lines_of(job, k)} == {"1.0"}
        installed = [line for line in job.logs(follow=False) if "Installed " in line]
    assert len(installed) == 1


def test_the_plan_shows_what_runs(index: PackageIndex, scripts: Path) -> None:
    """It names uv, the file of requirements and the command. Nothing is asked or written."""
    (scripts / "train.py").write_text(HEADER)
    with Runner("t") as runner:
        plan = Launch(command=["python", "train.py"]).plan(runner)
    assert "environment: train.py sha256:" in str(plan)
    assert "uv run --no-project" in str(plan)
    assert "prctl" not in str(plan)
    assert index.requests == []


def test_files_that_are_included_are_one_file(index: PackageIndex, scripts: Path) -> None:
    """What a file includes is installed too, from an index that the file names."""
    index.add("extra")
    index.add("tiny", "2.0")
    (scripts / "sub").mkdir()
    (scripts / "requirements.txt").write_text(
        f"--extra-index-url {index.url}\n-r sub/base.txt  # more\nextra ; python_version > '3'\n"
    )
    (scripts / "sub" / "base.txt").write_text("tiny \\\n  <2\n")
    (scripts / "train.py").write_text(f"{PRINT}import extra\n")
    with Runner("t") as runner:
        assert output_of(submit(runner, "requirements.txt")) == ["1.0"]


def test_a_lock_of_uv(index: PackageIndex, scripts: Path) -> None:
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


def test_what_a_header_says_to_uv(index: PackageIndex, scripts: Path) -> None:
    """``[tool.uv]`` counts, as where uv itself runs the script."""
    index.add("tiny", "2.0")
    (scripts / "train.py").write_text(
        '# /// script\n# dependencies = ["tiny"]\n'
        f'# [tool.uv]\n# constraint-dependencies = ["tiny<2"]\n# ///\n{PRINT}'
    )
    with Runner("t") as runner:
        assert output_of(submit(runner)) == ["1.0"]


def test_packages_of_the_python_stay_visible(
    index: PackageIndex, scripts: Path, tmp_path: Path
) -> None:
    """A program finds what is installed beside the Python that is named, and its own packages."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "beside.py").write_text("")
    (scripts / "train.py").write_text(f"{HEADER}import beside\n")
    launch = Launch(command=["python3", "train.py"], cfg={"python": f"{venv}/bin/python"})
    with Runner("t") as runner:
        assert output_of(launch.plan(runner).submit()) == ["1.0"]


def test_a_python_that_is_not_there(index: PackageIndex, scripts: Path) -> None:
    """The job fails with what uv says of it in its log."""
    (scripts / "train.py").write_text(
        HEADER.replace("# dependencies", '# requires-python = ">=3.99"\n# dependencies')
    )
    with Runner("t") as runner:
        job = submit(runner)
        assert job.wait(60).state is AppState.FAILED
    assert any("3.99" in line for line in lines_of(job))


def test_packages_that_do_not_exist(index: PackageIndex, scripts: Path) -> None:
    """The job fails with what uv says of them in its log."""
    (scripts / "train.py").write_text(HEADER.replace('"tiny"', '"absent"'))
    with Runner("t") as runner:
        job = submit(runner)
        assert job.wait(60).state is AppState.FAILED
    assert any("absent" in line for line in lines_of(job))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["python", "-c", "import sys, tiny; sys.exit(7)"], 7),
        (["sh", "-c", "kill -SEGV $$"], -signal.SIGSEGV),
        (["sh", "-c", "kill -KILL $$"], -signal.SIGKILL),
        (["no-such-program"], 127),
        (["./train.py"], 126),
    ],
    ids=["code", "fault", "killed", "missing", "no program"],
)
def test_a_job_ends_as_its_program_does(
    index: PackageIndex, scripts: Path, command: list[str], code: int
) -> None:
    """Its exit code, or the signal that has ended it, is the replica's."""
    (scripts / "requirements.txt").write_text("tiny\n")
    (scripts / "train.py").write_text("")
    with Runner("t") as runner:
        job = submit(runner, "requirements.txt", entrypoint=command[0], args=command[1:])
        status = job.wait(60)
    assert (status.state, exit_code_of(status)) == (AppState.FAILED, code), lines_of(job)


def test_a_program_dies_with_its_uv(
    running: Callable[..., tuple[Job, int, int]], eventually: Eventually
) -> None:
    """Whoever kills uv leaves no program behind, and the job has failed by that signal."""
    with Runner("t") as runner:
        job, program, uv = running(runner)
        os.kill(uv, signal.SIGKILL)
        assert exit_code_of(job.wait(60)) == -signal.SIGKILL
    eventually(lambda: not is_alive(program), 30)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs, which may be nobody's child."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_cancelled_job(
    running: Callable[..., tuple[Job, int, int]], eventually: Eventually
) -> None:
    """It is CANCELLED, its program was asked to end once, and neither that nor uv is left."""
    with Runner("t") as runner:
        job, program, uv = running(runner)
        job.cancel()
        assert job.wait(60).state is AppState.CANCELLED
        assert lines_of(job).count("asked to end") == 1
    eventually(lambda: not is_alive(program) and not is_alive(uv), 30)


def test_a_notice_reaches_the_program(running: Callable[..., tuple[Job, int, int]]) -> None:
    """Its signal comes to the program, whose exit code 75 stays what it is."""
    with Runner("t") as runner:
        job, _, _ = running(runner, notice=Notice(30, "USR1"))
        job.cancel()
        status = job.wait(60)
        assert lines_of(job).count("noticed") == 1
    assert exit_code_of(status) == 75


def test_without_uv_nothing_is_submitted(
    index: PackageIndex,
    scripts: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says what to install, the exit code is that of a setting that is wrong."""
    (scripts / "train.py").write_text(HEADER)
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(scripts))
    with Runner("t") as runner:
        before = [row.app_id for row in runner.list("local")]
        with pytest.raises(ConfigError, match=r"transload\[environments\]"):
            Launch(command=["python", "train.py"]).plan(runner)
        assert main(["run", "train.py"]) == 2
        assert [row.app_id for row in runner.list("local")] == before
    (line,) = capsys.readouterr().err.splitlines()
    assert "transload[environments]" in line


def test_an_index_with_a_password(
    scripts: Path, tmp_path: Path, index: PackageIndex, transload_home: Path
) -> None:
    """Its password goes to uv by reference, in uv's own variable, and into no file of ours."""
    (scripts / "train.py").write_text("import private; print(private.VERSION)\n")
    (scripts / "requirements.txt").write_text("private\n")
    with package_index(tmp_path / "private", "me", "hunter2") as closed:
        closed.add("private")
        env = {"UV_INDEX": f"closed={closed.url}", "UV_INDEX_CLOSED_USERNAME": "me"}
        secrets = {"UV_INDEX_CLOSED_PASSWORD": "env:THE_WORD"}
        with Runner("t") as runner:
            right = runner.with_environ({**os.environ, "THE_WORD": "hunter2"})
            job = submit(right, "requirements.txt", env=env, secrets=secrets)
            assert output_of(job) == ["1.0"]
    texts = [each.read_bytes() for each in transload_home.rglob("*") if each.is_file()]
    assert not any(b"hunter2" in text for text in texts)


def test_a_function_of_a_script(index: PackageIndex, scripts: Path) -> None:
    """It runs with the packages of its script's header, which this process has not got."""
    (scripts / "calls.py").write_text(
        HEADER.replace(PRINT, "") + "import transload\n"
        "def version(suffix):\n"
        "    import tiny\n"
        "    return tiny.VERSION + suffix\n"
        "if __name__ == '__main__':\n"
        "    print(transload.submit(version, '!').result(60))\n"
    )
    done = subprocess.run(
        [sys.executable, "calls.py"], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1.0!\n"


def test_a_function_has_the_python_of_its_submitter(
    index: PackageIndex, scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of Python is asked of uv, whichever comes first on PATH."""
    (scripts / "requirements.txt").write_text("tiny\n")
    with Runner("t") as runner:
        job = transload.submit(
            sys_version, runner=runner, scheduler="local", environment="requirements.txt"
        )
        assert tuple(job.result(60)) == sys.version_info[:2]


def sys_version() -> list[int]:
    """Return the version of Python that runs this."""
    return list(sys.version_info[:2])
