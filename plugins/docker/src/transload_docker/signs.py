"""Watch the progress of the containers of a job, and whether one has stalled.

The supervisor of a job looks, and writes what it saw into a file of the state folder, where clients
find it. Containers of an engine of this machine report their progress in a folder that is mounted.
From another engine it is read by requests, less often.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from transload.keeper.signs import (
    DEAF_S,
    LONGEST_REPORT,
    UPDATE_S,
    ProgressMeter,
    Silence,
    furthest_behind,
    newest_change,
    read_report,
    stalled_text,
)
from transload.runtime.untrusted import read_end
from transload_docker import names
from transload_docker.decide import latest_containers
from transload_docker.engine import Engine, EngineError
from transload_docker.home import Home
from transload_docker.plan import Container, Facts, Plan, RolePlan, signal_number
from transload_docker.processes import has_handler

_REMOTE_S: Final = 5.0
_SHARE: Final = 20  # reading through an engine takes at most this part of the time
_NEVER: Final = float("inf")


class Signs:
    """The signs of life of all replicas of a job. Times are monotonic seconds.

    Args:
        engine: where it runs.
        home: where they are noted.
        plan: of the job.
    """

    def __init__(self, engine: Engine, home: Home, plan: Plan) -> None:
        self._engine = engine
        self._home = home
        self._plan = plan
        self._folders = _folders(plan, home)
        self._sources: dict[tuple[str, int], Source] = {}
        self._noted: dict[str, Any] = home.read_signs(plan.app_id)
        self._before: dict[str, Any] = self._noted.get("progress") or {}
        self._progress_due = 0.0

    @property
    def due(self) -> float:
        """When to look, though nothing happens."""
        if not any(source.is_alive for source in self._sources.values()):
            return _NEVER
        return min(self._progress_due, *(source.due for source in self._sources.values()))

    def see(self, facts: Facts) -> None:
        """Take over which containers there are, and read what those said that have ended."""
        now = time.monotonic()
        latest = latest_containers(facts.containers)
        for key, container in latest.items():
            source = self._sources.get(key)
            if source is None or source.container.id != container.id:
                meter = ProgressMeter(self._before)
                if source is not None:
                    source.end()
                    meter = source.meter
                source = self._sources[key] = Source(
                    self._engine, self._plan.role(container.role), container, meter
                )
                source.folders = self._folders.get(container.role, [])
            ends = source.see(container, now)
            if ends:
                self._read(source)
        self._note()

    def look(self) -> bool:
        """Look at what is due, and return True if there is news."""
        began = time.monotonic()
        if began < self.due:
            return False
        if began >= self._progress_due:
            for source in self._sources.values():
                if source.is_alive:
                    self._read(source)
            self._progress_due = time.monotonic() + self._pause(time.monotonic() - began)
        for source in self._sources.values():
            if source.is_alive and time.monotonic() >= source.due:
                source.look(time.monotonic())
        return self._note()

    def _pause(self, took: float) -> float:
        if self._plan.progress is not None:
            return UPDATE_S
        return max(_REMOTE_S, _SHARE * took)

    def _read(self, source: Source) -> None:
        source.take(_report(self._engine, self._plan, source.container))

    def _note(self) -> bool:
        """Write what was seen, if that is news."""
        found = signs_of(self._sources)
        if found == self._noted:
            return False
        self._noted = found
        with contextlib.suppress(OSError):
            self._home.write_signs(self._plan.app_id, found)
        return True

    def close(self) -> None:
        """Look no more."""
        for source in self._sources.values():
            source.end()


class Source:
    """Where a container shows signs of life, and what was seen of it.

    Args:
        engine: where it is.
        role: its role.
        container: which.
        meter: what the attempts before have said.
    """

    def __init__(
        self, engine: Engine, role: RolePlan, container: Container, meter: ProgressMeter
    ) -> None:
        self.container = container
        self.folders: list[str] = []
        self.is_alive = False
        self.meter = meter
        self.meter.pause()
        self.name = f"role {role.name!r}, replica {container.replica}"
        self._engine = engine
        self._role = role
        self._silence: Silence | None = None
        if role.stall_after is not None:
            self._silence = Silence(role.stall_after)
        self._data = b""
        self._seen: object = None
        self._last_line: object = None
        self._heard_of = 0.0  # when it showed life last
        self._ear: Ear | None = None
        self._is_read = False  # to its end
        self._deaf_until = 0.0  # when what it writes is no answer to a signal any more

    def see(self, container: Container, now: float) -> bool:
        """Take over what the engine says of it, and return True if it has just ended."""
        was_alive = self.is_alive
        self.container = container
        self.is_alive = container.status == "running"  # one that is paused can show nothing
        if self.is_alive and not was_alive:
            self._data = b""
            self._begin(now)
        if was_alive and not self.is_alive:
            self.end()
        ends = container.finished is not None and not self._is_read
        self._is_read = container.finished is not None
        return ends

    def end(self) -> None:
        """Expect no signs any more."""
        self.is_alive = False
        self._stop_listening()
        if self._silence is not None:
            self._silence.stop()

    @property
    def due(self) -> float:
        """When to look whether it has stalled."""
        return _NEVER if self._silence is None else self._silence.due

    def take(self, data: bytes) -> None:
        """Take over what it says of its progress."""
        if data and data != self._data:
            self._data = data
            self.meter.update(read_report(data, time.time()))

    def text(self) -> str:
        """Return what a status says of it if it has stalled, else ""."""
        if self._silence is None or not self._silence.stalled:
            return ""
        return stalled_text(self.name, self._silence.stall_after)

    def look(self, now: float) -> None:
        """See whether it has stalled, or goes on."""
        silence = self._silence
        assert silence is not None
        is_near = silence.stalled or silence.is_close(now)
        if self._has_shown_life(is_near) and now >= self._deaf_until:
            self._begin(now)
            return
        is_half = now - self._heard_of >= silence.stall_after / 2
        if is_half and self._ear is None and not silence.stalled:
            self._ear = Ear(self._engine, self.container.id)
        if silence.look(now) and self._role.on_stall == "dump":
            self._send_signal(now)

    def _begin(self, now: float) -> None:
        self._heard_of = now
        self._stop_listening()
        if self._silence is not None:
            self._has_shown_life(closely=False)
            self._silence.begin(now)

    def _stop_listening(self) -> None:
        if self._ear is not None:
            self._ear.close()
            self._ear = None

    def _has_shown_life(self, closely: bool) -> bool:
        """Tell whether something has changed since this was asked last.

        Args:
            closely: ask the engine for the last line of its log, too.
        """
        seen = (self._data, [newest_change(folder) for folder in self.folders])
        changed = seen != self._seen
        self._seen = seen
        if self._ear is not None and self._ear.has_heard:
            return True
        if closely:
            line = self._engine.last_line(self.container.id)
            changed = changed or line != self._last_line
            self._last_line = line
        return changed

    def _send_signal(self, now: float) -> None:
        """Send its main process the signal of a stall, if that has a handler for it."""
        number = signal_number(self._role.stall_signal)
        if has_handler(self.container.id, number):
            self._stop_listening()
            self._deaf_until = now + DEAF_S
            self._engine.signal(self.container.id, f"SIG{self._role.stall_signal}")


class Ear:
    """Notices whether a container writes anything, a part of a line included.

    An engine's log has whole lines only, and a progress bar that is drawn with carriage returns is
    one line to its end.
    """

    def __init__(self, engine: Engine, container_id: str) -> None:
        self.has_heard = False
        self._closed = False
        self._engine = engine
        self._id = container_id
        self._stream: Any = None
        self._thread = threading.Thread(target=self._listen, name="transload-docker-ear")
        self._thread.daemon = True
        self._thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(Exception):  # it has ended, or the engine has
            self._stream = self._engine.output(self._id)
            if not self._closed:
                self.has_heard = any(True for _ in self._stream)
        self._shut()

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        self._shut()

    def _shut(self) -> None:
        stream = self._stream
        if stream is not None:
            with contextlib.suppress(Exception):
                stream.close()


def signs_of(sources: Mapping[tuple[str, int], Source]) -> dict[str, Any]:
    """Return what was seen, in JSON form, or {} for nothing."""
    steps = {}
    stalled = []
    for (role, k), source in sources.items():
        step = source.meter.latest.get("step")
        if step is not None:
            steps[f"{role}/{k}"] = step
        if source.text():
            stalled.append(source.text())
    found = {
        "progress": furthest_behind(source.meter.latest for source in sources.values()),
        "steps": steps,
        "stalled": stalled,
    }
    return {name: value for name, value in found.items() if value}


def _report(engine: Engine, plan: Plan, container: Container) -> bytes:
    """Return the end of what a container has reported of its progress, or b"" for nothing."""
    with contextlib.suppress(OSError, EngineError):
        if plan.progress is None:
            return engine.read_file(container.id, names.PROGRESS_FILE)
        name = names.progress_file(container.role, container.replica)
        return read_end(plan.progress, name, LONGEST_REPORT)
    return b""


def add_last_reports(engine: Engine, facts: Facts) -> None:
    """Add to what was seen of a job what its containers that have ended said last.

    That is for whoever sees an end before the job's supervisor has noted it.
    """
    assert facts.plan is not None
    reports = []
    is_over = True
    for (role, k), container in latest_containers(facts.containers).items():
        if container.finished is None:
            is_over = False
            continue
        data = _report(engine, facts.plan, container)
        report = read_report(data, container.finished)
        reports.append(report)
        if "step" in report:
            facts.signs.setdefault("steps", {})[f"{role}/{k}"] = report["step"]
    last = furthest_behind(reports)
    if is_over and last:
        before = facts.signs.get("progress") or {}
        if "history" in before and ("fraction" in before) == ("fraction" in last):
            last["history"] = before["history"]
        facts.signs["progress"] = last


def _folders(plan: Plan, home: Home) -> dict[str, list[str]]:
    """Return the folders of this machine in which roles that may stall show signs of life."""
    if not any(role.stall_after for role in plan.roles):
        return {}
    base = plan.tracker_base or ""
    found = {}
    for role in plan.roles:
        own = [base] if base.startswith("/") else []
        if plan.checkpoints is not None and role.checkpoints:
            own.append(home.checkpoint_folder(plan.checkpoints, role.name))
        found[role.name] = own
    return found
