"""The lifecycle of a job is tested without processes, with simulated effects and time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transload.errors import (
    AppExists,
    AppNotFound,
    SchedulerUnavailable,
    SpecError,
    StateUnknown,
    TransloadError,
    TransloadTimeout,
)
from transload.pipelines import (
    AppLost,
    Detached,
    ExecutionOptions,
    Identity,
)
from transload.pipelines.attach import AttachRecord
from transload.pipelines.chain import Again, Newest
from transload.pipelines.lifecycle import (
    Allowed,
    Answer,
    Ask,
    Cancel,
    Collect,
    Effect,
    FinishLogs,
    Lifecycle,
    LifecycleState,
    Load,
    Look,
    Moment,
    Note,
    Observe,
    Prepare,
    Prepared,
    Probe,
    Save,
    Show,
    Steps,
    Submit,
    WaitUntil,
)
from transload.schedulers.subscription import Observation
from transload.specs import AppState, AppStatus, Progress, ReplicaStatus, RoleStatus

pytestmark = pytest.mark.unit

T = TypeVar("T")
GONE = "gone"


class Died(Exception):
    """The process that looks after the job was killed."""


class Refused(Exception):
    """The orchestrator's API has refused a request."""


def _send(steps: Steps[Any], answer: Answer | None) -> Effect[Any]:
    if answer is None:
        return next(steps)
    return steps.send(answer)


@dataclass
class World:
    """A scheduler, an orchestrator's store and a clock, in memory.

    ``jobs`` has what the scheduler knows. ``news`` is what each wait brings: a status, a function
    that changes the world, or None for a wait that brings nothing. ``refused`` tells which effects
    the orchestrator's store refuses. ``words`` counts how often a person has asked, and ``kept``
    has that number for each job.
    """

    jobs: dict[str, AppStatus | str] = field(default_factory=dict)
    news: list[Any] = field(default_factory=list)
    record: dict[str, Any] | None = None
    has_store: bool = True
    generation: str = "0"
    words: int = 0
    foreign: bool = False
    kept: dict[str, int] = field(default_factory=dict)
    clock: float = 1000.0
    killed: bool = False
    asked: bool = True
    away: int = 0
    digest: str = "same"
    cancel_errors: list[Exception] = field(default_factory=list)
    refused: Callable[[Effect[Any]], bool] = lambda effect: False
    on_submit: Callable[[], object] | None = None
    effects: list[Effect[Any]] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)

    def moment(self) -> Moment:
        """Return the time of this world."""
        return Moment(epoch=self.clock, steady=self.clock, killed=self.killed)

    def play(self, steps: Steps[T], effects: float = float("inf"), done: bool = True) -> T:
        """Carry steps out, and return their result.

        The process dies at its effect number ``effects``. With ``done`` that one was still carried
        out.
        """
        answer: Answer | None = None
        number = 0
        while True:
            try:
                effect = _send(steps, answer)
            except StopIteration as stop:
                return cast("T", stop.value)
            last = number >= effects
            number += 1
            if last and not done:
                raise Died
            self.effects.append(effect)
            try:
                value = self.perform(effect)
                answer = Answer(self.moment(), value)
            except (TransloadError, Refused) as exc:
                answer = Answer(self.moment(), error=exc)
            if last:
                raise Died

    def perform(self, effect: Effect[Any]) -> Any:
        """Do what an effect says."""
        if self.refused(effect):
            raise Refused("503")
        if isinstance(effect, Load):
            return AttachRecord.from_dict(self.record) if self.record is not None else None
        if isinstance(effect, Save):
            if self.has_store:
                self.record = json.loads(json.dumps(effect.record.to_dict()))
            return None
        if isinstance(effect, Look):
            return self.look(effect)
        if isinstance(effect, Probe):
            return self.probe(effect)
        if isinstance(effect, Prepare):
            return Prepared(f"scripted://host/a-{self.generation}-{effect.attempt}", self.digest)
        if isinstance(effect, Submit):
            return self.submit(effect.handle)
        if isinstance(effect, Observe):
            return self.observe(effect)
        if isinstance(effect, WaitUntil):
            assert effect.steady >= self.clock
            self.clock = effect.steady
            return None
        if isinstance(effect, Cancel):
            return self.cancel(effect.handle)
        if isinstance(effect, Ask):
            return self.asked
        if isinstance(effect, Collect):
            return "why it failed" if effect.explain else "results"
        if isinstance(effect, Allowed):
            return 100
        assert isinstance(effect, (Note, Show, FinishLogs))
        return None

    def look(self, effect: Look) -> Newest:
        """Return the newest job of the chain, at the place of the hint and the present one."""
        hint = effect.hint
        known = None if hint is None else hint.handle
        if self.away:
            self.away -= 1
            return Newest(known, status=AppStatus(AppState.UNKNOWN, msg="no answer"))
        chain = f"scripted://host/a-{self.generation}"
        found = {number_of(each): each for each in self.jobs if each.startswith(chain)}
        if known is not None:
            found[hint.attempt] = known
        if not found:
            return Newest(f"{chain}-0")
        number = max(found)
        handle = found[number]
        here = handle.startswith("scripted")
        there = self.jobs.get(handle)
        if not isinstance(there, AppStatus):
            return Newest(handle, number, here=here)
        return Newest(handle, number, there, self.again(handle), "same", here)

    def again(self, handle: str) -> Again:
        """Compare how often a person had asked then and now."""
        if self.foreign:
            return Again.FOREIGN
        kept = self.kept.get(handle, self.words)
        if kept == self.words:
            return Again.NO
        return Again.YES if kept < self.words else Again.LATER

    def probe(self, effect: Probe) -> Newest:
        """Look at the job of a record."""
        handle = f"{effect.stored.scheduler}://host/{effect.stored.app_id}"
        if self.away:
            self.away -= 1
            return Newest(handle, status=AppStatus(AppState.UNKNOWN, msg="no answer"))
        found = self.jobs.get(handle)
        return Newest(handle, status=found if isinstance(found, AppStatus) else None)

    def submit(self, handle: str) -> bool:
        """Start a job, and check that there is no other one."""
        if self.on_submit is not None:
            self.on_submit()
        assert handle not in self.jobs, "an attempt is submitted once"
        running = [
            each
            for each, status in self.jobs.items()
            if isinstance(status, AppStatus) and not status.is_terminal()
        ]
        assert running == [], "one job at a time"
        self.submitted.append(handle)
        self.jobs[handle] = AppStatus(AppState.RUNNING)
        self.kept[handle] = self.words
        return True

    def observe(self, effect: Observe) -> Observation | None:
        """Return what the next wait brings. The process dies where nothing comes any more."""
        if not self.news:
            raise Died
        news = self.news.pop(0)
        if callable(news):
            news = news()
        if news is None:
            self.clock += min(effect.seconds, 5.0)
            return None
        if isinstance(news, Observation):
            return news
        self.jobs[effect.handle] = news
        if news == GONE:
            return Observation(effect.handle, None, False, 0.0, True)
        return Observation(effect.handle, news, False, 0.0, news.is_terminal())

    def cancel(self, handle: str) -> None:
        """Note that a job is to end."""
        if self.cancel_errors:
            raise self.cancel_errors.pop(0)
        found = self.jobs.get(handle)
        if not isinstance(found, AppStatus):
            raise AppNotFound(handle)
        if not found.is_terminal():
            self.jobs[handle] = AppStatus(found.state, cancel_requested=True)

    # -- what a test reads

    def did(self, *kinds: type[Effect[Any]]) -> list[Any]:
        """Return the effects of some kinds."""
        return [each for each in self.effects if isinstance(each, kinds)]

    def said(self, text: str) -> int:
        """Return how many lines of the log have a text."""
        return sum(text in each.text for each in self.did(Note))

    def life(self, state: LifecycleState | None = None, **options: Any) -> Lifecycle:
        """Return a lifecycle of a state, or of a job of which nothing is known."""
        if state is None:
            who = Identity("host", ("here", self.generation), ("step",))
            state = LifecycleState(who, ExecutionOptions(**options))
        return Lifecycle(state, has_store=self.has_store)

    def start(self, **options: Any) -> Lifecycle:
        """Return a lifecycle whose job was submitted or attached to."""
        life = self.life(**options)
        self.play(life.start(self.moment()))
        return life

    def follow(self, life: Lifecycle) -> AppStatus:
        """Follow a job to its end."""
        return self.play(life.follow(self.moment()))


def number_of(handle: str) -> int:
    """Return the number of a job in its chain."""
    return int(handle.rpartition("-")[2])


FIRST = "scripted://host/a-0-0"
SECOND = "scripted://host/a-0-1"


def status(state: str, **more: Any) -> AppStatus:
    """Return the status of a job in a state."""
    return AppStatus(AppState[state], **more)


def through_json(world: World, life: Lifecycle) -> Lifecycle:
    """Return a lifecycle that goes on in another process, from the JSON of its state."""
    text = json.dumps(life.state.to_dict(world.moment()))
    return Lifecycle(LifecycleState.from_dict(json.loads(text), world.moment()))


# -- attach or submit


def test_lost_with_a_store_that_was_emptied() -> None:
    """A store that knows nothing of the job any more keeps nobody from the next one."""
    world = World({FIRST: GONE})
    assert world.start().state.attempt == 1
    assert world.said(f"{FIRST} is gone: the next job is submitted") == 1


def test_a_store_that_refuses_the_intent() -> None:
    """Nothing is submitted before the store has what the next try needs."""
    for kind in (Load, Save):
        world = World(refused=lambda effect, kind=kind: isinstance(effect, kind))
        with pytest.raises(Refused):
            world.start()
        assert world.submitted == []


def test_a_store_that_refuses_the_handle() -> None:
    """The job goes on, and its record is saved again with pauses.

    A try that comes before that reattaches.
    """
    world = World(refused=lambda effect: isinstance(effect, Save) and bool(effect.record.handle))
    life = world.start()
    assert world.said("did not store the job's record: Refused: 503") == 1
    assert world.did(Cancel) == []
    assert world.start().state.handle == FIRST
    assert world.submitted == [FIRST]
    world.effects.clear()
    world.news = [None] * 20
    with pytest.raises(Died):
        world.follow(life)
    assert 3 < len(world.did(Save)) < 10
    world.refused = lambda effect: False
    world.news = [None] * 10 + [status("SUCCEEDED")]
    world.effects.clear()
    world.follow(life)
    assert world.record is not None
    assert world.record["handle"] == FIRST
    assert len(world.did(Save)) == 1


@pytest.mark.parametrize("kind", [Load, Save])
def test_a_store_that_refuses_a_loss(kind: type[Effect[Any]]) -> None:
    """A loss that cannot be stored is still said, and once more by the next try."""
    world = World(news=[GONE])
    life = world.start()
    world.refused = lambda effect: isinstance(effect, kind)
    with pytest.raises(AppLost):
        world.follow(life)
    world.refused = lambda effect: False
    with pytest.raises(AppLost):
        world.start()
    assert world.start().state.handle == SECOND


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(7))
def test_a_crash_at_every_effect(at: int, done: bool) -> None:
    """After a crash before or after any effect of a start, the next try has one job."""
    world = World()
    try:
        world.play(world.life().start(world.moment()), effects=at, done=done)
    except Died:
        pass
    assert world.start().state.handle == FIRST
    assert world.submitted == [FIRST]


@pytest.mark.parametrize("same", [True, False])
def test_an_id_that_another_try_has_taken(same: bool) -> None:
    """Who loses the race for an id looks again, whatever the definition of the other's job."""

    class Raced(World):
        def submit(self, handle: str) -> bool:
            self.jobs[handle] = status("RUNNING")
            if same:
                return False
            raise AppExists(handle)

    world = Raced()
    assert world.start().state.handle == FIRST
    assert world.said("attached to") == 1
    assert len(world.did(Look)) == 2


def test_an_id_that_is_never_free() -> None:
    """What is refused and not listed is waited for as long as the patience lasts."""

    def taken() -> None:
        raise AppExists(FIRST)

    world = World(on_submit=taken)
    with pytest.raises(AppExists):
        world.start(patience=30)
    assert world.clock >= 1030
    assert len(world.did(Submit)) < 40
    assert world.did(Cancel) == []


# -- kills


def kill(world: World) -> Callable[[], None]:
    """Return what a wait brings that is ended by a kill."""

    def killed() -> None:
        world.killed = True

    return killed


def test_give_up() -> None:
    """Who does not wait any more cancels at once, and is told if that did not come through."""
    world = World(killed=True)
    assert world.play(world.life().give_up(world.moment())) is True
    world.killed = False
    life = world.start()
    world.killed = True
    world.cancel_errors = [SchedulerUnavailable("away")]
    assert world.play(life.give_up(world.moment())) is False
    assert world.play(life.give_up(world.moment())) is True
    assert world.play(life.give_up(world.moment())) is True
    assert len(world.did(Cancel)) == 2


# -- limits, patience, loss


def test_given_up_while_it_is_not_known_which_job_is_the_newest() -> None:
    """The newest one is looked for before it is cancelled, and no other one is."""
    world = World({FIRST: status("FAILED"), SECOND: status("RUNNING")}, away=2)
    life = world.life()
    steps = life.start(world.moment())
    with pytest.raises(Died):
        world.play(steps, effects=2, done=False)  # it waits for the scheduler
    world.killed = True
    assert world.play(life.give_up(world.moment())) is False
    assert world.play(life.give_up(world.moment())) is True
    assert [each.handle for each in world.did(Cancel)] == [SECOND]


# -- a person asks anew


def test_asked_anew_while_its_scheduler_cannot_say() -> None:
    """UNKNOWN is no end, whoever asks."""
    world = World({FIRST: status("UNKNOWN")}, words=1, kept={FIRST: 0})
    with pytest.raises(StateUnknown):
        world.start(patience=30)
    assert (world.submitted, world.did(Cancel)) == ([], [])


def test_killed_while_the_job_of_an_earlier_asking_ends() -> None:
    """A step that is ended meanwhile submits nothing, and cancels nothing once more."""
    world = World({FIRST: status("RUNNING")}, words=1, kept={FIRST: 0})
    world.news = [kill(world)]
    with pytest.raises(Detached, match="before the job was submitted"):
        world.start(on_kill="detach")
    assert (world.submitted, world.did(Cancel)) == ([], [])


# -- other processes


def test_a_limit_that_passed_elsewhere() -> None:
    """A process that collects what another one cancelled for a limit says so, and cancels no
    second time.
    """
    world = World()
    life = world.start(deadline=1010)
    world.news = [None, None, None]
    with pytest.raises(TransloadTimeout):
        world.follow(life)
    there = through_json(world, life)
    world.news = [status("CANCELLED")]
    world.follow(there)
    with pytest.raises(TransloadTimeout, match="time limit"):
        world.play(there.collect(world.moment()))
    assert len(world.did(Cancel)) == 1


KEPT: dict[str, Any] = {
    "schema": 1,
    "handle": FIRST,
    "cluster": None,
    "attempt": 0,
    "identity": ["host", ["here"], ["step"]],
    "options": {"patience": None, "answer_lost": True, "next_after": ["FAILED"], "tail_lines": 3},
    "status": status("PENDING").to_json(),
    "cursor": None,
    "counts": {"pending": 10.0},
    "seconds_left": 50.0,
    "unknown_for": 0.0,
    "place": "somewhere",
    "written": ["somewhere", 7.0],
    "a_later_field": 1,
}
"""A state that another machine wrote, with a field that this version does not know."""


def test_a_state_of_another_machine_is_taken_up_again() -> None:
    """It is followed to its end, nothing is submitted, and the clocks are not compared."""
    state = LifecycleState.from_dict(KEPT, Moment(1000.0, 1000.0))
    assert state.options.deadline == 1050.0
    assert state.first_seen == {"pending": 990.0}
    assert state.options.loss_already_reported
    assert state.options.resubmit_on == {AppState.FAILED}
    assert state.options.patience == float("inf")
    assert state.place == "somewhere"
    world = World({FIRST: status("RUNNING")}, news=[status("SUCCEEDED")])
    life = world.life(state)
    assert world.play(life.collect(world.moment(), world.follow(life))) == "results"
    assert world.submitted == []
    assert set(state.to_dict()) == set(KEPT) - {"a_later_field"}


def test_a_state_of_this_machine_has_aged() -> None:
    """While a state was under way between two processes of one machine, its limits came closer."""
    life = World().start(deadline=1050)
    life.state.first_seen = {"pending": 990.0}
    kept = life.state.to_dict(Moment(1000.0, 100.0))
    state = LifecycleState.from_dict(kept, Moment(1030.0, 130.0))
    assert state.options.deadline == 1050.0
    assert state.first_seen == {"pending": 990.0}


@pytest.mark.parametrize("wrong", [{}, {**KEPT, "schema": 99}, {**KEPT, "identity": 3}])
def test_what_is_no_state_is_refused(wrong: dict[str, Any]) -> None:
    """Nonsense and newer schemas are the caller's error."""
    with pytest.raises(SpecError):
        LifecycleState.from_dict(wrong)


def test_polling() -> None:
    """Whoever asks now and then reports what was seen. A kill and a limit act at the next look."""
    world = World()
    life = world.start(deadline=1050)
    running = Observation(FIRST, status("RUNNING"), False, 0.0, False)
    world.play(life.look(world.moment(), running))
    assert life.state.status is not None
    world.clock = 1050.0
    with pytest.raises(TransloadTimeout):
        world.play(life.look(world.moment(), running))
    with pytest.raises(TransloadTimeout):
        world.play(life.look(world.moment(), None))
    assert len(world.did(Cancel)) == 1
    final = Observation(FIRST, status("SUCCEEDED"), False, 0.0, True)
    world.play(life.look(world.moment(), final))
    assert life.state.status == status("SUCCEEDED")


# -- whatever happens


EVENTS = st.sampled_from(["FAILED", "CANCELLED", "SUCCEEDED", GONE, "PREEMPTED", "nothing"])
TRIES = st.lists(
    st.fixed_dictionaries(
        {
            "from": st.integers(0, 9),  # which earlier state it goes on from, mostly none
            "dies_at": st.integers(0, 25),
            "done": st.booleans(),
            "killed_at": st.integers(0, 40),
            "asked": st.booleans(),
            "away": st.sampled_from([0, 0, 0, 2, 10_000]),
            "again": st.sampled_from([False, False, False, True]),
            "meanwhile": EVENTS,
            "news": st.lists(EVENTS, max_size=4),
        }
    ),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(tries=TRIES, has_store=st.booleans())
def test_never_two_jobs(tries: list[dict[str, Any]], has_store: bool) -> None:
    """No attempt is submitted twice, nor a job while another one runs, whatever happens.

    Processes die anywhere, go on from any earlier state, are killed, or lose the scheduler.

    `World.submit` checks both.
    """
    world = World(has_store=has_store)
    states: list[dict[str, Any]] = []
    for each in tries:
        if each["again"]:  # somebody runs it again on purpose
            world.words += 1
        world.away = each["away"]
        world.asked = each["asked"]
        world.killed = False
        life = world.life(patience=30.0)
        if each["from"] < len(states):
            life = Lifecycle(LifecycleState.from_dict(states[each["from"]], world.moment()))
        world.news = [_news(event) for event in each["news"]]
        steps = life.start(world.moment())
        if life.state.handle is not None:
            steps = life.follow(world.moment())
        try:
            world.play(_recorded(steps, world, life, states, each), each["dies_at"], each["done"])
        except (Died, TransloadError):
            pass
        for handle, found in world.jobs.items():
            if isinstance(found, AppStatus) and not found.is_terminal():
                world.jobs[handle] = _news(each["meanwhile"]) or found


def _news(event: str) -> AppStatus | str | None:
    if event == "nothing":
        return None
    if event == GONE:
        return GONE
    if event == "PREEMPTED":
        return status("PENDING")
    return status(event)


def _recorded(
    steps: Steps[T],
    world: World,
    life: Lifecycle,
    states: list[dict[str, Any]],
    each: dict[str, Any],
) -> Steps[T]:
    """Keep the state at every effect, and kill the step at one of them."""
    answer = None
    number = 0
    while True:
        try:
            effect = _send(steps, answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        states.append(json.loads(json.dumps(life.state.to_dict(world.moment()))))
        if number == each["killed_at"]:
            world.killed = True
        number += 1
        answer = yield effect


# -- what is reported of a running job


def report(fraction: float, **more: Any) -> AppStatus:
    """Return the status of a job that says how far it is."""
    return status("RUNNING", progress=Progress(fraction), **more)


def test_progress_is_shown_at_each_percent_and_at_the_end() -> None:
    """Progress is shown once for each percent, at most once a second, and so is the last one."""
    world = World(news=[report(0.101), report(0.109), report(0.2), None, report(0.2)])
    life = world.start()
    with pytest.raises(Died):
        world.follow(life)
    shown = [each.status.progress.fraction for each in world.did(Show)]
    assert shown == [0.101, 0.2]
    waits = [each.seconds for each in world.did(Observe)]
    assert waits[3] == pytest.approx(1.0)
    world.news = [status("SUCCEEDED", progress=Progress(1.0))]
    world.play(life.run(world.moment()))
    assert world.did(Show)[-1].status.progress.fraction == 1.0
    assert len(world.did(Show)) == 3


def test_nothing_is_reported_twice_over_a_death() -> None:
    """Another process goes on with the JSON of the state, and says only what is new."""
    world = World(news=[report(0.5)])
    life = world.start()
    with pytest.raises(Died):
        world.follow(life)
    assert (world.said("50 %"), len(world.did(Show))) == (1, 1)
    world.news = [report(0.52), report(0.55)]
    with pytest.raises(Died):
        world.follow(through_json(world, life))
    assert (world.said("52 %"), world.said("55 %"), world.said("50 %")) == (0, 1, 1)


def test_an_interruption_is_a_line() -> None:
    """An interruption's line has the allowed number, also for one before the reattach."""

    def interrupted(number: int) -> AppStatus:
        replica = ReplicaStatus(0, AppState.RUNNING, "main", "h", interruptions=number)
        return status("RUNNING", roles=[RoleStatus("main", [replica])])

    world = World({FIRST: interrupted(3)}, news=[interrupted(3), interrupted(4)])
    life = world.start()
    with pytest.raises(Died):
        world.follow(life)
    assert world.said(f"{FIRST} was interrupted; started again, 3rd of 100") == 1
    assert world.said("started again, 4th of 100") == 1
    assert world.said("was interrupted") == 2


def test_the_orchestrators_deadline_is_warned_of() -> None:
    """The warning comes once, before the deadline passes."""
    late = status("RUNNING", progress=Progress(0.1, eta_seconds=900.0, at=1000.0))
    world = World(news=[late, late])
    life = world.start(deadline=1100.0)
    with pytest.raises(Died):
        world.follow(life)
    assert world.said("will not end within the orchestrator's time limit") == 1
