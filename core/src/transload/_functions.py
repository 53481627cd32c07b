"""Python functions as apps: `transload.submit`, `transload.map`."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from transload._app import App, default_runner, run
from transload._forks import fork_lock
from transload.errors import AppFailed, AppNotFound, SpecError
from transload.specs import AppDef, AppState, CfgVal, Resource, Role, Workspace, named_resources

if TYPE_CHECKING:
    from transload.runner import Runner

T = TypeVar("T")
RESULT = "function.result"
LARGEST_RESULT = 1 << 30
"""Bytes of a function's result that are read at most."""
_pickling = fork_lock()


class FunctionApp(App, Generic[T]):
    """A function that was submitted: an `App` with a `result`."""

    def result(self, timeout: float | None = None) -> T:
        """Wait for the end; return what the function returned, or raise what it raised.

        Raises:
            AppFailed: if it ended without a word of the function (killed, out of memory), with the reason.
            SpecError: if the result was refused: another version of Python, or too large to come back.
            TransloadTimeout: when the time ran out; the function goes on.
        """
        status = self.wait(timeout)
        data = self._data() if status.state in (AppState.SUCCEEDED, AppState.FAILED) else None
        if data is None:
            self.check()
            raise AppFailed(status, f"{self.handle} SUCCEEDED, and the result of its function is not there")
        head, _, body = data.partition(b"\n")
        told = json.loads(head)
        if "refused" in told:
            raise SpecError(f"{self.handle}: {told['refused']}")
        value: Any = pickle.loads(body) if told["value"] else None  # noqa: S301 - our own job's
        if "raised" in told:
            error = value if isinstance(value, BaseException) else AppFailed(status, told["raised"])
            error.add_note(f"raised in {self.handle}:\n{told['raised']}")
            raise error
        return cast("T", value)

    def _data(self) -> bytes | None:
        from transload.runner._results import own_store

        store = own_store(*self._runner._found(self.handle))
        with contextlib.suppress(FileNotFoundError, KeyError):
            return store.read(RESULT, LARGEST_RESULT) if store is not None else None
        return None


def submit(
    fn: Callable[..., T],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    scheduler: str | None = None,
    resource: Resource | str | None = None,
    cfg: Mapping[str, CfgVal] | None = None,
    workspace: str | Workspace | None = None,
    pass_env: Iterable[str] = (),
    tracker_base: str | None = None,
    runner: Runner | None = None,
    **overrides: Any,
) -> FunctionApp[T]:
    """Submit a Python function; return at once. It needs the package cloudpickle here, and nothing where it runs.

    What the function needs of modules that are not installed there, and of files, travels by ``workspace``; its own
    module travels with it.

    Args:
        fn: the function.
        args: its arguments.
        kwargs: its arguments by name.
        scheduler: where to run it; default: the configured one, else ``local``.
        resource: what it needs, or the name of a resource.
        cfg: run options of the scheduler.
        workspace: local folders that travel with it.
        pass_env: patterns (``HF_*``) of variables that are passed on.
        tracker_base: where its result goes; default: where the scheduler keeps results.
        runner: submits; default: the one that this process shares.
        overrides: ``name, env, image, retries, retry_delay, time_limit, cpu, gpu, mem``, as `run` takes them.

    Raises:
        SpecError: if the function or an argument cannot be pickled, or another argument is not valid.
        ConfigError: for an unknown scheduler or option, or if cloudpickle is not installed.
        SubmitError: if it was not taken; nothing runs.
    """
    runner = runner or default_runner()
    name = scheduler or runner.settings.scheduler
    shares = runner.scheduler(name).capabilities.shares_disk
    body, package = _pickled((fn, args, dict(kwargs or {})), fn)
    folder = tempfile.mkdtemp(prefix="transload-call-")
    try:
        _write_call(folder, body, shares)
        given = Workspace.from_str(workspace) if isinstance(workspace, str) else workspace or Workspace()
        travels = Workspace({folder: "", package: "cloudpickle", **given.projects})
        program = sys.executable if shares else "python3"
        role = Role("main", "", entrypoint=program, args=["-u", "call.py"], workspace=travels)
        if resource is not None:
            role.resource = named_resources[resource] if isinstance(resource, str) else resource
        where: dict[str, Any] = {"scheduler": name, "cfg": cfg, "pass_env": [*pass_env], "tracker_base": tracker_base}
        app = run(AppDef(_name_of(fn), [role]), runner=runner, **where, **overrides)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return FunctionApp(app.handle, runner)


def _write_call(folder: str, body: bytes, shares: bool) -> None:
    """Write what the job runs: the pickled call, what it needs to know of this process, and the program."""
    with open(f"{folder}/call.pkl", "wb") as file:
        file.write(body)
    path = [os.path.abspath(each) for each in sys.path] if shares else []
    call = {"python": sys.version_info[:2], "cwd": os.getcwd() if shares else None, "path": path}
    with open(f"{folder}/call.json", "w", encoding="utf-8") as file:
        json.dump(call, file)
    shutil.copy(os.path.join(os.path.dirname(__file__), "apps", "call_main.py"), f"{folder}/call.py")


def map(fn: Callable[..., T], items: Iterable[Any], *, parallelism: int = 8, **options: Any) -> Iterator[T]:  # noqa: A001
    """Call a function for each item, each call an app; return the results in order, as they come.

    When a call fails, or nobody wants the rest, the apps that still run are cancelled.

    Args:
        fn: the function; it gets the item.
        items: the items.
        parallelism: how many apps at a time.
        options: see `submit`.

    Raises:
        SpecError: if ``parallelism`` is not 1 or more.
    """
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise SpecError(f"parallelism={parallelism!r}: must be 1 or more")
    return _results(fn, list(items), parallelism, options)


def _results(fn: Callable[..., T], items: list[Any], parallelism: int, options: Mapping[str, Any]) -> Iterator[T]:
    from concurrent.futures import ThreadPoolExecutor

    running: set[FunctionApp[T]] = set()
    over = threading.Event()

    def call(item: Any) -> T:
        app = submit(fn, item, **options)
        running.add(app)
        if over.is_set():
            app.cancel()
        result = app.result()
        running.discard(app)
        return result

    pool = ThreadPoolExecutor(parallelism, thread_name_prefix="transload-map")
    try:
        yield from pool.map(call, items)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        over.set()
        for app in list(running):
            with contextlib.suppress(AppNotFound):
                app.cancel()
        pool.shutdown()


def _name_of(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return name if name.isidentifier() else "function"


def _pickled(call: Any, fn: Callable[..., Any]) -> tuple[bytes, str]:
    """Return a pickled call, and the folder of the package that reads it."""
    from transload.errors import ConfigError

    try:
        import cloudpickle
    except ImportError as exc:
        raise ConfigError("functions travel by cloudpickle, which is not installed: pip install cloudpickle") from exc
    if not callable(fn):
        raise SpecError(f"{fn!r}: must be a function")
    own = _own_module(fn)
    with _pickling:  # what is registered is so for the whole process
        if own is not None:
            cloudpickle.register_pickle_by_value(own)
        try:
            return cloudpickle.dumps(call), os.path.dirname(os.path.abspath(cloudpickle.__file__))
        except Exception as exc:
            raise SpecError(f"{_name_of(fn)}: cannot be pickled: {type(exc).__name__}: {exc}") from exc
        finally:
            if own is not None:
                cloudpickle.unregister_pickle_by_value(own)


def _own_module(fn: Callable[..., Any]) -> ModuleType | None:
    """Return the module of a function, unless it is an installed one, or the main program."""
    import sysconfig

    module = sys.modules.get(getattr(fn, "__module__", "") or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return None
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return None if any(os.path.abspath(file).startswith(f"{each}{os.sep}") for each in installed) else module
