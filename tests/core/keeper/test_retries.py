"""The rules of attempts follow one table of stories, and hold whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transload.keeper import rules
from transload.keeper.failures import error_line, exit_text, read_error
from transload.keeper.rules import Gang, Replica, retry_delay
from transload.keeper.tracebacks import traceback_error
from transload.runner.failures import error_frames

pytestmark = pytest.mark.unit

FOLDER = str(Path(rules.__file__).parent)


def role(
    replicas: int = 2,
    policy: str = "APPLICATION",
    retries: int = 0,
    least: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a role."""
    named = {"name": "r", "num_replicas": replicas, "min_replicas": least, "max_retries": retries}
    return {**named, "retry_policy": policy, "retry_delay": 1.0, **more}


class Stage:
    """An engine that does what the rules say, at once, on a clock that the test moves."""

    def __init__(self, *roles: dict[str, Any], timeout: float | None = None, **more: Any) -> None:
        self.app = Gang(
            [{**each, "name": f"r{i}"} for i, each in enumerate(roles)], timeout, **more
        )
        self.now = 0.0
        self.starts = 0
        self.app.begin(self.now)
        self.start(self.app.replicas)

    def start(self, replicas: list[Replica]) -> None:
        """Start replicas."""
        for replica in replicas:
            self.app.started(replica, self.now, "host")
            self.starts += 1

    def end(self, index: int, code: int | None, **more: Any) -> None:
        """End a replica."""
        self.app.ended(self.app.replicas[index], code, self.now, **more)

    def obey(self) -> None:
        """Do all that is to be done now, and kill what is to end."""
        self.app.decide(self.now)
        for replica in self.app.replicas:
            if replica.attempt.alive and replica.attempt.stopping:
                self.app.ended(replica, -15, self.now)
        self.app.decide(self.now)
        for restart in [each for each in self.app.restarts if each.is_ready(self.now)]:
            self.start(self.app.renew(restart))
        self.app.refresh()
        if self.app.final is not None and self.app.is_idle:
            self.app.finish(9.0)

    def play(self, story: str) -> None:
        """Play a story of exits, time and cancels.

        ``0=3`` is replica 0's exit with 3, ``0=-9`` by a signal, ``0=?`` a loss. ``+5`` is five
        seconds. There are ``cancel`` and ``interrupt``, too.
        """
        for word in story.split():
            if word.startswith("+"):
                self.now += float(word[1:])
            elif word == "cancel":
                self.app.end("CANCELLED", "")
            elif word == "interrupt":
                self.app.interrupt()
            else:
                index, _, code = word.partition("=")
                self.end(int(index), None if code == "?" else int(code))
            self.obey()

    def seen(self) -> str:
        """Return the app's state, restarts, and each replica's state (first letter) and attempt."""
        status = self.app.as_json()
        replicas = [replica for each in status["roles"] for replica in each["replicas"]]
        shown = " ".join(f"{replica['state'][0]}{replica['restarts']}" for replica in replicas)
        return f"{status['state']} {status['num_restarts']}: {shown}"


REPLICA, ROLE = role(policy="REPLICA", retries=1), role(policy="ROLE", retries=1)
APPLICATION = role(retries=1)

STORIES = [
    # (roles, story, what is seen then)
    ([role()], "", "RUNNING 0: R0 R0"),
    ([role()], "0=0", "RUNNING 0: S0 R0"),
    ([role()], "0=0 1=0", "SUCCEEDED 0: S0 S0"),
    # a gang ends together
    ([role()], "1=3", "FAILED 0: C0 F0"),
    ([role(), role()], "3=1", "FAILED 0: C0 C0 C0 F0"),
    ([role()], "0=0 1=3", "FAILED 0: S0 F0"),
    # min_replicas
    ([role(3, least=2)], "0=1", "RUNNING 0: F0 R0 R0"),
    ([role(3, least=2)], "0=1 1=0 2=0", "SUCCEEDED 0: F0 S0 S0"),
    ([role(3, least=2)], "0=1 1=0 2=1", "FAILED 0: F0 S0 F0"),
    ([role(2, least=0)], "0=1 1=1", "SUCCEEDED 0: F0 F0"),
    ([role(2, least=1), role()], "0=1 2=1", "FAILED 0: F0 C0 F0 C0"),
    # REPLICA: each replica has all the retries
    ([REPLICA], "0=1", "RUNNING 1: P0 R0"),
    ([REPLICA], "0=1 +1", "RUNNING 1: R1 R0"),
    ([REPLICA], "0=1 1=? +1", "RUNNING 2: R1 R1"),
    ([REPLICA], "0=1 1=1", "PENDING 2: P0 P0"),
    ([REPLICA], "0=1 +1 0=1", "FAILED 1: F1 C0"),
    ([REPLICA], "0=1 +1 0=0 1=0", "SUCCEEDED 1: S1 S0"),
    # a replica that waits to be started again may still end well
    ([role(3, "REPLICA", 1, least=2), role(1)], "0=1 +1 0=1 1=1", "RUNNING 2: F1 P0 R0 R0"),
    # ROLE and APPLICATION: all of them, once for all
    ([ROLE, role()], "0=1", "RUNNING 1: P0 P0 R0 R0"),
    ([ROLE, role()], "0=1 +1", "RUNNING 1: R1 R1 R0 R0"),
    ([ROLE, role()], "0=1 +1 1=1", "FAILED 1: C1 F1 C0 C0"),
    ([ROLE, ROLE], "0=1 3=1 +1", "RUNNING 2: R1 R1 R1 R1"),
    ([APPLICATION, role()], "0=0 1=1", "PENDING 1: P0 P0 P0 P0"),
    ([APPLICATION, role()], "0=0 1=1 +1", "RUNNING 1: R1 R1 R1 R1"),
    ([APPLICATION, role()], "0=1 +1 0=1", "FAILED 1: F1 C1 C1 C1"),
    ([APPLICATION, role()], "2=1", "FAILED 0: C0 C0 F0 C0"),
    # a wider restart takes over a narrower one that waits
    ([REPLICA, APPLICATION], "0=1 2=1 +1", "RUNNING 2: R1 R1 R1 R1"),
    # cancel, also while something waits to be started again
    ([role()], "cancel", "CANCELLED 0: C0 C0"),
    ([REPLICA], "0=1 cancel +9", "CANCELLED 1: F0 C0"),
    ([APPLICATION], "0=1 cancel +9", "CANCELLED 1: F0 C0"),
    # the first end stands
    ([role()], "0=3 cancel", "FAILED 0: F0 C0"),
    ([role()], "cancel 0=3", "CANCELLED 0: C0 C0"),
    ([role()], "0=0 1=0 cancel", "SUCCEEDED 0: S0 S0"),
    # the engine ends it: no verdict
    ([APPLICATION], "interrupt 0=0 1=1 cancel", "RUNNING 0: C0 C0"),
]


@pytest.mark.parametrize(("roles", "story", "seen"), STORIES)
def test_stories(roles: list[dict[str, Any]], story: str, seen: str) -> None:
    """What follows from what."""
    stage = Stage(*roles)
    stage.play(story)
    stage.obey()
    if "interrupt" in story:
        assert stage.app.final is None and stage.app.is_idle
        return
    assert stage.seen() == seen


@pytest.mark.parametrize(
    ("roles", "story", "msg"),
    [
        ([role()], "1=3", "role 'r0', replica 1 failed (exit code 3)"),
        (
            [role()],
            "1=-9",
            (
                "role 'r0', replica 1 failed (killed by SIGKILL: transload did not send it; "
                "perhaps the system was out of memory)"
            ),
        ),
        ([REPLICA], "0=1", "role 'r0', replica 0 failed (exit code 1); started again"),
        (
            [role(3, least=2)],
            "2=7 0=1",
            (
                "role 'r0', replica 0 failed (exit code 1); before that role 'r0', replica 2 failed "
                "(exit code 7)"
            ),
        ),
        ([role()], "cancel", ""),
        ([role()], "0=0 1=0", ""),
    ],
)
def test_messages(roles: list[dict[str, Any]], story: str, msg: str) -> None:
    """The message says who failed first, and with what."""
    stage = Stage(*roles)
    stage.play(story)
    assert stage.app.msg == msg


def test_first_of_a_batch_is_the_cause() -> None:
    """The first of several failures is the cause, and the others keep their own codes."""
    stage = Stage(role(3))
    stage.end(2, 5)
    stage.end(0, 1)
    stage.obey()
    assert stage.app.msg == "role 'r0', replica 2 failed (exit code 5)"
    assert stage.seen() == "FAILED 0: F0 C0 F0"


def test_reason_in_the_place_of_a_code() -> None:
    """A known reason takes the place of an exit code, and without retry there is none."""
    stage = Stage(role(retries=3))
    stage.end(0, 0, why="lost: its container was removed", retry=False)
    stage.obey()
    assert stage.app.msg == "role 'r0', replica 0 failed (lost: its container was removed)"
    assert stage.seen() == "FAILED 0: F0 C0"


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (
            b'{"message": {"message": "ValueError: no\\nmore", "extraInfo": {"timestamp": "1"}}}',
            "ValueError: no",
        ),
        (b'{"message": "it broke"}', "it broke"),
        (b"plain words\nand more", "plain words"),
        (b"[1, 2]", "[1, 2]"),
        (b'{"code": 3}', ""),
        (b'{"message": {"text": 1}}', ""),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b" \n", ""),
        (b"null", ""),
        (b'{"message": "no caf\\udce9.csv, \\ud83d\\ude00"}', "no caf?.csv, \U0001f600"),
        (b"x" * 1000, "x" * 300),
    ],
)
def test_error_files(written: bytes, line: str) -> None:
    """Whatever a replica writes is JSON in the status, and one line in the message."""
    error = read_error(written)
    assert error_line(error) == line
    assert not error or isinstance(json.loads(error), dict)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_error_file_is_read(written: bytes) -> None:
    """No content of an error file makes trouble, nor does any output."""
    assert "\n" not in error_line(read_error(written))
    assert error_frames(written.decode("latin-1")) == [] == error_frames(read_error(written))
    error = traceback_error(b"Traceback (most recent call last):\n" + written)
    assert not error or isinstance(json.loads(error), dict)


def test_the_exception_of_a_program() -> None:
    """The traceback that ends a program's output says what it was and where, last of a chain."""
    source = (
        "def f(n):\n  if n: f(n - 1)\n  try: {}['k']\n"
        "  except KeyError: raise ValueError('no\\n such thing')\nf(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    error = traceback_error(b"noise\n" + done.stderr + b"\n")
    assert error_line(error) == "ValueError: no"
    frames = error_frames(error)
    places = [frame for frame in frames if "File" in frame]  # 3.13 shows the lines of -c, too
    assert len(places) == 3 and ", in f" in places[-1]
    ranks = "\n".join(
        f"[{k}]:[rank{k}]: {line}" for line in done.stderr.decode().splitlines() for k in (1, 0)
    )
    torchrun = (
        "\nTraceback (most recent call last):\n  File t\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n"
    )
    assert error_frames(traceback_error((ranks + torchrun).encode())) == frames
    assert (
        error_frames(traceback_error(done.stderr + torchrun.encode())) == frames
    )  # without --tee nobody is named
    assert "ChildFailedError" in error_line(traceback_error(torchrun.encode()))
    assert traceback_error(b"") == traceback_error(b"all\nis well\n") == ""
    assert traceback_error(b"Traceback (most recent call last):\n  File\n+++ not one: +++\n") == ""


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("sys.exit(1)", "ValueError: handled"),
        ("print('it goes on'); sys.exit(1)", "ValueError: handled"),  # on stdout
        ("print('it goes on', file=sys.stderr); sys.exit(1)", ""),
        ("logging.warning('once more'); sys.exit(1)", ""),
        ("sys.exit('the disk is full')", ""),
        ("logging.warning('once more'); [][1]", "IndexError: list index out of range"),
        ("warnings.warn('old'); sys.exit(1)", "ValueError: handled"),
        ("keep = Bad(); [][1]", "IndexError: list index out of range"),
        ("raise RuntimeError('sizes:\\n\\t3 and 4\\n\\t5 and 6')", "RuntimeError: sizes:"),
    ],
)
def test_only_the_exception_that_ends_the_output(rest: str, said: str) -> None:
    """A traceback that the program went on after is not its reason, whatever Python adds later."""
    source = (
        "import logging, sys, traceback, warnings\nclass Bad:\n  def __del__(self): raise "
        "KeyError(1)\n"
        f"try: raise ValueError('handled')\nexcept ValueError: traceback.print_exc()\n{rest}\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, check=False)
    assert done.returncode == 1
    assert error_line(traceback_error(done.stderr)) == said


def test_the_first_failure_explains_the_app() -> None:
    """What the first failed replica said is the job's, and a retry forgets it."""
    stage = Stage(role(3, least=2))
    stage.end(2, 1, error=read_error(b"RuntimeError: one"))
    stage.obey()
    stage.end(0, 1, error=read_error(b"RuntimeError: two"))
    stage.obey()
    status = stage.app.as_json()
    assert status["msg"].startswith(
        "role 'r0', replica 0 failed (exit code 1): RuntimeError: two; before that role 'r0'"
    )
    assert status["structured_error_msg"] == '{"message": "RuntimeError: one"}'
    assert [each.get("structured_error_msg") for each in status["roles"][0]["replicas"]] == [
        '{"message": "RuntimeError: two"}',
        None,
        '{"message": "RuntimeError: one"}',
    ]
    again = Stage(role(retries=1))
    again.end(0, 1, error=read_error(b"once"))
    again.play("+0 +1")
    assert "structured_error_msg" not in json.dumps(again.app.as_json())


def test_time_limit() -> None:
    """What is open when the time is over has failed, also a retry that waits.

    Ended ones have not.
    """
    stage = Stage(role(retries=9), timeout=10.0)
    assert stage.app.due() == 10.0
    stage.play("+9 0=1")
    assert stage.app.due() == 10.0 and stage.app.restarts[0].due == 10.0
    stage.play("+1")
    assert (stage.app.state, stage.app.msg) == ("FAILED", "timed out after 10 s")
    ended = Stage(role(), timeout=10.0)
    ended.now = 11.0
    ended.play("0=0")
    assert ended.app.state == "FAILED"
    both = Stage(role(), timeout=10.0)
    both.now = 11.0
    both.end(0, 0)
    both.end(1, 0)
    both.obey()
    assert both.app.state == "SUCCEEDED"


def test_nothing_is_decided_before_it_began() -> None:
    """An app that waits for its resources has not ended, though nothing runs."""
    app = Gang([role()], timeout=1.0)
    app.decide(100.0)
    assert app.final is None and app.due() is None


def test_delays() -> None:
    """1 s, doubled up to five minutes."""
    assert [retry_delay(n) for n in (0, 1, 2, 8, 9, 10_000)] == [1, 2, 4, 256, 300, 300]
    assert retry_delay(3, 0.0) == 0 and retry_delay(0, 600.0) == 600


def test_delay_grows_and_health_ends_the_row() -> None:
    """Failures in a row wait longer and longer, and ten healthy minutes begin anew."""
    stage = Stage(role(1, "REPLICA", 1000))
    waits = []
    for ran in (0, 5, 0, 599, 600, 0):
        stage.play(f"+{ran} 0=1")
        (restart,) = stage.app.restarts
        waits.append(restart.due - stage.now)
        assert stage.app.due() == restart.due and not restart.is_ready(restart.due - 0.1)
        stage.play(f"+{restart.due - stage.now}")
        assert not stage.app.restarts
    assert waits == [1, 2, 4, 8, 1, 2]


def test_whoever_fails_in_turn_is_one_row() -> None:
    """Replicas started together share their row, so that failing in turn makes no tight loop."""
    stage = Stage(role(2, "ROLE", 1000))
    waits = []
    for n in range(4):
        stage.play(f"{n % 2}=1")
        waits.append(stage.app.restarts[0].due - stage.now)
        stage.play(f"+{waits[-1]}")
    assert waits == [1, 2, 4, 8]


def test_earlier_attempts_are_kept() -> None:
    """How the attempts before ended can be seen, the last eight of them."""
    stage = Stage(role(2, "ROLE", 20, retry_delay=0))
    stage.play("0=3")
    replicas = stage.app.as_json()["roles"][0]["replicas"]
    assert [(each["state"], each["exit_code"]) for each in replicas[0]["earlier"]] == [
        ("FAILED", 3)
    ]
    assert [(each["state"], each["exit_code"]) for each in replicas[1]["earlier"]] == [
        ("CANCELLED", -15)
    ]
    stage.play("0=3 " * 12)
    assert len(stage.app.as_json()["roles"][0]["replicas"][0]["earlier"]) == 8


def test_counting_goes_on_after_the_engine_started_it_again() -> None:
    """What was counted counts still, and so does that start, and time runs on."""
    stage = Stage(role(policy="REPLICA", retries=2))
    stage.play("0=1 +1 interrupt")
    before = {**stage.app.as_json(), "counts": stage.app.counts()}
    later = Stage(role(policy="REPLICA", retries=2), before=before)
    assert later.app.as_json()["num_restarts"] == 2
    assert [replica.restarts for replica in later.app.replicas] == [2, 1]
    assert [len(replica.earlier) for replica in later.app.replicas] == [2, 1]
    assert later.app.why_not_again() == "" and later.app.began == 0.0
    later.play("0=1 +9 0=1")
    assert later.app.state == "FAILED"
    assert Stage(role(), before=before).app.why_not_again() == "its retries are used up"
    spent = Stage(role(retries=1), before=before)
    spent.play("0=1")
    assert spent.app.state == "FAILED"


def test_what_every_attempt_used_counts() -> None:
    """The highest peak and the CPU time of all attempts count, with those before a requeue.

    What nobody reports is not zero.
    """
    stage = Stage(role(1, policy="REPLICA", retries=2))
    (replica,) = stage.app.replicas
    assert "usage" not in replica.as_json("r")
    for used in (
        {"peak_memory": 300, "cpu_seconds": 1.25},
        None,
        {"peak_memory": 200, "cpu_seconds": 0.5},
    ):
        replica.attempt.usage = used
        total = replica.as_json("r")["usage"]
        replica.begin_again()
        assert replica.as_json("r")["usage"] == total
    assert total == {"peak_memory": 300, "cpu_seconds": 1.75}
    later = Stage(
        role(1, policy="REPLICA", retries=2),
        before={**stage.app.as_json(), "counts": stage.app.counts()},
    )
    later.app.replicas[0].attempt.usage = {"cpu_seconds": 1.0}
    assert later.app.replicas[0].as_json("r")["usage"] == {"peak_memory": 300, "cpu_seconds": 2.75}


def test_wider_restart() -> None:
    """Whoever shares the fate of replicas that are started again is taken along, and counted
    once.
    """
    stage = Stage(role(3, "REPLICA", 1))
    stage.end(0, None)
    stage.app.decide(0.0)
    stage.app.restart(stage.app.replicas[:2], 0.0)
    (restart,) = stage.app.restarts
    assert [replica.k for replica in restart.replicas] == [0, 1] and restart.due == 1.0
    stage.play("+1")
    assert stage.seen() == "RUNNING 1: R1 R1 R0"


def test_exit_texts() -> None:
    """Ends are told in words."""
    assert exit_text(3) == "exit code 3"
    assert exit_text(-9) == "killed by SIGKILL"
    assert exit_text(-64) in ("killed by SIGRTMAX", "killed by signal 64")
    assert exit_text(-99) == "killed by signal 99"
    assert exit_text(None) == "failed"


# ----------------------------------------------------------------------------------------------------------
# properties

_ROLES = st.lists(
    st.builds(
        lambda n, policy, retries, least: role(
            n, policy, retries, min(n, least) if least is not None else None
        ),
        st.integers(1, 3),
        st.sampled_from(["REPLICA", "ROLE", "APPLICATION"]),
        st.integers(0, 2),
        st.none() | st.integers(0, 3),
    ),
    min_size=1,
    max_size=3,
)
_EVENTS = st.lists(
    st.tuples(st.integers(0, 8), st.sampled_from([0, 0, 1, -9, None]), st.booleans())
    | st.floats(0.5, 700.0)
    | st.sampled_from(["cancel", "started"]),
    max_size=40,
)


def drive(stage: Stage, events: list[Any]) -> Iterator[None]:
    """Let events happen, some together, and stop after each step."""
    for event in events:
        if isinstance(event, float):
            stage.now += event
        elif event == "cancel":
            stage.app.end("CANCELLED", "")
        elif event == "started":  # late news
            stage.app.started(stage.app.replicas[0], stage.now)
            if stage.app.state in rules.TERMINAL:
                assert not stage.app.replicas[0].attempt.alive
        else:
            index, code, together = event
            stage.end(index % len(stage.app.replicas), code)
            if together:
                continue
        stage.obey()
        yield


@given(_ROLES, _EVENTS, st.none() | st.floats(1.0, 2000.0))
def test_whatever_happens(
    roles: list[dict[str, Any]], events: list[Any], timeout: float | None
) -> None:
    """A verdict never changes, no retry is spent twice, a gang ends together, success needs enough,
    all has an end.
    """
    stage = Stage(*roles, timeout=timeout)
    app = stage.app
    allowed = 1 + sum(each["max_retries"] for each in roles if each["retry_policy"] != "REPLICA")
    decided = ended = None
    for _ in drive(stage, events):
        assert decided is None or app.final == decided
        decided = app.final
        assert ended is None or app.as_json() == ended
        if app.state in rules.TERMINAL:
            ended = app.as_json()
            assert app.is_idle and app.state == app.final[0] and not app.finish(9.0)  # type: ignore[index]
            assert all(replica.attempt.state in rules.TERMINAL for replica in app.replicas)
            assert all(replica.attempt.end is not None for replica in app.replicas)
        else:
            assert app.restarts or any(replica.attempt.alive for replica in app.replicas)
        for replica in app.replicas:
            mine = roles[replica.role]
            most = mine["max_retries"] if mine["retry_policy"] == "REPLICA" else 0
            assert replica.restarts < allowed + most
        assert app.due() is None or app.due() > stage.now or app.final is None
    if app.state == "SUCCEEDED":
        assert app.succeeded()
    if app.state == "FAILED" and "timed out" not in app.msg:
        assert not app.succeeded()


@given(st.integers(0, 2000), st.floats(0, 1e6))
def test_every_delay_is_bounded(row: int, first: float) -> None:
    """A delay never shrinks in a row, and is at most five minutes, or what was asked for."""
    assert retry_delay(row, first) <= retry_delay(row + 1, first) <= max(first, 300.0)


# -------------------------------------------------------------------------------------------------------
# old clusters


def _oldest() -> str:
    """Return the oldest Python from 3.8 on that this machine has."""
    for minor in range(8, sys.version_info.minor):
        for name in (
            f"python3.{minor}",
            *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")),
        ):
            try:
                asked = subprocess.run(
                    [name, "-c", "import sys; print(sys.version_info[1])"], capture_output=True
                )
            except OSError:
                continue
            if asked.stdout.strip() == str(minor).encode():
                return name
    return sys.executable


def test_it_runs_on_the_oldest_python_here() -> None:
    """A whole life of an app on the oldest interpreter to be had, without site-packages."""
    story = f"""
import sys
package = sys.modules["keeper"] = type(sys)("keeper")
package.__path__ = [{FOLDER!r}]
from keeper.rules import Gang
from keeper.tracebacks import traceback_error
role = dict(name="r", num_replicas=2, min_replicas=None, max_retries=1, retry_policy="ROLE")
app = Gang([role], 100.0)
app.begin(0.0)
for replica in app.replicas:
    app.starting(replica)
    app.started(replica, 0.0, "host")
app.ended(app.replicas[0], -9, 1.0)
app.decide(1.0)
app.refresh()
assert app.restarts and "SIGKILL" in app.msg and app.due() == 100.0
app.ended(app.replicas[1], -15, 1.5)
assert app.due() == 2.0 and app.restarts[0].is_ready(2.0)
for replica in app.renew(app.restarts[0]):
    app.started(replica, 2.0, "host")
    app.ended(replica, 0, 3.0)
app.decide(3.0)
assert app.finish(9.0) and app.as_json()["state"] == "SUCCEEDED"
assert Gang([role], before=dict(app.as_json(), counts=app.counts())).as_json()["num_restarts"] == 2
assert "ValueError" in traceback_error(b"Traceback (most recent call last):\\n  f\\nValueError: x")
print(sys.version_info[1])
"""
    done = subprocess.run([_oldest(), "-I", "-S", "-c", story], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= sys.version_info.minor
